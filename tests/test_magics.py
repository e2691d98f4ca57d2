"""%alloc_conf in a real IPython shell: what it prints, what it changes, and that it comes and goes cleanly."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import RichOutput, capture_output
from traitlets.config import Config

import colab_alloc
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
        ("max_split_size_mb", "the text ends where : after max_split_size_mb should stand"),
        ("foo:1", "foo is not an option"),
        ("--foo", "unrecognized arguments: --foo"),
        ("--reset max_split_size_mb:128", "give settings or --reset, not both"),
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
    assert "AllocMagics" not in shell.magics_manager.registry
    assert "Line magic function `%alloc_conf` not found" in run("%alloc_conf").stderr


def test_a_result_outside_a_notebook_is_text() -> None:
    assert repr(colab_alloc.status()) == str(colab_alloc.status())
