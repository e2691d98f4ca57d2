"""restart(), keep() and forget() in every front end; tests/test_kernel_restart.py has a real kernel's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from colab_alloc import AllocConf, AllocConfError, RestartError, apply, reset
from colab_alloc.conf.version import TorchBuild
from colab_alloc.language import LANGUAGES
from colab_alloc.notebook import offer, report
from colab_alloc.notebook.cells import CELLS
from colab_alloc.runtime import restart
from tests import fake_shell, fake_torch

CUDA = TorchBuild("2.14.1+cu130", cuda="13.0")
CONF = AllocConf(max_split_size_mb=128)
COLAB_MIME = "application/vnd.colab-display-data+json"
WIDGET_MIME = "application/vnd.jupyter.widget-view+json"


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[fake_shell.FakeShell]:
    fake_torch.install(monkeypatch, CUDA)
    yield fake_shell.install(monkeypatch, tmp_path)
    CELLS.forget()
    fake_torch.forget(monkeypatch)


def colab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))


def test_in_jupyter_the_kernel_is_shut_down_when_idle_and_the_cell_ends(shell: fake_shell.FakeShell) -> None:
    apply(AllocConf(expandable_segments=True))
    with pytest.raises(restart.KernelRestarting) as ended:
        restart.restart(CONF)
    assert not isinstance(ended.value, Exception)  # `except Exception` in the cell does not let it go on
    (said,) = ended.value._render_traceback_()
    assert said.startswith(
        "→ Restarting the kernel; then in effect: max_split_size_mb 128 MiB, expandable_segments True"
    )
    assert "that is this restart" in said
    assert shell.kernel.restarts == 0
    shell.kernel.become_idle()
    assert shell.kernel.restarts == 1
    once = restart.place().once
    assert once
    assert "max_split_size_mb:128,expandable_segments:True" in once.read_text()


def test_in_colab_too_and_its_own_prompt_is_offered(
    shell: fake_shell.FakeShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    colab(monkeypatch)
    assert restart.front_end() is restart.COLAB
    InteractiveShell.instance()  # or nothing displayed is captured
    with capture_output() as captured:
        offer.offer_restart()
    InteractiveShell.clear_instance()
    button, prompt = captured.outputs
    assert WIDGET_MIME in button.data
    assert button.data["text/plain"] == "Restart with: %alloc_conf --restart"
    assert prompt.data[COLAB_MIME]["pip_warning"] == {"packages": ["torch"]}
    once = restart.place().once
    assert once
    assert once.exists()  # the prompt's own button restarts without asking us
    assert shell.kernel.queued == []
    with pytest.raises(restart.KernelRestarting, match="Colab may say that the session crashed"):
        restart.restart()


@pytest.mark.parametrize(
    ("variable", "front_end", "by_hand"),
    [
        ("VSCODE_PID", restart.VSCODE, "click Restart in the notebook's toolbar"),
        ("KAGGLE_KERNEL_RUN_TYPE", restart.KAGGLE, "choose Run > Restart & clear cell outputs"),
    ],
)
def test_where_nobody_restarts_a_dead_kernel_the_person_is_told_to(
    shell: fake_shell.FakeShell,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    front_end: restart.FrontEnd,
    by_hand: str,
) -> None:
    monkeypatch.setenv(variable, "1")
    prepared = restart.restart(CONF)
    assert prepared.front_end is front_end
    assert str(prepared).splitlines() == [
        f"→ max_split_size_mb 128 MiB waits for this kernel's next start: {by_hand}",
        "→ If the new kernel's first cell does not say that it was carried over, run %alloc_conf max_split_size_mb:128",
    ]
    assert shell.kernel.queued == []
    with capture_output() as captured:
        offer.offer_restart()
    assert captured.outputs == []


def test_a_terminal_is_told_how(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_torch.install(monkeypatch, CUDA)
    fake_shell.install(monkeypatch, tmp_path, terminal=True)
    assert str(restart.restart(CONF)) == (
        "! IPython in a terminal cannot be restarted from here: leave IPython and start it again, "
        "with PYTORCH_CUDA_ALLOC_CONF='max_split_size_mb:128'"
    )


def carried() -> str:
    once = restart.place().once
    return once.read_text() if once and once.exists() else ""


def test_what_waits_for_a_restart_follows_what_is_asked_for(
    shell: fake_shell.FakeShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    del shell
    monkeypatch.setenv("VSCODE_PID", "1")
    fake_torch.start(monkeypatch, CUDA)
    apply(AllocConf(backend="cudaMallocAsync"))
    restart.restart(CONF)
    assert '"backend:cudaMallocAsync,max_split_size_mb:128"' in carried()
    apply(AllocConf(max_split_size_mb=512))
    assert '"backend:cudaMallocAsync,max_split_size_mb:512"' in carried()
    reset()
    assert '"conf": ""' in carried()
    restart.forget()
    assert carried() == ""
    apply(CONF)
    assert carried() == ""


def test_a_terminal_with_nothing_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_torch.install(monkeypatch, CUDA)
    fake_shell.install(monkeypatch, tmp_path, terminal=True)
    assert str(restart.restart()).endswith("leave IPython and start it again, with nothing set")


def test_a_script_is_told_how_and_can_keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch.install(monkeypatch, CUDA)
    monkeypatch.setattr(restart, "shell", lambda: None)
    assert "start the program again, with PYTORCH_CUDA_ALLOC_CONF=" in str(restart.restart(CONF))
    with pytest.raises(RestartError, match="only IPython has kernels and profiles"):
        restart.keep(CONF)


@pytest.mark.usefixtures("shell")
def test_what_pytorch_would_refuse_restarts_nothing() -> None:
    for do in (restart.restart, restart.keep):
        with pytest.raises(AllocConfError, match="must be 20 or more"):
            do(AllocConf(max_split_size_mb=10))
    once = restart.place().once
    assert once
    assert not once.exists()
    assert not restart.place().keeps()


def test_what_cannot_be_carried_restarts_nothing(shell: fake_shell.FakeShell, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = restart.place().connection
    assert connection
    monkeypatch.setattr(restart, "_connection_file", lambda _shell: connection / "not" / "a" / "directory.json")
    with pytest.raises(RestartError, match="cannot be carried over: "):
        restart.restart(CONF)
    assert shell.kernel.queued == []


def test_kept_and_forgotten(shell: fake_shell.FakeShell, monkeypatch: pytest.MonkeyPatch) -> None:
    del shell
    assert str(restart.keep(CONF)) == "✓ Kept for every new kernel of this profile: max_split_size_mb 128 MiB"
    assert restart.place().keeps()
    colab(monkeypatch)
    assert "On Colab that lasts as long as this machine" in str(restart.keep(CONF))
    assert str(restart.forget()) == "✓ Nothing is kept for new kernels any more"
    assert not restart.place().keeps()


def test_every_front_end_speaks_every_language() -> None:
    for front_end in (restart.COLAB, restart.JUPYTER, restart.VSCODE, restart.KAGGLE, restart.TERMINAL, restart.SCRIPT):
        for carried in (True, False):
            prepared = restart.Restart(CONF, front_end, carried=carried, before_first_cell=False)
            said = [tuple(line.words for line in report.restart_lines(prepared, lang)) for lang in LANGUAGES]
            assert len(set(said)) == len(LANGUAGES)
            assert all(all(words) for words in said)
