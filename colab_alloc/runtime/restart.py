"""restart() and keep(): a new kernel with the configuration in effect, as far as the front end lets Python do that."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from colab_alloc.conf.conf import AllocConf
from colab_alloc.language import NOTHING, Words
from colab_alloc.result import Result
from colab_alloc.runtime import carry
from colab_alloc.runtime.apply import merged
from colab_alloc.runtime.ledger import LEDGER
from colab_alloc.runtime.status import status


@dataclass(frozen=True)
class FrontEnd:
    """Where the notebook runs, as far as it matters for a restart.

    Args:
        name: what it is called.
        restarts: whether a kernel that ends is started again.
        by_hand: how the person restarts it.
        notice: what the page says when the kernel ends although all is well; empty when nothing.
    """

    name: str
    restarts: bool
    by_hand: Words
    notice: Words = NOTHING


# What each front end does when a kernel ends is from its sources (JupyterLab 4.6, Colab's 2026-04, VS Code's Jupyter
# extension 2026-07); of Kaggle's editor nothing is known, so nothing is assumed.
COLAB: Final = FrontEnd(
    "Colab",
    restarts=True,
    by_hand=Words("choose Runtime > Restart session", "اختر «وقت التشغيل» ثم «إعادة تشغيل الجلسة»"),
    notice=Words(
        "Colab may say that the session crashed for an unknown reason: that is this restart",
        "قد يقول Colab إن الجلسة تعطّلت لسبب غير معروف: إنما هي إعادة التشغيل هذه",
    ),
)
JUPYTER: Final = FrontEnd(
    "Jupyter",
    restarts=True,
    by_hand=Words("choose Kernel > Restart Kernel", "اختر Kernel ثم Restart Kernel"),
    notice=Words(
        "The page may say that the kernel died and will restart: that is this restart",
        "قد تقول الصفحة إن النواة توقفت وستُعاد: إنما هي إعادة التشغيل هذه",
    ),
)
VSCODE: Final = FrontEnd(
    "VS Code",
    restarts=False,
    by_hand=Words("click Restart in the notebook's toolbar", "انقر Restart في شريط أدوات الدفتر"),
)
KAGGLE: Final = FrontEnd(
    "Kaggle",
    restarts=False,
    by_hand=Words("choose Run > Restart & clear cell outputs", "اختر Run ثم Restart & clear cell outputs"),
)
TERMINAL: Final = FrontEnd(
    "IPython in a terminal",
    restarts=False,
    by_hand=Words("leave IPython and start it again", "اخرج من IPython وشغّله من جديد"),
)
SCRIPT: Final = FrontEnd("Python", restarts=False, by_hand=Words("start the program again", "شغّل البرنامج من جديد"))


@dataclass(frozen=True, repr=False)
class Restart(Result):
    """A restart that was prepared.

    Args:
        conf: what the new kernel will have in effect.
        front_end: where this runs, and how a restart is done there.
        carried: whether the new kernel finds the configuration by itself.
        before_first_cell: whether that is before its first cell; else `%load_ext colab_alloc` brings it.
    """

    conf: AllocConf
    front_end: FrontEnd
    carried: bool
    before_first_cell: bool


@dataclass(frozen=True, repr=False)
class Kept(Result):
    """What every new kernel of this IPython profile starts with from now on.

    Args:
        conf: the settings; None when nothing is kept any more.
        front_end: where this runs.
    """

    conf: AllocConf | None
    front_end: FrontEnd


class RestartError(RuntimeError):
    """The restart was not begun, or the configuration not kept, and nothing was changed."""


class KernelRestarting(BaseException):
    """Ends the cell that asked for a restart, and the cells queued behind it. Not an Exception: nothing may go on.

    Args:
        words: what the cell shows.
    """

    def _render_traceback_(self) -> list[str]:
        """Show IPython one line instead of a traceback."""
        return [str(self)]


def front_end() -> FrontEnd:
    """Return where this code runs, told by what each front end leaves in the process."""
    running = shell()
    if running is None:
        return SCRIPT
    if not hasattr(running, "kernel"):
        return TERMINAL
    if "google.colab" in sys.modules:
        return COLAB
    if "KAGGLE_KERNEL_RUN_TYPE" in os.environ:
        return KAGGLE
    return VSCODE if "VSCODE_PID" in os.environ else JUPYTER


def restart(settings: Mapping[str, Any] | str = "") -> Restart:
    """Restart the kernel, with everything asked for so far and these settings over it; all variables are lost.

    Where Python can restart the kernel this does not return: the cell ends here. Elsewhere the configuration waits
    for the person to restart it.

    Args:
        settings: an AllocConf, a dict of names and values, or a text.

    Raises:
        AllocConfError: PyTorch would refuse the settings.
        RestartError: the configuration cannot be carried over.
    """
    prepared = prepare(settings)
    if not prepared.front_end.restarts:
        return prepared
    shut_down()
    raise KernelRestarting(str(prepared))


def prepare(settings: Mapping[str, Any] | str = "") -> Restart:
    """Leave everything asked for so far, and these settings over it, for this kernel's next start.

    Args:
        settings: an AllocConf, a dict of names and values, or a text.

    Raises:
        AllocConfError: PyTorch would refuse the settings.
        RestartError: the configuration cannot be carried over.
    """
    asked_for = status().asked_for
    wanted = merged(AllocConf.of(settings), asked_for)
    where = front_end()
    if where in {TERMINAL, SCRIPT}:
        return Restart(wanted, where, carried=False, before_first_cell=False)
    try:
        early = carry.carry_once(wanted, place())
    except OSError as error:
        raise RestartError(
            f"the configuration cannot be carried over: {error}; to restart all the same, {where.by_hand.en}, "
            f"and begin with %alloc_conf {wanted}"
        ) from error
    LEDGER.after_restart |= wanted.only(*(name for name in wanted if wanted[name] != asked_for.get(name)))
    if _renew not in LEDGER.listeners:
        LEDGER.listeners.append(_renew)
    return Restart(wanted, where, carried=True, before_first_cell=early)


def _renew() -> None:
    """Let what waits for a restart, as it was not used yet, follow what is asked for."""
    where = place()
    if where.once is not None and where.once.exists():
        with contextlib.suppress(OSError):
            carry.carry_once(status().asked_for, where)


def keep(settings: Mapping[str, Any] | str = "") -> Kept:
    """Start every new kernel of this IPython profile with everything asked for so far, and these settings over it.

    Args:
        settings: an AllocConf, a dict of names and values, or a text.

    Raises:
        AllocConfError: PyTorch would refuse the settings.
        RestartError: the configuration cannot be kept.
    """
    wanted = merged(AllocConf.of(settings), status().asked_for)
    try:
        carry.keep(wanted, place())
    except OSError as error:
        raise RestartError(f"the configuration cannot be kept: {error}") from error
    return Kept(wanted, front_end())


def forget() -> Kept:
    """Undo `keep`, and take back what waits for a restart of this kernel.

    Raises:
        RestartError: the files cannot be removed.
    """
    try:
        carry.forget(place())
    except OSError as error:
        raise RestartError(f"what is kept cannot be removed: {error}") from error
    return Kept(None, front_end())


def shut_down() -> None:
    """End the kernel as soon as it is idle, so that the front end starts it again. Any thread may ask."""
    kernel = shell().kernel
    kernel.io_loop.add_callback(kernel.do_shutdown, True)


def offer_in_colab() -> None:
    """In Colab, show its own prompt to restart, the one that follows a pip install (google.colab._pip, 2026-04)."""
    if front_end() is not COLAB:
        return
    from IPython.display import display

    try:
        prepare()  # the prompt restarts without asking us
    except RestartError:
        return
    prompt = {"pip_warning": {"packages": ["torch"]}, "id": uuid.uuid4().hex}
    display({"application/vnd.colab-display-data+json": prompt}, raw=True)


def place() -> carry.Place:
    """Return where the carried files of this kernel are.

    Raises:
        RestartError: this is not IPython.
    """
    running = shell()
    if running is None:
        raise RestartError("only IPython has kernels and profiles to keep settings for")
    return carry.Place(Path(running.profile_dir.location), _connection_file(running))


def _connection_file(running: Any) -> Path | None:
    if not hasattr(running, "kernel"):
        return None
    from ipykernel.connect import get_connection_file

    try:
        return Path(get_connection_file()).resolve()
    except (RuntimeError, OSError):  # a kernel inside another program
        return None


def shell() -> Any:
    """Return IPython's shell, or None where there is none; IPython is not imported for it."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None
