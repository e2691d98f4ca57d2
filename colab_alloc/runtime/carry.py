"""Carries a configuration to a kernel that is still to start: over one restart of this one, or to every new one.

What is carried stands in two kinds of file: beside a kernel's connection file, for the restart of that kernel alone,
deleted when used; and in the IPython profile, for every new kernel. A start-up file in the profile loads the extension
before the first cell, and loading it is what reads them - so where start-up files are not run, `%load_ext` does it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from colab_alloc.conf.conf import AllocConf
from colab_alloc.conf.options import OPTIONS
from colab_alloc.conf.problem import AllocConfError
from colab_alloc.runtime.apply import apply
from colab_alloc.runtime.status import status

_FORMAT: Final = 1
_LONGEST_WAIT: Final = 24 * 60 * 60.0  # seconds: a restart asked for longer ago is not what the person means now
_LONGEST_FILE: Final = 100_000  # characters; ours are a line or two
_ONCE: Final = ".colab_alloc"  # takes the place of the connection file's .json
_KEPT: Final = "colab_alloc.kept"
_STARTUP: Final = "00-colab_alloc.py"
_ABOUT_ONCE: Final = "# colab_alloc: carries a configuration over one restart of one kernel; deleted when used"
_ABOUT_KEPT: Final = "# colab_alloc: the configuration of every new kernel; removed by %alloc_conf --forget"
_LOADER: Final = """\
# colab_alloc: loads the extension in a new kernel, which then applies the configuration that was kept or carried over.
# %alloc_conf --forget removes this file; deleting it by hand does no harm.
try:
    get_ipython().extension_manager.load_extension("colab_alloc")
except Exception as error:  # a kernel must start all the same
    print(f"! colab_alloc was not loaded: {error}")
"""

# A restart that has not happened yet must not be taken for one that has: each process signs what it writes.
_THIS_PROCESS: Final = uuid.uuid4().hex
_resumed = False


@dataclass(frozen=True)
class Place:
    """Where the files of a kernel are.

    Args:
        profile: the directory of its IPython profile.
        connection: its connection file; None where there is no kernel that could restart.
    """

    profile: Path
    connection: Path | None

    @property
    def once(self) -> Path | None:
        """The file that carries a configuration over one restart."""
        return self.connection.with_suffix(_ONCE) if self.connection else None

    @property
    def kept(self) -> Path:
        """The file that holds the configuration of every new kernel."""
        return self.profile / _KEPT

    @property
    def startup(self) -> Path:
        """The file that loads the extension before the first cell."""
        return self.profile / "startup" / _STARTUP

    def keeps(self) -> bool:
        """Say whether a configuration is kept for every new kernel."""
        with contextlib.suppress(OSError):
            return self.kept.exists()
        return False

    def waiting(self) -> bool:
        """Say whether any file waits for a kernel to start, this one's or another's."""
        others = self.connection.parent.glob(f"*{_ONCE}") if self.connection else ()
        return self.keeps() or any(others)


class _Ignored(Exception):  # noqa: N818 - it becomes a warning
    """A carried file is not used, for this reason."""


def carry_once(conf: AllocConf, place: Place) -> bool:
    """Carry a configuration, complete as it is, over the next restart of this kernel.

    Returns:
        Whether it will be there before the first cell; if not, `%load_ext colab_alloc` brings it.

    Raises:
        OSError: the file cannot be written.
    """
    if place.once is None:
        raise FileNotFoundError("this is no kernel with a connection file, which could restart")
    _write(place.once, _ABOUT_ONCE, conf)
    _tidy(place)
    try:
        _install_loader(place)
    except OSError:
        return False
    return not _is_temporary(place.profile)


def keep(conf: AllocConf, place: Place) -> None:
    """Let every new kernel of this profile start with a configuration.

    Raises:
        OSError: the files cannot be written, or would not outlast this kernel.
    """
    if _is_temporary(place.profile):
        raise OSError(f"the IPython profile {place.profile} is a temporary one, as the home directory is not writable")
    _install_loader(place)
    try:
        _write(place.kept, _ABOUT_KEPT, conf)
    except OSError:
        _tidy(place)
        raise


def forget(place: Place) -> None:
    """Undo `keep`, and `carry_once` for this kernel.

    Raises:
        OSError: the files cannot be removed.
    """
    place.kept.unlink(missing_ok=True)
    withdraw(place)


def withdraw(place: Place) -> None:
    """Undo `carry_once`.

    Raises:
        OSError: the file cannot be removed.
    """
    if place.once is not None:
        place.once.unlink(missing_ok=True)
    _tidy(place)


def resume(place: Place) -> list[str]:
    """Apply what was carried to this kernel, once in a process, and return what there is to say about it."""
    global _resumed  # noqa: PLW0603 - once in a process
    if _resumed:
        return []
    _resumed = True
    return [*_resume_kept(place), *_resume_once(place)]


def _resume_kept(place: Place) -> Iterator[str]:
    try:
        conf, _ = _read(place.kept)
        late = _replace_all(conf)
    except FileNotFoundError:
        return
    except (OSError, _Ignored, AllocConfError) as error:
        yield f"! colab_alloc: {place.kept} is ignored: {error}"
    else:
        yield f"→ colab_alloc: kept for every new kernel: {_said(conf)} (%alloc_conf --forget ends that){late}"


def _resume_once(place: Place) -> Iterator[str]:
    if place.once is None:
        return
    try:
        conf, process = _read(place.once)
        if process == _THIS_PROCESS:
            return
        late = _replace_all(conf)
    except FileNotFoundError:
        return
    except (OSError, _Ignored, AllocConfError) as error:
        yield f"! colab_alloc: {place.once} is ignored: {error}"
    else:
        yield f"→ colab_alloc: carried over the restart: {_said(conf)}{late}"
    with contextlib.suppress(OSError):
        withdraw(place)


def _said(conf: AllocConf) -> str:
    return str(conf) or "PyTorch's defaults"


def _replace_all(conf: AllocConf) -> str:
    """Apply a complete configuration, and say what of it came too late; what else is asked for is switched off."""
    others = {name: OPTIONS[name].default for name in status().asked_for}
    late = apply(AllocConf(others) | conf).needs_restart
    return f"; too late in this process for {late}: %alloc_conf --restart brings it" if late else ""


def _read(file: Path) -> tuple[AllocConf, str]:
    """Return the configuration in a carried file, and the process that wrote it.

    Raises:
        OSError: it cannot be read.
        _Ignored: it is broken, too old or of another version.
    """
    with file.open(encoding="utf-8", errors="replace") as opened:
        text = opened.read(_LONGEST_FILE)
    try:
        content = json.loads(text.partition("\n")[2])
        form, written, conf, process = (content[key] for key in ("format", "written", "conf", "process"))
        age = time.time() - float(written)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise _Ignored("it is not what colab_alloc writes") from None
    if form != _FORMAT:
        raise _Ignored("another version of colab_alloc wrote it")
    if file.suffix == _ONCE and not abs(age) <= _LONGEST_WAIT:  # so written, also what is not a number is too old
        raise _Ignored("it was written too long ago")
    return AllocConf.parse(str(conf)), str(process)


def _write(file: Path, about: str, conf: AllocConf) -> None:
    content = {"format": _FORMAT, "written": time.time(), "conf": str(conf), "process": _THIS_PROCESS}
    _write_atomically(file, f"{about}\n{json.dumps(content)}\n")


def _write_atomically(file: Path, text: str) -> None:
    """Write a file that only its user can read, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".colab_alloc-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink()
        raise


def _install_loader(place: Place) -> None:
    _write_atomically(place.startup, _LOADER)


def _tidy(place: Place) -> None:
    """Remove what was carried for kernels that are gone, and the start-up file when nothing waits any more.

    A start-up file that cannot be removed does no harm: it loads the extension, which then finds nothing to do.
    """
    with contextlib.suppress(OSError):
        for file in place.connection.parent.glob(f"*{_ONCE}") if place.connection else ():
            if not file.with_suffix(".json").exists():
                file.unlink()
        if not place.waiting():
            place.startup.unlink(missing_ok=True)


def _is_temporary(profile: Path) -> bool:
    """Say whether IPython had to make do with a directory of this process alone (IPython.paths.get_ipython_dir)."""
    directory = profile.parent
    made_up = re.fullmatch(re.escape(tempfile.gettempprefix()) + r"\w{8}", directory.name)
    return made_up is not None and directory.parent == Path(tempfile.gettempdir())
