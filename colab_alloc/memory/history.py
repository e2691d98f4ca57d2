"""What is remembered of the readings: a few thousand samples, however long it runs, and every extreme among them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from colab_alloc.memory.sample import MemorySample

SAMPLES: Final = 3000  # more than a picture has columns
MARKS: Final = 1000

# The lines whose every peak and valley is kept.
_FOLLOWED: Final = (
    "allocated",
    "reserved",
    "peak_allocated",
    "peak_reserved",
    "waiting",
    "split",
    "other",
    "unused_share",
    "fragmentation",
)


@dataclass(frozen=True)
class Mark:
    """Something that happened at one moment.

    Args:
        time: when, in seconds since the epoch.
        kind: "oom" (an out-of-memory error), "retry" (an allocation that first had to empty the cache) or "label".
        text: what happened, in words.
        device: the GPU it happened on; None for a label.
    """

    time: float
    kind: str
    text: str
    device: int | None = None


class History:
    """The samples of one GPU. When they are too many, older ones are left out, but never an extreme.

    Each stretch of time keeps its first and last sample, and those at the lowest and highest point of every line in
    `_FOLLOWED`; stretches get longer as the history does.

    Args:
        limit: how many samples to keep at most; 100 or more.
    """

    def __init__(self, limit: int = SAMPLES) -> None:
        self._limit = limit
        self._stretch = 0.0
        self._samples: list[MemorySample] = []

    def add(self, sample: MemorySample) -> None:
        """Remember one more sample."""
        self._samples.append(sample)
        if len(self._samples) > self._limit:
            self._samples = self._thinned(sorted(self._samples, key=lambda each: each.time))

    @property
    def samples(self) -> list[MemorySample]:
        """What is remembered, oldest first."""
        return list(self._samples)

    def _thinned(self, samples: list[MemorySample]) -> list[MemorySample]:
        """Return at most 60 % of the limit, so that thinning is rare."""
        self._stretch = self._stretch or (samples[-1].time - samples[0].time) / self._limit or 1.0
        kept = self._by_stretch(samples)
        while len(kept) > 0.6 * self._limit:
            self._stretch *= 2
            kept = self._by_stretch(kept)
        return kept

    def _by_stretch(self, samples: list[MemorySample]) -> list[MemorySample]:
        begin = samples[0].time
        stretches = groupby(samples, key=lambda each: (each.time - begin) // self._stretch)
        return [sample for _, stretch in stretches for sample in _extremes(list(stretch))]


def _extremes(samples: list[MemorySample]) -> Iterator[MemorySample]:
    """Yield the first and the last one, and those at the lowest and highest point of each line."""
    kept = {0, len(samples) - 1}
    for name in _FOLLOWED:
        points = [(value, index) for index, each in enumerate(samples) if (value := getattr(each, name)) is not None]
        if points:
            kept |= {min(points)[1], max(points)[1]}
    yield from (samples[index] for index in sorted(kept))


class Record:
    """The histories of all GPUs that were seen, and what was marked."""

    def __init__(self) -> None:
        self._histories: dict[int, History] = {}
        self._marks: list[Mark] = []

    def add(self, item: MemorySample | Mark) -> None:
        """Remember a sample or a mark; of the marks, the newest ones."""
        if isinstance(item, Mark):
            self._marks = [*self._marks[-MARKS + 1 :], item]
        else:
            self._histories.setdefault(item.device, History()).add(item)

    @property
    def devices(self) -> list[int]:
        """The GPUs that were seen."""
        return sorted(self._histories)

    @property
    def marks(self) -> list[Mark]:
        """What was marked, oldest first."""
        return list(self._marks)

    def samples(self, device: int) -> list[MemorySample]:
        """Return what is remembered of one GPU, oldest first."""
        return self._histories[device].samples

    def __bool__(self) -> bool:
        """Whether there is any sample."""
        return bool(self._histories)
