"""The strict grammar: what is read, and where it is wrong when it is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colab_alloc import AllocConf
from colab_alloc.conf import grammar
from colab_alloc.conf.problem import AllocConfError


def test_settings_know_their_places() -> None:
    text = " max_split_size_mb : 128 ,backend:native,"
    first, second = grammar.parse(text).settings
    assert (first.name.text, first.value.text) == ("max_split_size_mb", "128")
    assert text[slice(*first.span)] == "max_split_size_mb : 128"
    assert text[slice(*second.span)] == "backend:native"


def test_a_list_value_is_pairs() -> None:
    (setting,) = grammar.parse("roundup_power2_divisions:[256:1, >:8,]").settings
    assert [(size.text, number.text) for size, number in setting.value] == [("256", "1"), (">", "8")]


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_nothing_is_no_settings(text: str) -> None:
    assert grammar.parse(text).settings == []


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("max_split_size_mb", 0, "max_split_size_mb has no value: it is written max_split_size_mb:VALUE"),
        ("max_split_size_mb:", 18, "ends where a value for max_split_size_mb should stand"),
        ("max_split_size_mb,128", 0, "max_split_size_mb has no value"),
        ("a:1:b:2", 3, "':' stands where , should stand between two options"),
        ("a:[1:2", 2, "is not closed"),
        ("a:[1:2,", 2, "is not closed"),
        ("a:[1:2 [3:4", 2, "is not closed"),
        ("a:[1,2]", 4, "',' stands where : should stand after 1"),
        ("a:]", 2, "] stands where a value for a should stand"),
    ],
)
def test_a_malformed_text_is_refused_at_its_place(text: str, at: int, message: str) -> None:
    with pytest.raises(AllocConfError) as refusal:
        grammar.parse(text)
    (problem,) = refusal.value.problems
    assert problem.span[0] == at
    assert message in problem.message


@given(st.text(alphabet=st.one_of(st.sampled_from(",:[]> \t\n=09aTrue"), st.characters()), max_size=200))
def test_any_text_is_read_or_refused_at_a_place_inside_it(text: str) -> None:
    try:
        words = [setting.name for setting in grammar.parse(text).settings]
    except AllocConfError as refusal:
        spans = [problem.span for problem in refusal.problems]
    else:
        assert all(text[slice(*word.span)] == word.text for word in words)
        spans = [word.span for word in words]
    assert all(0 <= start <= end <= len(text) for start, end in spans)


@pytest.mark.parametrize(
    ("text", "size"), [("max_split_size_mb:128 MB", 128), ("max_split_size_mb = 1 GiB,backend:native", 1024)]
)
def test_a_unit_may_stand_apart(text: str, size: int) -> None:
    conf = AllocConf.parse(text)
    assert conf["max_split_size_mb"] == size
    assert any("was read as" in problem.message for problem in conf.repairs)


def test_a_word_that_is_no_unit_is_not_taken_for_one() -> None:
    with pytest.raises(AllocConfError):
        AllocConf.parse("max_split_size_mb:128 apples")
