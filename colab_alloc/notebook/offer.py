"""The offer to restart the kernel: a button that asks once more, and where it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import ipywidgets as widgets
from IPython.display import display

from colab_alloc.conf.problem import AllocConfError
from colab_alloc.notebook import report, words
from colab_alloc.notebook.report import Line
from colab_alloc.runtime import restart


def on_main_thread(work: Callable[[], None]) -> bool:
    """Do the work where cells run, so never beside one: front ends with subshells bring clicks on other threads.

    Returns:
        Whether it is done; if not, it waits for the running cell to end.
    """
    if threading.current_thread() is threading.main_thread():
        work()
        return True
    restart.shell().kernel.io_loop.add_callback(work)
    return False


def show(widget: Any, twin: str) -> None:
    """Display a widget, with words for front ends that have no widgets."""
    view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    display({"text/plain": twin, "application/vnd.jupyter.widget-view+json": view}, raw=True)


class RestartButton:
    """A button that restarts at the second click: the first one asks.

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
        self.widget = widgets.Button(layout={"width": "auto"})
        self.widget.on_click(self._clicked)
        self.calm()

    def calm(self) -> None:
        """Forget a first click."""
        self._sure = False
        self.widget.description = words.RESTART.in_(self._lang)
        self.widget.button_style = ""

    def _clicked(self, _button: Any) -> None:
        if self._sure:
            self.calm()
            self._restart_now()
        else:
            self._sure = True
            self.widget.description = words.REALLY_RESTART.in_(self._lang)
            self.widget.button_style = "danger"
            notice = restart.front_end().notice.in_(self._lang)
            self._tell([Line("wait", notice)] if notice else [])


def offer_restart(lang: str = "en") -> None:
    """Display a button that restarts the kernel with all that was asked for, where Python can restart it."""
    if not restart.front_end().restarts:
        return
    message = widgets.HTML()

    def tell(lines: list[Line]) -> None:
        message.value = report.directed("".join(map(report.html_line, lines)), lang)

    def restart_now() -> None:
        try:
            tell(report.restart_lines(restart.prepare(), lang))
            restart.shut_down()
        except (AllocConfError, restart.RestartError) as error:
            tell([Line("bad", words.REFUSED.in_(lang, error=str(error)))])

    def clicked() -> None:
        if not on_main_thread(restart_now):
            tell([Line("wait", words.WAITS.in_(lang))])

    button = RestartButton(lang, tell, clicked)
    show(widgets.HBox([button.widget, message]), words.RESTART_WITH.in_(lang))
    restart.offer_in_colab()
