"""What PyTorch accepts although it does harm or nothing. What it refuses is in tests/test_conf.py."""

from __future__ import annotations

import pytest

from colab_alloc import AllocConf
from colab_alloc.conf.options import OPTIONS

GIB = 1 << 30


def warnings(text: str, torch: str = "2.14", platform: str = "linux", capacity: int | None = None) -> list[str]:
    problems = AllocConf.parse(text).problems(torch=torch, platform=platform, capacity=capacity)
    return [problem.message for problem in problems if problem.severity == "warning"]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("max_split_size_mb:100000000", "is 95.3674 TiB, larger than any GPU: it does nothing"),
        ("backend:cudaMallocAsync,max_split_size_mb:128", "backend:cudaMallocAsync ignores max_split_size_mb"),
        ("expandable_segments:True,max_split_size_mb:128", "max_split_size_mb works against expandable_segments"),
        ("garbage_collection_threshold:0.8", "does nothing until a memory limit is set"),
        ("per_process_memory_fraction:0", "leaves this process no GPU memory at all"),
        ("max_non_split_rounding_mb:64", "max_non_split_rounding_mb does nothing without max_split_size_mb"),
        ("roundup_power2_divisions:1", "of 1 rounds nothing"),
        ("roundup_power2_divisions:[>:1]", "of 1 rounds nothing"),
        ("pinned_max_round_threshold_mb:64,pinned_max_cached_size_mb:32", "is never rounded up, whatever this says"),
    ],
)
def test_harm_and_idleness_are_warned_of(text: str, warning: str) -> None:
    (message,) = warnings(text)
    assert warning in message


@pytest.mark.parametrize(
    "text",
    [
        "max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
        "garbage_collection_threshold:0.8,per_process_memory_fraction:0.9",
        "expandable_segments:True,roundup_power2_divisions:16",
        "max_non_split_rounding_mb:64,max_split_size_mb:128",
        "backend:cudaMallocAsync,expandable_segments:False",
    ],
)
def test_sensible_combinations_are_not(text: str) -> None:
    assert warnings(text) == []


def test_a_size_above_the_card_does_nothing_on_that_card() -> None:
    assert warnings("max_split_size_mb:20000", capacity=16 * GIB) == [
        "max_split_size_mb 20000 is larger than the GPU's memory (16384 MiB): it does nothing"
    ]
    assert warnings("max_split_size_mb:20000", capacity=24 * GIB) == []


def test_windows_leaves_expandable_segments_off() -> None:
    (message,) = warnings("expandable_segments:True", platform="win32")
    assert "not supported on this platform" in message


@pytest.mark.parametrize(
    ("text", "torch", "error"),
    [
        ("max_split_size_mb:3000000000", "2.9", "PyTorch 2.9 cannot read numbers above 2147483647"),
        ("roundup_power2_divisions:[256:2]", "1.13", "PyTorch 1.13 takes one number"),
        ("roundup_power2_divisions:1", "1.13", "fails at the first allocation"),
        ("expandable_segments:True", "2.0", "expandable_segments came with PyTorch 2.1"),
    ],
)
def test_older_releases_refuse_more(text: str, torch: str, error: str) -> None:
    (problem,) = AllocConf.parse(text).problems(torch=torch, platform="linux")
    assert problem.severity == "error"
    assert error in problem.message


def test_defaults_are_never_objected_to_where_they_are_known() -> None:
    for option in OPTIONS.values():
        conf = AllocConf({option.name: option.default})
        release = "1.13" if option.until else "2.14"
        assert conf.problems(torch=release, platform="linux") == [], option.name
