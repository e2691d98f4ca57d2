"""Words in the languages the interface speaks."""

from __future__ import annotations

from typing import Final, NamedTuple

LANGUAGES: Final = ("en", "ar")


class Words(NamedTuple):
    """The same words in every language.

    Args:
        en: in English.
        ar: in Arabic.
    """

    en: str
    ar: str

    def in_(self, language: str) -> str:
        """Return the words in one language, "en" or "ar"."""
        said: str = getattr(self, language)
        return said

    def filled(self, **gaps: object) -> Words:
        """Return the words with their {gaps} filled."""
        return Words(*(said.format(**gaps) for said in self))


NOTHING: Final = Words("", "")
