"""The main job, in a real IPython kernel on the virtual GPU: load, set, train, and read what is in effect."""

from __future__ import annotations

import pytest

from tests.kernel import run_cells
from tests.virtual_gpu import VirtualGpu

TRAIN = """
import torch
model = torch.nn.TransformerEncoderLayer(d_model=64, nhead=4, dim_feedforward=128, batch_first=True).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
for step in range(2):
    optimizer.zero_grad()
    model(torch.randn(8, 32, 64, device="cuda")).pow(2).mean().backward()
    optimizer.step()
print(torch.cuda.memory_stats()["num_device_alloc"] > 0)
"""

CELLS = [
    "%load_ext colab_alloc",
    "import sys; print([name for name in ('torch', 'matplotlib') if name in sys.modules])",
    "%alloc_conf max_split_size_mb:128",
    TRAIN,
    "%alloc_conf",
    "%alloc_conf max_split_size_mb:256",
    "%alloc_conf max_split_size_mb:10",
    "%alloc_conf",
    "print(torch.cuda.memory._snapshot()['allocator_settings']['max_split_size'] >> 20)",
]


@pytest.fixture(scope="module")
def outputs(virtual_gpu: VirtualGpu) -> list[str]:
    return run_cells(virtual_gpu, CELLS)


def test_loading_imports_neither_torch_nor_matplotlib(outputs: list[str]) -> None:
    assert outputs[0] == ""
    assert outputs[1].strip() == "[]"


def test_set_train_and_read_that_it_is_in_effect(outputs: list[str]) -> None:
    assert "→ max_split_size_mb 128 MiB: from CUDA's start on" in outputs[2]
    assert outputs[3].strip() == "True"
    assert "CUDA has started" in outputs[4]
    assert "✓ max_split_size_mb 128 MiB: in effect, read back from PyTorch's allocator" in outputs[4]


def test_change_while_cuda_runs(outputs: list[str]) -> None:
    assert outputs[5].startswith("✓ max_split_size_mb 256 MiB: in effect now, read back from PyTorch's allocator")
    assert "! CUDA had already started" in outputs[5]


def test_a_wrong_value_is_one_line_and_the_old_one_stays_in_effect(outputs: list[str]) -> None:
    assert outputs[6].startswith("UsageError: %alloc_conf max_split_size_mb:10: nothing was changed: ")
    assert outputs[6].strip().count("\n") == 0
    assert "✓ max_split_size_mb 256 MiB: in effect, read back from PyTorch's allocator" in outputs[7]
    assert outputs[8].strip() == "256"
