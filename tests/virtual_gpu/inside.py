"""For code that runs on the virtual GPU: what was asked of the driver, and changing things as it runs."""

import ctypes
import functools
import json
import os
from dataclasses import dataclass
from pathlib import Path

SIZE = ctypes.c_size_t
ALL = 2**64 - 1


class Entry(ctypes.Structure):
    """One entry of the log, as csrc/log.c keeps it."""

    _fields_ = (
        ("call", ctypes.c_int),
        ("device", ctypes.c_int),
        ("result", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("address", ctypes.c_ulonglong),
        ("bytes", ctypes.c_ulonglong),
    )


@dataclass(frozen=True)
class Call:
    """One memory call to the driver.

    Attributes:
        call: the function, such as cudaMalloc.
        device: the device it was about.
        address: of the memory; 0 where it has none (a failed cudaMalloc, cuMemCreate, cuMemRelease).
        bytes: asked for, or given back; 0 for a failed cudaFree.
        result: 0, or CUDA's error number.
    """

    call: str
    device: int
    address: int
    bytes: int
    result: int


@dataclass(frozen=True)
class Count:
    """How often a function was called.

    Attributes:
        calls: all calls, with the failed ones.
        failed: calls that returned an error.
        bytes: sum over the successful calls.
    """

    calls: int
    failed: int
    bytes: int


@functools.cache
def library() -> ctypes.CDLL:
    """The virtual GPU of this process.

    Raises:
        RuntimeError: this process does not run on one.
    """
    loaded = ctypes.CDLL(None)
    if not hasattr(loaded, "virtual_gpu_log_size"):
        raise RuntimeError("this process does not run on the virtual GPU (see tests/virtual_gpu/README.md)")
    loaded.virtual_gpu_call_name.restype = ctypes.c_char_p
    loaded.virtual_gpu_set_taken.argtypes = (ctypes.c_int, SIZE)
    loaded.virtual_gpu_set_process.argtypes = (ctypes.c_int, ctypes.c_int, SIZE, ctypes.c_int)
    loaded.virtual_gpu_release_events.argtypes = (SIZE, ctypes.c_int, ctypes.c_void_p)
    for name in ("used", "release_events", "held_events", "log_size", "log_read"):
        getattr(loaded, f"virtual_gpu_{name}").restype = SIZE
    loaded.virtual_gpu_log_read.argtypes = (SIZE, SIZE, ctypes.c_void_p)
    loaded.virtual_gpu_log_clear.restype = None
    loaded.virtual_gpu_hold_events.restype = None
    return loaded


def check(error: int, device: int) -> None:
    """Raises for an error number of one of the functions below."""
    if error:
        raise ValueError(f"the virtual GPU refused this for device {device} (CUDA error {error})")


@functools.cache
def call_names() -> tuple[str, ...]:
    """The functions that are logged and counted."""
    gpu = library()
    return tuple(gpu.virtual_gpu_call_name(number).decode() for number in range(gpu.virtual_gpu_call_count()))


def log(first: int = 0) -> list[Call]:
    """The memory calls of this process in their order, from number `first` on."""
    gpu = library()
    room = max(gpu.virtual_gpu_log_size() - first, 0)
    entries = (Entry * room)()
    count = gpu.virtual_gpu_log_read(first, room, entries)
    names = call_names()
    return [Call(names[e.call], e.device, e.address, e.bytes, e.result) for e in entries[:count]]


def log_size() -> int:
    """How many calls the log holds: what to pass to `log` later to see only what came after."""
    return int(library().virtual_gpu_log_size())


def counts(device: int = 0) -> dict[str, Count]:
    """Function -> how often it was called for a device."""
    gpu = library()
    found = {}
    for number, name in enumerate(call_names()):
        calls, failed, size = (ctypes.c_ulonglong() for _ in range(3))
        check(
            gpu.virtual_gpu_counter(device, number, ctypes.byref(calls), ctypes.byref(failed), ctypes.byref(size)),
            device,
        )
        found[name] = Count(calls.value, failed.value, size.value)
    return found


def clear_log() -> None:
    """Empties the log of this process and sets its counters to zero. A log file stays as it is."""
    library().virtual_gpu_log_clear()


def read_log(path: str | os.PathLike[str]) -> list[Call]:
    """The calls in a log file (`VirtualGpu(log=...)`), of all processes that wrote to it."""
    calls = []
    for line in Path(path).read_text().splitlines():
        entry = json.loads(line)
        del entry["pid"]
        calls.append(Call(**entry))
    return calls


def used(device: int = 0) -> int:
    """Bytes of a device that this process has taken from the driver."""
    return int(library().virtual_gpu_used(device))


def set_taken(size: int, device: int = 0) -> None:
    """Sets how much of a device other processes use, bytes."""
    check(library().virtual_gpu_set_taken(device, size), device)


def set_process(pid: int, size: int | None, device: int = 0) -> None:
    """Sets what NVML says a process uses of a device, bytes; None takes the process off the list.

    This process is listed with what it really uses unless it is set here.
    """
    check(library().virtual_gpu_set_process(device, pid, size or 0, int(size is not None)), device)


def hold_events(hold: bool = True) -> None:
    """From now on recorded events stay incomplete, or no more; False also completes those that are held."""
    library().virtual_gpu_hold_events(int(hold))


def release_events(most: int | None = None, *, stream: int | None = None, device: int = 0) -> int:
    """Completes held events, oldest first, and returns how many.

    Args:
        most: at most so many; by default all.
        stream: only those of this stream (`torch.cuda.Stream.cuda_stream`; 0 is the default stream).
        device: the stream's device; says nothing without a stream.
    """
    chosen = device if stream is not None else -1
    return int(library().virtual_gpu_release_events(ALL if most is None else most, chosen, stream or 0))


def held_events() -> int:
    """How many recorded events are held at present."""
    return int(library().virtual_gpu_held_events())
