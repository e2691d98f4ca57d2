"""The README is run: its notebook cells in one kernel each for the two sections, its Python, its commands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernel import run_cells
from tests.virtual_gpu import VirtualGpu

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def blocks(section: str) -> list[tuple[str, str]]:
    """The fenced blocks of a section, as (language, text without the indentation)."""
    text = README[README.index(f"## {section}") :]
    text = text[: text.find("\n## ", 1)]
    return [(match[2], re.sub(f"^{match[1]}", "", match[3], flags=re.MULTILINE)) for match in BLOCK.finditer(text)]


def everywhere(text: str) -> str:
    """What is left of an output that depends on the installed PyTorch once that is taken out."""
    text = re.sub(r"PyTorch 2\.\d+(\.\d+\S*)?", "PyTorch", text)
    text = re.sub(r"must be \d+ or more|write max_split_size_mb:\d+", "", text)
    return re.sub(r"^\d+ more options", "more options", text, flags=re.MULTILINE).strip()


@pytest.mark.parametrize("section", ["Try it", "The article's steps"])
def test_the_notebook_cells_answer_what_the_readme_says(virtual_gpu: VirtualGpu, section: str) -> None:
    steps = [(language, text) for language, text in blocks(section) if language in {"ipython", "text"}]
    cells = [text for language, text in steps if language == "ipython"]
    outputs = iter(run_cells(virtual_gpu, cells))
    said = ""
    for language, text in steps:
        if language == "ipython":
            said = everywhere(next(outputs))
        elif text.startswith("...\n"):
            assert said.endswith(everywhere(text.removeprefix("...\n")))
        else:
            assert said == everywhere(text)


def test_the_python_runs(virtual_gpu: VirtualGpu) -> None:
    (source,) = [text for language, text in blocks("From Python") if language == "python"]
    assert virtual_gpu.run([sys.executable, "-c", source]).returncode == 0


def test_the_virtual_gpu_command_runs(virtual_gpu: VirtualGpu) -> None:  # noqa: ARG001 - it must be there
    (command,) = [text for language, text in blocks("Try it") if text.startswith("python -m tests.virtual_gpu")]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path}
    done = subprocess.run(shlex.split(command), cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert "PyTorch CUDA memory summary" in done.stdout


def test_the_test_command_is_where_ci_finds_it() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (command,) = re.findall(r"sed -n .*", script)
    found = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert found == 'pip install -e ".[test,browser,torch]" && python -m pytest\n'


def test_every_option_of_the_magic_is_in_the_table() -> None:
    from colab_alloc.notebook.magics import alloc_conf_parser

    for action in alloc_conf_parser()._actions:
        assert not action.option_strings or any(
            f"{flag}`" in README or f"`{flag} " in README for flag in action.option_strings
        )
