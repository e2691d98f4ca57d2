"""AllocConf: a configuration as a value, and what a release has against it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import colab_alloc
from colab_alloc import UNLIMITED, AllocConf, AllocConfError
from colab_alloc.conf.options import BACKENDS, OPTIONS, Kind, Option
from colab_alloc.conf.values import same

POWERS = st.integers(0, 15).map(lambda exponent: 1 << exponent)
PAIRS = st.dictionaries(POWERS, st.sampled_from([0, 1, 2, 4, 8]), max_size=5)
VALUES = {
    Kind.BACKEND: st.sampled_from(BACKENDS),
    Kind.MIB: st.integers(0, 10**6),
    Kind.COUNT: POWERS,
    Kind.FRACTION: st.floats(0, 1, allow_subnormal=False),
    Kind.FLAG: st.booleans(),
    Kind.DIVISIONS: st.one_of(st.just(0), POWERS, PAIRS),
}


def value_of(option: Option) -> st.SearchStrategy[object]:
    """Values of the option's kind, its default among them."""
    return st.one_of(st.just(option.default), VALUES[option.kind])


CONFS = st.fixed_dictionaries({}, optional={name: value_of(option) for name, option in OPTIONS.items()}).map(AllocConf)


@given(CONFS)
def test_the_canonical_text_reads_back_as_the_same_configuration(conf: AllocConf) -> None:
    again = AllocConf.parse(str(conf))
    assert again == conf
    assert str(again) == str(conf)
    assert hash(again) == hash(conf)


@given(CONFS)
def test_the_text_for_torch_has_no_word_that_torch_lacks(conf: AllocConf) -> None:
    text = conf.for_torch()
    assert "unlimited" not in text
    kept = AllocConf.parse(text)
    for name, value in conf.items():
        assert same(name, kept.get(name, OPTIONS[name].default), value)


def test_keywords_a_mapping_and_text_make_the_same_configuration() -> None:
    conf = AllocConf(roundup_power2_divisions={256: 1, ">": 8}, max_split_size_mb=128)
    assert conf == AllocConf({"max_split_size_mb": 128, "roundup_power2_divisions": [(256, 1), (">", 8)]})
    assert conf == AllocConf.parse("roundup_power2_divisions:[256:1,>:8],max_split_size_mb:128")
    assert str(conf) == "max_split_size_mb:128,roundup_power2_divisions:[256:1,>:8]"


def test_a_union_is_a_new_configuration_and_the_right_side_counts() -> None:
    old = AllocConf(max_split_size_mb=128, expandable_segments=True)
    new = old | {"max_split_size_mb": 256}
    assert (old["max_split_size_mb"], new["max_split_size_mb"]) == (128, 256)
    assert new.without("max_split_size_mb") == old.only("expandable_segments") == AllocConf(expandable_segments=True)


def test_of_an_option_named_twice_the_last_value_counts() -> None:
    assert AllocConf.parse("max_split_size_mb:64,max_split_size_mb:128") == AllocConf(max_split_size_mb=128)


def test_off_is_a_value_of_its_own() -> None:
    conf = AllocConf.parse("max_split_size_mb:unlimited,expandable_segments:False")
    assert conf["max_split_size_mb"] is UNLIMITED
    assert conf.problems(torch="2.14") == []
    assert conf.for_torch() == "expandable_segments:False"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo:1", "foo is not an option of PyTorch's allocator (at character 1)"),
        ("max_splt_size_mb:128", "write max_split_size_mb, if that is what you meant"),
        ("max_split_size_mb:-1", "max_split_size_mb takes a whole number of MiB, not '-1'"),
        ("max_split_size_mb:128.7", "128.7 is not a whole number of MiB, which max_split_size_mb takes"),
        ("max_split_size_mb:1000KB", "1000KB is not a whole number of MiB, which max_split_size_mb takes"),
        ("max_split_size_mb:[1:2]", "max_split_size_mb takes a whole number of MiB, not a list"),
        ("expandable_segments:maybe", "expandable_segments takes True or False, not 'maybe'"),
        ("backend:nativ", "backend takes native or cudaMallocAsync, not 'nativ'"),
        ("garbage_collection_threshold:nan", "takes a number between 0 and 1, not 'nan'"),
        ("roundup_power2_divisions:3", "roundup_power2_divisions must be a power of two, not 3"),
        ("roundup_power2_divisions:[3:2]", "must be a power of two in MiB or >, not 3"),
        ("roundup_power2_divisions:[4:3]", "the divisions for size 4 must be a power of two or 0, not 3"),
        ("backend:native,foo:1", "foo is not an option of PyTorch's allocator (at character 16)"),
    ],
)
def test_what_nothing_sensible_can_be_read_from_is_refused_in_words(text: str, message: str) -> None:
    with pytest.raises(AllocConfError) as refusal:
        AllocConf.parse(text)
    assert message in str(refusal.value)


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(AllocConfError) as refusal:
        AllocConf.parse("foo:1,expandable_segments:yep")
    assert [problem.span for problem in refusal.value.problems] == [(0, 5), (6, 29)]


@pytest.mark.parametrize("value", [True, 1.5, "128", -1, None])
def test_a_keyword_of_the_wrong_kind_is_refused(value: object) -> None:
    with pytest.raises(AllocConfError, match="max_split_size_mb takes a whole number of MiB"):
        AllocConf(max_split_size_mb=value)


@pytest.mark.parametrize(
    ("text", "torch", "message", "fix"),
    [
        ("max_split_size_mb:10", "2.14", "must be 20 or more in PyTorch 2.14, not 10", "max_split_size_mb:20"),
        ("max_split_size_mb:20", "2.9.1", "must be 21 or more in PyTorch 2.9, not 20", "max_split_size_mb:21"),
        ("garbage_collection_threshold:1.5", "2.14", "between 0 and 1, ends excluded", None),
        ("roundup_bypass_threshold_mb:100", "2.14", "roundup_bypass_threshold_mb was last in PyTorch 2.0", None),
        (
            "throw_on_cudamalloc_oom:True",
            "2.11.0+cu128",
            "throw_on_cudamalloc_oom came with PyTorch 2.12; PyTorch 2.11 refuses it",
            None,
        ),
        ("pinned_num_register_threads:3", "2.14", "must be a power of two, not 3", None),
        (
            "max_split_size_mb:40,large_segment_size_mb:64",
            "2.14",
            "max_split_size_mb must not be below large_segment_size_mb (64), but is 40",
            "max_split_size_mb:64",
        ),
    ],
)
def test_what_a_release_refuses_is_a_problem(text: str, torch: str, message: str, fix: str | None) -> None:
    (problem,) = AllocConf.parse(text).problems(torch=torch)
    assert problem.severity == "error"
    assert message in problem.message
    assert problem.fix == fix


def test_a_problem_points_into_the_text_as_typed() -> None:
    text = "backend:native, max_split_size_mb: 10"
    (problem,) = AllocConf.parse(text).problems(torch="2.14")
    assert text[slice(*problem.span)] == "max_split_size_mb: 10"


@pytest.mark.parametrize("torch", ["1.13", "2.6", "2.11", "2.14"])
def test_a_plain_setting_is_no_problem_anywhere(torch: str) -> None:
    assert AllocConf(max_split_size_mb=128, roundup_power2_divisions=8).problems(torch=torch) == []


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        # marks
        ("max_split_size_mb=128", "max_split_size_mb:128"),
        (
            "max_split_size_mb=128,garbage_collection_threshold=0.8",
            "max_split_size_mb:128,garbage_collection_threshold:0.8",
        ),
        ("max_split_size_mb 128", "max_split_size_mb:128"),
        ("max_split_size_mb:128 expandable_segments:True", "max_split_size_mb:128,expandable_segments:True"),
        ("max_split_size_mb:128;expandable_segments:True", "max_split_size_mb:128,expandable_segments:True"),
        (",max_split_size_mb:128", "max_split_size_mb:128"),
        ("max_split_size_mb:128,,expandable_segments:True", "max_split_size_mb:128,expandable_segments:True"),
        ("roundup_power2_divisions:{256:1;>=8}", "roundup_power2_divisions:[256:1,>:8]"),
        # words
        ("Max_Split_Size_MB:128", "max_split_size_mb:128"),
        ("max-split-size-mb:128", "max_split_size_mb:128"),
        ("expandable_segments:true", "expandable_segments:True"),
        ("expandable_segments:1", "expandable_segments:True"),
        ("expandable_segments:OFF", "expandable_segments:False"),
        ("native", "backend:native"),
        ("cudaMallocAsync", "backend:cudaMallocAsync"),
        ("backend:cudamallocasync,max_split_size_mb:64", "backend:cudaMallocAsync,max_split_size_mb:64"),
        ("release_lock_on_hipmalloc:True", "release_lock_on_cudamalloc:True"),
        # units
        ("max_split_size_mb:128MB", "max_split_size_mb:128"),
        ("max_split_size_mb:1GiB", "max_split_size_mb:1024"),
        ("max_split_size_mb:0.5g", "max_split_size_mb:512"),
        ("max_split_size_mb:off", "max_split_size_mb:unlimited"),
        ("garbage_collection_threshold:off", "garbage_collection_threshold:0.0"),
        ("max_split_size_mb:128.0", "max_split_size_mb:128"),
        ("max_split_size_mb:1e3", "max_split_size_mb:1000"),
        ("max_split_size_mb:+30", "max_split_size_mb:30"),
        ("garbage_collection_threshold:80%", "garbage_collection_threshold:0.8"),
        ("roundup_power2_divisions:[1GB:4]", "roundup_power2_divisions:[1024:4]"),
        # other keyboards
        ("max_split_size_mb：128", "max_split_size_mb:128"),
        ("max_split_size_mb:١٢٨", "max_split_size_mb:128"),
        ("max_split_size_mb:128،expandable_segments:True", "max_split_size_mb:128,expandable_segments:True"),
        ("garbage_collection_threshold:٠٫٨", "garbage_collection_threshold:0.8"),
        # quotes and comments
        ('"max_split_size_mb:512"', "max_split_size_mb:512"),
        ("'expandable_segments:True'", "expandable_segments:True"),
        ("“max_split_size_mb:512”", "max_split_size_mb:512"),
        ('max_split_size_mb:512"', "max_split_size_mb:512"),
        ("max_split_size_mb:50 #to avoid fragmentation", "max_split_size_mb:50"),
        ("max_split_size_mb:128#comment", "max_split_size_mb:128"),
        # whole lines
        ("export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128", "max_split_size_mb:128"),
        ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128", "max_split_size_mb:128"),
        ("set PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:1024", "max_split_size_mb:1024"),
        ("!export PYTORCH_ALLOC_CONF=expandable_segments:True && torchrun train.py", "expandable_segments:True"),
        ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 python train.py --x", "max_split_size_mb:128"),
        ("export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128; python train.py", "max_split_size_mb:128"),
        ("%env PYTORCH_CUDA_ALLOC_CONF = max_split_size_mb:50 # a comment", "max_split_size_mb:50"),
        ('%env PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:512"', "max_split_size_mb:512"),
        ('os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:512"', "max_split_size_mb:512"),
        ("os.environ['PYTORCH_CUDA_ALLOC_CONF']='max_split_size_mb:32'; import torch", "max_split_size_mb:32"),
        ('os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:32")', "max_split_size_mb:32"),
        ('$env:PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:32"', "max_split_size_mb:32"),
        ("ENV PYTORCH_CUDA_ALLOC_CONF max_split_size_mb:512", "max_split_size_mb:512"),
    ],
)
def test_what_can_mean_one_thing_only_is_repaired_and_told(text: str, meant: str) -> None:
    conf = AllocConf.parse(text)
    assert str(conf) == meant
    repairs = [problem for problem in conf.problems(torch="2.14") if problem.severity == "repair"]
    assert repairs
    assert all(0 <= start < end <= len(text) for start, end in (repair.span for repair in repairs))


@pytest.mark.parametrize(
    "text", ["max_split_size_mb:128", " max_split_size_mb : 128 ,", "", "garbage_collection_threshold:.5"]
)
def test_what_pytorch_reads_as_it_is_meant_is_no_repair(text: str) -> None:
    assert not [p for p in AllocConf.parse(text).problems(torch="2.14") if p.severity == "repair"]


def test_a_name_given_twice_is_told() -> None:
    (problem,) = AllocConf.parse("max_split_size_mb:64,max_split_size_mb:128").problems(torch="2.14")
    assert (problem.severity, problem.span) == ("warning", (21, 42))
    assert problem.message == "max_split_size_mb is named twice; the last value counts"


@given(
    st.text(
        alphabet=st.one_of(st.sampled_from(",:[]=;{}'\"# \t\nPYTORCH_ALLOC_CONF09aTrue"), st.characters()),
        max_size=10_000,
    )
)
def test_any_text_is_a_configuration_or_a_refusal_in_words(text: str) -> None:
    try:
        conf = AllocConf.parse(text)
    except AllocConfError as refusal:
        problems = refusal.problems
    else:
        problems = conf.problems(torch="2.14")
        assert AllocConf.parse(str(conf)) == conf
    assert all(0 <= start <= end <= len(text) for start, end in (problem.span for problem in problems))


@pytest.mark.parametrize(
    "settings", [AllocConf(max_split_size_mb=128), {"max_split_size_mb": 128}, "max_split_size_mb=128MB"]
)
def test_settings_are_taken_in_any_form(settings: Any) -> None:
    assert AllocConf.of(settings) == AllocConf(max_split_size_mb=128)


@pytest.mark.parametrize("settings", [3, None, ["max_split_size_mb:128"], b"max_split_size_mb:128"])
def test_and_in_no_other(settings: Any) -> None:
    for take in (AllocConf.of, colab_alloc.apply, colab_alloc.restart, AllocConf.parse, colab_alloc.predict):
        with pytest.raises(TypeError, match=f", not {type(settings).__name__}"):
            take(settings)


def test_another_name_of_an_option_is_that_option() -> None:
    assert AllocConf(release_lock_on_hipmalloc=True) == AllocConf(release_lock_on_cudamalloc=True) != AllocConf()


def test_the_nearest_value_that_is_taken_is_suggested() -> None:
    for name, value, nearest in (
        ("per_process_memory_fraction", 2.0, "1"),
        ("pinned_num_register_threads", 256, "128"),
    ):
        fixes = [problem.fix for problem in AllocConf({name: value}).problems(torch="2.14")]
        assert f"{name}:{nearest}" in fixes


def test_what_pytorch_reads_laxly_is_read_so_and_shown() -> None:
    conf = AllocConf.parse("max_split_size_mb:128abc")
    assert conf == AllocConf(max_split_size_mb=128)
    (problem,) = conf.problems(torch="2.14")
    assert (problem.severity, problem.message) == ("repair", "128abc was read as 128")
