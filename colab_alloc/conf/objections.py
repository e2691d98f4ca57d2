"""What can be said against a configuration: what a PyTorch would refuse, and what does harm or nothing.

Each rule below looks at one thing and yields what it finds. Facts are from PyTorch's sources and from running 2.9.1,
2.11.0 and 2.14.1.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from colab_alloc.conf import divisions, version
from colab_alloc.conf.options import OPTIONS, Kind, Option, Value
from colab_alloc.conf.problem import Severity
from colab_alloc.conf.values import same

_MIB: Final = 1 << 20
_LARGER_THAN_ANY_GPU: Final = 1 << 20  # MiB: 1 TiB
_STOI_MAX: Final = 2**31 - 1


@dataclass(frozen=True)
class Surroundings:
    """Where a configuration is to be used.

    Args:
        torch: the PyTorch release.
        platform: as in sys.platform.
        capacity: the memory of the GPU, bytes; None is "unknown".
    """

    torch: version.Release
    platform: str
    capacity: int | None

    @classmethod
    def of(cls, torch: str | None, platform: str | None, capacity: int | None) -> Surroundings:
        """Fill in what is installed and running here."""
        build = version.installed()
        number = version.release(torch) if torch else build.release if build else version.NEWEST
        return cls(number, platform or sys.platform, capacity)

    @property
    def pytorch(self) -> str:
        """The release in words."""
        return f"PyTorch {version.shown(self.torch)}"


@dataclass(frozen=True)
class Objection:
    """Something against one option of a configuration; it becomes a Problem once its place in the text is known."""

    severity: Severity
    option: str
    message: str
    fix: str | None = None


Conf = Mapping[str, Value]
Rule = Callable[[Conf, Surroundings], Iterator[Objection]]


def to(conf: Conf, where: Surroundings) -> list[Objection]:
    """Return everything there is against a configuration."""
    unknown = list(_unknown(conf, where))
    names = {objection.option for objection in unknown}
    known = {name: value for name, value in conf.items() if name not in names}
    rules = _RULES if conf.get("backend") != "cudaMallocAsync" else (_ignored_by_back_end,)
    found = [objection for rule in rules for objection in rule(known, where)]
    wrong = {objection.option for objection in found if objection.severity == "error"}
    return [*unknown, *(o for o in found if o.severity == "error" or o.option not in wrong)]


def _unknown(conf: Conf, where: Surroundings) -> Iterator[Objection]:
    for name in conf:
        option = OPTIONS[name]
        if where.torch < option.since:
            since = version.shown(option.since)
            yield Objection("error", name, f"{name} came with PyTorch {since}; {where.pytorch} refuses it")
        elif option.until is not None and where.torch > option.until:
            until = version.shown(option.until)
            yield Objection("error", name, f"{name} was last in PyTorch {until}; {where.pytorch} refuses it")


def _out_of_range(conf: Conf, where: Surroundings) -> Iterator[Objection]:
    for option, value in _set_numbers(conf, where):
        allowed = option.range_in(where.torch)
        if not allowed.holds(value):
            nearest = f"{option.name}:{allowed.low:g}" if allowed.inclusive and allowed.low is not None else None
            message = f"{option.name} must be {allowed} in {where.pytorch}, not {value}"
            yield Objection("error", option.name, message, nearest)


def _set_numbers(conf: Conf, where: Surroundings) -> Iterator[tuple[Option, float]]:
    """The numbers that PyTorch gets to read: defaults it has no word for are left out of its text."""
    for name, value in conf.items():
        option = OPTIONS[name]
        left_out = same(name, value, option.default, where.torch) and not option.default_can_be_written
        if option.kind in {Kind.MIB, Kind.COUNT, Kind.FRACTION} and isinstance(value, (int, float)) and not left_out:
            yield option, value


def _too_large_for_its_parser(conf: Conf, where: Surroundings) -> Iterator[Objection]:
    for option, value in _set_numbers(conf, where):
        if where.torch < (2, 10) and option.kind is not Kind.FRACTION and value > _STOI_MAX:
            yield Objection("error", option.name, f"{where.pytorch} cannot read numbers above {_STOI_MAX}")


def _below_large_segment(conf: Conf, where: Surroundings) -> Iterator[Objection]:
    """Two options have the large segment as their lower bound (AllocatorConfig.cpp, 2.11 and later)."""
    large = conf.get("large_segment_size_mb", OPTIONS["large_segment_size_mb"].default)
    for option, value in _set_numbers(conf, where):
        bounded = option.name in {"max_split_size_mb", "max_non_split_rounding_mb"}
        if bounded and option.range_in(where.torch).holds(value) and isinstance(large, int) and value < large:
            message = f"{option.name} must not be below large_segment_size_mb ({large}), but is {value}"
            yield Objection("error", option.name, message, f"{option.name}:{large}")


def _odd_thread_count(conf: Conf, _where: Surroundings) -> Iterator[Objection]:
    threads = conf.get("pinned_num_register_threads", 1)
    if isinstance(threads, int) and threads > 0 and not divisions.is_power_of_two(threads):
        message = f"pinned_num_register_threads must be a power of two, not {threads}"
        yield Objection("error", "pinned_num_register_threads", message)


def _rounding(conf: Conf, where: Surroundings) -> Iterator[Objection]:
    name = "roundup_power2_divisions"
    value = conf.get(name, 0)
    if where.torch < (2, 0) and isinstance(value, tuple):
        yield Objection("error", name, f"{where.pytorch} takes one number for {name}, no list")
    elif where.torch < (2, 0) and value == 1:
        yield Objection("error", name, f"{where.pytorch} fails at the first allocation with {name}:1")
    elif value and same(name, value, 0, where.torch):
        yield Objection("warning", name, f"{name} of 1 rounds nothing: it means one division of each power of two")


def _too_large(conf: Conf, where: Surroundings) -> Iterator[Objection]:
    value = conf.get("max_split_size_mb")
    if not isinstance(value, int):
        return
    if where.capacity is not None and value * _MIB > where.capacity:
        card = f"{where.capacity / _MIB:.0f} MiB"
        message = f"max_split_size_mb {value} is larger than the GPU's memory ({card}): it does nothing"
        yield Objection("warning", "max_split_size_mb", message)
    elif value >= _LARGER_THAN_ANY_GPU:
        message = (
            f"max_split_size_mb {value} is {value / _LARGER_THAN_ANY_GPU:g} TiB, larger than any GPU: it does nothing"
        )
        yield Objection("warning", "max_split_size_mb", message)


def _ignored_by_back_end(conf: Conf, _where: Surroundings) -> Iterator[Objection]:
    """With cudaMallocAsync nothing else in the variable is read (seen on 2.9.1, 2.11.0 and 2.14.1)."""
    for name in conf:
        if name != "backend" and not same(name, conf[name], OPTIONS[name].default):
            yield Objection("warning", name, f"backend:cudaMallocAsync ignores {name}")


def _expandable(conf: Conf, where: Surroundings) -> Iterator[Objection]:
    if not conf.get("expandable_segments"):
        return
    if where.platform in {"win32", "darwin"}:
        message = "expandable_segments is not supported on this platform: PyTorch leaves it off"
        yield Objection("warning", "expandable_segments", message)
    elif isinstance(conf.get("max_split_size_mb"), int):
        # free expandable blocks of that size are refused to smaller requests (CUDACachingAllocator.cpp, get_free_block)
        message = "max_split_size_mb works against expandable_segments: large free memory is kept from small requests"
        yield Objection("warning", "max_split_size_mb", message, "only one of the two")


def _collects_nothing(conf: Conf, where: Surroundings) -> Iterator[Objection]:
    name = "garbage_collection_threshold"
    fraction = conf.get("per_process_memory_fraction", 1.0)
    if conf.get(name, 0.0) == 0.0 or (isinstance(fraction, float) and fraction < 1):
        return
    how = "torch.cuda.set_per_process_memory_fraction"
    below = " below 1" if where.torch >= (2, 12) else ""
    yield Objection("warning", name, f"{name} does nothing until a memory limit is set ({how}{below})")


def _no_memory(conf: Conf, _where: Surroundings) -> Iterator[Objection]:
    if conf.get("per_process_memory_fraction") == 0:
        message = "per_process_memory_fraction of 0 leaves this process no GPU memory at all"
        yield Objection("warning", "per_process_memory_fraction", message)


def _slack_without_limit(conf: Conf, _where: Surroundings) -> Iterator[Objection]:
    name = "max_non_split_rounding_mb"
    changed = name in conf and not same(name, conf[name], OPTIONS[name].default)
    if changed and not isinstance(conf.get("max_split_size_mb"), int):
        yield Objection("warning", name, f"{name} does nothing without max_split_size_mb")


def _rounded_but_not_cached(conf: Conf, _where: Surroundings) -> Iterator[Objection]:
    rounded, cached = conf.get("pinned_max_round_threshold_mb"), conf.get("pinned_max_cached_size_mb")
    if isinstance(rounded, int) and isinstance(cached, int) and rounded > cached:
        message = f"pinned memory above pinned_max_cached_size_mb ({cached}) is never rounded up, whatever this says"
        yield Objection("warning", "pinned_max_round_threshold_mb", message)


_RULES: Final[tuple[Rule, ...]] = (
    _out_of_range,
    _too_large_for_its_parser,
    _below_large_segment,
    _odd_thread_count,
    _rounding,
    _too_large,
    _expandable,
    _collects_nothing,
    _no_memory,
    _slack_without_limit,
    _rounded_but_not_cached,
)
