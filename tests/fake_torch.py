"""A torch module that knows only what runtime/ asks of it, for what can be shown without PyTorch."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from colab_alloc.conf import version
from colab_alloc.runtime import ledger, torch_state


def install(monkeypatch: pytest.MonkeyPatch, build: version.TorchBuild | None) -> None:
    """Let this process find that build, not imported, and a driver, with a clean environment and ledger."""
    forget(monkeypatch)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(version, "installed", lambda: build)
    monkeypatch.setattr(torch_state, "driver_found", lambda: True)


def start(monkeypatch: pytest.MonkeyPatch, build: version.TorchBuild, backend: str = "native") -> None:
    """Let this process have imported that build, without starting CUDA."""
    install(monkeypatch, build)
    cuda = SimpleNamespace(is_initialized=lambda: False, get_allocator_backend=lambda: backend)
    torch = SimpleNamespace(__version__=build.version, version=build, cuda=cuda)
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with no variable set and nothing applied."""
    for name in torch_state.ALL_VARIABLES:
        monkeypatch.setenv(name, "")  # what the test leaves behind is undone only for a variable that was set
        monkeypatch.delenv(name)
    ledger.LEDGER.__init__()  # type: ignore[misc]
