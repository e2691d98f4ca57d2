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
    assert now.environment == {"PYTORCH_CUDA_ALLOC_CONF": "", "PYTORCH_ALLOC_CONF": "max_split_size_mb:64"}


def test_what_torch_will_not_like_is_told_before_it_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb")
    now = status()
    assert now.asked_for == AllocConf()
    assert "PYTORCH_CUDA_ALLOC_CONF='max_split_size_mb' cannot be read" in now.warnings[0]
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:10")
    assert "must be 20 or more in PyTorch 2.14, not 10" in status().warnings[0]


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
