"""Text to settings with their places, and settings to text.

The grammar is PyTorch's own (`option ("," option)*`, `option = name ":" value`, `value = word | "[" pairs "]"`). What
people write instead of its marks (`=` for `:`, a blank for a comma, look-alike characters, a whole shell line) is
understood where it can mean one thing only, and each such place is told as a repair.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, NoReturn

from colab_alloc.conf.options import BACKENDS, OPTIONS, Value
from colab_alloc.conf.problem import AllocConfError, Problem, Span

# Characters that look or act like the grammar's own, each for one of them, so that places stay the same.
_LOOK_ALIKES: Final = str.maketrans(
    {
        **dict(zip("：﹕∶؛；﹔،，﹐、", ":::;;;,,,,", strict=True)),
        **dict(zip("＝［］｛｝＞＿﹍", "=[]{}>__", strict=True)),
        **dict(zip("“”„‟＂‘’‚‛＇`´", '"' * 5 + "'" * 7, strict=True)),
        **dict(zip("٠١٢٣٤٥٦٧٨٩", "0123456789", strict=True)),
        **dict(zip("۰۱۲۳۴۵۶۷۸۹", "0123456789", strict=True)),
        **dict(zip("０１２３４５６７８９", "0123456789", strict=True)),
        **dict.fromkeys("\u00a0\u2007\u202f\u3000\ufeff\u200b\u200e\u200f", " "),
        "٫": ".",
        "٪": "%",
        "−": "-",
    }
)

# The variable's name anywhere means that a whole line was pasted: export, set, %env, os.environ[...] = "...".
_ASSIGNMENT: Final = re.compile(r"PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF['\"]?\s*[\])]?\s*[=:,]?\s*", re.IGNORECASE)

_TOKEN: Final = re.compile(r"[,:;=\[\]{}]|[^\s,:;=\[\]{}]+")
# PyTorch and CUDA mean powers of 1024 when they say MB, and so do people who quote them.
UNITS: Final = {
    **dict.fromkeys(("", "m", "mb", "mib"), Fraction(1)),
    **dict.fromkeys(("g", "gb", "gib"), Fraction(1024)),
    **dict.fromkeys(("t", "tb", "tib"), Fraction(1024**2)),
    **dict.fromkeys(("k", "kb", "kib"), Fraction(1, 1024)),
    **dict.fromkeys(("b", "bytes"), Fraction(1, 1024**2)),
}
_CANONICAL: Final = {"=": ":", ";": ",", "{": "[", "}": "]"}
_MARKS: Final = frozenset(",:[]=;{}")


@dataclass(frozen=True)
class Word:
    """A run of characters, look-alikes replaced, and where it stands in the text."""

    text: str
    start: int

    @property
    def span(self) -> Span:
        """Start and end in the text."""
        return self.start, self.start + len(self.text)


@dataclass(frozen=True)
class Setting:
    """One `name:value`, not yet understood; a list value is a tuple of (size, divisions) pairs."""

    name: Word
    value: Word | tuple[tuple[Word, Word], ...]
    end: int

    @property
    def span(self) -> Span:
        """Start of the name to end of the value."""
        return self.name.start, self.end


@dataclass
class Parsed:
    """The settings of a text in the order written, and what was put right to read them."""

    settings: list[Setting] = field(default_factory=list)
    repairs: list[Problem] = field(default_factory=list)


def parse(text: str) -> Parsed:
    """Return the settings of a text; a comma at the end is allowed, as in PyTorch.

    Raises:
        AllocConfError: the text is not of the grammar, and no repair is safe.
    """
    return _Parser(text).parsed()


def write(settings: Mapping[str, Value]) -> str:
    """Return the canonical text of settings, in their order."""
    return ",".join(f"{name}:{written(value)}" for name, value in settings.items())


def written(value: Value) -> str:
    """Return one value as the variable spells it."""
    if isinstance(value, tuple):
        return "[" + ",".join(f"{size}:{divisions}" for size, divisions in value) + "]"
    return str(value)


def plain(text: str) -> str:
    """Return the text with the grammar's own characters for those that look or act like them."""
    return text.translate(_LOOK_ALIKES)


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.plain = plain(text)
        self.result = Parsed()
        self.position = 0
        assignment = _ASSIGNMENT.search(self.plain)
        start, end = self.pasted_value(assignment.end()) if assignment else self.bare_value()
        self.end = end
        self.tokens = self.without_command(start, end) if assignment else self.tokens_of(start, end)
        if assignment:
            taken = "".join(self.plain[start : self.tokens[-1].span[1]].split()) if self.tokens else "nothing"
            self.repair(None, (0, len(self.text)), f"only the value was taken from the line: {taken}")

    def tokens_of(self, start: int, end: int) -> list[Word]:
        return [Word(match[0], match.start()) for match in _TOKEN.finditer(self.plain, start, end)]

    def bare_value(self) -> Span:
        """Return where the value lies in a text that is no whole line: quotes and a comment are no part of it."""
        quotes = [at for at, character in enumerate(self.plain) if character in "'\""]
        if quotes:
            self.repair(None, (quotes[0], quotes[-1] + 1), "quotes are no part of the value")
            self.plain = self.plain.translate({ord("'"): " ", ord('"'): " "})
        comment = self.plain.find("#")
        if comment >= 0:
            self.repair(None, (comment, len(self.text)), "a comment is no part of the value")
        return 0, len(self.plain[: comment if comment >= 0 else None].rstrip())

    def pasted_value(self, start: int) -> Span:
        """Return where the value lies in a pasted line, in which the variable's name ends at `start`."""
        quote = self.plain[start : start + 1]
        if quote and quote in "'\"":
            start += 1
            end = self.plain.find(quote, start)
        else:
            end = self.plain.find("#", start)
        end = end if end >= 0 else len(self.plain)
        end -= self.plain[start:end].endswith(("'", '"'))
        return start, len(self.plain[:end].rstrip())

    def without_command(self, start: int, end: int) -> list[Word]:
        """Return the tokens up to where a command follows on the same line: a word that begins no option."""
        tokens = self.tokens_of(start, end)
        followed_by = [*(token.text for token in tokens[1:]), "", ""]
        for at in range(1, len(tokens)):
            before, token = tokens[at - 1], tokens[at]
            apart = token.start > before.span[1] and _MARKS.isdisjoint({before.text, token.text})
            if apart and followed_by[at] not in {":", "="}:
                return tokens[:at]
            if token.text == ";" and followed_by[at + 1] not in {":", "="}:
                return tokens[:at]
        return tokens

    def parsed(self) -> Parsed:
        for at, (character, meant) in enumerate(zip(self.text, plain(self.text), strict=True)):
            if meant not in {character, " "}:
                self.repair(None, (at, at + 1), f"{character!r} was read as {meant!r}")
                break
        while self.separator():
            self.result.settings.append(self.setting())
        return self.result

    def separator(self) -> bool:
        """Step over what stands between two options, and say whether another one follows."""
        begin = self.position
        while self.peek(","):
            self.take(",", "between two options")
        commas = self.position - begin
        first, last = not self.result.settings, self.position == len(self.tokens)
        if last:
            commas = max(0, commas - 1)  # PyTorch allows one comma at the end
        elif not first:
            commas -= 1
        if commas > 0:
            span = self.tokens[begin].span
            self.repair(None, span, "there is a comma too many")
        elif commas < 0:
            if self.tokens[self.position].text in _MARKS:
                self.take(",", "between two options")
            self.repair(None, self.tokens[self.position].span, "a comma is missing before this option")
        return not last

    def setting(self) -> Setting:
        name = self.word("the name of an option")
        backends = {backend.lower(): backend for backend in BACKENDS}
        if name.text.lower() in backends and not self.peek(":"):
            self.repair("backend", name.span, f"{name.text} is a value of the option backend")
            return Setting(Word("backend", name.start), name, name.span[1])
        if self.position == len(self.tokens) or self.peek(","):
            known = name.text.lower() in OPTIONS or any(name.text in option.aliases for option in OPTIONS.values())
            written = f"{name.text}:VALUE" if known else "NAME:VALUE, like max_split_size_mb:128"
            self.fail(name.span, f"{name.text} has no value: it is written {written}")
        if self.tokens[self.position].text not in _MARKS:
            self.repair(name.text, name.span, f"a colon is missing after {name.text}")
        else:
            self.take(":", f"after {name.text}")
        value = tuple(self.pairs()) if self.peek("[") else self.amount(f"a value for {name.text}")
        return Setting(name, value, self.tokens[self.position - 1].span[1])

    def pairs(self) -> Iterator[tuple[Word, Word]]:
        opening = self.take("[", "to begin a list")
        if all(_CANONICAL.get(token.text, token.text) != "]" for token in self.tokens[self.position :]):
            self.fail(opening.span, "this list is not closed: ] is missing")
        while not self.peek("]"):
            size = self.word("a size in MiB, or >")
            self.take(":", f"after {size.text}")
            yield size, self.word(f"the divisions for {size.text}")
            if not self.peek("]"):
                self.take(",", "between two sizes, or ] to end the list")
        self.take("]", "to end the list")

    def peek(self, mark: str) -> bool:
        if self.position == len(self.tokens):
            return False
        token = self.tokens[self.position].text
        return _CANONICAL.get(token, token) == mark

    def next(self, wanted: str) -> Word:
        if self.position == len(self.tokens):
            self.fail((self.end, self.end), f"the text ends where {wanted} should stand")
        self.position += 1
        return self.tokens[self.position - 1]

    def take(self, mark: str, where: str) -> Word:
        """Step over a mark, or over what people write for it."""
        token = self.next(f"{mark} {where}")
        if _CANONICAL.get(token.text, token.text) != mark:
            self.fail(token.span, f"{token.text!r} stands where {mark} should stand {where}")
        if token.text != mark:
            self.repair(None, token.span, f"{token.text} stands where {mark} belongs {where}")
        return token

    def word(self, wanted: str) -> Word:
        token = self.next(wanted)
        if token.text in _MARKS:
            self.fail(token.span, f"{token.text} stands where {wanted} should stand")
        return token

    def amount(self, wanted: str) -> Word:
        """Return a value, with the unit that people write apart from it."""
        word = self.word(wanted)
        unit = self.tokens[self.position] if self.position < len(self.tokens) else None
        if unit is None or unit.text.lower() not in UNITS or not word.text[-1].isdigit():
            return word
        self.position += 1
        self.repair(None, (word.start, unit.span[1]), f"{word.text} {unit.text} was read as {word.text}{unit.text}")
        return Word(word.text + unit.text, word.start)

    def repair(self, option: str | None, span: Span, message: str) -> None:
        self.result.repairs.append(Problem("repair", option, span, message))

    def fail(self, span: Span, message: str) -> NoReturn:
        raise AllocConfError(self.text, [Problem("error", None, span, message)])
