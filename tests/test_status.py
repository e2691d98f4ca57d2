"""status(): what is asked for and what is true, before CUDA starts. tests/test_running_allocator.py goes on."""

from __future__ import annotations

import os
import sys

import pytest

from colab_alloc import AllocConf, status
from colab_alloc.conf.version import TorchBuild
from colab_alloc.runtime import torch_state
from tests import fake_torch

CUDA = TorchBuild("2.14.1+cu130", cuda="13.0")


@pytest.fixture(autouse=True)
def _torch_2_14(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch.install(monkeypatch, CUDA)


def test_without_torch_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch.install(monkeypatch, None)
    now = status()
    assert (now.torch_version, now.cuda_initialized, now.in_effect) == (None, False, {})
    assert now.warnings == ("PyTorch is not installed: nothing reads the variable yet",)
    assert "PyTorch is not installed" in str(now)


def test_a_build_without_cuda_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch.install(monkeypatch, TorchBuild("2.13.0+cpu"))
    assert status().warnings == ("PyTorch 2.13.0+cpu is a build without CUDA: it has no GPU allocator to configure",)


@pytest.mark.parametrize(
    ("build", "read"),
    [
        (TorchBuild("2.9.1", cuda="12.8"), ("PYTORCH_CUDA_ALLOC_CONF",)),
        (TorchBuild("2.11.0", cuda="12.8"), ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")),
        (CUDA, ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")),
        (
            TorchBuild("2.14.1", hip="7.0"),
            ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"),
        ),
        (None, ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")),
    ],
)
def test_each_build_reads_its_variables_in_its_order(build: TorchBuild | None, read: tuple[str, ...]) -> None:
    assert torch_state.variables_read(build) == read


def test_of_several_variables_the_first_one_set_counts_even_when_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:64")
    assert status().asked_for == AllocConf(max_split_size_mb=64)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "")
    now = status()
    assert (now.variable, now.asked_for) == ("PYTORCH_CUDA_ALLOC_CONF", AllocConf())
    assert "has no effect: PYTORCH_CUDA_ALLOC_CONF is set and comes first" in now.warnings[0]
    assert now.environment == {"PYTORCH_CUDA_ALLOC_CONF": "", "PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("max_split_size_mb", "makes `import torch` abort the process: max_split_size_mb has no value"),
        (
            "max_split_size_mb=128",
            "makes `import torch` abort the process: Index out of bounds in ConfigTokenizer; write",
        ),
        ("max_split_size_mb:10", "is refused by PyTorch when CUDA starts, and the process is unusable then: max_split"),
        ("expandable_segments:true", "is refused by PyTorch when CUDA starts"),
        ("max_split_size_mb:128abc", "128abc was read as 128"),
    ],
)
def test_what_torch_will_not_like_is_told_before_it_reads_it(
    monkeypatch: pytest.MonkeyPatch, text: str, warning: str
) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", text)
    (told,) = status().warnings
    assert told.startswith(f"PYTORCH_CUDA_ALLOC_CONF={text!r}")
    assert warning in told


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("max_split_size_mb:128", "at CUDA start"),
        ("max_split_size_mb:128MB", "at CUDA start"),  # PyTorch stops reading at the M
        ("max_split_size_mb=128", "refused"),
        ("max_split_size_mb:128,expandable_segments:true", "refused"),
        ("max_split_size_mb:200e1", "misread"),  # PyTorch reads 200
    ],
)
def test_only_what_pytorch_will_read_so_is_promised(monkeypatch: pytest.MonkeyPatch, text: str, outcome: str) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", text)
    now = status()
    assert now.outcome("max_split_size_mb") == outcome
    assert ("will be read when CUDA starts" in str(now)) == (outcome == "at CUDA start")


def test_what_does_nothing_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "garbage_collection_threshold:0.8")
    (told,) = status().warnings
    assert told.startswith("garbage_collection_threshold does nothing until a memory limit is set")


def test_nothing_else_is_read_under_the_other_back_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync,max_split_size_mb:128")
    assert (status().outcome("backend"), status().outcome("max_split_size_mb")) == ("at CUDA start", "ignored")


def test_an_import_that_went_well_cannot_abort_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch.start(monkeypatch, CUDA)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb")
    assert "aborts processes started from here as they import PyTorch" in status().warnings[0]


def test_a_runtime_without_a_driver_is_told_where_to_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_state, "driver_found", lambda: False)
    assert "in Colab choose Runtime > Change runtime type > a GPU" in status().warnings[0]


@pytest.mark.parametrize(
    ("variable", "text", "module", "warning"),
    [
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "vllm", "vLLM's sleep mode"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "torch_memory_saver", "cannot pause memory"),
        ("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync", "json", "recordings of memory are not possible"),
        ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", "json", "switches the caching allocator off"),
    ],
)
def test_known_incompatibilities_are_told(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, module: str, warning: str
) -> None:
    monkeypatch.setenv(variable, text)
    monkeypatch.setitem(sys.modules, module, sys)
    (told,) = status().warnings
    assert warning in told


def test_a_torch_newer_than_the_table_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_torch.install(monkeypatch, TorchBuild("2.31.0", cuda="14.0"))
    assert status().warnings == ("PyTorch 2.31.0 is newer than 2.14, the newest known here, and is treated like that",)


def test_before_cuda_starts_only_the_back_end_of_an_imported_torch_is_in_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert status().in_effect == {}
    fake_torch.start(monkeypatch, CUDA, backend="cudaMallocAsync")
    assert status().in_effect == {"backend": "cudaMallocAsync"}
    assert not status().cuda_initialized


def test_it_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:128")
    environment, modules = dict(os.environ), set(sys.modules)
    status()
    assert os.environ == environment
    assert "torch" not in set(sys.modules) - modules
