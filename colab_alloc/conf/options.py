"""Every option of PyTorch's allocator variable: the only place that knows names, ranges, defaults and versions.

Names and first releases are from the strings in libc10_cuda.so and libc10.so of the released wheels, ranges from
running the releases named in `Option.source` and from AllocatorConfig.h and CUDAAllocatorConfig.h.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, Union

from colab_alloc.conf.divisions import Divisions
from colab_alloc.conf.version import Release


class Unlimited(enum.Enum):
    """The default of sizes that have no limit. PyTorch has no word for it: it is what an absent option means."""

    UNLIMITED = "unlimited"

    def __str__(self) -> str:
        return self.value

    def __repr__(self) -> str:
        return "UNLIMITED"


UNLIMITED: Final = Unlimited.UNLIMITED

Value = Union[bool, int, float, str, Divisions, Unlimited]  # noqa: UP007 - evaluated at run time on Python 3.10


class Kind(enum.Enum):
    """What an option's value is."""

    BACKEND = "one of the back ends"
    MIB = "a whole number of MiB"
    COUNT = "a whole number"
    FRACTION = "a number between 0 and 1"
    FLAG = "True or False"
    DIVISIONS = "a power of two, or a list of size:number pairs in brackets"


class Change(enum.Enum):
    """Until when an option can still be changed in a running process."""

    ANY_TIME = "at any time"
    BEFORE_CUDA = "before CUDA starts"
    BEFORE_IMPORT = "before PyTorch is imported"


@dataclass(frozen=True)
class Range:
    """The values PyTorch takes from one release on.

    Args:
        low, high: the ends, in the option's own unit; None is "no end".
        inclusive: whether the ends themselves are taken.
        since: the first release this range holds for.
    """

    low: float | None = None
    high: float | None = None
    inclusive: bool = True
    since: Release = (0, 0)

    def holds(self, number: float) -> bool:
        """Say whether the number lies in the range."""
        if self.inclusive:
            return (self.low is None or number >= self.low) and (self.high is None or number <= self.high)
        return (self.low is None or number > self.low) and (self.high is None or number < self.high)

    def __str__(self) -> str:
        if self.low is not None and self.high is not None:
            return f"between {self.low:g} and {self.high:g}" + ("" if self.inclusive else ", ends excluded")
        if self.low is not None:
            return f"{self.low:g} or more" if self.inclusive else f"more than {self.low:g}"
        return "any number"


@dataclass(frozen=True)
class Option:
    """One option of the variable.

    Args:
        name: as PyTorch spells it.
        kind: what its value is; sizes are in MiB.
        default: what PyTorch uses when the option is absent.
        summary: what it does, for a person choosing it.
        source: where the facts of this row come from.
        since, until: the first and the last release that know it; `until` None is "the newest known still does".
        change: until when it can be changed in a running process.
        ranges: the values taken, oldest release first; empty when every value of the kind is.
        reset_since: the first release in which setting other options at run time silently resets this one.
        setting_key: its key in the allocator_settings of a memory snapshot; None where PyTorch does not show it.
        shared: whether it is one of the options that all accelerators share, from 2.10 on; those have a parser of
            their own.
        aliases: other names PyTorch takes for it.
        common: whether most people who set anything set this one; it is then always shown.
    """

    name: str
    kind: Kind
    default: Value
    summary: str
    source: str
    since: Release
    until: Release | None = None
    change: Change = Change.ANY_TIME
    ranges: tuple[Range, ...] = ()
    reset_since: Release | None = None
    setting_key: str | None = None
    shared: bool = False
    aliases: tuple[str, ...] = ()
    common: bool = False

    def known_to(self, torch: Release) -> bool:
        """Say whether that release's parser takes the name."""
        return self.since <= torch and (self.until is None or torch <= self.until)

    def range_in(self, torch: Release) -> Range:
        """Return the range that holds in that release."""
        return max((r for r in self.ranges if r.since <= torch), key=lambda r: r.since, default=Range())

    def reset_by_others(self, torch: Release) -> bool:
        """Say whether a run-time change of other options resets this one, unless it is named again."""
        return self.reset_since is not None and self.reset_since <= torch

    @property
    def default_can_be_written(self) -> bool:
        """Whether PyTorch accepts the default as a value: `unlimited`, and 0 for "off", are only had by leaving out."""
        return self.kind in {Kind.BACKEND, Kind.FLAG} or (
            self.default is not UNLIMITED
            and isinstance(self.default, (int, float))
            and self.kind is not Kind.DIVISIONS
            and all(r.holds(self.default) for r in self.ranges)
        )


BACKENDS: Final = ("native", "cudaMallocAsync")

# max_split_size_mb and max_non_split_rounding_mb: "must be > 20" up to 2.9, ">= 20" from 2.10 on.
_ABOVE_LARGE_SEGMENT: Final = (Range(low=21), Range(low=20, since=(2, 10)))

_TABLE: Final = (
    Option(
        name="backend",
        kind=Kind.BACKEND,
        default="native",
        summary="Which allocator serves the GPU: PyTorch's own caching allocator, or CUDA's asynchronous one.",
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 1.13.1, from 2.0.1 on",
        since=(2, 0),
        change=Change.BEFORE_IMPORT,
        common=True,
    ),
    Option(
        name="max_split_size_mb",
        kind=Kind.MIB,
        default=UNLIMITED,
        summary="Cached blocks of this size or more are not cut up for smaller requests, so they can be reused whole.",
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 1.9.1, from 1.10.2 on",
        since=(1, 10),
        ranges=_ABOVE_LARGE_SEGMENT,
        reset_since=(1, 10),
        setting_key="max_split_size",
        common=True,
        shared=True,
    ),
    Option(
        name="roundup_power2_divisions",
        kind=Kind.DIVISIONS,
        default=0,
        summary="Rounds requests up to fractions of a power of two, so that slightly different sizes share blocks.",
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 1.11.0, from 1.12.1 on; 1.13 read: one number only",
        since=(1, 12),
        reset_since=(1, 12),
        setting_key="roundup_power2_divisions",
        common=True,
        shared=True,
    ),
    Option(
        name="roundup_bypass_threshold_mb",
        kind=Kind.MIB,
        default=UNLIMITED,
        summary="Requests of this size or more were not rounded by roundup_power2_divisions.",
        source="binaries: not yet in 1.12.1, in 1.13.1 and 2.0.1, no longer in 2.1.0; run: refused by 2.9.1, 2.14.1",
        since=(1, 13),
        until=(2, 0),
        reset_since=(1, 13),
    ),
    Option(
        name="garbage_collection_threshold",
        kind=Kind.FRACTION,
        default=0.0,
        summary="Above this share of the memory limit, unused cached blocks are given back, oldest first.",
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 1.11.0, from 1.12.1 on",
        since=(1, 12),
        ranges=(Range(low=0, high=1, inclusive=False),),
        reset_since=(1, 12),
        setting_key="garbage_collection_threshold",
        common=True,
        shared=True,
    ),
    Option(
        name="expandable_segments",
        kind=Kind.FLAG,
        default=False,
        summary="Segments grow instead of being added to, so that free memory does not lie in pieces of fixed size.",
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 2.0.1, from 2.1.0 on",
        since=(2, 1),
        setting_key="expandable_segments",
        common=True,
        shared=True,
    ),
    Option(
        name="max_non_split_rounding_mb",
        kind=Kind.MIB,
        default=20,
        summary="How much larger than the request a block above max_split_size_mb may be and still be reused whole.",
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 2.5.1, from 2.6.0 on",
        since=(2, 6),
        ranges=_ABOVE_LARGE_SEGMENT,
        reset_since=(2, 10),
        shared=True,
    ),
    Option(
        name="large_segment_size_mb",
        kind=Kind.MIB,
        default=20,
        summary="The size of the segments that serve requests of 1 to 10 MiB.",
        source="run: 2.11.0, 2.14.1; binaries: not yet in 2.10.0",
        since=(2, 11),
        ranges=(Range(low=11),),
        shared=True,
    ),
    Option(
        name="per_process_memory_fraction",
        kind=Kind.FRACTION,
        default=1.0,
        summary="The share of the GPU's memory this process may take.",
        source="run: 2.11.0, 2.14.1, refused by 2.9.1; binaries: from 2.10.0 on",
        since=(2, 10),
        change=Change.BEFORE_CUDA,
        ranges=(Range(low=0, high=1),),
    ),
    Option(
        name="throw_on_cudamalloc_oom",
        kind=Kind.FLAG,
        default=False,
        summary="Refuses a request that would pass per_process_memory_fraction at once, without freeing cached blocks.",
        source="run: 2.14.1, refused by 2.11.0; binaries: from 2.12.0 on",
        since=(2, 12),
    ),
    Option(
        name="release_lock_on_cudamalloc",
        kind=Kind.FLAG,
        default=False,
        summary="Lets other threads use the allocator while one waits for the driver.",
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 2.1.2, from 2.2.0 on",
        since=(2, 2),
        setting_key="release_lock_on_cudamalloc",
        aliases=("release_lock_on_hipmalloc",),
    ),
    Option(
        name="graph_capture_record_stream_reuse",
        kind=Kind.FLAG,
        default=False,
        summary="Lets memory that was used on several streams be reused inside a CUDA graph capture.",
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 2.8.0",
        since=(2, 9),
        setting_key="graph_capture_record_stream_reuse",
    ),
    Option(
        name="pinned_use_cuda_host_register",
        kind=Kind.FLAG,
        default=False,
        summary="Pins host memory with cudaHostRegister instead of cudaHostAlloc.",
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 2.1.2, from 2.2.0 on",
        since=(2, 2),
        setting_key="pinned_use_cuda_host_register",
        aliases=("pinned_use_hip_host_register",),
    ),
    Option(
        name="pinned_num_register_threads",
        kind=Kind.COUNT,
        default=1,
        summary="How many threads pin host memory; a power of two.",
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 2.1.2, from 2.2.0 on",
        since=(2, 2),
        ranges=(Range(low=1, high=128),),
        setting_key="pinned_num_register_threads",
    ),
    Option(
        name="pinned_use_background_threads",
        kind=Kind.FLAG,
        default=False,
        summary="Frees pinned host memory on background threads.",
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 2.5.1, from 2.6.0 on",
        since=(2, 6),
        change=Change.BEFORE_CUDA,
        shared=True,
    ),
    Option(
        name="pinned_reserve_segment_size_mb",
        kind=Kind.MIB,
        default=0,
        summary="Host memory pinned once, at the start, to serve small pinned requests from.",
        source="run: 2.11.0, 2.14.1, refused by 2.9.1; binaries: from 2.10.0 on",
        since=(2, 10),
        change=Change.BEFORE_CUDA,
        ranges=(Range(low=1),),
    ),
    Option(
        name="pinned_free_catch_all",
        kind=Kind.FLAG,
        default=False,
        summary="Swallows errors when pinned host memory is freed late.",
        source="run: 2.14.1, refused by 2.11.0; binaries: from 2.12.0 on",
        since=(2, 12),
    ),
    Option(
        name="pinned_max_round_threshold_mb",
        kind=Kind.MIB,
        default=UNLIMITED,
        summary="Pinned requests above this size are not rounded up.",
        source="run: 2.14.1; binaries: not yet in 2.12.0, from 2.13.0 on",
        since=(2, 13),
        setting_key="max_round_threshold",
        shared=True,
    ),
    Option(
        name="pinned_max_cached_size_mb",
        kind=Kind.MIB,
        default=UNLIMITED,
        summary="Pinned blocks above this size are given back instead of cached.",
        source="run: 2.14.1; binaries: not yet in 2.12.0, from 2.13.0 on",
        since=(2, 13),
        setting_key="max_cached_size",
        shared=True,
    ),
)

OPTIONS: Final[dict[str, Option]] = {option.name: option for option in _TABLE}


def known_to(torch: Release) -> list[Option]:
    """Return the options that release's parser takes, in the order of the table."""
    return [option for option in _TABLE if option.known_to(torch)]
