"""AllocConf: a configuration as a value, and what a PyTorch release has against it."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from colab_alloc.conf import divisions, grammar, version
from colab_alloc.conf.options import BACKENDS, OPTIONS, UNLIMITED, Kind, Option, Value
from colab_alloc.conf.problem import AllocConfError, Problem, Span

_WHOLE_NUMBER: Final = re.compile(r"[0-9]{1,20}")
_NUMBER: Final = re.compile(r"[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+\.")


class AllocConf(Mapping[str, Value]):
    """An immutable mapping of option names to values; an option that is absent has PyTorch's default.

    Sizes are in MiB, as in the options' own names. `UNLIMITED` is the value of a size without a limit.

    >>> conf = AllocConf(max_split_size_mb=128) | {"garbage_collection_threshold": 0.8}
    >>> str(conf)
    'max_split_size_mb:128,garbage_collection_threshold:0.8'
    >>> AllocConf.parse(str(conf)) == conf
    True

    Raises:
        AllocConfError: a name that no PyTorch knows, or a value that is not of the option's kind.
    """

    __slots__ = ("_settings", "_text")

    def __init__(self, settings: Mapping[str, Any] | None = None, /, **options: Any) -> None:
        given = {**(settings or {}), **options}
        values: dict[str, Value] = {}
        for name, value in given.items():
            values[name], message = _checked(name, value)
            if message:
                text = f"{name}:{value}"
                raise AllocConfError(text, [_error(name, (0, len(text)), message)])
        self._settings = {name: values[name] for name in OPTIONS if name in values}
        self._text = str(self)

    @classmethod
    def parse(cls, text: str) -> AllocConf:
        """Read a text of the variable; of an option named twice the last value counts, as in PyTorch.

        Raises:
            AllocConfError: the text is not of the grammar, or names and values in it are not; all that is wrong is
                in its `problems`, with the places in the text.
        """
        values: dict[str, Value] = {}
        problems: list[Problem] = []
        for setting in grammar.parse(text):
            value, message = _read(setting)
            if message:
                problems.append(_error(setting.name.text, setting.span, message))
            else:
                values[setting.name.text] = value
        if problems:
            raise AllocConfError(text, problems)
        conf = cls(values)
        conf._text = text
        return conf

    def problems(self, torch: str | None = None) -> list[Problem]:
        """Return what that PyTorch has against this configuration, with places in the text it was read from.

        Args:
            torch: a PyTorch version like "2.11"; the installed one when None, else the newest known.
        """
        build = version.installed()
        number = version.release(torch) if torch else build.release if build else version.NEWEST
        spans = {setting.name.text: setting.span for setting in grammar.parse(self._text)}
        found = []
        for name, value in self.items():
            message, fix = _refusal(OPTIONS[name], value, self, number)
            if message:
                found.append(Problem("error", name, spans[name], message, fix))
        return found

    def for_torch(self) -> str:
        """Return the text to give to PyTorch: as `str`, without the defaults that PyTorch has no word for."""
        return grammar.write(
            {
                name: value
                for name, value in self.items()
                if OPTIONS[name].default_can_be_written or not same(name, value, OPTIONS[name].default)
            }
        )

    def without(self, *names: str) -> AllocConf:
        """Return a configuration that lacks these options."""
        return AllocConf({name: value for name, value in self.items() if name not in names})

    def only(self, *names: str) -> AllocConf:
        """Return a configuration of these options alone, as far as they are here."""
        return AllocConf({name: value for name, value in self.items() if name in names})

    def __or__(self, other: Mapping[str, Any]) -> AllocConf:
        return AllocConf({**self, **other})

    def __getitem__(self, name: str) -> Value:
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __hash__(self) -> int:
        return hash(tuple(self._settings.items()))

    def __str__(self) -> str:
        return grammar.write(self._settings)

    def __repr__(self) -> str:
        return "AllocConf(" + ", ".join(f"{name}={value!r}" for name, value in self.items()) + ")"


def same(name: str, one: Value, other: Value, torch: version.Release = version.NEWEST) -> bool:
    """Say whether two values of an option do the same, however they are written."""
    if OPTIONS[name].kind is Kind.DIVISIONS:
        return _rounding(one, torch) == _rounding(other, torch)
    return one == other


def _rounding(value: Value, torch: version.Release) -> tuple[int, ...]:
    """Return the slots; 1 division is no rounding, like 0 (round_size in CUDACachingAllocator.cpp, 2.6 to 2.14)."""
    assert isinstance(value, (int, tuple))  # noqa: S101 - _checked saw to it
    return tuple(0 if slot == 1 else slot for slot in divisions.slots(value, torch))


def _error(name: str, span: Span, message: str) -> Problem:
    close = difflib.get_close_matches(name, OPTIONS, n=1) if name not in OPTIONS else []
    return Problem("error", name, span, message, f"{close[0]}, if that is what you meant" if close else None)


def _checked(name: str, value: Any) -> tuple[Value, str | None]:
    """Return the value in its one form, and what is wrong with it, if anything."""
    option = OPTIONS.get(name)
    if option is None:
        return value, f"{name} is not an option of PyTorch's allocator"
    kind = option.kind
    if kind is Kind.DIVISIONS:
        return _checked_divisions(value)
    if kind is Kind.FRACTION and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    fits = {
        Kind.BACKEND: value in BACKENDS,
        Kind.FLAG: isinstance(value, bool),
        Kind.FRACTION: isinstance(value, float) and math.isfinite(value),
        Kind.MIB: _is_count(value) or (value is UNLIMITED and option.default is UNLIMITED),
        Kind.COUNT: _is_count(value),
    }[kind]
    return value, None if fits else f"{name} takes {_takes(option)}, not {value!r}"


def _takes(option: Option) -> str:
    return f"{BACKENDS[0]} or {BACKENDS[1]}" if option.kind is Kind.BACKEND else option.kind.value


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _checked_divisions(value: Any) -> tuple[Value, str | None]:
    """Check one number of divisions, or sizes with theirs (a mapping, or pairs)."""
    if isinstance(value, int) and not isinstance(value, bool):
        fits = value == 0 or divisions.is_power_of_two(value)
        return value, None if fits else f"roundup_power2_divisions must be a power of two, not {value}"
    try:
        pairs = tuple((size, number) for size, number in (value.items() if hasattr(value, "items") else value))
    except (TypeError, ValueError):
        return value, f"roundup_power2_divisions takes {Kind.DIVISIONS.value}, not {value!r}"
    for size, number in pairs:
        if size != divisions.REST and not (_is_count(size) and divisions.is_power_of_two(size)):
            return value, f"a size in roundup_power2_divisions must be a power of two in MiB or >, not {size}"
        if not _is_count(number) or (number and not divisions.is_power_of_two(number)):
            return value, f"the divisions for size {size} must be a power of two or 0, not {number}"
    return pairs, None


def _read(setting: grammar.Setting) -> tuple[Value, str | None]:
    """Return the value of a setting of the text, and what is wrong with it, if anything."""
    name, written = setting.name.text, setting.value
    option = OPTIONS.get(name)
    if option is None:
        return 0, _checked(name, None)[1]
    if isinstance(written, tuple):
        if option.kind is not Kind.DIVISIONS:
            return 0, f"{name} takes {_takes(option)}, not a list"
        return _checked_divisions([(_number(size.text), _number(number.text)) for size, number in written])
    return _checked(name, _word(option, written.text))


def _number(text: str) -> int | str:
    return int(text) if _WHOLE_NUMBER.fullmatch(text) else text


def _word(option: Option, text: str) -> Any:
    """Return a word as the kind of value it spells, or as it stands when it spells none."""
    if option.kind is Kind.FLAG:
        return {"True": True, "False": False}.get(text, text)
    if option.kind is Kind.FRACTION:
        return float(text) if _NUMBER.fullmatch(text) else text
    if text == str(UNLIMITED):
        return UNLIMITED
    return text if option.kind is Kind.BACKEND else _number(text)


def _refusal(option: Option, value: Value, conf: AllocConf, torch: version.Release) -> tuple[str | None, str | None]:
    """Return why that release would refuse the value (None: it would not), and what to write instead."""
    if not option.known_to(torch):
        return f"PyTorch {version.shown(torch)} does not know {option.name}", None
    if same(option.name, value, option.default, torch) or not isinstance(value, (int, float)):
        return None, None
    allowed = option.range_in(torch)
    if not allowed.holds(value):
        nearest = f"{option.name}:{allowed.low:g}" if allowed.inclusive and allowed.low is not None else None
        return f"{option.name} must be {allowed} in PyTorch {version.shown(torch)}, not {value}", nearest
    return _below_large_segment(option, value, conf) or _not_power_of_two(option, value) or (None, None)


def _below_large_segment(option: Option, value: float, conf: AllocConf) -> tuple[str, str] | None:
    """Two options have the large segment as their lower bound (AllocatorConfig.cpp, 2.11 and later)."""
    large = conf.get("large_segment_size_mb", OPTIONS["large_segment_size_mb"].default)
    bounded = option.name in {"max_split_size_mb", "max_non_split_rounding_mb"}
    if not bounded or not isinstance(large, int) or value >= large:
        return None
    message = f"{option.name} must not be below large_segment_size_mb ({large}), but is {value}"
    return message, f"{option.name}:{large}"


def _not_power_of_two(option: Option, value: float) -> tuple[str, None] | None:
    if option.name != "pinned_num_register_threads" or divisions.is_power_of_two(int(value)):
        return None
    return f"{option.name} must be a power of two, not {value}", None
