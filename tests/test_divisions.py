"""What roundup_power2_divisions does per size class; the right answers are PyTorch's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colab_alloc.conf import divisions


@pytest.mark.parametrize(
    ("value", "slots"),
    [
        (0, (0,) * 16),
        (8, (8,) * 16),
        # seen on torch 2.14.1: the first size fills all smaller ones, sizes never named stay 0
        (((64, 8), (256, 4)), (8,) * 7 + (0, 4) + (0,) * 7),
        (((256, 1), (512, 2), (1024, 4), (">", 8)), (1,) * 9 + (2, 4) + (8,) * 5),
        (((65536, 2),), (2,) * 16),
        ((), (0,) * 16),
        (((">", 4),), (0,) + (4,) * 15),
    ],
)
def test_slots_are_filled_as_torch_2_14_fills_them(value: divisions.Divisions, slots: tuple[int, ...]) -> None:
    assert divisions.slots(value) == slots


def test_up_to_2_9_the_rest_overwrites_the_size_before_it() -> None:
    value = ((64, 8), (256, 4), (">", 1))
    assert divisions.slots(value, (2, 9)) == (8,) * 7 + (0,) + (1,) * 8
    assert divisions.slots(value, (2, 11)) == (8,) * 7 + (0, 4) + (1,) * 7


@given(st.lists(st.sampled_from([0, 1, 2, 4, 8, 16]), min_size=16, max_size=16).map(tuple))
def test_slots_survive_being_written_as_a_value_in_every_release(slots: tuple[int, ...]) -> None:
    value = divisions.from_slots(slots)
    assert divisions.slots(value, (2, 6)) == divisions.slots(value, (2, 14)) == slots


def test_equal_slots_are_written_as_one_number() -> None:
    assert divisions.from_slots((4,) * 16) == 4
    assert divisions.from_slots((8,) * 7 + (0, 4) + (0,) * 7) == ((64, 8), (128, 0), (256, 4))
