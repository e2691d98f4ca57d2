"""predict(): what a PyTorch release does with exactly this text, its laxness included.

PyTorch has had two parsers since 2.0. Up to 2.9 one strict parser reads the text when CUDA starts. From 2.10 on the
text is walked three times by parsers that check few separators: once at `import torch`, for the back end alone
(CUDACachingAllocator.cpp), and twice at CUDA start, by the parser of the CUDA options (CUDAAllocatorConfig.cpp) and
by the one of the options all accelerators share (AllocatorConfig.cpp). Each skips the options of the other. Where the
back end is cudaMallocAsync, nothing else in the text is ever read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from colab_alloc.conf import divisions, version
from colab_alloc.conf.options import BACKENDS, OPTIONS, Kind, Option, Value, known_to
from colab_alloc.result import Result

Outcome = Literal["accepted", "raises at CUDA start", "aborts the process at import"]

OLDEST_PREDICTED: Final = (2, 0)

_UNIFIED: Final = (2, 10)  # the first release with the three walks
_SIZE_MAX: Final = 2**64 - 1
_LARGEST_MIB: Final = _SIZE_MAX // (1 << 20)
_SPACE: Final = " \t\n\v\f\r"  # isspace in the C locale

_OUT_OF_BOUNDS: Final = "Index out of bounds in ConfigTokenizer"
_OTHER_BACKEND: Final = "Allocator backend parsed at runtime != allocator backend parsed at load time"
_UNCLOSED: Final = "Expected closing bracket ']' in ConfigTokenizer but reached end of config"


@dataclass(frozen=True, repr=False)
class Verdict(Result):
    """What a PyTorch does with a configuration text.

    Args:
        text: the text, exactly as PyTorch would get it.
        torch: the release, like "2.14".
        outcome: "accepted", "raises at CUDA start" or "aborts the process at import".
        message: PyTorch's own words, without the place in its source; None when accepted.
        settings: the options as PyTorch reads them, empty unless accepted.
    """

    text: str
    torch: str
    outcome: Outcome
    message: str | None
    settings: dict[str, Value]


class _Refusal(Exception):  # noqa: N818 - it is PyTorch's error, not ours
    """PyTorch refuses the text with these words."""


def predict(text: str, torch: str | None = None) -> Verdict:
    """Return what a PyTorch does with exactly this text in its variable, in a new process.

    Args:
        text: the text of the variable.
        torch: a PyTorch version like "2.11"; the installed one when None, else the newest known.

    Raises:
        ValueError: the version is older than 2.0, whose parser is not described here.
        TypeError: it is no text.
    """
    if not isinstance(text, str):
        raise TypeError(f"predict takes the text that PyTorch would get, not {type(text).__name__}; str() makes one")
    build = version.installed()
    number = version.release(torch) if torch is not None else build.release if build else version.NEWEST
    if number < OLDEST_PREDICTED:
        raise ValueError(f"PyTorch {version.shown(number)} is older than 2.0, the oldest whose parser is known here")
    shown = version.shown(number)
    read = _Unified(text, number) if number >= _UNIFIED else _Legacy(text, number)
    try:
        read.at_import()
    except _Refusal as refusal:
        return Verdict(text, shown, "aborts the process at import", str(refusal), {})
    if read.loaded != BACKENDS[0]:
        return Verdict(text, shown, "accepted", None, {"backend": read.loaded})
    try:
        settings = read.at_cuda_start()
    except _Refusal as refusal:
        return Verdict(text, shown, "raises at CUDA start", str(refusal), {})
    return Verdict(text, shown, "accepted", None, settings)


class _Parser:
    """What both parsers share: the tokens, and the reading of single values."""

    spaces: str

    def __init__(self, text: str, torch: version.Release) -> None:
        self.torch = torch
        kept = "".join(character for character in text if character not in self.spaces)
        self.tokens: list[str] = re.findall(r"[,:\[\]]|[^,:\[\]]+", kept)
        self.options = {name: option for option in known_to(torch) for name in (option.name, *option.aliases)}
        self.settings: dict[str, Value] = {}
        self.text = text
        self.loaded = BACKENDS[0]

    def backend(self, word: str) -> str:
        """Read the back end once more, at CUDA start; by then it is loaded."""
        if word not in BACKENDS:
            raise _Refusal("Unknown allocator backend, options are native and cudaMallocAsync")
        if word != self.loaded:
            raise _Refusal(_OTHER_BACKEND)
        return word

    def over_earlier(self, pairs: tuple[tuple[divisions.SizeKey, int], ...]) -> divisions.Divisions:
        """Fill the slots that an earlier `roundup_power2_divisions` of the same text has left."""
        earlier = self.settings.get("roundup_power2_divisions", 0)
        assert isinstance(earlier, (int, tuple))  # noqa: S101 - it is divisions
        return divisions.from_slots(divisions.slots(pairs, self.torch, over=divisions.slots(earlier)))

    def at_import(self) -> None:
        """Load the back end, as `import torch` does."""
        raise NotImplementedError

    def at_cuda_start(self) -> dict[str, Value]:
        """Return the settings that CUDA starts with."""
        raise NotImplementedError


class _Unified(_Parser):
    """The three walks of 2.10 and later. `self.tokens[i]` past the end is an internal assert."""

    spaces = _SPACE

    def at_import(self) -> None:
        """Look for the back end alone; what follows it is not looked at."""
        i = 0
        while i < len(self.tokens):
            if self.tokens[i] == "backend":
                self.loaded = _loaded(self.tokens[self.take(i)])
                return
            i = self.skip(i) + 2

    def at_cuda_start(self) -> dict[str, Value]:
        self.walk(self.cuda_reader)
        self.read_large_segment()
        self.walk(self.shared_reader)
        return self.settings

    def walk(self, reader_of: Callable[[str], Callable[[int], int]]) -> None:
        """Read the key at each place; the token after a value is stepped over, whatever it is."""
        i = 0
        while i < len(self.tokens):
            i = reader_of(self.tokens[i])(i) + 2

    def cuda_reader(self, key: str) -> Callable[[int], int]:
        option = self.options.get(key)
        if option is None:
            raise _Refusal(f"Unrecognized key '{key}' in CUDA allocator config.")
        return self.skip if option.shared else self.read

    def shared_reader(self, key: str) -> Callable[[int], int]:
        return self.read if self.options[key].shared and key != "large_segment_size_mb" else self.skip

    def read_large_segment(self) -> None:
        """The lower bound of others is read first, wherever its name stands."""
        i = 0
        while i < len(self.tokens):
            known = self.tokens[i] == "large_segment_size_mb" and self.tokens[i] in self.options
            i = (self.read(i) if known else i) + 1

    def token(self, i: int) -> str:
        if i >= len(self.tokens):
            raise _Refusal(_OUT_OF_BOUNDS)
        return self.tokens[i]

    def take(self, key_at: int) -> int:
        self.token(key_at + 1)
        self.token(key_at + 2)
        return key_at + 2

    def skip(self, key_at: int) -> int:
        """Step over a value, or a list of them."""
        i = self.take(key_at)
        if self.tokens[i] != "[":
            return i
        if "]" not in self.tokens[i + 1 :]:
            raise _Refusal(_UNCLOSED)
        return self.tokens.index("]", i + 1)

    def read(self, key_at: int) -> int:
        """Read the value of the key at this place and return the place where it ends."""
        option = self.options[self.tokens[key_at]]
        value: Value
        i = self.take(key_at)
        if option.kind is Kind.DIVISIONS:
            value, i = self.divisions(i)
        elif option.kind is Kind.FLAG:
            word = self.tokens[i]
            value = _flag(word, f"Expected 'True' or 'False' at index {i} in ConfigTokenizer but got '{word}'")
        elif option.kind is Kind.BACKEND:
            value = self.backend(self.tokens[i])
        else:
            number = _stod(self.tokens[i]) if option.kind is Kind.FRACTION else _stoull(self.tokens[i])
            value = self.checked(option, number)
        self.settings[option.name] = value
        return i

    def checked(self, option: Option, number: float) -> Value:
        large = self.settings.get("large_segment_size_mb", OPTIONS["large_segment_size_mb"].default)
        message = _out_of_range(option.name, number, large)
        if message:
            raise _Refusal(message)
        return min(int(number), _LARGEST_MIB) if option.kind is Kind.MIB else number

    def divisions(self, i: int) -> tuple[divisions.Divisions, int]:
        if self.tokens[i] != "[":
            return _scalar_divisions(_stoull(self.tokens[i]), "divisions"), i
        pairs = []
        i += 1
        while i < len(self.tokens) and self.tokens[i] != "]":
            size = self.tokens[i]
            self.token(i + 1)
            pairs.append(_pair(size, _stoull(self.token(i + 2)), _stoull, "divisions"))
            i += 3 if self.token(i + 3) == "]" else 4
        if i >= len(self.tokens):
            raise _Refusal(_UNCLOSED)
        return self.over_earlier(tuple(pairs)), i


class _Legacy(_Parser):
    """The one strict parser of 2.0 to 2.9 (CUDAAllocatorConfig.cpp), which only deletes blanks."""

    spaces = " "

    def at_import(self) -> None:
        """Look for the back end with regular expressions (CUDACachingAllocator.cpp), which never fail."""
        for option in re.split(r"[ \t\n\v\f\r,]+", self.text):
            name, _, value = re.sub(":+", ":", option).partition(":")
            if name == "backend" and value.split(":")[0] in BACKENDS:
                self.loaded = value.split(":")[0]
                return

    def at_cuda_start(self) -> dict[str, Value]:
        i = 0
        while i < len(self.tokens):
            i = self.read(i) + 1
            if i < len(self.tokens):
                self.expect(",", i)
                i += 1
        return self.settings

    def expect(self, mark: str, i: int) -> None:
        if i >= len(self.tokens) or self.tokens[i] != mark:
            raise _Refusal(f"Error parsing CachingAllocator settings, expected {mark}")

    def read(self, key_at: int) -> int:
        """Read the value of the key at this place and return the place where it ends."""
        option = self.options.get(self.tokens[key_at])
        if option is None:
            raise _Refusal(f"Unrecognized CachingAllocator option: {self.tokens[key_at]}")
        self.expect(":", key_at + 1)
        i = key_at + 2
        if i >= len(self.tokens):
            raise _Refusal(self.missing(option))
        word = self.tokens[i]
        value: Value
        if option.kind is Kind.DIVISIONS:
            value, i = self.divisions(i)
        elif option.kind is Kind.FLAG:
            value = _flag(word, f"Expected a single True/False argument for {option.name}")
        elif option.kind is Kind.BACKEND:
            value = self.backend(word)
        else:
            value = self.checked(option, _stod(word) if option.kind is Kind.FRACTION else _stoi(word))
        self.settings[option.name] = value
        return i

    @staticmethod
    def missing(option: Option) -> str:
        if option.kind is Kind.FLAG and option.name != "pinned_use_cuda_host_register":
            return f"Expected a single True/False argument for {option.name}"
        if option.kind is Kind.BACKEND:
            return "Error parsing backend value"
        return f"Error, expecting {option.name} value"

    @staticmethod
    def checked(option: Option, number: float) -> Value:
        message = _legacy_out_of_range(option.name, number)
        if message:
            raise _Refusal(message)
        return min(int(number), _LARGEST_MIB) if option.kind is Kind.MIB else number

    def divisions(self, i: int) -> tuple[divisions.Divisions, int]:
        if self.tokens[i] != "[":
            return _scalar_divisions(_stoi(self.tokens[i]), self.word), i
        pairs = []
        i += 1
        while i < len(self.tokens) and self.tokens[i] != "]":
            size = self.tokens[i]
            self.expect(":", i + 1)
            if i + 2 >= len(self.tokens):
                raise _Refusal("Error parsing roundup_power2_divisions value")
            pairs.append(_pair(size, _stoi(self.tokens[i + 2]), _stoi, self.word))
            i += 3
            if i >= len(self.tokens) or self.tokens[i] != "]":
                self.expect(",", i)
                i += 1
        return self.over_earlier(tuple(pairs)), i

    @property
    def word(self) -> str:
        return "divisions" if self.torch >= (2, 9) else "divisons"


def _flag(word: str, message: str) -> bool:
    if word not in {"True", "False"}:
        raise _Refusal(message)
    return word == "True"


def _loaded(word: str) -> str:
    """Return the back end that is loaded at import: any word but the other one's name means the native one."""
    return word if word in BACKENDS else BACKENDS[0]


def _pair(size: str, number: int, read: Callable[[str], int], word: str) -> tuple[divisions.SizeKey, int]:
    """Read one entry of a list of divisions; its number is read before its size."""
    if number and not divisions.is_power_of_two(number):
        raise _Refusal(f"For roundups, the {word} has to be power of 2 or 0 to disable roundup ")
    if size == divisions.REST:
        return divisions.REST, number
    boundary = read(size)
    if not divisions.is_power_of_two(boundary):
        raise _Refusal("For roundups, the intervals have to be power of 2 ")
    return boundary, number


def _scalar_divisions(number: int, word: str) -> int:
    if not divisions.is_power_of_two(number):
        raise _Refusal(f"For roundups, the {word} has to be power of 2 ")
    return number


def _out_of_range(name: str, number: float, large_segment: Value) -> str | None:
    """Return what 2.10 and later say of a number that is out of range."""
    assert isinstance(large_segment, int)  # noqa: S101 - it is a whole number of MiB
    bounded = name in {"max_split_size_mb", "max_non_split_rounding_mb"}
    checks = {
        "large_segment_size_mb": (number > 10, "CachingAllocator option large_segment_size_mb must be > 10 MB"),  # noqa: PLR2004 - kMinLargeAlloc
        "garbage_collection_threshold": (
            0 < number < 1,
            "garbage_collect_threshold is invalid, set it in (0.0, 1.0)",
        ),
        "per_process_memory_fraction": (
            0 <= number <= 1,
            "per_process_memory_fraction is invalid, set it in [0.0, 1.0]",
        ),
        "pinned_reserve_segment_size_mb": (
            number > 0,
            "Pinned reserve segment size has to be greater than 0",
        ),
    }
    if bounded:
        message = f"CachingAllocator option {name} too small, must be >= {large_segment}"
        return None if number >= large_segment else message
    if name == "pinned_num_register_threads":
        return _bad_thread_count(int(number), f", got {int(number)}")
    fits, message = checks.get(name, (True, ""))
    return None if fits else message


def _legacy_out_of_range(name: str, number: float) -> str | None:
    """Return what 2.0 to 2.9 say of a number that is out of range."""
    if name in {"max_split_size_mb", "max_non_split_rounding_mb"} and number <= 20:  # noqa: PLR2004 - kLargeBuffer
        return f"CachingAllocator option {name} too small, must be > 20"
    if name == "garbage_collection_threshold" and not number > 0:
        return "garbage_collect_threshold too small, set it 0.0~1.0"
    if name == "garbage_collection_threshold" and not number < 1:
        return "garbage_collect_threshold too big, set it 0.0~1.0"
    if name == "pinned_num_register_threads":
        return _bad_thread_count(int(number), "")
    return None


def _bad_thread_count(number: int, got: str) -> str | None:
    if not divisions.is_power_of_two(number):
        return f"Number of register threads has to be power of 2{got or ' '}"
    if number > 128:  # noqa: PLR2004 - pinned_max_register_threads
        return f"Number of register threads should be less than or equal to 128{got}"
    return None


def _stoull(token: str) -> int:
    """Read like C's strtoull: the digits after white space count, a minus sign wraps around."""
    match = re.match(r"([+-]?)([0-9]+)", token.lstrip(_SPACE))
    number = _whole(match[2]) if match else None
    if not match or number is None or number > _SIZE_MAX:
        raise _Refusal("stoull")
    return number if match[1] != "-" else -number % (_SIZE_MAX + 1)


def _stoi(token: str) -> int:
    """Read like C++'s stoi into a size_t: as _stoull, but of 32 bits."""
    match = re.match(r"([+-]?)([0-9]+)", token.lstrip(_SPACE))
    size = _whole(match[2]) if match else None
    number = -size if match and size is not None and match[1] == "-" else size
    if number is None or not -(2**31) <= number < 2**31:
        raise _Refusal("stoi")
    return number % (_SIZE_MAX + 1)


def _whole(digits: str) -> int | None:
    """Return a number; None where it has more digits than any that PyTorch could hold, and than Python converts."""
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) <= len(str(_SIZE_MAX)) else None


_STOD: Final = re.compile(
    r"[+-]?(?:(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?)"
    r"|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)|(inf(?:inity)?|nan))",
    re.IGNORECASE,
)
_SMALLEST_NORMAL: Final = 2.0**-1022


def _stod(token: str) -> float:
    """Read like C's strtod: the number at the beginning counts; too large and too small ones are refused."""
    match = _STOD.match(token.lstrip(_SPACE))
    if not match:
        raise _Refusal("stod")
    try:
        number = float.fromhex(match[0]) if match[1] else float(match[0])
    except OverflowError:
        raise _Refusal("stod") from None
    digits = re.split("[pP]", match[1][2:])[0] if match[1] else re.split("[eE]", match[2] or "")[0]
    overflow = number in (float("inf"), float("-inf")) and not match[3]
    underflow = 0 < abs(number) < _SMALLEST_NORMAL or (number == 0 and re.search("[1-9a-fA-F]", digits))
    if overflow or underflow:
        raise _Refusal("stod")
    return number
