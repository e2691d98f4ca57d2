"""Text to settings with their places, and settings to text.

The grammar is PyTorch's own (`option ("," option)*`, `option = name ":" value`, `value = word | "[" pairs "]"`),
read strictly: PyTorch 2.10 and later read many malformed texts as something nobody meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from colab_alloc.conf.options import Value
from colab_alloc.conf.problem import AllocConfError, Problem, Span

_TOKEN: Final = re.compile(r"\s*(?:([,:\[\]])|([^,:\[\]]+))")


@dataclass(frozen=True)
class Word:
    """A run of characters and where it stands."""

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


def parse(text: str) -> list[Setting]:
    """Return the settings of a text in the order written; a comma at the end is allowed, as in PyTorch.

    Raises:
        AllocConfError: the text is not of the variable's grammar.
    """
    return list(_Parser(text).settings())


def write(settings: Mapping[str, Value]) -> str:
    """Return the canonical text of settings, in their order."""
    return ",".join(f"{name}:{written(value)}" for name, value in settings.items())


def written(value: Value) -> str:
    """Return one value as the variable spells it."""
    if isinstance(value, tuple):
        return "[" + ",".join(f"{size}:{divisions}" for size, divisions in value) + "]"
    return str(value)


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [
            Word(match[0].strip(), match.end() - len(match[0].lstrip()))
            for match in _TOKEN.finditer(text.rstrip())
            if match[0].strip()
        ]
        self.position = 0

    def settings(self) -> Iterator[Setting]:
        while self.position < len(self.tokens):
            yield self.setting()
            if self.position < len(self.tokens):
                self.expect(",", "between two options")

    def setting(self) -> Setting:
        name = self.word("the name of an option")
        self.expect(":", f"after {name.text}")
        value = tuple(self.pairs()) if self.peek("[") else self.word(f"a value for {name.text}")
        return Setting(name, value, self.tokens[self.position - 1].span[1])

    def pairs(self) -> Iterator[tuple[Word, Word]]:
        opening = self.expect("[", "to begin a list")
        if all(token.text != "]" for token in self.tokens[self.position :]):
            self.fail(opening.span, "this list is not closed: ] is missing")
        while not self.peek("]"):
            size = self.word("a size in MiB, or >")
            self.expect(":", f"after {size.text}")
            yield size, self.word(f"the divisions for {size.text}")
            if not self.peek("]"):
                self.expect(",", "between two sizes, or ] to end the list")
        self.position += 1

    def peek(self, mark: str) -> bool:
        return self.position < len(self.tokens) and self.tokens[self.position].text == mark

    def next(self, wanted: str) -> Word:
        if self.position == len(self.tokens):
            end = len(self.text.rstrip())
            self.fail((end, end), f"the text ends where {wanted} should stand")
        self.position += 1
        return self.tokens[self.position - 1]

    def expect(self, mark: str, where: str) -> Word:
        token = self.next(f"{mark} {where}")
        if token.text != mark:
            self.fail(token.span, f"{token.text!r} stands where {mark} should stand {where}")
        return token

    def word(self, wanted: str) -> Word:
        token = self.next(wanted)
        if token.text in set(",:[]"):
            self.fail(token.span, f"{token.text} stands where {wanted} should stand")
        return token

    def fail(self, span: Span, message: str) -> NoReturn:
        raise AllocConfError(self.text, [Problem("error", None, span, message)])
