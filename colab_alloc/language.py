"""Words in the languages the interface speaks."""

from __future__ import annotations

from typing import Final, NamedTuple

LANGUAGES: Final = ("en", "ar")

_FIRST_STRONG_ISOLATE, _POP_ISOLATE = "\u2068", "\u2069"


class Words(NamedTuple):
    """The same words in every language.

    Args:
        en: in English.
        ar: in Arabic.
    """

    en: str
    ar: str

    def in_(self, language: str, **gaps: object) -> str:
        """Return the words in one language, "en" or "ar", with their {gaps} filled."""
        if language not in LANGUAGES:
            raise ValueError(f"lang must be one of {', '.join(LANGUAGES)}, not {language!r}")
        said: str = getattr(self, language)
        return said.format(**{name: apart(value, language) for name, value in gaps.items()}) if gaps else said

    def filled(self, **gaps: object) -> Words:
        """Return the words in every language with their {gaps} filled."""
        return Words(*(self.in_(language, **gaps) for language in LANGUAGES))


def apart(value: object, language: str) -> object:
    """Return what fills a gap; a text keeps its own direction within Arabic, as configurations run left to right."""
    if isinstance(value, Words):
        return value.in_(language)
    return f"{_FIRST_STRONG_ISOLATE}{value}{_POP_ISOLATE}" if language == "ar" and isinstance(value, str) else value


NOTHING: Final = Words("", "")
