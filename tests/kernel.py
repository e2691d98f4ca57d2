"""Runs notebook cells in a real IPython kernel on the virtual GPU."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nbformat
from nbclient import NotebookClient

from colab_alloc.runtime import torch_state
from tests.virtual_gpu import VirtualGpu

ROOT = Path(__file__).parents[1]


def run_cells(gpu: VirtualGpu, cells: Sequence[str]) -> list[str]:
    """Run cells in one new kernel and return what each showed: results as text, streams and errors together."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells])
    client = NotebookClient(notebook, timeout=300, allow_errors=True, resources={"metadata": {"path": str(ROOT)}})
    inherited = {name: value for name, value in os.environ.items() if name not in torch_state.ALL_VARIABLES}
    with tempfile.TemporaryDirectory() as home:
        client.execute(env=inherited | gpu.environment() | {"HOME": home, "IPYTHONDIR": f"{home}/ipython"})
    return ["\n".join(_shown(output) for output in cell.outputs) for cell in notebook.cells]


def _shown(output: nbformat.NotebookNode) -> str:
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "error":
        return "\n".join(output.traceback)
    return str(output.data["text/plain"])
