"""Reads the GPUs' memory again and again, on a thread of its own, and notices out-of-memory errors as they happen."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

from colab_alloc.language import Words
from colab_alloc.memory import sample as reading
from colab_alloc.memory.history import Mark, Record
from colab_alloc.memory.sample import MemorySample
from colab_alloc.runtime import torch_state
from colab_alloc.units import size

Item = MemorySample | Mark

FASTEST: Final = 0.01  # seconds between two readings

# What nobody has taken yet is bounded, too.
_UNTAKEN: Final = 10_000


class Source(Protocol):
    """Where samples come from: a Monitor, or a Playback of what was sampled before.

    Attributes:
        record: all that came so far, thinned.
        trouble: what went wrong, in words; None for nothing.
    """

    record: Record
    trouble: Words | None

    def start(self) -> None:
        """Begin. A second call does nothing."""

    def stop(self) -> None:
        """End. A second call does nothing."""

    def take(self) -> list[Item]:
        """Return what came since the last call."""


class Monitor:
    """Samples the GPUs until it is stopped. It waits for CUDA to start, and never starts it.

    Every maximum is exact, since the allocator's own peak counters are read (and never reset); a spike between two
    readings that stays below the peak so far is not seen.

    Args:
        every: seconds between two readings.
        devices: the GPUs' numbers; by default all that this process uses, once it does.

    Raises:
        ValueError: the time between two readings is too short.
    """

    def __init__(self, every: float = 0.1, devices: Sequence[int] | None = None) -> None:
        if not every >= FASTEST:
            raise ValueError(f"every must be {FASTEST} seconds or more, not {every:g}")
        self.record = Record()
        self.trouble: Words | None = None
        self._every = every
        self._devices = devices
        self._untaken: deque[Item] = deque(maxlen=_UNTAKEN)
        self._counts: dict[tuple[str, int], int] = {}
        self._waited = not torch_state.cuda_started()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="colab_alloc monitor", daemon=True)
        self.lock = threading.Lock()

    def start(self) -> None:
        """Begin to sample. A second call does nothing."""
        if self._thread.ident is None and not self._stop.is_set():
            _running.add(self)
            self._thread.start()

    def stop(self) -> None:
        """Take a last sample and end the thread. A second call does nothing."""
        if self._stop.is_set():
            return
        self._stop.set()
        _running.discard(self)
        if self._thread.is_alive():
            self._thread.join()
            self.look()

    def take(self) -> list[Item]:
        """Return what came since the last call."""
        with self.lock:
            taken = list(self._untaken)
            self._untaken.clear()
        return taken

    def mark(self, mark: Mark) -> None:
        """Remember that something happened, with a reading of that very moment."""
        with self.lock:
            self._add(mark)
        self.look()

    def look(self) -> None:
        """Read all devices now. What PyTorch raises becomes the `trouble`; nothing is raised here."""
        if not torch_state.cuda_started():
            return
        try:
            _observe()
            torch: Any = torch_state.imported()
            for device in self._devices if self._devices is not None else reading.in_use(torch):
                self._look_at(reading.number_of(device))
        except Exception as error:  # noqa: BLE001 - whatever PyTorch raises, the training loop goes on
            self._report(error)

    def _look_at(self, device: int) -> None:
        with self.lock:
            sample = reading.read(device)
            self._add(sample)
            retries = self._more("retries", sample)
            ooms = self._more("ooms", sample)
            if retries:
                self._add(Mark(sample.time, "retry", "retry" if retries == 1 else f"{retries} retries", device))
            if ooms and not _observe():
                self._add(Mark(sample.time, "oom", "out of memory", device))

    def _more(self, name: str, sample: MemorySample) -> int:
        """Return how much a counter grew since the last sample; the user may reset it."""
        now = getattr(sample, name) or 0
        before = self._counts.get((name, sample.device), 0 if self._waited else now)
        self._counts[name, sample.device] = now
        return max(0, now - before)

    def _add(self, item: Item) -> None:
        self.record.add(item)
        self._untaken.append(item)

    def _report(self, error: Exception) -> None:
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        self.trouble = Words("The memory cannot be read: {error}", "تتعذّر قراءة الذاكرة: {error}").filled(error=said)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.look()
            self._stop.wait(self._every)


class Playback:
    """Yields what was sampled before, or anything that yields samples and marks.

    Args:
        items: a list is played at once; of an iterator each item when it comes, on a thread of its own.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self.record = Record()
        self.trouble: Words | None = None
        self._items = items
        self._untaken: deque[Item] = deque(maxlen=_UNTAKEN)
        self._stopped = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to play. A second call does nothing."""
        if isinstance(self._items, Sequence):
            items, self._items = self._items, ()
            for item in items:
                self._add(item)
        elif self._thread is None:
            self._thread = threading.Thread(target=self._play, name="colab_alloc playback", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Play no further. An iterator that is being waited for is left to its thread."""
        self._stopped = True

    def take(self) -> list[Item]:
        """Return what came since the last call."""
        return [self._untaken.popleft() for _ in range(len(self._untaken))]

    def _add(self, item: Item) -> None:
        self.record.add(item)
        self._untaken.append(item)

    def _play(self) -> None:
        try:
            for item in self._items:
                if self._stopped:
                    return
                self._add(item)
        except Exception as error:  # noqa: BLE001 - it is somebody else's iterator, and the view tells
            self.trouble = Words("The samples ended: {error}", "انتهت العيّنات: {error}").filled(error=str(error))


class _Running:
    """The monitors that run in this process; none in a process forked from this one."""

    def __init__(self) -> None:
        self._monitors: list[Monitor] = []

    def add(self, monitor: Monitor) -> None:
        """Let it be found, and stopped when the interpreter ends."""
        _prepare_process()
        self._monitors = [*self._monitors, monitor]

    def discard(self, monitor: Monitor) -> None:
        """Forget it."""
        self._monitors = [each for each in self._monitors if each is not monitor]

    def __iter__(self) -> Iterator[Monitor]:
        """All of them, as they are now."""
        return iter(self._monitors)

    def forget_in_child(self) -> None:
        """After a fork: no thread of ours came along, and a lock may have been held by one."""
        for monitor in self._monitors:
            monitor.lock = threading.Lock()
        self._monitors = []


_running: Final = _Running()
_attaching: Final = threading.Lock()


@functools.cache
def _prepare_process() -> None:
    atexit.register(stop_all)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_running.forget_in_child)


def stop_all() -> None:
    """Stop every monitor."""
    for monitor in _running:
        monitor.stop()


def mark(text: str) -> None:
    """Mark this moment in the views that are open, as with "epoch 1". Does nothing where none is.

    Args:
        text: a few words.
    """
    for monitor in _running:
        monitor.mark(Mark(time.time(), "label", str(text)))


def _observe() -> bool:
    """Be told of out-of-memory errors, and say whether that can be had. CUDA must have started."""
    with _attaching:
        return _attach()


@functools.cache
def _attach() -> bool:
    """Do it once per process, since nobody can be taken off that list again; cudaMallocAsync has none."""
    torch: Any = torch_state.imported()
    try:
        torch._C._cuda_attach_out_of_memory_observer(_out_of_memory)
    except (AttributeError, RuntimeError):
        return False
    return True


def _out_of_memory(device: int, requested: int, _limit: int, free: int) -> None:
    """Answer the allocator, which has let go of its lock and is about to raise."""
    with contextlib.suppress(Exception):
        said = f"out of memory: {size(requested)} asked for, {size(free)} free"
        for monitor in _running:
            monitor.mark(Mark(time.time(), "oom", said, device))
