"""With a real PyTorch and no GPU - no driver, or a build without CUDA - everything answers and nothing starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from colab_alloc.conf import version
from colab_alloc.runtime import torch_state

pytestmark = pytest.mark.torch

SESSION = """
import json, os
import torch
import colab_alloc

saw = {"before": str(colab_alloc.status())}
colab_alloc.apply(colab_alloc.AllocConf(max_split_size_mb=128))
try:
    torch.ones(1, device="cuda")
except (AssertionError, RuntimeError) as error:
    saw["torch"] = str(error)
now = colab_alloc.status()
saw |= {"started": now.cuda_initialized, "warnings": now.warnings, "outcome": now.outcome("max_split_size_mb")}
saw["environment"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"]
saw["html"] = now._repr_html_()
saw["needs restart"] = str(colab_alloc.apply(colab_alloc.AllocConf(backend="cudaMallocAsync")).needs_restart)
print(json.dumps(saw))
"""


@pytest.fixture(scope="module")
def saw() -> dict[str, Any]:
    """What a process sees that imports the installed torch where it finds no GPU."""
    environment = {name: value for name, value in os.environ.items() if name not in torch_state.ALL_VARIABLES}
    done = subprocess.run(
        [sys.executable, "-c", SESSION],
        env=environment | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def test_there_really_is_no_gpu(saw: dict[str, Any]) -> None:
    assert saw["torch"]
    assert not saw["started"]


def test_the_setting_waits_for_cuda(saw: dict[str, Any]) -> None:
    assert "CUDA has not started" in saw["before"]
    assert saw["outcome"] == "at CUDA start"
    assert saw["environment"] == "max_split_size_mb:128"
    assert "max_split_size_mb" in saw["html"]


def test_a_build_without_cuda_is_called_so_and_one_with_cuda_is_not(saw: dict[str, Any]) -> None:
    build = version.installed()
    assert build is not None
    told = [warning for warning in saw["warnings"] if "is a build without CUDA" in warning]
    assert bool(told) == (build.cuda is None)
    # only a build with CUDA has settled its back end by being imported
    assert saw["needs restart"] == ("backend:cudaMallocAsync" if build.cuda else "")
