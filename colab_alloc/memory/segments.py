"""segments(): every block of memory that PyTorch holds on a GPU, read on demand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from colab_alloc.conf import version
from colab_alloc.memory import sample as reading
from colab_alloc.result import Result

# The states of a piece, named as the parts of a sample are. What tensors fill is not told from what rounding adds.
ALLOCATED, WAITING, SPLIT, CACHED = "allocated", "waiting", "split", "cached"
STATES: Final = (ALLOCATED, WAITING, SPLIT, CACHED)

_USED: Final = {"active_allocated": ALLOCATED, "active_pending_free": WAITING, "active_awaiting_free": WAITING}


@dataclass(frozen=True)
class Piece:
    """A block.

    Args:
        offset: where in its segment it begins, bytes.
        size: bytes.
        state: "allocated", "waiting", "split" (free, stuck in a segment that is in use) or "cached" (free, and can
            go back to the driver).
    """

    offset: int
    size: int
    state: str


@dataclass(frozen=True)
class Segment:
    """Memory taken from the driver at once; with expandable segments, a run that is mapped.

    Args:
        address: where it begins.
        size: bytes.
        kind: "small", "large" or "expandable".
        stream: the CUDA stream it belongs to, 0 for the default one.
        pool: the pool it belongs to, (0, 0) for the common one.
        pieces: its blocks in order; they fill it.
    """

    address: int
    size: int
    kind: str
    stream: int
    pool: tuple[int, int]
    pieces: tuple[Piece, ...]

    def total(self, state: str) -> int:
        """Return how much of it is in that state, bytes."""
        return sum(piece.size for piece in self.pieces if piece.state == state)


@dataclass(frozen=True, repr=False)
class SegmentMap(Result):
    """Every block that PyTorch holds on one GPU.

    Args:
        time: when it was read, in seconds since the epoch.
        device: the GPU's number.
        capacity: the whole card, bytes.
        segments: those with the most stuck bytes first.
    """

    time: float
    device: int
    capacity: int
    segments: tuple[Segment, ...]

    @property
    def reserved(self) -> int:
        """All that PyTorch holds, bytes."""
        return sum(segment.size for segment in self.segments)

    def total(self, state: str) -> int:
        """Return how much is in that state, bytes."""
        return sum(segment.total(state) for segment in self.segments)

    @property
    def largest_free(self) -> int:
        """The largest free block, bytes: nothing larger fits without asking the driver."""
        return max((piece.size for piece in self._free()), default=0)

    @property
    def scattered(self) -> float | None:
        """1 - largest free block / all free: 0 when what is free is in one piece. None when nothing is free."""
        free = sum(piece.size for piece in self._free())
        return 1 - self.largest_free / free if free else None

    def _free(self) -> Iterator[Piece]:
        return (piece for segment in self.segments for piece in segment.pieces if piece.state in {SPLIT, CACHED})

    def plot(self, rows: int = 24) -> Any:
        """Return a matplotlib figure: each segment a row to scale, each block a piece of it.

        Args:
            rows: how many segments to draw; the rest is summed up in words.

        Raises:
            ValueError: fewer than one row.
        """
        from colab_alloc.notebook import plots

        return plots.segments(self, rows)


def segments(device: Any = None) -> SegmentMap:
    """Read every block that PyTorch holds on one GPU. It takes the allocator's lock while it copies them.

    A memory recording that runs (`torch.cuda.memory._record_memory_history`) gets one entry, "snapshot", from it.

    Args:
        device: a number, "cuda:1" or a torch.device; the current device by default.

    Raises:
        RuntimeError: there is no GPU to read, CUDA has not started, or the back end has no segments.
        ValueError: there is no such GPU.
    """
    number = reading.number_of(device)
    torch: Any = reading.started()
    backend = torch.cuda.get_allocator_backend()
    if backend != "native":
        raise RuntimeError(f"the back end {backend} has no segments to show; ca.sample() shows what it reports")
    build = version.installed()
    without_trace = {"include_traces": False} if build and build.release >= (2, 11) else {}
    found = [_segment(raw) for raw in torch.cuda.memory_snapshot(**without_trace) if raw["device"] == number]
    found.sort(key=lambda segment: (-segment.total(SPLIT), -segment.size, segment.address))
    capacity = int(torch.cuda.get_device_properties(number).total_memory)
    return SegmentMap(time.time(), number, capacity, tuple(found))


def _segment(raw: dict[str, Any]) -> Segment:
    """Read one entry of `torch.cuda.memory_snapshot` (its keys: torch/csrc/cuda/memory_snapshot.cpp, 2.14)."""
    expandable = bool(raw.get("is_expandable"))
    whole = expandable or len(raw["blocks"]) == 1
    pieces, offset = [], 0
    for block in raw["blocks"]:
        state = _USED.get(block["state"], CACHED if whole else SPLIT)
        pieces.append(Piece(offset, int(block["size"]), state))
        offset += int(block["size"])
    return Segment(
        address=int(raw["address"]),
        size=int(raw["total_size"]),
        kind="expandable" if expandable else str(raw["segment_type"]),
        stream=int(raw["stream"]),
        pool=tuple(raw.get("segment_pool_id", (0, 0))),
        pieces=tuple(pieces),
    )
