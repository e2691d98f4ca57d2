"""What IPython's shell has in a notebook, as far as a restart and the panel ask for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from colab_alloc.runtime import carry, restart


class FakeKernel:
    """A kernel that notes what it is asked.

    Attributes:
        queued: what waits for the kernel to be idle.
        restarts: how often it was told to shut down and be started again.
    """

    def __init__(self) -> None:
        self.queued: list[Callable[[], Any]] = []
        self.restarts = 0
        self.io_loop = SimpleNamespace(add_callback=lambda work, *args: self.queued.append(lambda: work(*args)))

    def do_shutdown(self, restart: bool) -> None:
        """Note it."""
        assert restart
        self.restarts += 1

    def become_idle(self) -> None:
        """Do what waited."""
        while self.queued:
            self.queued.pop(0)()


class FakeEvents:
    """IPython's events."""

    def __init__(self) -> None:
        self.callbacks: dict[str, list[Any]] = {"post_run_cell": [], "pre_run_cell": []}

    def register(self, name: str, callback: Any) -> None:
        """Have it called."""
        self.callbacks[name].append(callback)

    def unregister(self, name: str, callback: Any) -> None:
        """Have it called no more."""
        self.callbacks[name].remove(callback)

    def a_cell_begins(self) -> None:
        """Call all that listens to that."""
        self._trigger("pre_run_cell")

    def a_cell_ends(self) -> None:
        """Call all that listens to that."""
        self._trigger("post_run_cell")

    def _trigger(self, name: str) -> None:
        for callback in list(self.callbacks[name]):
            callback(None)


class FakeShell:
    """A shell in a notebook, or in a terminal."""

    def __init__(self, profile: Path, kernel: FakeKernel | None) -> None:
        self.profile_dir = SimpleNamespace(location=str(profile))
        self.events = FakeEvents()
        if kernel:
            self.kernel = kernel


def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, terminal: bool = False) -> FakeShell:
    """Let this process be a notebook's kernel (or IPython in a terminal), its files below a directory."""
    connection = tmp_path / "runtime" / "kernel-1.json"
    connection.parent.mkdir()
    connection.write_text("{}")
    shell = FakeShell(tmp_path / "ipython" / "profile_default", None if terminal else FakeKernel())
    monkeypatch.setattr(restart, "shell", lambda: shell)
    monkeypatch.setattr(restart, "_connection_file", lambda _shell: None if terminal else connection)
    monkeypatch.setattr(carry, "_resumed", False)
    for name in ("VSCODE_PID", "KAGGLE_KERNEL_RUN_TYPE"):
        monkeypatch.delenv(name, raising=False)
    return shell
