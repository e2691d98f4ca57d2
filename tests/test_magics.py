"""%alloc_conf in a real IPython shell: what it prints, what it changes, and that it comes and goes cleanly."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Iterator

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import RichOutput, capture_output
from traitlets.config import Config

import colab_alloc
from colab_alloc.conf.options import known_to
from colab_alloc.conf.version import TorchBuild
from tests import fake_torch

VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"

Run = Callable[[str], "Said"]


class Said:
    """What a cell showed: its displayed results as text and as HTML, and what it wrote to stdout and stderr."""

    def __init__(self, outputs: list[RichOutput], stdout: str, stderr: str) -> None:
        self.text = "\n".join(output.data["text/plain"] for output in outputs)
        self.html = "\n".join(output.data.get("text/html", "") for output in outputs)
        self.stdout, self.stderr = stdout, stderr


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """A shell with the extension loaded, in a process where torch 2.14 is installed and not imported."""
    fake_torch.install(monkeypatch, TorchBuild("2.14.1+cu130", cuda="13.0"))
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(colors="NoColor", config=Config({"HistoryManager": {"enabled": False}}))
    shell.run_line_magic("load_ext", "colab_alloc")
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture
def run(shell: InteractiveShell) -> Run:
    def cell(code: str) -> Said:
        with capture_output() as captured:
            shell.run_cell(code, store_history=False)
        return Said(captured.outputs, captured.stdout, captured.stderr)

    return cell


def test_it_shows_asked_for_in_effect_and_default(run: Run) -> None:
    run("%alloc_conf max_split_size_mb:128")
    said = run("%alloc_conf")
    assert said.text.splitlines()[:4] == [
        f"PyTorch 2.14.1+cu130 · CUDA has not started · {VARIABLE} = max_split_size_mb:128",
        "option                        asked for  in effect  default",
        "backend                       -          -          native",
        "max_split_size_mb             128 MiB    -          unlimited",
    ]
    assert said.text.endswith("→ max_split_size_mb 128 MiB: will be read when CUDA starts")


def test_the_html_says_what_the_text_says(run: Run) -> None:
    run("%alloc_conf max_split_size_mb:128")
    said = run("%alloc_conf")
    assert '<code>max_split_size_mb</code></th><td style="' in said.html
    for words in ("128 MiB", "CUDA has not started", "max_split_size_mb 128 MiB: will be read when CUDA starts"):
        assert words in said.html
        assert words in said.text


def test_it_sets_and_says_what_comes_of_it(run: Run) -> None:
    said = run("%alloc_conf max_split_size_mb:128, garbage_collection_threshold: 0.8")
    assert os.environ[VARIABLE] == "max_split_size_mb:128,garbage_collection_threshold:0.8"
    assert "from CUDA's start on" in said.text


def test_reset_returns_to_the_defaults(run: Run) -> None:
    run("%alloc_conf max_split_size_mb:128")
    said = run("%alloc_conf --reset")
    assert VARIABLE not in os.environ
    assert f"{VARIABLE} is not set, so PyTorch uses its defaults" in said.text


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("max_split_size_mb:10", "must be 20 or more in PyTorch 2.14, not 10 (at character 1)"),
        ("max_split_size_mb", "max_split_size_mb has no value: it is written max_split_size_mb:VALUE"),
        ("foo:1", "foo is not an option"),
        ("--foo", "unrecognized arguments: --foo"),
        ("--reset max_split_size_mb:128", "--reset takes no settings"),
        ("--reset --options", "argument --options: not allowed with argument --reset"),
        ("--panel --lang de", "argument --lang: invalid choice: 'de'"),
        ("--lang ar", "--lang goes with --panel"),
        ('""', "there is no setting in it"),
        ("unset PYTORCH_CUDA_ALLOC_CONF", "there is no setting in it"),
        ("128", "it is written NAME:VALUE, like max_split_size_mb:128"),
        ("--rest", "unrecognized arguments: --rest"),
        ("--panel", "the panel needs a notebook"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(run: Run, line: str, words: str) -> None:
    run("%alloc_conf expandable_segments:True")
    said = run(f"%alloc_conf {line}")
    assert said.stderr.startswith("UsageError: %alloc_conf")
    assert words in said.stderr
    assert said.stderr.count("\n") == 1
    assert (said.text, said.stdout) == ("", "")
    assert os.environ[VARIABLE] == "expandable_segments:True"


def test_help_is_printed_and_is_the_docstring(run: Run, shell: InteractiveShell) -> None:
    said = run("%alloc_conf -h")
    assert said.stdout.startswith("usage: %alloc_conf")
    assert "max_split_size_mb:128" in said.stdout
    magic = shell.find_line_magic("alloc_conf")
    assert magic.__doc__.strip() == said.stdout.strip()


def test_reloading_ten_times_leaves_one_of_everything_and_unloading_leaves_none(
    run: Run, shell: InteractiveShell
) -> None:
    def ours() -> int:
        return sum(type(item).__name__ == "AllocMagics" for item in shell.configurables)

    for _ in range(10):
        run("%reload_ext colab_alloc")
    assert ours() == 1
    assert "PyTorch 2.14.1" in run("%alloc_conf").text
    run("%unload_ext colab_alloc")
    assert ours() == 0
    assert shell.strdispatchers["complete_command"].strs.get("%alloc_conf") is None
    assert "AllocMagics" not in shell.magics_manager.registry
    assert "Line magic function `%alloc_conf` not found" in run("%alloc_conf").stderr


def test_a_result_outside_a_notebook_is_text() -> None:
    assert repr(colab_alloc.status()) == str(colab_alloc.status())


def test_repairs_are_shown_with_what_was_applied(run: Run) -> None:
    said = run("%alloc_conf export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb=128MB")
    assert os.environ[VARIABLE] == "max_split_size_mb:128"
    assert "→ repaired: 128MB was read as 128" in said.text
    assert "→ repaired: only the value was taken from the line: max_split_size_mb=128MB" in said.text


def test_options_shows_every_option_of_this_torch(run: Run) -> None:
    said = run("%alloc_conf --options")
    for option in known_to((2, 14)):
        assert f"{option.name} " in said.text
        assert html.escape(option.use.en) in said.html
    assert "roundup_bypass_threshold_mb" not in said.text


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("%alloc_conf max_sp", "max_split_size_mb:"),
        ("%alloc_conf max_split_size_mb:128,garb", "garbage_collection_threshold:"),
        ("%alloc_conf expandable_segments:T", "True"),
        ("%alloc_conf max_split_size_mb:", "256"),
        ("%alloc_conf --r", "--reset"),
    ],
)
def test_tab_completes_names_values_and_flags(shell: InteractiveShell, typed: str, offered: str) -> None:
    assert offered in completions(shell, typed)


def completions(shell: InteractiveShell, typed: str) -> set[str]:
    """What IPython's completer offers for the word at the end of the line."""
    with provisionalcompleter():
        return {found.text for found in shell.Completer.completions(typed, len(typed))}


def test_an_option_already_named_is_not_offered_again(shell: InteractiveShell) -> None:
    typed = "%alloc_conf max_split_size_mb:128,max"
    assert "max_non_split_rounding_mb:" in completions(shell, typed)
    assert "max_split_size_mb:" not in completions(shell, typed)


def test_a_variable_that_would_cost_the_kernel_is_told_when_the_extension_loads(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("%unload_ext colab_alloc")
    monkeypatch.setenv(VARIABLE, "max_split_size_mb=128")
    said = run("%load_ext colab_alloc")
    assert f"! {VARIABLE}='max_split_size_mb=128' makes `import torch` abort the process" in said.stdout
    assert "write max_split_size_mb:128" in said.stdout


def test_cells_that_did_nothing_are_told_by_number(run: Run, shell: InteractiveShell) -> None:
    shell.history_manager.input_hist_raw[:] = ["", "x = 1", "!export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128"]
    said = run("%alloc_conf")
    assert (
        "! Cell 2, '!export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128': "
        "set in a shell that ended with the line; this kernel never saw it"
    ) in said.text


def test_a_pasted_line_may_have_flags_of_its_own(run: Run) -> None:
    said = run("%alloc_conf !export pytorch_cuda_alloc_conf=max_split_size_mb:128 && torchrun --nproc_per_node=2 t.py")
    assert os.environ[VARIABLE] == "max_split_size_mb:128"
    assert "repaired: only the value was taken from the line: max_split_size_mb:128\n" in f"{said.text}\n"


def test_only_settings_that_were_applied_have_the_last_word(run: Run, shell: InteractiveShell) -> None:
    cells = ["", "!export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128"]
    for cell, found in (
        ("%alloc_conf bogus:1", True),
        ("%alloc_conf --options", True),
        ("%alloc_conf max_split_size_mb:64", False),
    ):
        cells.append(f"1 + 1\n{cell}")
        shell.history_manager.input_hist_raw[:] = cells
        run(cell)
        assert ("this kernel never saw it" in run("%alloc_conf").text) is found


def test_nothing_is_said_to_be_asked_for_when_it_cannot_be_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "max_split_size_mb")
    assert "Nothing is asked for" not in run("%alloc_conf").text
