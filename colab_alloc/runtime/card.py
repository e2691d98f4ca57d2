"""The memory of the GPU before CUDA has started, as the driver's management library (NVML) tells it."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Final

_LIBRARIES: Final = ("libnvidia-ml.so.1", "nvml.dll")


class _Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


@functools.cache
def memory() -> int | None:
    """Return the memory of this machine's GPU, bytes; starts no CUDA.

    None where there is none to be seen, and where several have different memory: which of them CUDA will call the
    first one is not known before it has started. CUDA itself tells a little less, as the driver keeps some.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return None
    totals = set(_totals())
    return (totals.pop() or None) if len(totals) == 1 else None


def _totals() -> list[int]:
    library = _library()
    if library is None or library.nvmlInit_v2() != 0:
        return []
    try:
        count = ctypes.c_uint()
        if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return []
        return [_total(library, index) for index in range(count.value)]
    finally:
        library.nvmlShutdown()


def _total(library: ctypes.CDLL, index: int) -> int:
    """Return the memory of one card, 0 where it does not tell."""
    device, read = ctypes.c_void_p(), _Memory()
    if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)) != 0:
        return 0
    return int(read.total) if library.nvmlDeviceGetMemoryInfo(device, ctypes.byref(read)) == 0 else 0


def _library() -> ctypes.CDLL | None:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
