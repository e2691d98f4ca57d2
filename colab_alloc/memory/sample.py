"""sample(): where the memory of a GPU is, read once, in parts that add up to the card."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from colab_alloc.conf import version
from colab_alloc.result import Result
from colab_alloc.runtime import torch_state, troubles

PARTS: Final = ("tensors", "rounding", "waiting", "split", "cached", "other", "free")

# Reserved memory and what the driver has free are two readings; a training loop may change them in between.
_TRIES: Final = 3


@dataclass(frozen=True, repr=False)
class MemorySample(Result):
    """One reading of one GPU. Sizes are in bytes; None is "not reported", never 0.

    The seven parts from `tensors` to `free` add up to `capacity`, those not reported counting nothing. (They do
    unless PyTorch holds more than the card has, as the drivers of Windows and WSL allow: then `free` is 0.)

    Args:
        time: when, in seconds since the epoch.
        device: the GPU's number.
        backend: the allocator, "native" or "cudaMallocAsync".
        capacity: the whole card.
        tensors: in use, as asked for.
        rounding: in use beyond that, as the allocator rounds sizes up. min(allocated, active - requested).
        waiting: freed, but work on another stream may still use it. active - allocated.
        split: free pieces of blocks that are in use elsewhere: it cannot go back to the driver. None where the
            allocator does not report it: with cudaMallocAsync, and where all segments are expandable.
        cached: the rest of what PyTorch holds without using it; `empty_cache` gives it back.
        other: the CUDA context, other libraries and processes. None, like `free`, for a GPU that this process has
            not used: asking its driver would start it there.
        free: not taken by anybody.
        allocated: tensors + rounding.
        active: allocated + waiting.
        reserved: all that PyTorch holds.
        peak_allocated: the largest `allocated` since the start, or since the user's last reset.
        peak_reserved: the same of `reserved`.
        retries: allocations that succeeded only after the cache was given back.
        ooms: out-of-memory errors.
        driver_allocs: how often memory was taken from the driver.
        driver_frees: how often memory was given back to it.
    """

    time: float
    device: int
    backend: str
    capacity: int
    tensors: int
    rounding: int | None
    waiting: int | None
    split: int | None
    cached: int
    other: int | None
    free: int | None
    allocated: int
    active: int
    reserved: int
    peak_allocated: int
    peak_reserved: int
    retries: int | None
    ooms: int | None
    driver_allocs: int | None
    driver_frees: int | None

    @property
    def parts(self) -> dict[str, int | None]:
        """The seven parts by name, from the bottom of the picture to its top."""
        return {name: getattr(self, name) for name in PARTS}

    @property
    def unused_share(self) -> float | None:
        """1 - allocated / reserved: how much of what PyTorch holds no tensor uses. None while it holds nothing."""
        return 1 - self.allocated / self.reserved if self.reserved else None

    @property
    def fragmentation(self) -> float | None:
        """Inactive split / reserved: how much of what PyTorch holds is stuck. None where it does not tell."""
        return self.split / self.reserved if self.reserved and self.split is not None else None


def sample(device: Any = None) -> MemorySample:
    """Read where the memory of one GPU is. Starts no CUDA, waits for no kernel, copies no blocks.

    Args:
        device: a number, "cuda:1" or a torch.device; the current device by default.

    Raises:
        RuntimeError: there is no GPU to read, or CUDA has not started.
        ValueError: there is no such GPU.
    """
    return read(number_of(device))


def number_of(device: Any = None) -> int:
    """Return a GPU's number, however it is given. CUDA must have started.

    Raises:
        RuntimeError: there is no GPU to read, or CUDA has not started.
        ValueError: there is no such GPU.
    """
    torch: Any = started()
    count = torch.cuda.device_count()
    try:
        number = device if isinstance(device, int) else _parsed(torch, device)
    except (RuntimeError, TypeError):
        number = -1
    if isinstance(device, bool) or not 0 <= number < count:
        there_is = "the only GPU here is 0" if count == 1 else f"the GPUs here are 0 to {count - 1}"
        raise ValueError(f"there is no GPU {device!r}: {there_is}")
    return int(number)


def _parsed(torch: Any, device: Any) -> int:
    parsed = torch.device("cuda" if device is None else device)
    if parsed.type != "cuda":
        return -1
    return int(torch.cuda.current_device() if parsed.index is None else parsed.index)


def started() -> Any:
    """Return the torch module of a process in which CUDA has started.

    Raises:
        RuntimeError: there is no GPU to read, or CUDA has not started.
    """
    if torch_state.cuda_started():
        return torch_state.imported()
    for trouble in troubles.no_gpu(version.installed()):
        raise RuntimeError(trouble.en)
    raise RuntimeError(
        "CUDA has not started, so PyTorch holds no GPU memory yet: use the GPU first, as torch.ones(1, device='cuda')"
    )


def in_use(torch: Any) -> list[int]:
    """Return the GPUs that this process has used so far; CUDA has started. Asking uses none."""
    return [number for number in range(torch.cuda.device_count()) if torch._C._cuda_hasPrimaryContext(number)]


def read(device: int) -> MemorySample:
    """Read where the memory of one GPU is; CUDA has started."""
    torch: Any = torch_state.imported()
    stats = torch.cuda.memory_stats_as_nested_dict(device)
    if not torch._C._cuda_hasPrimaryContext(device):
        capacity = int(torch.cuda.get_device_properties(device).total_memory)
        return _from_stats(torch.cuda.get_allocator_backend(), device, stats, capacity, None)
    for _ in range(_TRIES):
        free, capacity = torch.cuda.mem_get_info(device)
        before, stats = stats, torch.cuda.memory_stats_as_nested_dict(device)
        if _current(before, "reserved_bytes") == _current(stats, "reserved_bytes"):
            break
    return _from_stats(torch.cuda.get_allocator_backend(), device, stats, int(capacity), int(free))


def _from_stats(backend: str, device: int, stats: dict[str, Any], capacity: int, free: int | None) -> MemorySample:
    """Name the parts.

    Args:
        backend: the allocator.
        device: the GPU's number.
        stats: `torch.cuda.memory_stats_as_nested_dict`. Counters that cudaMallocAsync does not keep stand there as 0
            (CUDAMallocAsyncAllocator.cpp, getDeviceStats, 2.14); those that a release does not know are missing.
        capacity: the whole card, bytes.
        free: what the driver has left, bytes; None where it was not asked.
    """
    native = backend == "native"
    allocated, active = _current(stats, "allocated_bytes"), _current(stats, "active_bytes")
    reserved = _current(stats, "reserved_bytes")
    requested = stats["requested_bytes"]["all"]["current"] if native and "requested_bytes" in stats else None
    # what was asked for is let go later than what was given, so the plain difference may be too large
    rounding = None if requested is None else min(allocated, max(0, active - requested))
    waiting = max(0, active - allocated) if native else None
    all_expandable = _current(stats, "segment") == 0 and reserved > 0
    split = _current(stats, "inactive_split_bytes") if native and not all_expandable else None
    cached = max(0, reserved - allocated - (waiting or 0) - (split or 0))
    other = None if free is None else max(0, capacity - free - reserved)
    return MemorySample(
        time=time.time(),
        device=device,
        backend=backend,
        capacity=capacity,
        tensors=allocated - (rounding or 0),
        rounding=rounding,
        waiting=waiting,
        split=split,
        cached=cached,
        other=other,
        free=None if other is None else max(0, capacity - other - reserved),
        allocated=allocated,
        active=active,
        reserved=reserved,
        peak_allocated=_peak(stats, "allocated_bytes"),
        peak_reserved=_peak(stats, "reserved_bytes"),
        retries=stats.get("num_alloc_retries") if native else None,
        ooms=stats.get("num_ooms") if native else None,
        driver_allocs=stats.get("num_device_alloc") if native else None,
        driver_frees=stats.get("num_device_free") if native else None,
    )


def _current(stats: dict[str, Any], name: str) -> int:
    return int(stats[name]["all"]["current"])


def _peak(stats: dict[str, Any], name: str) -> int:
    return int(stats[name]["all"]["peak"])
