"""The offer to restart the kernel: a button that asks once more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets
from IPython.display import display

from colab_alloc.conf.problem import AllocConfError
from colab_alloc.notebook import report, words
from colab_alloc.notebook.cells import CELLS
from colab_alloc.notebook.report import Line
from colab_alloc.runtime import restart


def show(widget: Any, twin: str) -> None:
    """Display a widget, with words for front ends that have no widgets."""
    view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    display({"text/plain": twin, "application/vnd.jupyter.widget-view+json": view}, raw=True)


class RestartButton:
    """A button that restarts at the second click: the first one asks. Where the person restarts, one click is enough.

    Args:
        lang: "en" or "ar".
        tell: shows sentences beside the button.
        restart_now: what to do when the person is sure.

    Attributes:
        widget: what to display.
    """

    def __init__(self, lang: str, tell: Callable[[list[Line]], None], restart_now: Callable[[], None]) -> None:
        self._lang = lang
        self._tell = tell
        self._restart_now = restart_now
        self._front_end = restart.front_end()
        self.widget = widgets.Button(layout={"width": "auto"})
        self.widget.on_click(self._clicked)
        self.calm()

    def calm(self) -> None:
        """Forget a first click."""
        self._sure = not self._front_end.restarts
        name = words.RESTART if self._front_end.restarts else words.PREPARE_RESTART
        self.widget.description = name.in_(self._lang)
        self.widget.button_style = ""

    def _clicked(self, _button: Any) -> None:
        if self._sure:
            self.calm()
            self._restart_now()
        else:
            self._sure = True
            self.widget.description = words.REALLY_RESTART.in_(self._lang)
            self.widget.button_style = "danger"
            self._tell([Line("wait", self._front_end.notice.in_(self._lang))])


def offer_restart() -> None:
    """Display a button that restarts the kernel with all that was asked for, where Python can restart it."""
    if not restart.front_end().restarts:
        return
    message = widgets.HTML()

    def tell(lines: list[Line]) -> None:
        message.value = report.html_lines(lines, "en")

    def restart_now() -> None:
        try:
            tell(report.restart_lines(restart.prepare()))
            restart.shut_down()
        except (AllocConfError, restart.RestartError) as error:
            tell([Line("bad", words.REFUSED.in_("en", error=str(error)))])

    def clicked() -> None:
        if not CELLS.between(restart_now):
            tell([Line("wait", words.WAITS.en)])

    button = RestartButton("en", tell, clicked)
    show(widgets.HBox([button.widget, message]), words.RESTART_WITH.en)
    restart.offer_in_colab()
