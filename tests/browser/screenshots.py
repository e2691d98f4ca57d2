"""Makes the pictures of the README: python -m tests.browser.screenshots DIRECTORY."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.browser.front_ends import LAB, opened
from tests.virtual_gpu import VirtualGpu

BEFORE = "%load_ext colab_alloc\n%alloc_conf max_split_size_mb:256"
START_CUDA = "import torch; torch.ones(1, device='cuda');"


def take(directory: Path, name: str, *, lang: str, dark: bool) -> None:
    """Take a picture of the panel in a notebook whose CUDA runs, with a change that is not applied yet."""
    cells = [BEFORE, START_CUDA, f"%alloc_conf --panel --lang {lang}"]
    with tempfile.TemporaryDirectory() as home, opened(LAB, cells, Path(home), VirtualGpu(), dark=dark) as notebook:
        notebook.page.set_viewport_size({"width": 1150, "height": 1400})
        for cell in range(len(cells)):
            notebook.run(cell)
        panel = notebook.cell(len(cells) - 1).locator(".colab-alloc-panel")
        panel.get_by_label("roundup_power2_divisions", exact=True).select_option(label="8")
        panel.get_by_label("backend", exact=True).scroll_into_view_if_needed()
        notebook.page.wait_for_timeout(2000)
        panel.screenshot(path=directory / name)


def main() -> None:
    """Take them all."""
    directory = Path(sys.argv[1])
    take(directory, "panel-en.png", lang="en", dark=False)
    take(directory, "panel-ar.png", lang="ar", dark=True)


if __name__ == "__main__":
    main()
