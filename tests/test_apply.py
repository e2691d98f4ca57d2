"""apply() and reset() before CUDA starts. tests/test_running_allocator.py has what comes after."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from colab_alloc import UNLIMITED, AllocConf, AllocConfError, apply, reset, status
from colab_alloc.conf.version import TorchBuild
from tests import fake_torch

CUDA = TorchBuild("2.14.1+cu130", cuda="13.0")
VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"


@pytest.fixture(autouse=True)
def _torch_2_14(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch.install(monkeypatch, CUDA)


def test_it_sets_the_variable_and_says_that_it_will_be_read() -> None:
    applied = apply(AllocConf(max_split_size_mb=128))
    assert os.environ[VARIABLE] == "max_split_size_mb:128"
    assert (applied.in_effect, applied.at_cuda_start) == (AllocConf(), AllocConf(max_split_size_mb=128))
    assert "max_split_size_mb 128 MiB: from CUDA's start on" in str(applied)
    assert status().outcome("max_split_size_mb") == "at CUDA start"


def test_setting_twice_merges_and_a_default_switches_off() -> None:
    apply(AllocConf(max_split_size_mb=128))
    apply(AllocConf(garbage_collection_threshold=0.8))
    assert os.environ[VARIABLE] == "max_split_size_mb:128,garbage_collection_threshold:0.8"
    apply(AllocConf(max_split_size_mb=UNLIMITED))
    assert os.environ[VARIABLE] == "garbage_collection_threshold:0.8"


def test_the_variable_that_is_in_force_is_the_one_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    apply(AllocConf(max_split_size_mb=128))
    assert os.environ["PYTORCH_ALLOC_CONF"] == "max_split_size_mb:128,expandable_segments:True"
    assert VARIABLE not in os.environ


def test_a_leftover_of_another_name_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "max_split_size_mb:64")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    apply(AllocConf(max_split_size_mb=128))
    assert status().environment == {VARIABLE: "max_split_size_mb:128"}


def test_2_9_is_given_the_name_it_reads_although_it_asks_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch.install(monkeypatch, TorchBuild("2.9.1", cuda="12.8"))
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    assert "PYTORCH_ALLOC_CONF='expandable_segments:True' has no effect" in status().warnings[0]
    apply(AllocConf(max_split_size_mb=128))
    assert status().environment == {VARIABLE: "max_split_size_mb:128"}


@pytest.mark.parametrize(
    "conf",
    [
        AllocConf(max_split_size_mb=10),
        AllocConf(roundup_bypass_threshold_mb=100),
        AllocConf(large_segment_size_mb=256),  # above the 128 asked for before
    ],
)
def test_what_this_torch_would_refuse_never_reaches_the_environment(conf: AllocConf) -> None:
    apply(AllocConf(max_split_size_mb=128))
    before = dict(os.environ)
    with pytest.raises(AllocConfError):
        apply(conf)
    assert os.environ == before
    assert status().asked_for == AllocConf(max_split_size_mb=128)


@pytest.mark.parametrize(
    ("broken", "after"),
    [
        ("max_split_size_mb", "roundup_power2_divisions:4"),
        ("max_split_size_mb:10,expandable_segments:True", "roundup_power2_divisions:4,expandable_segments:True"),
        ("max_split_size_mb=128", "max_split_size_mb:128,roundup_power2_divisions:4"),
    ],
)
def test_a_broken_variable_is_put_right(monkeypatch: pytest.MonkeyPatch, broken: str, after: str) -> None:
    monkeypatch.setenv(VARIABLE, broken)
    assert status().warnings
    apply(AllocConf(roundup_power2_divisions=4))
    assert os.environ[VARIABLE] == after
    assert status().warnings == ()


def test_repairs_and_warnings_are_told_with_what_was_applied() -> None:
    applied = apply(AllocConf.parse("garbage_collection_threshold=80%"))
    assert [problem.severity for problem in applied.problems] == ["warning", "repair", "repair"]
    assert "80% was read as 0.8" in str(applied)
    assert "does nothing until a memory limit is set" in str(applied)


def test_a_warning_that_two_settings_make_together_is_told_when_the_second_comes() -> None:
    apply(AllocConf(expandable_segments=True))
    (problem,) = apply(AllocConf(max_split_size_mb=128)).problems
    assert "works against expandable_segments" in problem.message
    assert apply(AllocConf(roundup_power2_divisions=4)).problems == ()


def test_many_threads_at_once_lose_nothing() -> None:
    confs = [AllocConf({name: True}) for name in ("expandable_segments", "release_lock_on_cudamalloc")]
    confs += [AllocConf(max_split_size_mb=size) for size in range(20, 40)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(apply, confs))
    asked = status().asked_for
    assert set(asked) == {"max_split_size_mb", "expandable_segments", "release_lock_on_cudamalloc"}


def test_child_processes_inherit_what_was_applied() -> None:
    apply(AllocConf(max_split_size_mb=128))
    print_it = f"import os; print(os.environ[{VARIABLE!r}])"
    done = subprocess.run([sys.executable, "-c", print_it], capture_output=True, text=True, check=True)
    assert done.stdout == "max_split_size_mb:128\n"


def test_the_back_end_is_free_until_torch_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert apply(AllocConf(backend="cudaMallocAsync")).at_cuda_start == AllocConf(backend="cudaMallocAsync")
    fake_torch.start(monkeypatch, CUDA)
    applied = apply(AllocConf(backend="cudaMallocAsync", max_split_size_mb=128))
    assert applied.needs_restart == AllocConf(backend="cudaMallocAsync")
    assert applied.at_cuda_start == AllocConf(max_split_size_mb=128)
    # PyTorch fails at CUDA start when the variable names another back end than the one it loaded
    assert os.environ[VARIABLE] == "max_split_size_mb:128"
    assert status().outcome("backend") == "needs a restart"
    assert "%alloc_conf --restart" in str(applied)


def test_changing_ones_mind_about_the_back_end_needs_no_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch.start(monkeypatch, CUDA)
    apply(AllocConf(backend="cudaMallocAsync"))
    assert apply(AllocConf(backend="native")).needs_restart == AllocConf()
    assert status().outcome("backend") == "in effect"


def test_reset_leaves_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    apply(AllocConf(max_split_size_mb=128, expandable_segments=True))
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64")
    applied = reset()
    assert status().environment == {}
    assert status().asked_for == AllocConf()
    assert "is not set, so PyTorch uses its defaults" in str(applied)
    assert str(reset()) == "✓ Every option is at its default already"


def test_what_is_written_is_judged_whatever_waits_for_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch.start(monkeypatch, CUDA)
    with pytest.raises(AllocConfError, match="must be 20 or more"):
        apply(AllocConf(backend="cudaMallocAsync", max_split_size_mb=5))
    assert status().asked_for == AllocConf()
    apply("backend:cudaMallocAsync")
    apply("max_split_size_mb:30")
    with pytest.raises(AllocConfError, match="must not be below large_segment_size_mb"):
        apply("large_segment_size_mb:64")
    assert os.environ[VARIABLE] == "max_split_size_mb:30"


def test_a_back_end_that_came_too_late_by_hand_waits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch.start(monkeypatch, CUDA)
    monkeypatch.setenv(VARIABLE, "backend:cudaMallocAsync")
    applied = apply("max_split_size_mb:128")
    assert applied.needs_restart == AllocConf(backend="cudaMallocAsync")
    assert "was replaced" not in str(applied)
    assert os.environ[VARIABLE] == "max_split_size_mb:128"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (VARIABLE, "max_split_size_mb:128,bogus:1", "was replaced: PyTorch refuses it"),
        (VARIABLE, "max_split_size_mb:10,roundup_power2_divisions:8", "was replaced: PyTorch refuses it"),
        ("PYTORCH_HIP_ALLOC_CONF", "expandable_segments:True", "was replaced: PyTorch does not read it"),
    ],
)
def test_what_the_variables_said_before_does_not_go_without_a_word(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, told: str
) -> None:
    monkeypatch.setenv(name, text)
    assert f"{name}={text!r} {told}" in str(apply("expandable_segments:False"))


def test_reset_tells_of_a_broken_variable_it_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "max_split_size_mb")
    assert f"{VARIABLE}='max_split_size_mb' was replaced: PyTorch refuses it" in str(reset())
    assert VARIABLE not in os.environ


def test_an_option_named_twice_is_told() -> None:
    assert "max_split_size_mb is named twice" in str(apply("max_split_size_mb:128,max_split_size_mb:256"))


def test_a_status_does_not_change_with_what_is_asked_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch.start(monkeypatch, CUDA)
    apply("max_split_size_mb:128")
    before = status()
    said = str(before)
    apply("backend:cudaMallocAsync")
    assert str(before) == said


def test_a_number_longer_than_python_converts_is_refused_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "max_split_size_mb:" + "9" * 5000)
    assert "is refused by PyTorch when CUDA starts" in status().warnings[0]
    reset()
    assert VARIABLE not in os.environ


@pytest.mark.parametrize(
    "settings", [{1: 2}, {"garbage_collection_threshold": 10**400}, {"roundup_power2_divisions": ""}]
)
def test_odd_settings_are_refused_in_a_line(settings: Any) -> None:
    with pytest.raises(AllocConfError):
        apply(settings)
