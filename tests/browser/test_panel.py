"""The panel, clicked by nobody but a browser: what a person does with it, and what they see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.front_ends import CLASSIC, NOTEBOOK, FrontEnd, Notebook, installed, opened
from tests.virtual_gpu import VirtualGpu

if TYPE_CHECKING:
    from playwright.sync_api import Locator

pytestmark = pytest.mark.browser

LOAD, PANEL, STATUS, START_CUDA, BUSY, AFTER_RESTART, MAGIC, SECOND_PANEL = range(8)
CELLS = [
    "%load_ext colab_alloc",
    "%alloc_conf --panel",
    "%alloc_conf",
    "import torch; print(torch.ones(1, device='cuda').numel())",
    "import asyncio; await asyncio.sleep(4); await asyncio.sleep(4); print('done')",
    "%alloc_conf",  # only works where the extension is loaded: no cell of the new kernel has loaded it
    "%alloc_conf max_split_size_mb:512",
    "import colab_alloc; colab_alloc.panel()",
]


@pytest.fixture(params=installed(), ids=str)
def notebook(request: pytest.FixtureRequest, tmp_path: Path, virtual_gpu: VirtualGpu) -> Iterator[Notebook]:
    front_end: FrontEnd = request.param
    with opened(front_end, CELLS, tmp_path, virtual_gpu) as notebook:
        notebook.run(LOAD)
        notebook.run(PANEL)
        yield notebook


# Stops of the slider: 20, 24, 32, 48, 64, 96, 128 ... up to the virtual GPU's 16 GiB; in the end "unlimited", its place
# at first.
AT_64, AT_128, STOPS = 4, 6, 20


def handle(notebook: Notebook) -> Locator:
    """The handle of the first slider, which is that of max_split_size_mb."""
    return notebook.cell(PANEL).locator("[role=slider], .ui-slider-handle").first


def move_slider(notebook: Notebook, stop: int) -> None:
    """Drag the slider to a stop."""
    handle(notebook).scroll_into_view_if_needed()
    track = notebook.cell(PANEL).locator(".noUi-target, .ui-slider").first.bounding_box()
    at = handle(notebook).bounding_box()
    assert track
    assert at
    height = at["y"] + at["height"] / 2
    notebook.page.mouse.move(at["x"] + at["width"] / 2, height)
    notebook.page.mouse.down()
    notebook.page.mouse.move(track["x"] + track["width"] * stop / STOPS, height, steps=10)
    notebook.page.mouse.up()


def click(notebook: Notebook, name: str, cell: int = PANEL) -> None:
    notebook.cell(cell).get_by_role("button", name=name, exact=True).click()


def line(notebook: Notebook) -> str:
    """The exact line that the panel shows."""
    return notebook.cell(PANEL).locator(".colab-alloc-code textarea").first.input_value()


def expect(notebook: Notebook, words: str, cell: int = PANEL) -> None:
    notebook.until(lambda: words in notebook.text(cell), seconds=60)


def test_build_apply_and_change_while_cuda_runs(notebook: Notebook) -> None:
    move_slider(notebook, AT_128)
    expect(notebook, "Not applied yet: max_split_size_mb 128 MiB")
    notebook.until(lambda: line(notebook) == "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128")
    click(notebook, "Apply")
    expect(notebook, "max_split_size_mb 128 MiB: will be read when CUDA starts")

    assert notebook.run(START_CUDA).strip() == "1"
    expect(notebook, "max_split_size_mb 128 MiB: in effect, read back from PyTorch's allocator")  # after any cell
    assert "✓ max_split_size_mb 128 MiB: in effect" in notebook.run(STATUS)

    move_slider(notebook, AT_64)
    expect(notebook, "Not applied yet: max_split_size_mb 64 MiB")
    click(notebook, "Apply")
    expect(notebook, "max_split_size_mb 64 MiB: in effect, read back from PyTorch's allocator")
    assert "✓ max_split_size_mb 64 MiB: in effect" in notebook.run(STATUS)


# Notebook 7 keeps the arrow keys to itself, in every widget.
@pytest.mark.parametrize("notebook", [f for f in installed() if f is not NOTEBOOK], indirect=True, ids=str)
def test_the_keyboard_will_do(notebook: Notebook) -> None:
    handle(notebook).focus()
    notebook.page.keyboard.press("Home")
    for _ in range(AT_64):
        notebook.page.keyboard.press("ArrowRight")
    expect(notebook, "Not applied yet: max_split_size_mb 64 MiB")
    notebook.cell(PANEL).get_by_role("button", name="Apply", exact=True).press("Enter")
    expect(notebook, "max_split_size_mb 64 MiB: will be read when CUDA starts")


def test_a_new_back_end_is_there_after_one_restart(notebook: Notebook) -> None:
    notebook.run(START_CUDA)
    restart = notebook.cell(PANEL).get_by_role("button", name="Restart and apply", exact=True)
    assert restart.is_disabled()
    notebook.cell(PANEL).get_by_label("backend", exact=True).select_option("cudaMallocAsync")
    expect(notebook, "changed, not applied yet; needs a kernel restart")
    restart.click()
    click(notebook, "Really restart? All variables are lost")
    expect(notebook, "Restarting the kernel; then in effect: backend cudaMallocAsync")
    dialog = notebook.page.locator(notebook.front_end.dialog)
    notebook.until(lambda: dialog.count() and dialog.first.is_visible(), seconds=60)  # "appears to have died"
    notebook.dismiss_dialogs()

    shown = notebook.run(AFTER_RESTART)
    assert "carried over the restart: backend:cudaMallocAsync" in shown
    assert "CUDA has not started" in shown
    assert notebook.run(START_CUDA).strip() == "1"
    assert "✓ backend cudaMallocAsync: in effect, read back from PyTorch's allocator" in notebook.run(AFTER_RESTART)


def test_what_pytorch_would_refuse_cannot_be_applied_and_says_why(notebook: Notebook) -> None:
    box = notebook.cell(PANEL).get_by_label("or MiB").first
    apply = notebook.cell(PANEL).get_by_role("button", name="Apply", exact=True)
    for typed, why in (("10", "max_split_size_mb must be 20 or more"), ("much", "takes a whole number of MiB")):
        box.fill(typed)
        box.press("Enter")
        expect(notebook, why)
        notebook.until(apply.is_disabled)
    box.fill("300")
    box.press("Enter")
    expect(notebook, "Not applied yet: max_split_size_mb 300 MiB")
    notebook.until(apply.is_enabled)
    assert "PYTORCH_CUDA_ALLOC_CONF is not set" in notebook.run(STATUS)


def test_a_click_while_a_cell_runs_waits_until_it_ends(notebook: Notebook) -> None:
    move_slider(notebook, AT_128)
    expect(notebook, "Not applied yet: max_split_size_mb 128 MiB")
    notebook.run(BUSY, wait=False)
    notebook.page.wait_for_timeout(1500)
    click(notebook, "Apply")
    notebook.page.wait_for_timeout(2000)
    assert "done" not in notebook.text(BUSY)
    assert "will be read when CUDA starts" not in notebook.text(PANEL)
    assert "While a cell runs, a click waits until it ends." in notebook.text(PANEL)
    if notebook.front_end is not CLASSIC:  # clicks come over a subshell, so the panel can answer at once
        assert "Waiting for the running cell to end; nothing is changed yet" in notebook.text(PANEL)
    expect(notebook, "done", BUSY)
    expect(notebook, "max_split_size_mb 128 MiB: will be read when CUDA starts")


def test_panels_and_the_magic_stay_in_step(notebook: Notebook) -> None:
    notebook.run(SECOND_PANEL)
    notebook.run(MAGIC)
    for cell in (PANEL, SECOND_PANEL):
        expect(notebook, "max_split_size_mb 512 MiB: will be read when CUDA starts", cell)
    click(notebook, "Reset", SECOND_PANEL)
    for cell in (PANEL, SECOND_PANEL):
        expect(notebook, "Nothing is asked for", cell)


def test_the_line_is_copied(notebook: Notebook) -> None:
    notebook.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    move_slider(notebook, AT_128)
    expect(notebook, "Not applied yet: max_split_size_mb 128 MiB")
    notebook.cell(PANEL).get_by_role("button", name="Copy: For a shell").click()
    expect(notebook, "Copied")
    copied = notebook.page.evaluate("navigator.clipboard.readText()")
    assert copied == "export PYTORCH_CUDA_ALLOC_CONF='max_split_size_mb:128'"
