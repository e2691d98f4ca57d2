"""The value of `roundup_power2_divisions`: one number, or one number per size class.

PyTorch keeps 16 slots; slot i serves requests of 2**i MiB up to 2**(i+1) MiB, the first also everything
smaller, the last everything larger (AllocatorConfig.h, torch 2.14: kRoundUpPowerOfTwoIntervals).
"""

from __future__ import annotations

from typing import Final, Literal, Union

from colab_alloc.conf.version import NEWEST, Release

SLOTS: Final = 16
REST: Final = ">"  # the key that stands for all larger sizes

SizeKey = Union[int, Literal[">"]]  # noqa: UP007 - evaluated at run time on Python 3.10
Divisions = Union[int, tuple[tuple[SizeKey, int], ...]]  # noqa: UP007
"""One number of divisions for every size, or (size in MiB, divisions) pairs in the order written."""

# Before 2.10 the key `>` also overwrites the entry before it (CUDAAllocatorConfig.cpp of 2.6 and 2.9).
_REST_KEEPS_LAST: Final[Release] = (2, 10)


def is_power_of_two(number: int) -> bool:
    """Say whether the number is 1, 2, 4, 8, ..."""
    return number > 0 and number & (number - 1) == 0


def slots(value: Divisions, torch: Release = NEWEST, over: tuple[int, ...] = (0,) * SLOTS) -> tuple[int, ...]:
    """Return the 16 slots as that PyTorch fills them; slot i begins at 2**i MiB, 0 is "no rounding".

    The first size named also fills every smaller slot; other sizes fill their own slot only; `>` fills the rest.
    Slots that nothing fills keep what they are over.
    """
    if isinstance(value, int):
        return (value,) * SLOTS
    filled = list(over)
    last: int | None = None  # the slot of the last size named
    for size, divisions in value:
        if size == REST:
            first = (last or 0) + (1 if torch >= _REST_KEEPS_LAST else 0)
            filled[first:] = [divisions] * (SLOTS - first)
            continue
        index = min(size.bit_length() - 1, SLOTS - 1)
        first = 0 if last is None else index
        filled[first : index + 1] = [divisions] * (index + 1 - first)
        last = index
    return tuple(filled)


def from_slots(filled: tuple[int, ...]) -> Divisions:
    """Return the shortest value that fills the slots like this in every PyTorch."""
    if len(set(filled)) == 1:
        return filled[0]
    last = SLOTS - 1
    while filled[last] == 0:  # slots never named stay 0
        last -= 1
    first = 0
    while filled[first + 1] == filled[0] and first < last:  # the first size named fills the smaller ones
        first += 1
    return tuple((1 << index, filled[index]) for index in range(first, last + 1))
