"""Sizes as people read them."""

from __future__ import annotations

from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

_UNITS: Final = (("GiB", GIB, 2), ("MiB", MIB, 1), ("KiB", KIB, 1))


def size(count: int) -> str:
    """Return a number of bytes in the largest unit it fills: 1610612736 is "1.50 GiB"."""
    for unit, each, digits in _UNITS:
        if abs(count) >= each:
            return f"{count / each:.{digits}f} {unit}"
    return f"{count} B"


def percent(share: float) -> str:
    """Return a share of 1 as a percentage: 0.256 is "26 %"."""
    return f"{share:.0%}".replace("%", " %")
