"""What people do in cells that never reaches PyTorch, and what does."""

from __future__ import annotations

import pytest

from colab_alloc.notebook.history import findings


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ("!export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128", "set in a shell that ended with the line"),
        ("!PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128", "set in a shell that ended with the line"),
        ("!set PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128", "set in a shell that ended with the line"),
        ('!export PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:128"', "set in a shell that ended with the line"),
        ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments=True", "gives a name to something in Python"),
        ("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512", "gives a name to something in Python"),
        ('%env PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:512"', "%env keeps the quotes"),
        ("%env PYTORCH_CUDA_ALLOC_CONF = max_split_size_mb:50 # why", "%env keeps the comment"),
        ("%env TORCH_CUDA_MAX_SPLIT_SIZE_MB=512", "TORCH_CUDA_MAX_SPLIT_SIZE_MB is not a variable that PyTorch reads"),
        ('os.environ["TORCH_CUDA_ALLOC_CONF"] = "x"', "TORCH_CUDA_ALLOC_CONF is not a variable that PyTorch reads"),
        ("torch.backends.cuda.max_split_size_mb = 32", "PyTorch has no torch.backends.cuda.max_split_size_mb"),
        ("torch.cuda.set_allocator_config(max_split_size_mb=128)", "PyTorch has no torch.cuda.set_allocator_config"),
    ],
)
def test_what_does_nothing_is_found_in_its_cell(cell: str, why: str) -> None:
    (found,) = findings(["", "import os", f"x = 1\n{cell}\ny = 2"])
    assert found.startswith("Cell 2, ")
    assert why in found


@pytest.mark.parametrize(
    "cell",
    [
        "!export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True && torchrun --nproc_per_node=2 train.py",
        "!PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128 python train.py",
        "%env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        'os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "max_split_size_mb:32"',
        'os.environ["CUDA_VISIBLE_DEVICES"] = "0"',
        "%env TORCH_HOME=/tmp",
        "allocated = torch.cuda.memory_allocated()",
        "%alloc_conf max_split_size_mb:128",
    ],
)
def test_what_works_is_not(cell: str) -> None:
    assert list(findings(["", cell])) == []


def test_what_the_magic_has_set_since_is_not_brought_up_again() -> None:
    cells = ["", "!export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128", "%alloc_conf max_split_size_mb:128"]
    assert list(findings(cells, applied_in=2)) == []
    assert len(list(findings([*cells, "%alloc_conf", "PYTORCH_CUDA_ALLOC_CONF = 'x'"], applied_in=2))) == 1


@pytest.mark.parametrize(
    "cell",
    [
        "%%bash\nexport PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128\npython train.py",
        "%%sh\nexport PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128",
        'os.environ.setdefault("TORCH_CUDA_MAX_SPLIT_SIZE_MB", "128")',
        'os.environ.update({"TORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"})',
    ],
)
def test_other_ways_in_vain(cell: str) -> None:
    assert len(list(findings(["", cell]))) == 1


@pytest.mark.parametrize("line", ["# torch.backends.cuda.max_split_size_mb = 5", 'PYTORCH_CUDA_ALLOC_CONF == "x"'])
def test_what_sets_nothing_is_not_found(line: str) -> None:
    assert list(findings(["", line])) == []
