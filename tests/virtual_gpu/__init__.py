"""A virtual GPU: PyTorch's real CUDA allocator on a machine without a GPU. README.md describes it."""

from tests.virtual_gpu.build import BuildError
from tests.virtual_gpu.gpu import GIB, ChildFailed, VirtualGpu

__all__ = ["GIB", "BuildError", "ChildFailed", "VirtualGpu"]
