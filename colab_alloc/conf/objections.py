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
from colab_alloc.language import Words

_MIB: Final = 1 << 20
_LARGER_THAN_ANY_GPU: Final = 1 << 20  # MiB: 1 TiB
_STOI_MAX: Final = 2**31 - 1

IGNORED_BY_BACK_END: Final = Words(
    "backend:cudaMallocAsync ignores {name}", "لا ينظر backend:cudaMallocAsync إلى {name}"
)
IDLE_ALONE: Final = Words("{name} does nothing without {needed}", "لا أثر للخيار {name} بغير {needed}")


@dataclass(frozen=True)
class Surroundings:
    """Where a configuration is to be used.

    Args:
        torch: the PyTorch release.
        platform: as in sys.platform.
        capacity: the memory of the GPU, bytes; None is "unknown".
        limited: whether this process's share of it is limited already.
    """

    torch: version.Release
    platform: str
    capacity: int | None
    limited: bool = False

    @classmethod
    def of(cls, torch: str | None, platform: str | None, capacity: int | None, limited: bool) -> Surroundings:
        """Fill in what is installed and running here."""
        build = version.installed()
        number = version.release(torch) if torch is not None else build.release if build else version.NEWEST
        return cls(number, platform or sys.platform, capacity, limited)

    @property
    def pytorch(self) -> str:
        """The release in words."""
        return f"PyTorch {version.shown(self.torch)}"


@dataclass(frozen=True)
class Objection:
    """Something against one option of a configuration; it becomes a Problem once its place in the text is known."""

    severity: Severity
    option: str
    message: Words
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
    came = Words(
        "{name} came with PyTorch {release}; {pytorch} refuses it", "جاء {name} مع PyTorch {release}؛ ويرفضه {pytorch}"
    )
    went = Words(
        "{name} was last in PyTorch {release}; {pytorch} refuses it",
        "كان {name} آخر ما كان في PyTorch {release}؛ ويرفضه {pytorch}",
    )
    for name in conf:
        option = OPTIONS[name]
        if where.torch < option.since:
            release = version.shown(option.since)
            yield Objection("error", name, came.filled(name=name, release=release, pytorch=where.pytorch))
        elif option.until is not None and where.torch > option.until:
            release = version.shown(option.until)
            yield Objection("error", name, went.filled(name=name, release=release, pytorch=where.pytorch))


def _out_of_range(conf: Conf, where: Surroundings) -> Iterator[Objection]:
    message = Words(
        "{name} must be {allowed} in {pytorch}, not {value}",
        "قيمة {name} في {pytorch} يجب أن تكون {allowed}، لا {value}",
    )
    for option, value in _set_numbers(conf, where):
        allowed = option.range_in(where.torch)
        if not allowed.holds(value):
            above = allowed.high is not None and value > allowed.high
            end = allowed.high if above else allowed.low
            nearest = f"{option.name}:{end:g}" if allowed.inclusive and end is not None else None
            said = message.filled(name=option.name, allowed=allowed.words, pytorch=where.pytorch, value=value)
            yield Objection("error", option.name, said, nearest)


def _set_numbers(conf: Conf, where: Surroundings) -> Iterator[tuple[Option, float]]:
    """The numbers that PyTorch gets to read: defaults it has no word for are left out of its text."""
    for name, value in conf.items():
        option = OPTIONS[name]
        left_out = same(name, value, option.default, where.torch) and not option.default_can_be_written
        if option.kind in {Kind.MIB, Kind.COUNT, Kind.FRACTION} and isinstance(value, (int, float)) and not left_out:
            yield option, value


def _too_large_for_its_parser(conf: Conf, where: Surroundings) -> Iterator[Objection]:
    message = Words("{pytorch} cannot read numbers above {most}", "لا يقرأ {pytorch} أعدادًا أكبر من {most}")
    for option, value in _set_numbers(conf, where):
        if where.torch < (2, 10) and option.kind is not Kind.FRACTION and value > _STOI_MAX:
            yield Objection("error", option.name, message.filled(pytorch=where.pytorch, most=_STOI_MAX))


def _below_large_segment(conf: Conf, where: Surroundings) -> Iterator[Objection]:
    """Two options have the large segment as their lower bound (AllocatorConfig.cpp, 2.11 and later)."""
    message = Words(
        "{name} must not be below large_segment_size_mb ({large}), but is {value}",
        "لا يجوز أن يقلّ {name} عن large_segment_size_mb ({large})، وهو {value}",
    )
    large = conf.get("large_segment_size_mb", OPTIONS["large_segment_size_mb"].default)
    for option, value in _set_numbers(conf, where):
        bounded = option.name in {"max_split_size_mb", "max_non_split_rounding_mb"}
        if bounded and option.range_in(where.torch).holds(value) and isinstance(large, int) and value < large:
            said = message.filled(name=option.name, large=large, value=value)
            yield Objection("error", option.name, said, f"{option.name}:{large}")


def _odd_thread_count(conf: Conf, _where: Surroundings) -> Iterator[Objection]:
    name = "pinned_num_register_threads"
    message = Words("{name} must be a power of two, not {threads}", "يجب أن يكون {name} قوة للعدد اثنين، لا {threads}")
    threads = conf.get(name, 1)
    if isinstance(threads, int) and threads > 0 and not divisions.is_power_of_two(threads):
        yield Objection("error", name, message.filled(name=name, threads=threads))


def _rounding(conf: Conf, where: Surroundings) -> Iterator[Objection]:
    name = "roundup_power2_divisions"
    no_list = Words(
        "{pytorch} takes one number for {name}, no list", "يقبل {pytorch} للخيار {name} عددًا واحدًا لا قائمة"
    )
    fails = Words("{pytorch} fails at the first allocation with {name}:1", "يفشل {pytorch} عند أول تخصيص مع {name}:1")
    idle = Words(
        "{name} of 1 rounds nothing: it means one division of each power of two",
        "القيمة 1 للخيار {name} لا تقرّب شيئًا: فهي جزء واحد لكل قوة من قوى العدد اثنين",
    )
    value = conf.get(name, 0)
    if where.torch < (2, 0) and isinstance(value, tuple):
        yield Objection("error", name, no_list.filled(pytorch=where.pytorch, name=name))
    elif where.torch < (2, 0) and value == 1:
        yield Objection("error", name, fails.filled(pytorch=where.pytorch, name=name))
    elif value and same(name, value, 0, where.torch):
        yield Objection("warning", name, idle.filled(name=name))


def _too_large(conf: Conf, where: Surroundings) -> Iterator[Objection]:
    name = "max_split_size_mb"
    for_card = Words(
        "{name} {value} is larger than the GPU's memory ({card} MiB): it does nothing",
        "القيمة {value} للخيار {name} أكبر من ذاكرة وحدة معالجة الرسوم ({card} ميبي بايت): فلا أثر لها",
    )
    for_any = Words(
        "{name} {value} is {size:g} TiB, larger than any GPU: it does nothing",
        "القيمة {value} للخيار {name} هي {size:g} تيبي بايت، أكبر من ذاكرة أي وحدة: فلا أثر لها",
    )
    value = conf.get(name)
    if not isinstance(value, int):
        return
    if where.capacity is not None and value * _MIB > where.capacity:
        card = f"{where.capacity / _MIB:.0f}"
        yield Objection("warning", name, for_card.filled(name=name, value=value, card=card))
    elif value >= _LARGER_THAN_ANY_GPU:
        said = for_any.filled(name=name, value=value, size=value / _LARGER_THAN_ANY_GPU)
        yield Objection("warning", name, said)


def _ignored_by_back_end(conf: Conf, _where: Surroundings) -> Iterator[Objection]:
    """With cudaMallocAsync nothing else in the variable is read (seen on 2.9.1, 2.11.0 and 2.14.1)."""
    for name in conf:
        if name != "backend" and not same(name, conf[name], OPTIONS[name].default):
            yield Objection("warning", name, IGNORED_BY_BACK_END.filled(name=name))


def _expandable(conf: Conf, where: Surroundings) -> Iterator[Objection]:
    unsupported = Words(
        "expandable_segments is not supported on this platform: PyTorch leaves it off",
        "لا تُدعَم expandable_segments على هذا النظام: فيتركها PyTorch معطّلة",
    )
    against = Words(
        "max_split_size_mb works against expandable_segments: large free memory is kept from small requests",
        "يعمل max_split_size_mb ضد expandable_segments: فتُحجَب الذاكرة الحرة الكبيرة عن الطلبات الصغيرة",
    )
    if not conf.get("expandable_segments"):
        return
    if where.platform in {"win32", "darwin"}:
        yield Objection("warning", "expandable_segments", unsupported)
    elif isinstance(conf.get("max_split_size_mb"), int):
        # free expandable blocks of that size are refused to smaller requests (CUDACachingAllocator.cpp, get_free_block)
        yield Objection("warning", "max_split_size_mb", against, "only one of the two")


def _collects_nothing(conf: Conf, where: Surroundings) -> Iterator[Objection]:
    name = "garbage_collection_threshold"
    message = Words(
        "{name} does nothing until a memory limit is set ({how})", "لا أثر للخيار {name} حتى يوضع حدّ للذاكرة ({how})"
    )
    fraction = conf.get("per_process_memory_fraction", 1.0)
    if where.limited or conf.get(name, 0.0) == 0.0 or (isinstance(fraction, float) and fraction < 1):
        return
    how = "torch.cuda.set_per_process_memory_fraction" + (" < 1" if where.torch >= (2, 12) else "")
    yield Objection("warning", name, message.filled(name=name, how=how))


def _no_memory(conf: Conf, _where: Surroundings) -> Iterator[Objection]:
    name = "per_process_memory_fraction"
    message = Words(
        "{name} of 0 leaves this process no GPU memory at all", "القيمة 0 للخيار {name} لا تُبقي لهذه العملية أي ذاكرة"
    )
    if conf.get(name) == 0:
        yield Objection("warning", name, message.filled(name=name))


def _idle_alone(conf: Conf, where: Surroundings) -> Iterator[Objection]:
    def at_default(name: str) -> bool:
        default = OPTIONS[name].default
        return same(name, conf.get(name, default), default, where.torch)

    for name in conf:
        needed = OPTIONS[name].needs
        if needed and at_default(needed) and not at_default(name):
            yield Objection("warning", name, IDLE_ALONE.filled(name=name, needed=needed))


def _rounded_but_not_cached(conf: Conf, _where: Surroundings) -> Iterator[Objection]:
    message = Words(
        "pinned memory above pinned_max_cached_size_mb ({cached}) is never rounded up, whatever this says",
        "الذاكرة المثبّتة فوق pinned_max_cached_size_mb ({cached}) لا تُقرَّب أبدًا، مهما كانت هذه القيمة",
    )
    rounded, cached = conf.get("pinned_max_round_threshold_mb"), conf.get("pinned_max_cached_size_mb")
    if isinstance(rounded, int) and isinstance(cached, int) and rounded > cached:
        yield Objection("warning", "pinned_max_round_threshold_mb", message.filled(cached=cached))


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
    _idle_alone,
    _rounded_but_not_cached,
)
