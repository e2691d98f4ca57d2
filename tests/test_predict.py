"""predict(), for what can be shown without PyTorch. tests/real_allocator holds it against PyTorch's own parsers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colab_alloc import AllocConf, AllocConfError, predict
from colab_alloc.conf.options import OPTIONS
from colab_alloc.conf.values import same
from colab_alloc.conf.version import release
from tests.real_allocator.cases import SEEN_ON_2_14
from tests.test_conf import CONFS


@pytest.mark.parametrize("text", SEEN_ON_2_14)
def test_what_was_seen_on_2_14_is_predicted(text: str) -> None:
    assert predict(text, torch="2.14").outcome == SEEN_ON_2_14[text]


@pytest.mark.parametrize(
    ("text", "torch", "outcome", "message"),
    [
        ("max_split_size_mb=512", "2.9", "raises at CUDA start", "Unrecognized CachingAllocator option: max_split"),
        ("max_split_size_mb=512", "2.11", "aborts the process at import", "Index out of bounds in ConfigTokenizer"),
        ("max_split_size_mb:20", "2.9", "raises at CUDA start", "max_split_size_mb too small, must be > 20"),
        ("max_split_size_mb:20", "2.11", "accepted", None),
        ("max_split_size_mb:\r0", "2.9", "raises at CUDA start", "max_split_size_mb too small, must be > 20"),
        ("garbage_collection_threshold:\t0.5", "2.9", "accepted", None),
        ("roundup_power2_divisions:[256:1,512:2", "2.9", "raises at CUDA start", "settings, expected ,"),
        ("roundup_power2_divisions:[256:1,512:2", "2.14", "aborts the process at import", "closing bracket"),
        ("max_split_size_mb: SIZE", "2.9", "raises at CUDA start", "stoi"),
        ("expandable_segments:true", "2.9", "raises at CUDA start", "Expected a single True/False argument for"),
        ("expandable_segments:True", "2.0.1", "raises at CUDA start", "Unrecognized CachingAllocator option: exp"),
        ("garbage_collection_threshold:1000", "2.9", "raises at CUDA start", "too big, set it 0.0~1.0"),
        ("max_split_size_mb,128", "2.9", "raises at CUDA start", "expected :"),
        ("max_split_size_mb,128", "2.14", "accepted", None),
        ("throw_on_cudamalloc_oom:True", "2.11", "raises at CUDA start", "Unrecognized key 'throw_on_cudamalloc_oom'"),
    ],
)
def test_each_release_answers_in_its_own_way(text: str, torch: str, outcome: str, message: str | None) -> None:
    verdict = predict(text, torch=torch)
    assert verdict.outcome == outcome
    assert (verdict.message is None) == (message is None)
    assert message is None or message in str(verdict.message)


def test_it_reads_as_laxly_as_pytorch() -> None:
    text = "max_split_size_mb:128abc,garbage_collection_threshold:0x1p-1,large_segment_size_mb:+30"
    assert predict(text, torch="2.14").settings == {
        "large_segment_size_mb": 30,
        "max_split_size_mb": 128,
        "garbage_collection_threshold": 0.5,
    }
    assert predict("max_split_size_mb:-1", torch="2.14").settings == {"max_split_size_mb": 17592186044415}


def test_a_second_list_of_divisions_is_laid_over_the_first() -> None:
    text = "roundup_power2_divisions:4,roundup_power2_divisions:[4:2]"
    assert predict(text, torch="2.14").settings["roundup_power2_divisions"] == (
        *((size, 2) for size in (1, 2, 4)),
        *((1 << slot, 4) for slot in range(3, 16)),
    ) or predict(text, torch="2.14").settings["roundup_power2_divisions"] == (
        (4, 2),
        *((1 << slot, 4) for slot in range(3, 16)),
    )


def test_a_verdict_says_itself() -> None:
    accepted, refused = predict("max_split_size_mb:128abc", torch="2.14"), predict("foo:1", torch="2.14")
    assert (
        str(accepted) == "✓ PyTorch 2.14 with 'max_split_size_mb:128abc': accepted; it reads max_split_size_mb 128 MiB"
    )
    assert str(refused) == (
        "! PyTorch 2.14 with 'foo:1': raises at CUDA start: Unrecognized key 'foo' in CUDA allocator config."
    )
    assert "max_split_size_mb 128 MiB" in accepted._repr_html_()


def test_before_2_0_there_is_no_prediction() -> None:
    with pytest.raises(ValueError, match=r"PyTorch 1\.13 is older than 2\.0"):
        predict("max_split_size_mb:128", torch="1.13")


@given(conf=CONFS, torch=st.sampled_from(["2.0", "2.6", "2.9", "2.10", "2.11", "2.14"]))
def test_what_has_no_errors_is_accepted_and_read_as_meant(conf: AllocConf, torch: str) -> None:
    refused = [problem.option for problem in conf.problems(torch=torch) if problem.severity == "error"]
    conf = conf.without(*(name or "" for name in refused))
    verdict = predict(conf.for_torch(), torch=torch)
    assert verdict.outcome == "accepted", verdict
    if conf.get("backend") != "cudaMallocAsync":
        for name, value in conf.items():
            assert same(name, verdict.settings.get(name, OPTIONS[name].default), value, release(torch)), name


@pytest.mark.parametrize("text", SEEN_ON_2_14)
def test_what_pytorch_does_not_take_is_refused_in_one_line_or_repaired(text: str) -> None:
    try:
        conf = AllocConf.parse(text)
    except AllocConfError as refusal:
        said = str(refusal)
    else:
        said = "; ".join(str(problem) for problem in conf.problems(torch="2.14") if problem.severity == "error")
        assert said or predict(conf.for_torch(), torch="2.14").outcome == "accepted"
    assert "\n" not in said


@given(text=st.text(max_size=10_000), torch=st.sampled_from(["2.0", "2.9", "2.10", "2.14"]))
def test_any_text_has_a_verdict(text: str, torch: str) -> None:
    verdict = predict(text, torch=torch)
    assert (verdict.outcome == "accepted") == (verdict.message is None)


@pytest.mark.parametrize("torch", ["2.9", "2.14"])
def test_numbers_of_any_length_are_read(torch: str) -> None:
    assert predict("max_split_size_mb:" + "9" * 5000, torch=torch).outcome == "raises at CUDA start"
    assert predict("max_split_size_mb:" + "0" * 5000 + "64", torch=torch).settings == {"max_split_size_mb": 64}


def test_odd_arguments_are_named() -> None:
    version: Any = 2.14
    with pytest.raises(TypeError, match="a PyTorch version is a text like "):
        predict("", version)
    with pytest.raises(ValueError, match="'' is not a PyTorch version"):
        predict("", "")
    with pytest.raises(ValueError, match="lang must be one of en, ar, not 'fr'"):
        AllocConf(max_split_size_mb=1).problems(lang="fr")


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("0x1p99999", "raises at CUDA start"),
        ("0x1p-99999", "raises at CUDA start"),
        ("0e5", "accepted"),
        ("0.0e1", "accepted"),
    ],
)
def test_fractions_are_read_as_strtod_reads_them(text: str, outcome: str) -> None:
    assert predict(f"per_process_memory_fraction:{text}", torch="2.14").outcome == outcome
