"""The memory of the GPU, known before CUDA starts."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from colab_alloc.runtime import card
from tests.virtual_gpu import VirtualGpu

ASK = """
import sys
from colab_alloc.runtime import card
print(card.memory(), "torch" in sys.modules)
"""


def asked(gpu: VirtualGpu, **environment: str) -> str:
    done = gpu.run([sys.executable, "-c", ASK], env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_is_what_the_driver_tells(virtual_gpu: VirtualGpu) -> None:
    assert asked(virtual_gpu) == f"{16 << 30} False"
    assert asked(dataclasses.replace(virtual_gpu, devices=2, capacity=24 << 30)) == f"{24 << 30} False"
    assert asked(virtual_gpu, CUDA_VISIBLE_DEVICES="") == "None False"


def test_without_a_driver_it_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card, "_library", lambda: None)
    assert card.memory.__wrapped__() is None


@pytest.mark.parametrize(("totals", "memory"), [([16, 16], 16), ([16, 24], None), ([], None), ([0], None)])
def test_cards_of_different_size_tell_nothing(
    monkeypatch: pytest.MonkeyPatch, totals: list[int], memory: int | None
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(card, "_totals", lambda: totals)
    assert card.memory.__wrapped__() == memory
