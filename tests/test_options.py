"""The table of options: names per release as PyTorch's own parsers have them."""

from __future__ import annotations

import re

import pytest

from colab_alloc.conf.options import OPTIONS, UNLIMITED, known_to
from colab_alloc.language import LANGUAGES

# What the parser of each release accepts (2.9, 2.11 and 2.14 were run; the others' binaries were searched).
ACCEPTED = {
    (1, 13): {
        "max_split_size_mb",
        "roundup_power2_divisions",
        "roundup_bypass_threshold_mb",
        "garbage_collection_threshold",
    },
}
ACCEPTED[2, 0] = ACCEPTED[1, 13] | {"backend"}
ACCEPTED[2, 1] = (ACCEPTED[2, 0] - {"roundup_bypass_threshold_mb"}) | {"expandable_segments"}
ACCEPTED[2, 2] = ACCEPTED[2, 1] | {
    "release_lock_on_cudamalloc",
    "pinned_use_cuda_host_register",
    "pinned_num_register_threads",
}
ACCEPTED[2, 6] = ACCEPTED[2, 2] | {"max_non_split_rounding_mb", "pinned_use_background_threads"}
ACCEPTED[2, 9] = ACCEPTED[2, 6] | {"graph_capture_record_stream_reuse"}
ACCEPTED[2, 10] = ACCEPTED[2, 9] | {"per_process_memory_fraction", "pinned_reserve_segment_size_mb"}
ACCEPTED[2, 11] = ACCEPTED[2, 10] | {"large_segment_size_mb"}
ACCEPTED[2, 12] = ACCEPTED[2, 11] | {"throw_on_cudamalloc_oom", "pinned_free_catch_all"}
ACCEPTED[2, 13] = ACCEPTED[2, 14] = ACCEPTED[2, 12] | {"pinned_max_round_threshold_mb", "pinned_max_cached_size_mb"}


@pytest.mark.parametrize("release", ACCEPTED)
def test_each_release_knows_what_its_parser_accepts(release: tuple[int, int]) -> None:
    assert {option.name for option in known_to(release)} == ACCEPTED[release]


@pytest.mark.parametrize(
    ("name", "release", "refused", "accepted"),
    [
        ("max_split_size_mb", (2, 9), 20, 21),
        ("max_split_size_mb", (2, 11), 19, 20),
        ("garbage_collection_threshold", (2, 14), 1.0, 0.99),
        ("garbage_collection_threshold", (2, 14), 0.0, 0.01),
        ("per_process_memory_fraction", (2, 14), 1.01, 1.0),
        ("large_segment_size_mb", (2, 14), 10, 11),
        ("pinned_num_register_threads", (2, 14), 256, 128),
        ("pinned_reserve_segment_size_mb", (2, 14), 0, 1),
    ],
)
def test_ranges_end_where_torch_ends_them(name: str, release: tuple[int, int], refused: float, accepted: float) -> None:
    allowed = OPTIONS[name].range_in(release)
    assert not allowed.holds(refused)
    assert allowed.holds(accepted)


def test_defaults_that_torch_refuses_as_values_are_known_as_such() -> None:
    unwritable = {option.name for option in OPTIONS.values() if not option.default_can_be_written}
    assert unwritable == {
        "max_split_size_mb",
        "max_non_split_rounding_mb",  # 20 is refused up to 2.9: "must be > 20"
        "roundup_power2_divisions",
        "roundup_bypass_threshold_mb",
        "garbage_collection_threshold",
        "pinned_reserve_segment_size_mb",
        "pinned_max_round_threshold_mb",
        "pinned_max_cached_size_mb",
    }


def test_every_option_says_what_it_does_and_how_that_is_known() -> None:
    for option in OPTIONS.values():
        for words in (option.summary, option.use):
            assert all(words.in_(language).endswith(".") for language in LANGUAGES), option.name
            assert re.search("[\u0600-\u06ff]", words.ar), option.name
        assert any(word in option.source for word in ("run:", "binaries:")), option.name
        assert option.default is UNLIMITED or option.default is not None
