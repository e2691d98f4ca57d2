"""One option's value: from the words of a text, and checked for its kind."""

from __future__ import annotations

import difflib
import math
import re
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from colab_alloc.conf import divisions, grammar, version
from colab_alloc.conf.options import BACKENDS, OPTIONS, UNLIMITED, Kind, Option, Value
from colab_alloc.conf.problem import Problem

_AMOUNT: Final = re.compile(r"\+?([0-9]{1,20}(?:\.[0-9]{0,20})?(?:e[0-9]{1,2})?)([a-z]*)", re.IGNORECASE)
_DIGITS_AND_MORE: Final = re.compile(r"([0-9]{1,20})[a-df-wyz_]\w*", re.IGNORECASE)  # no hexadecimal, no exponent
_FRACTION: Final = re.compile(r"\+?([0-9]{0,20}\.?[0-9]{1,20}(?:e[+-]?[0-9]{1,3})?|[0-9]{1,20}\.)(%?)", re.IGNORECASE)
_FLAGS: Final = {
    "true": True,
    "1": True,
    "on": True,
    "yes": True,
    "false": False,
    "0": False,
    "off": False,
    "no": False,
}
_LARGEST: Final = 2**64 - 1
_FRACTION_OF_A_PAGE: Final = 1e-6


class Unreadable(Exception):  # noqa: N818 - it becomes a Problem
    """A word that is no value of its option.

    Args:
        message: what is wrong.
        fix: what to write instead, None when nothing can be suggested.
    """

    def __init__(self, message: str, fix: str | None = None) -> None:
        super().__init__(message)
        self.message, self.fix = message, fix


@dataclass(frozen=True)
class Read:
    """A setting understood: the option's name, its value, and what was put right to read it."""

    name: str
    value: Value
    repairs: tuple[Problem, ...]


def read(setting: grammar.Setting) -> Read:
    """Understand one setting of a text.

    Raises:
        Unreadable: it is no option, or no value of the option.
    """
    repairs = []
    option = option_of(setting.name.text)
    if option.name != setting.name.text:
        message = f"{setting.name.text} was read as {option.name}"
        repairs.append(Problem("repair", option.name, setting.name.span, message))
    value = checked(option.name, _value(option, setting.value))
    plain = _spelling(setting.value)
    written = grammar.written(value)
    if not _means_itself(option, plain, written):
        span = (setting.name.span[1] + 1, setting.end)
        repairs.append(Problem("repair", option.name, span, f"{plain} was read as {written}"))
    return Read(option.name, value, tuple(repairs))


def typed(option: Option, text: str) -> Value:
    """Understand a value that was typed by itself.

    Raises:
        Unreadable: it is no value of the option.
    """
    return checked(option.name, _word(option, grammar.plain(text).strip()))


def checked(name: str, value: Any) -> Value:
    """Return a value in the one form it has, if it is of the option's kind.

    Raises:
        Unreadable: it is not, or there is no such option.
    """
    if not isinstance(name, str):
        raise Unreadable(f"the name of an option is a text, not {name!r}")
    option = option_of(name, exactly=True)
    if option.kind is Kind.DIVISIONS:
        return _checked_divisions(value)
    if option.kind is Kind.FRACTION and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) <= _LARGEST else math.inf
    fits = {
        Kind.BACKEND: value in BACKENDS,
        Kind.FLAG: isinstance(value, bool),
        Kind.FRACTION: isinstance(value, float) and _can_be_read(value),
        Kind.MIB: _is_count(value) or (value is UNLIMITED and option.default is UNLIMITED),
        Kind.COUNT: _is_count(value),
    }[option.kind]
    if not fits:
        raise Unreadable(f"{name} takes {_takes(option)}, not {value!r}", _for_example(option))
    checked_value: Value = value
    return checked_value


def same(name: str, one: Value, other: Value, torch: version.Release = version.NEWEST) -> bool:
    """Say whether two values of an option do the same, however they are written."""
    if OPTIONS[name].kind is Kind.DIVISIONS:
        return _rounding(one, torch) == _rounding(other, torch)
    if name == "per_process_memory_fraction" and isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, abs_tol=_FRACTION_OF_A_PAGE)  # PyTorch keeps it as a number of bytes
    return one == other


def _rounding(value: Value, torch: version.Release) -> tuple[int, ...]:
    """Return the slots; 1 division is no rounding, like 0 (round_size in CUDACachingAllocator.cpp, 2.6 to 2.14)."""
    assert isinstance(value, (int, tuple))  # noqa: S101 - `checked` saw to it
    return tuple(0 if slot == 1 else slot for slot in divisions.slots(value, torch))


def option_of(name: str, *, exactly: bool = False) -> Option:
    """Return the option of a name, also in another case or with hyphens unless exactly.

    Raises:
        Unreadable: no PyTorch has such an option.
    """
    wanted = name if exactly else name.lower().replace("-", "_")
    aliases = {alias: option for option in OPTIONS.values() for alias in option.aliases}
    option = OPTIONS.get(wanted) or aliases.get(wanted)
    if option is None:
        close = difflib.get_close_matches(wanted[:80], OPTIONS, n=1, cutoff=0.75)
        fix = f"{close[0]}, if that is what you meant" if close else None
        raise Unreadable(f"{name[:80]} is not an option of PyTorch's allocator", fix)
    return option


def _takes(option: Option) -> str:
    return f"{BACKENDS[0]} or {BACKENDS[1]}" if option.kind is Kind.BACKEND else option.kind.value


def _can_be_read(number: float) -> bool:
    """Say whether PyTorch's std::stod reads the number: it refuses those too small for full precision."""
    return math.isfinite(number) and (number == 0 or abs(number) >= sys.float_info.min)


def _for_example(option: Option) -> str:
    return f"for example {option.name}:{grammar.written(option.examples[0])}"


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST


def _checked_divisions(value: Any) -> divisions.Divisions:
    """Check one number of divisions, or sizes with theirs (a mapping, or pairs)."""
    name = "roundup_power2_divisions"
    if _is_count(value):
        if value and not divisions.is_power_of_two(value):
            raise Unreadable(f"{name} must be a power of two, not {value}", _nearest_power(name, value))
        number: int = value
        return number
    listed: Any = None if isinstance(value, (str, bytes)) else value.items() if hasattr(value, "items") else value
    try:
        pairs = tuple((size, number) for size, number in listed)
    except (TypeError, ValueError):
        fix = _for_example(OPTIONS[name])
        raise Unreadable(f"{name} takes {Kind.DIVISIONS.value}, not {value!r}", fix) from None
    for size, number in pairs:
        if size != divisions.REST and not (_is_count(size) and divisions.is_power_of_two(size)):
            raise Unreadable(f"a size in {name} must be a power of two in MiB or >, not {size}")
        if not _is_count(number) or (number and not divisions.is_power_of_two(number)):
            raise Unreadable(f"the divisions for size {size} must be a power of two or 0, not {number}")
    return pairs


def _nearest_power(name: str, value: int) -> str:
    return f"{name}:{1 << (value.bit_length() - 1)}"


def _value(option: Option, written: grammar.Word | tuple[tuple[grammar.Word, grammar.Word], ...]) -> Any:
    """Return what the words of a setting spell, for `checked` to accept or refuse."""
    if isinstance(written, grammar.Word):
        return _word(option, written.text)
    if option.kind is not Kind.DIVISIONS:
        raise Unreadable(f"{option.name} takes {_takes(option)}, not a list", _for_example(option))
    return [
        (divisions.REST if size.text == divisions.REST else _mib(option, size.text), _mib(option, number.text))
        for size, number in written
    ]


def _word(option: Option, text: str) -> Any:
    if option.kind is Kind.FLAG:
        return _FLAGS.get(text.lower(), text)
    if text.lower() == "off" and not option.default_can_be_written:
        return option.default
    if option.kind is Kind.BACKEND:
        return next((backend for backend in BACKENDS if backend.lower() == text.lower()), text)
    if option.kind is Kind.FRACTION:
        match = _FRACTION.fullmatch(text)
        return text if not match else float(match[1]) / 100 if match[2] else float(match[1])
    if text.lower() == str(UNLIMITED):
        return UNLIMITED
    return _mib(option, text)


def _mib(option: Option, text: str) -> int | str:
    """Return a whole number of MiB (or of whatever the option counts), or the text when it spells none.

    Raises:
        Unreadable: it is an amount, but not a whole number of MiB.
    """
    lax = _DIGITS_AND_MORE.fullmatch(text)
    match = _AMOUNT.fullmatch(text)
    if lax and not (match and match[2].lower() in grammar.UNITS):
        return int(lax[1])  # so does PyTorch, and the repair is shown
    if not match or match[2].lower() not in (grammar.UNITS if option.kind is not Kind.COUNT else {""}):
        return text
    amount = Fraction(match[1]) * grammar.UNITS[match[2].lower()]
    if amount.denominator != 1:
        nearest = max(1, round(amount))
        raise Unreadable(
            f"{text} is not a whole number of MiB, which {option.name} takes", f"{nearest} if that is near"
        )
    return int(amount)


def _spelling(written: grammar.Word | tuple[tuple[grammar.Word, grammar.Word], ...]) -> str:
    if isinstance(written, grammar.Word):
        return written.text
    return "[" + ",".join(f"{size.text}:{number.text}" for size, number in written) + "]"


def _means_itself(option: Option, spelled: str, written: str) -> bool:
    """Say whether PyTorch reads what was spelled as what it would be written as."""
    if option.kind is Kind.FRACTION:
        match = _FRACTION.fullmatch(spelled)
        return match is not None and not match[2]
    return spelled == written
