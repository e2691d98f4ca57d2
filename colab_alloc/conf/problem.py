"""What is wrong with a configuration, where, and what to write instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Severity = Literal["error", "warning", "repair"]
Span = tuple[int, int]

_MOST_TOLD: Final = 3  # an error stays one line that can be read


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a configuration text.

    Args:
        severity: "error" (refused), "warning" (accepted, but does harm or nothing), "repair" (put right, and shown).
        option: the option it concerns, None when the text has none there.
        span: start and end in the text, in characters.
        message: what is wrong, in one sentence without a full stop.
        fix: what to write instead, None when there is nothing sensible to suggest.
    """

    severity: Severity
    option: str | None
    span: Span
    message: str
    fix: str | None = None

    def __str__(self) -> str:
        where = f"{self.message} (at character {self.span[0] + 1})"
        return f"{where}; write {self.fix}" if self.fix else where


class AllocConfError(ValueError):
    """A configuration that is refused; nothing was changed.

    Args:
        text: the configuration as it was given.
        problems: everything wrong with it, errors first.
    """

    def __init__(self, text: str, problems: Sequence[Problem]) -> None:
        self.text = text
        self.problems = list(problems)
        more = len(self.problems) - _MOST_TOLD
        told = [*map(str, self.problems[:_MOST_TOLD]), *([f"and {more} more problems"] if more > 0 else [])]
        super().__init__("; ".join(told))
