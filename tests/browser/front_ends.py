"""Drives a notebook in a browser: the same verbs for JupyterLab, Notebook 7 and the classic Notebook."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nbformat

from colab_alloc.runtime import torch_state
from tests.virtual_gpu import VirtualGpu

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

TIMEOUT: Final = 120.0  # seconds: starting a kernel that imports PyTorch is slow on a busy machine
CHROMIUM_FLAGS: Final = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


@dataclass(frozen=True)
class FrontEnd:
    """One notebook application.

    Args:
        name: what it is called.
        command: starts its server, as arguments of `python -m`.
        path: the address of a notebook, below the server's.
        cell: CSS of a code cell.
        editor: CSS of its editor, within the cell.
        output: CSS of its output, within the cell.
        prompt: CSS of its prompt, within the cell.
        dialog: CSS of the button that dismisses a dialog.
        dark: the settings file and text that make it dark; None where it has no dark theme.
    """

    name: str
    command: tuple[str, ...]
    path: str
    cell: str
    editor: str
    output: str
    prompt: str
    dialog: str
    dark: tuple[str, str] | None = None

    def __str__(self) -> str:
        return self.name


_DARK: Final = (
    "lab/user-settings/@jupyterlab/apputils-extension/themes.jupyterlab-settings",
    '{"theme": "JupyterLab Dark"}',
)
LAB: Final = FrontEnd(
    "JupyterLab",
    ("jupyterlab", "--LabApp.news_url="),
    "lab/tree/{name}",
    cell=".jp-CodeCell",
    editor=".jp-InputArea-editor",
    output=".jp-Cell-outputArea",
    prompt=".jp-InputPrompt",
    dialog=".jp-Dialog-button.jp-mod-accept",
    dark=_DARK,
)
NOTEBOOK: Final = replace(LAB, name="Notebook 7", command=("notebook",), path="notebooks/{name}")
CLASSIC: Final = FrontEnd(
    "classic Notebook",
    ("notebook",),
    "notebooks/{name}",
    cell=".code_cell",
    editor=".CodeMirror",
    output=".output_area",
    prompt=".input_prompt",
    dialog=".modal.in .btn-primary",
)


def installed() -> list[FrontEnd]:
    """Return the applications of the installed packages; where none is, the newest, whose tests will say so."""
    try:
        old = int(metadata.version("notebook").split(".")[0]) < 7  # 7 is the first on JupyterLab's base
    except metadata.PackageNotFoundError:
        old = False
    return [CLASSIC] if old else [LAB, NOTEBOOK]


class Notebook:
    """A notebook that is open in a browser.

    Args:
        front_end: the application.
        page: the page it is on.
    """

    def __init__(self, front_end: FrontEnd, page: Page) -> None:
        self.front_end = front_end
        self.page = page

    def cell(self, number: int) -> Locator:
        """Return a code cell, counted from 0."""
        return self.page.locator(self.front_end.cell).nth(number)

    def output(self, number: int) -> Locator:
        """Return the outputs of a cell."""
        return self.cell(number).locator(self.front_end.output)

    def run(self, number: int, *, wait: bool = True) -> str:
        """Run a cell, and return what it shows when it has ended; at once, and nothing, if not told to wait."""
        cell = self.cell(number)
        cell.locator(self.front_end.editor).first.click()
        before = self._prompt(number)
        self.page.keyboard.press("Control+Enter")
        if not wait:
            return ""
        self.until(lambda: re.search(r"\d", self._prompt(number)) and self._prompt(number) != before)
        return self.text(number)

    def text(self, number: int) -> str:
        """Return what a cell shows."""
        return "\n".join(self.output(number).all_inner_texts())

    def _prompt(self, number: int) -> str:
        return self.cell(number).locator(self.front_end.prompt).first.inner_text()

    def until(self, condition: Any, seconds: float = TIMEOUT) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"not so after {seconds:.0f} s; the page shows: {self.page.inner_text('body')[-3000:]}"
                )
            self.page.wait_for_timeout(200)

    def dismiss_dialogs(self) -> None:
        """Answer what covers the page."""
        dialog = self.page.locator(self.front_end.dialog)
        if dialog.count() and dialog.first.is_visible():
            dialog.first.click()


def chromium() -> str:
    """Return the browser's program.

    Raises:
        FileNotFoundError: there is none.
    """
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        raise FileNotFoundError("no Chromium: install it (apt-get install chromium), or leave out -m browser tests")
    return found


@contextlib.contextmanager
def server(front_end: FrontEnd, directory: Path, gpu: VirtualGpu, dark: bool) -> Iterator[str]:
    """Run the application's server, its kernels on the virtual GPU, and yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = directory / "home"
    settings = home / "jupyter"
    if dark and front_end.dark:
        file, text = front_end.dark
        (settings / file).parent.mkdir(parents=True)
        (settings / file).write_text(text)
    environment = {name: value for name, value in os.environ.items() if name not in torch_state.ALL_VARIABLES}
    environment |= gpu.environment() | {
        "HOME": str(home),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(settings),
        "JUPYTER_DATA_DIR": str(home / "share"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(settings / "lab/user-settings"),
        "JUPYTER_PLATFORM_DIRS": "0",
    }
    home.mkdir(exist_ok=True)
    application = front_end.command[0]
    command = [sys.executable, "-m", application, *front_end.command[1:], "--no-browser", "--allow-root"]
    owner = "NotebookApp" if front_end is CLASSIC else "ServerApp"
    command += [f"--{owner}.port={port}", f"--{owner}.token=", f"--{owner}.password=", f"--{owner}.ip=127.0.0.1"]
    with (directory / "server.log").open("w") as log:
        process = subprocess.Popen(command, cwd=directory, env=environment, stdout=log, stderr=log)
    try:
        yield _address(process, f"http://127.0.0.1:{port}/", directory / "server.log")
    finally:
        process.terminate()
        process.wait(timeout=30)


def _address(process: subprocess.Popen[bytes], address: str, log: Path) -> str:
    """Wait until the server answers."""
    deadline = time.monotonic() + TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(f"{address}api/status", timeout=5).close()  # noqa: S310 - our own server
            return address
        time.sleep(0.3)
    raise RuntimeError(f"the server did not start:\n{log.read_text()[-3000:]}")


@contextlib.contextmanager
def opened(
    front_end: FrontEnd, cells: Sequence[str], directory: Path, gpu: VirtualGpu, *, dark: bool = False
) -> Iterator[Notebook]:
    """Open a notebook with these cells in a new kernel, ready to run them."""
    from playwright.sync_api import sync_playwright  # here: the tests are collected where it is missing, too

    source = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    source.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(source, directory / "test.ipynb")
    with server(front_end, directory, gpu, dark) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=CHROMIUM_FLAGS)
        page = browser.new_page(viewport={"width": 1200, "height": 1000}, color_scheme="dark" if dark else "light")
        page.set_default_timeout(TIMEOUT * 1000)
        page.goto(address + front_end.path.format(name="test.ipynb"))
        notebook = Notebook(front_end, page)
        page.locator(front_end.cell).first.wait_for()
        page.wait_for_timeout(3000)  # dialogs of a first start come late
        notebook.dismiss_dialogs()
        yield notebook
        browser.close()
