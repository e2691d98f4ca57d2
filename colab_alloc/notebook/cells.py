"""Whether a cell runs, and what waits for it to end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from colab_alloc.runtime import restart

Work = Callable[[], None]


class Cells:
    """Follows the cells of this kernel.

    Front ends with subshells bring clicks on other threads, at once, also while a cell runs or awaits something.
    What changes settings must not happen beside a cell, so it goes through `between`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shell: Any = None
        self._running = False
        self._waiting: list[Work] = []
        self._after_each: list[Work] = []

    def after_each(self, work: Work) -> None:
        """Do this after every cell from now on."""
        self._follow()
        if work not in self._after_each:
            self._after_each.append(work)

    def no_longer_after_each(self, work: Work) -> None:
        """Undo `after_each`."""
        if work in self._after_each:
            self._after_each.remove(work)

    def between(self, work: Work) -> bool:
        """Do the work on the main thread while no cell runs, and say whether that was now."""
        self._follow()
        if threading.current_thread() is threading.main_thread():
            work()
            return True
        with self._lock:
            if self._running:
                self._waiting.append(work)
            else:
                restart.shell().kernel.io_loop.add_callback(self._idle, work)
        return False

    def forget(self) -> None:
        """Follow no cells any more."""
        if self._shell is not None:
            self._shell.events.unregister("pre_run_cell", self._begins)
            self._shell.events.unregister("post_run_cell", self._ends)
        self._shell, self._running = None, False
        self._waiting.clear()
        self._after_each.clear()

    def _follow(self) -> None:
        shell = restart.shell()
        if shell is self._shell:
            return
        self.forget()
        self._shell = shell
        self._running = True  # a form is made by a cell, which has not ended
        shell.events.register("pre_run_cell", self._begins)
        shell.events.register("post_run_cell", self._ends)

    def _idle(self, work: Work) -> None:
        """Do the work now that the main thread is free, unless it is a cell that awaits something which freed it."""
        with self._lock:
            if self._running:
                self._waiting.append(work)
                return
        work()

    def _begins(self, *_event: Any) -> None:
        with self._lock:
            self._running = True

    def _ends(self, *_event: Any) -> None:
        with self._lock:
            self._running = False
            waiting, self._waiting = self._waiting, []
        for work in (*waiting, *self._after_each):
            work()


CELLS: Final = Cells()
