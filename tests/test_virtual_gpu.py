"""The virtual GPU keeps the promises of tests/virtual_gpu/README.md.

A function without a test_ in front runs in a process of its own on the virtual GPU and returns what it saw.
Those that need no PyTorch call the library through ctypes, as a CUDA program would.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.virtual_gpu import GIB, BuildError, ChildFailed, VirtualGpu, build, inside, plugin
from tests.virtual_gpu.gpu import REPOSITORY

MIB = 1 << 20
SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_READY, NOT_SUPPORTED = 0, 1, 2, 600, 801
INVALID_DEVICE, INVALID_HANDLE, NOT_REGISTERED, ALREADY_REGISTERED = 101, 400, 713, 712
LAUNCHER = [sys.executable, "-m", "tests.virtual_gpu"]


class Cuda:
    """The functions of the CUDA runtime and driver that are loaded in this process."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, name)

    def malloc(self, size: int) -> tuple[int, int]:
        """Error and address of a cudaMalloc."""
        pointer = ctypes.c_void_p()
        error = self.library.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size))
        return error, pointer.value or 0

    def free(self, address: int) -> int:
        """Error of a cudaFree."""
        return int(self.library.cudaFree(ctypes.c_void_p(address)))

    def memory(self) -> tuple[int, int]:
        """(free, total) of cudaMemGetInfo."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        assert self.library.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) == SUCCESS
        return free.value, total.value

    def new(self, create: str) -> ctypes.c_void_p:
        """A new stream or event."""
        handle = ctypes.c_void_p()
        assert getattr(self.library, create)(ctypes.byref(handle)) == SUCCESS
        return handle


# ---- capacity, errors ----


def cuda_errors() -> dict[str, Any]:
    cuda = Cuda()
    saw: dict[str, Any] = {}
    error, address = cuda.malloc(3 * GIB)
    saw["first"] = error, address != 0, cuda.memory()
    saw["too much"] = cuda.malloc(2 * GIB)
    saw["peek twice"] = cuda.cudaPeekAtLastError(), cuda.cudaPeekAtLastError()
    saw["a successful call"] = cuda.malloc(MIB)[0], cuda.cudaPeekAtLastError()
    others: list[int] = []
    thread = threading.Thread(target=lambda: others.append(cuda.cudaGetLastError()))
    thread.start()
    thread.join()
    saw["another thread"] = others
    saw["get twice"] = cuda.cudaGetLastError(), cuda.cudaGetLastError()
    saw["absurd size"] = cuda.malloc(2**64 - 1)[0]
    saw["nothing"] = cuda.malloc(0)
    saw["free"] = cuda.free(address), cuda.free(address), cuda.free(0)
    saw["after"] = cuda.memory()
    saw["device 1"] = cuda.cudaSetDevice(1)
    saw["stale stream"] = cuda.cudaStreamSynchronize(ctypes.c_void_p(12345678))
    return saw


def test_capacity_and_last_error_are_as_in_cuda(virtual_gpu: VirtualGpu) -> None:
    saw = dataclasses.replace(virtual_gpu, capacity=4 * GIB).run(cuda_errors)
    assert saw["first"] == [SUCCESS, True, [GIB, 4 * GIB]]
    assert saw["too much"] == [OUT_OF_MEMORY, 0]
    assert saw["peek twice"] == [OUT_OF_MEMORY, OUT_OF_MEMORY]
    assert saw["a successful call"] == [SUCCESS, OUT_OF_MEMORY]  # it does not clear the error
    assert saw["another thread"] == [SUCCESS]  # the last error is a thread's own
    assert saw["get twice"] == [OUT_OF_MEMORY, SUCCESS]  # reading clears it: it is not sticky
    assert saw["absurd size"] == OUT_OF_MEMORY
    assert saw["nothing"] == [SUCCESS, 0]
    assert saw["free"] == [SUCCESS, INVALID_VALUE, SUCCESS]
    assert saw["after"] == [4 * GIB - MIB, 4 * GIB]
    assert saw["device 1"] == INVALID_DEVICE
    assert saw["stale stream"] == INVALID_HANDLE


def texts(name: str) -> dict[str, str]:
    """Error number -> text, of the function `name` of the loaded runtime."""
    function = getattr(ctypes.CDLL(None), name)
    function.restype = ctypes.c_char_p
    return {str(error): function(error).decode() for error in range(1000)}


def test_error_names_and_texts_are_those_of_nvidias_runtime(virtual_gpu: VirtualGpu) -> None:
    (runtime,) = nvidia_files("libcudart.so.*")
    real = ctypes.CDLL(str(runtime))
    for name in ("cudaGetErrorName", "cudaGetErrorString"):
        getattr(real, name).restype = ctypes.c_char_p
        ours = {error: text for error, text in virtual_gpu.run(texts, name).items() if "unrecognized" not in text}
        assert len(ours) >= 16
        assert ours == {error: getattr(real, name)(int(error)).decode() for error in ours}


# ---- PyTorch's allocator ----


def torch_out_of_memory() -> dict[str, Any]:
    import torch

    inside.set_process(os.getpid(), 7 * GIB)
    saw: dict[str, Any] = {"at the start": torch.cuda.mem_get_info()}
    kept = torch.empty(GIB, dtype=torch.uint8, device="cuda")
    cached = torch.empty(GIB // 2, dtype=torch.uint8, device="cuda")
    del cached
    saw["used"] = inside.used()
    saw["others"] = torch.cuda.mem_get_info()
    inside.set_taken(2 * GIB)
    saw["others, later"] = torch.cuda.mem_get_info()
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(3 * GIB, dtype=torch.uint8, device="cuda")
    saw["text"] = str(caught.value)
    del kept
    torch.cuda.empty_cache()
    saw["stats"] = {
        name: torch.cuda.memory_stats()[name] for name in ("num_ooms", "num_device_alloc", "num_device_free")
    }
    saw["counts"] = {name: dataclasses.astuple(count) for name, count in inside.counts().items()}
    saw["log"] = [dataclasses.astuple(call) for call in inside.log()]
    inside.clear_log()
    saw["cleared"] = inside.log(), inside.counts()["cudaMalloc"].calls
    return saw


def test_out_of_memory_with_its_numbers_and_what_was_asked_of_the_driver(
    virtual_gpu: VirtualGpu, tmp_path: Path
) -> None:
    file = tmp_path / "log"
    gpu = dataclasses.replace(virtual_gpu, capacity=4 * GIB, taken=GIB, processes={4321: 3 * GIB // 2}, log=file)
    saw = gpu.run(torch_out_of_memory)
    assert saw["at the start"] == [3 * GIB, 4 * GIB]
    assert saw["used"] == 3 * GIB // 2
    assert saw["others"] == [4 * GIB - GIB - 3 * GIB // 2, 4 * GIB]
    assert saw["others, later"] == [4 * GIB - 2 * GIB - 3 * GIB // 2, 4 * GIB]
    # The cached half GiB was given back before PyTorch gave up: 1 GiB is ours, 2 are taken.
    assert saw["text"].startswith(
        "CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 4.00 GiB of which "
        "1024.00 MiB is free. Process 4321 has 1.50 GiB memory in use. Including non-PyTorch memory, this process "
        "has 7.00 GiB memory in use. Of the allocated memory 1024.00 MiB is allocated by PyTorch, and 0 bytes is "
        "reserved by PyTorch but unallocated."
    )
    mallocs = [GIB, GIB // 2, 3 * GIB, 3 * GIB]
    results = [SUCCESS, SUCCESS, OUT_OF_MEMORY, OUT_OF_MEMORY]
    calls = [inside.Call(*call) for call in saw["log"]]
    assert [(call.bytes, call.result) for call in calls if call.call == "cudaMalloc"] == list(
        zip(mallocs, results, strict=True)
    )
    assert [call.bytes for call in calls if call.call == "cudaFree"] == [GIB // 2, GIB]
    assert saw["counts"]["cudaMalloc"] == [4, 2, 3 * GIB // 2]
    assert saw["counts"]["cudaFree"] == [2, 0, 3 * GIB // 2]
    assert saw["stats"] == {"num_ooms": 1, "num_device_alloc": 2, "num_device_free": 2}
    assert inside.read_log(file) == calls
    assert saw["cleared"] == [[], 0]


def several_devices() -> dict[str, Any]:
    import torch

    last = torch.cuda.device_count() - 1
    properties = torch.cuda.get_device_properties(last)
    tensor = torch.arange(5, device="cpu").to(f"cuda:{last}")
    return {
        "count": last + 1,
        "names": sorted({torch.cuda.get_device_name(device) for device in range(last + 1)}),
        "capability": torch.cuda.get_device_capability(last),
        "total_memory": properties.total_memory,
        "architecture": (properties.warp_size, properties.multi_processor_count),
        "used": [inside.used(device) for device in range(last + 1)],
        "free": [torch.cuda.mem_get_info(device)[0] for device in range(last + 1)],
        "to another": tensor.to("cuda:0").tolist(),
    }


def test_devices_names_and_capability(virtual_gpu: VirtualGpu) -> None:
    gpu = dataclasses.replace(virtual_gpu, devices=8, capacity=24 * GIB, name="Tarsier 24", compute_capability=(8, 6))
    saw = gpu.run(several_devices)
    assert saw["count"] == 8
    assert saw["names"] == ["Tarsier 24"]
    assert saw["capability"] == [8, 6]
    assert saw["total_memory"] == 24 * GIB
    assert saw["architecture"] == [32, 132]
    assert saw["used"] == [0] * 7 + [2 * MIB]
    assert saw["free"] == [24 * GIB] * 7 + [24 * GIB - 2 * MIB]
    assert saw["to another"] == [0, 1, 2, 3, 4]


def count_devices() -> tuple[int, int]:
    count = ctypes.c_int(-1)
    return Cuda().cudaGetDeviceCount(ctypes.byref(count)), count.value


def test_cuda_visible_devices(virtual_gpu: VirtualGpu) -> None:
    gpu = dataclasses.replace(virtual_gpu, devices=3)
    assert gpu.run(count_devices, env={"CUDA_VISIBLE_DEVICES": None}) == [SUCCESS, 3]
    assert gpu.run(count_devices, env={"CUDA_VISIBLE_DEVICES": "2,0"}) == [SUCCESS, 2]
    assert gpu.run(count_devices, env={"CUDA_VISIBLE_DEVICES": ""}) == [100, 0]


def deferred_free() -> dict[str, Any]:
    import torch

    side = torch.cuda.Stream()
    block = torch.empty(32 * MIB, dtype=torch.uint8, device="cuda")

    def in_use() -> tuple[int, int]:
        stats = torch.cuda.memory_stats()
        return stats["allocated_bytes.all.current"] // MIB, stats["active_bytes.all.current"] // MIB

    saw: dict[str, Any] = {"allocated": in_use()}
    block.record_stream(side)
    del block
    saw["freed"] = in_use()
    other = torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")
    saw["asked again"] = in_use()
    saw["held"] = inside.held_events()
    saw["released of another stream"] = inside.release_events(stream=0)
    saw["released"] = inside.release_events(stream=side.cuda_stream)
    del other
    torch.empty(MIB, dtype=torch.uint8, device="cuda")
    saw["in the end"] = in_use()
    return saw


def test_a_held_event_keeps_freed_memory_active_until_released(virtual_gpu: VirtualGpu) -> None:
    saw = dataclasses.replace(virtual_gpu, hold_events=True).run(deferred_free)
    assert saw["allocated"] == [32, 32]
    assert saw["freed"] == [0, 32]
    assert saw["asked again"] == [2, 34]
    assert saw["held"] == 1
    assert saw["released of another stream"] == 0
    assert saw["released"] == 1
    assert saw["in the end"] == [0, 0]
    assert virtual_gpu.run(deferred_free)["asked again"] == [2, 2]  # nothing is held without being asked to


def held_events() -> dict[str, Any]:
    cuda = Cuda()
    one, two = cuda.new("cudaStreamCreate"), cuda.new("cudaStreamCreate")
    inside.hold_events()

    def recorded(*streams: ctypes.c_void_p) -> list[ctypes.c_void_p]:
        events = [cuda.new("cudaEventCreate") for _ in streams]
        for event, stream in zip(events, streams, strict=True):
            cuda.cudaEventRecord(event, stream)
        return events

    def query(events: list[ctypes.c_void_p]) -> list[int]:
        return [cuda.cudaEventQuery(event) for event in events]

    saw: dict[str, Any] = {}
    events = recorded(one, two, one)
    saw["held"] = query(events)
    saw["streams"] = cuda.cudaStreamQuery(one), cuda.cudaStreamQuery(two)
    saw["last error"] = cuda.cudaGetLastError()
    inside.release_events(1)
    saw["one released"] = query(events)
    cuda.cudaStreamSynchronize(one)
    saw["stream synchronised"] = query(events)
    cuda.cudaDeviceSynchronize()
    saw["device synchronised"] = query(events)
    events = recorded(one, one, two, one)
    cuda.cudaEventSynchronize(events[1])
    saw["event synchronised"] = query(events)
    _, address = cuda.malloc(MIB)
    cuda.free(address)
    saw["cudaFree"] = query(events)
    cuda.cudaEventDestroy(events.pop())
    inside.hold_events(False)
    saw["no more holding"] = query(events), query(recorded(one)), inside.held_events()
    return saw


def test_what_completes_held_events(virtual_gpu: VirtualGpu) -> None:
    saw = virtual_gpu.run(held_events)
    assert saw["held"] == [NOT_READY] * 3
    assert saw["streams"] == [NOT_READY] * 2
    assert saw["last error"] == NOT_READY
    assert saw["one released"] == [SUCCESS, NOT_READY, NOT_READY]
    assert saw["stream synchronised"] == [SUCCESS, NOT_READY, SUCCESS]
    assert saw["device synchronised"] == [SUCCESS] * 3
    assert saw["event synchronised"] == [SUCCESS, SUCCESS, NOT_READY, NOT_READY]
    assert saw["cudaFree"] == [SUCCESS, SUCCESS, NOT_READY, NOT_READY]
    assert saw["no more holding"] == [[SUCCESS] * 3, [SUCCESS], 0]


def expandable_segments() -> dict[str, Any]:
    import torch

    torch.cuda.memory._record_memory_history()
    blocks = [torch.empty(size * MIB, dtype=torch.uint8, device="cuda") for size in (30, 50)]
    small = torch.ones(4).cuda()
    copied = small.cpu().tolist()
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(2 * GIB, dtype=torch.uint8, device="cuda")
    del blocks
    torch.cuda.empty_cache()
    snapshot = torch.cuda.memory._snapshot()
    traced: dict[str, int] = {}
    for entry in snapshot["device_traces"][0]:
        if entry["action"].startswith("segment_"):
            traced[entry["action"]] = traced.get(entry["action"], 0) + entry["size"]
    return {
        "expandable": sorted({segment["is_expandable"] for segment in snapshot["segments"]}),
        "traced": traced,
        "copied": copied,
        "stats": [torch.cuda.memory_stats()[f"num_device_{name}"] for name in ("alloc", "free")],
        "reserved": torch.cuda.memory_reserved(),
        "used": inside.used(),
        "log": [dataclasses.astuple(call) for call in inside.log()],
    }


def test_expandable_segments_map_and_unmap_what_pytorch_says(virtual_gpu: VirtualGpu) -> None:
    gpu = dataclasses.replace(virtual_gpu, capacity=GIB)
    saw = gpu.run(expandable_segments, env={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})
    calls = [inside.Call(*call) for call in saw["log"]]

    def done(name: str) -> list[int]:
        return [call.bytes for call in calls if call.call == name and call.result == SUCCESS]

    assert saw["expandable"] == [True]
    assert saw["copied"] == [1, 1, 1, 1]
    assert saw["traced"] == {"segment_map": sum(done("cuMemMap")), "segment_unmap": sum(done("cuMemUnmap"))}
    assert saw["traced"]["segment_unmap"] >= 80 * MIB
    # A page is 20 MiB in the segments of large blocks, 2 MiB in those of small ones.
    assert sorted(set(done("cuMemMap"))) == [2 * MIB, 20 * MIB]
    assert saw["stats"] == [3, 1]
    assert saw["used"] == saw["reserved"] == sum(done("cuMemMap")) - sum(done("cuMemUnmap")) == 2 * MIB
    failed = [call for call in calls if call.result]
    assert {(call.call, call.result) for call in failed} == {("cuMemCreate", OUT_OF_MEMORY)}
    assert sum(done("cuMemCreate")) - sum(done("cuMemRelease")) == 2 * MIB


def printed_by(code: str) -> str:
    """What a new process like this one prints as errors."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr


def malloc_async() -> dict[str, Any]:
    import torch

    kept = torch.empty(100 * MIB, dtype=torch.uint8, device="cuda")
    freed = torch.empty(50 * MIB, dtype=torch.uint8, device="cuda")
    del freed

    def stats() -> dict[str, int]:
        all_stats = torch.cuda.memory_stats()
        return {
            f"{name} {when}": all_stats[f"{name}_bytes.all.{when}"] // MIB
            for name in ("allocated", "reserved")
            for when in ("current", "peak")
        }

    saw: dict[str, Any] = {"backend": torch.cuda.get_allocator_backend(), "both": stats()}
    saw["stats printed"] = printed_by("import torch; torch.ones(1, device='cuda'); torch.cuda.memory_stats()")
    saw["used"] = inside.used() // MIB
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    saw["emptied"] = stats()
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(GIB, dtype=torch.uint8, device="cuda")
    saw["text"] = str(caught.value)
    saw["free"] = torch.cuda.mem_get_info()[0] // MIB
    saw["counts"] = {name: (count.calls, count.failed) for name, count in inside.counts().items()}
    del kept
    return saw


def test_the_backend_cuda_malloc_async_starts_and_reports(virtual_gpu: VirtualGpu) -> None:
    gpu = dataclasses.replace(virtual_gpu, capacity=GIB)
    saw = gpu.run(malloc_async, env={"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"})
    assert saw["backend"] == "cudaMallocAsync"
    # 2.9 warns that the variable has a new name, which it does not read; nothing else may be printed.
    assert [line for line in saw["stats printed"].splitlines() if "is deprecated" not in line] == []
    # A pool takes 32 MiB at a time: 128 for the first 100, and 160 for 150 of both.
    assert saw["both"] == {
        "allocated current": 100,
        "allocated peak": 150,
        "reserved current": 160,
        "reserved peak": 160,
    }
    assert saw["used"] == 160
    assert saw["emptied"] == {
        "allocated current": 100,
        "allocated peak": 100,
        "reserved current": 128,
        "reserved peak": 128,
    }
    # PyTorch 2.9 writes the device number as a character, and number 0 then ends its text.
    if saw["text"] != "Allocation on device ":
        assert "Device limit            : 1024.00 MiB" in saw["text"]
        assert "Free (according to CUDA): 896.00 MiB" in saw["text"]
    assert saw["free"] == 896
    assert saw["counts"]["cudaMalloc"] == [0, 0]
    assert saw["counts"]["cudaFreeAsync"][1] == 0
    calls, failed = saw["counts"]["cudaMallocAsync"]
    assert (calls - failed, failed > 0) == (2, True)


def pool_attributes() -> dict[str, Any]:
    cuda = Cuda()
    pool, pointer = ctypes.c_void_p(), ctypes.c_void_p()
    reserved, reserved_high, used, used_high, threshold = 5, 6, 7, 8, 4
    assert cuda.cudaDeviceGetDefaultMemPool(ctypes.byref(pool), 0) == SUCCESS

    def get() -> list[int]:
        values = []
        for attribute in (reserved, reserved_high, used, used_high):
            value = ctypes.c_uint64()
            assert cuda.cudaMemPoolGetAttribute(pool, attribute, ctypes.byref(value)) == SUCCESS
            values.append(value.value // MIB)
        return values

    def put(attribute: int, value: int) -> int:
        return int(cuda.cudaMemPoolSetAttribute(pool, attribute, ctypes.byref(ctypes.c_uint64(value))))

    saw: dict[str, Any] = {"keep all": put(threshold, 2**64 - 1)}
    assert cuda.cudaMallocAsync(ctypes.byref(pointer), ctypes.c_size_t(40 * MIB), None) == SUCCESS
    saw["allocated"] = get()
    assert cuda.cudaFreeAsync(pointer, None) == SUCCESS
    cuda.cudaDeviceSynchronize()
    saw["kept"] = get()
    saw["trimmed"] = cuda.cudaMemPoolTrimTo(pool, ctypes.c_size_t(32 * MIB)), get()
    saw["high set"] = put(used_high, 5), put(used_high, 0), put(reserved_high, 0), get()
    saw["threshold 0"] = put(threshold, 0), get()
    cuda.cudaStreamSynchronize(None)
    saw["synchronised"] = get()
    saw["freed twice"] = cuda.cudaFreeAsync(pointer, None)
    saw["no such attribute"] = put(99, 0)
    return saw


def test_memory_pools(virtual_gpu: VirtualGpu) -> None:
    saw = virtual_gpu.run(pool_attributes)
    assert saw["keep all"] == SUCCESS
    assert saw["allocated"] == [64, 64, 40, 40]
    assert saw["kept"] == [64, 64, 0, 40]
    assert saw["trimmed"] == [SUCCESS, [32, 64, 0, 40]]
    assert saw["high set"] == [INVALID_VALUE, SUCCESS, SUCCESS, [32, 32, 0, 0]]
    assert saw["threshold 0"] == [SUCCESS, [32, 32, 0, 0]]
    assert saw["synchronised"] == [0, 32, 0, 0]
    assert saw["freed twice"] == INVALID_VALUE
    assert saw["no such attribute"] == INVALID_VALUE


# ---- memory is promised, and what becomes of its bytes ----


def resident() -> int:
    """Memory of the host that this process holds, bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def much_memory() -> dict[str, Any]:
    import torch

    torch.zeros(1, device="cuda")
    start = resident()
    big = torch.zeros(40 * GIB, dtype=torch.uint8, device="cuda")
    copy = big.clone()
    host = torch.empty(8 * GIB, dtype=torch.uint8)
    copy[: 8 * GIB].copy_(host)
    back = copy[: 8 * GIB].cpu()
    pinned = torch.empty(4 * GIB, dtype=torch.uint8, pin_memory=True)
    pinned.copy_(big[: 4 * GIB])
    library = Cuda()
    library.cudaMemset(ctypes.c_void_p(big.data_ptr()), 1, ctypes.c_size_t(big.numel()))
    pieces = 0
    piece = torch.ones(MIB, dtype=torch.uint8)
    for offset in range(0, 2 * GIB, MIB):  # many small copies are bounded too
        big[offset : offset + MIB].copy_(piece)
        pieces += 1
    return {
        "grew": resident() - start,
        "pieces": pieces,
        "reads as": [int(back[offset]) for offset in (0, GIB, 8 * GIB - 1)],
        "pinned": (pinned.is_pinned(), back.is_pinned(), int(pinned[GIB])),
        "pinned calls": inside.counts()["cudaHostAlloc"].calls,
    }


def test_memory_is_promised_not_held(virtual_gpu: VirtualGpu) -> None:
    saw = dataclasses.replace(virtual_gpu, capacity=100 * GIB).run(much_memory)
    assert saw["grew"] < GIB // 2  # of more than 100 GiB touched: 256 MiB of contents, and a little
    assert saw["pieces"] == 2048
    assert saw["reads as"] == [0, 0, 0]
    assert saw["pinned"] == [True, False, 0]
    assert saw["pinned calls"] == 1


def contents() -> dict[str, Any]:
    import torch

    values = torch.arange(1000)
    saw: dict[str, Any] = {}
    there = values.cuda()
    other = torch.empty(1000, dtype=torch.int64, device="cuda")
    other.copy_(there)
    saw["round trip"] = bool((other.cpu() == values).all()), there[7].item()
    Cuda().cudaMemset(ctypes.c_void_p(other.data_ptr()), 0xFF, ctypes.c_size_t(80))
    saw["filled"] = other[8:12].tolist()
    large = torch.ones(2 * MIB, dtype=torch.uint8)
    saw["long copy"] = int(large.cuda().cpu().max())
    saw["still there"] = there[7].item()
    there.add_(1)
    saw["after a kernel"] = there.tolist()[:3]
    saw["pinned"] = values.pin_memory().cuda(non_blocking=True)[7].item()
    return saw


def test_short_copies_are_kept_until_a_kernel_runs(virtual_gpu: VirtualGpu) -> None:
    saw = virtual_gpu.run(contents)
    assert saw["round trip"] == [True, 7]
    assert saw["filled"] == [-1, -1, 10, 11]
    assert saw["long copy"] == 0
    assert saw["still there"] == 7
    assert saw["after a kernel"] == [0, 0, 0]
    assert saw["pinned"] == 7


def read_device_memory() -> None:
    ctypes.string_at(Cuda().malloc(MIB)[1], 1)


def bad_copies() -> dict[str, Any]:
    cuda = Cuda()
    _, address = cuda.malloc(MIB)
    host = ctypes.create_string_buffer(64)
    to_device, to_host = 1, 2

    def copy(to: Any, source: Any, size: int, kind: int) -> int:
        return int(cuda.cudaMemcpy(ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size), kind))

    at_host = ctypes.addressof(host)
    saw = {
        "good": copy(address, at_host, 64, to_device),
        "past the end": copy(address + MIB - 32, at_host, 64, to_device),
        "wrong way": copy(address, at_host, 64, to_host),
        "unregister": cuda.cudaHostUnregister(host),
        "register": cuda.cudaHostRegister(host, ctypes.c_size_t(64), 0),
        "again": cuda.cudaHostRegister(host, ctypes.c_size_t(64), 0),
    }
    cuda.free(address)
    saw["freed"] = copy(at_host, address, 64, to_host)
    return saw


def test_device_memory_is_out_of_the_hosts_reach_and_copies_are_checked(virtual_gpu: VirtualGpu) -> None:
    with pytest.raises(ChildFailed, match=f"exit status -{signal.SIGSEGV.value}"):
        virtual_gpu.run(read_device_memory)
    assert virtual_gpu.run(bad_copies) == {
        "good": SUCCESS,
        "past the end": INVALID_VALUE,
        "wrong way": INVALID_VALUE,
        "unregister": NOT_REGISTERED,
        "register": SUCCESS,
        "again": ALREADY_REGISTERED,
        "freed": INVALID_VALUE,
    }


# ---- training ----


def training() -> dict[str, Any]:
    import torch

    def steps(model: torch.nn.Module, batch: torch.Tensor, dtype: torch.dtype | None) -> list[int]:
        model.cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        scaler = torch.amp.GradScaler("cuda", enabled=dtype is torch.float16)
        active = []
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
                loss = model(batch).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            active.append(torch.cuda.memory_stats()["active_bytes.all.current"])
            assert loss.item() == 0  # kernels do not run, so what they would have written reads as zero
        return active

    layer = torch.nn.TransformerEncoderLayer(d_model=64, nhead=4, dim_feedforward=128, batch_first=True)
    transformer = torch.nn.TransformerEncoder(layer, num_layers=2)
    words = torch.randn(8, 32, 64, device="cuda")
    saw: dict[str, Any] = {
        str(dtype): steps(transformer, words, dtype) for dtype in (None, torch.float16, torch.bfloat16)
    }
    query = torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    torch.nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True).sum().backward()
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(8 * 16 * 16, 10),
    )  # fmt: skip
    saw["convolution"] = steps(network, torch.randn(4, 3, 16, 16, device="cuda"), None)
    saw["cudnn"] = torch.backends.cudnn.enabled
    saw["found"] = len(torch.randn(5000, device="cuda").nonzero()), len(words.unique())

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        words @ words.transpose(1, 2)
    graph.replay()
    torch.cuda.synchronize()
    saw["private pools"] = sorted({segment["segment_pool_id"] != (0, 0) for segment in torch.cuda.memory_snapshot()})
    return saw


def test_training_steps_run_and_use_memory(virtual_gpu: VirtualGpu) -> None:
    saw = virtual_gpu.run(training)
    for kind in ("None", "torch.float16", "torch.bfloat16", "convolution"):
        first, second, third = saw[kind]
        assert first > 0
        assert second == third  # the optimizer's state exists from the first step on
    assert saw["cudnn"] is False
    assert saw["found"] == [0, 0]
    assert saw["private pools"] == [False, True]


CELL = """
import threading, torch
seen = []
thread = threading.Thread(target=lambda: seen.append(torch.cuda.mem_get_info()))
thread.start(); torch.ones(3).cuda(); thread.join()
print(seen, torch.ones(3).cuda().tolist(), torch.cuda.memory_allocated())
"""


def test_a_jupyter_kernel_needs_only_the_environment(virtual_gpu: VirtualGpu) -> None:
    import nbclient
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    environment = {**os.environ, **virtual_gpu.environment()}
    done = nbclient.NotebookClient(notebook, kernel_name="python3", timeout=300).execute(env=environment)
    (output,) = done.cells[0].outputs
    assert re.fullmatch(r"\[\(\d+, 17179869184\)\] \[1\.0, 1\.0, 1\.0\] 0\n", output.text)


# ---- what is not supported is loud ----


def refused() -> dict[str, Any]:
    cuda = Cuda()
    function, status = ctypes.c_void_p(), ctypes.c_int()

    def entry(name: bytes) -> tuple[int, bool, int]:
        error = cuda.cudaGetDriverEntryPointByVersion(name, ctypes.byref(function), 12000, 0, ctypes.byref(status))
        return error, function.value is not None, status.value

    saw: dict[str, Any] = {"known": entry(b"cuMemCreate"), "unknown": entry(b"cuMakeCoffee")}
    assert entry(b"cuMulticastCreate") == (SUCCESS, True, 0)
    saw["multicast"] = ctypes.CFUNCTYPE(ctypes.c_int)(function.value or 0)()
    saw["blas"] = cuda.cublasSgetrsBatched()
    saw["ipc"] = cuda.cudaIpcGetMemHandle(), cuda.cudaGetLastError()
    return saw


def test_what_is_not_supported_says_so(virtual_gpu: VirtualGpu) -> None:
    assert virtual_gpu.run(refused) == {
        "known": [SUCCESS, True, 0],
        "unknown": [SUCCESS, False, 1],
        "multicast": NOT_SUPPORTED,
        "blas": 15,
        "ipc": [NOT_SUPPORTED, NOT_SUPPORTED],
    }
    code = "from tests.test_virtual_gpu import refused; refused()"
    done = virtual_gpu.run([sys.executable, "-c", code])
    assert done.stderr.splitlines() == [
        f"virtual GPU: {name} is not supported"
        for name in ("cuMakeCoffee", "cuMulticastCreate", "cublasSgetrsBatched", "cudaIpcGetMemHandle")
    ]


# ---- against NVIDIA's files that are installed with PyTorch ----


def installed(pattern: str) -> list[Path]:
    """Installed files of PyTorch and NVIDIA's packages whose path below site-packages matches."""
    torch = importlib.metadata.distribution("torch")
    root = Path(str(torch.locate_file("")))
    return sorted(root.glob(pattern))


def nvidia_files(name: str) -> list[Path]:
    """Files of NVIDIA's packages with this name; they must be there, or the test would show nothing."""
    found = [*installed(f"nvidia/*/lib/{name}"), *installed(f"nvidia/*/include/{name}")]
    assert found, f"no {name} in the installed nvidia-* packages"
    return found


def symbols(library: Path, option: str) -> set[str]:
    """Undefined or defined dynamic symbols of a library, without versions."""
    nm = shutil.which("nm")
    assert nm, "the test needs nm, which comes with the C compiler"
    done = subprocess.run([nm, "-D", option, str(library)], capture_output=True, text=True, check=True)
    return {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines() if line.strip()}


@pytest.mark.usefixtures("virtual_gpu")
def test_every_cuda_function_that_pytorch_links_is_defined() -> None:
    ours = symbols(build.library_directory() / build.LIBRARY, "--defined-only")
    wanted: set[str] = set()
    for library in installed("torch/lib/*.so"):
        wanted |= symbols(library, "--undefined-only")
    # cuFile reads files into a GPU's memory; its real library says itself that there is no driver for it.
    pattern = re.compile(r"(__)?cuda[A-Z]\w*|cublas[A-Z]\w*|cu(?!File)[A-Z]\w*|nvml\w*")
    linked = {name for name in wanted if pattern.fullmatch(name)}
    assert len(linked) > 200
    assert linked - ours == set()


HOST_DEFINES = """
#define __host__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
"""


def layout_checks(runtime_header: Path) -> Iterator[str]:
    """C declarations that fail to compile if csrc/abi.h or device_prop_fields.h contradict NVIDIA's headers."""
    version = re.search(r"#define CUDART_VERSION +(\d\d)", runtime_header.read_text())
    assert version
    column = {"12": 1, "13": 2}[version[1]]
    fields = (build.SOURCES / "device_prop_fields.h").read_text()
    for field in re.findall(r"_\((\w+), (\d+), (\d+)\)", fields):
        yield f"offsetof(struct cudaDeviceProp, {field[0]}) == {field[column]}"
    size = re.search(rf"VGPU_DEVICE_PROP_SIZE_{version[1]} = (\d+)", fields)
    assert size
    yield f"sizeof(struct cudaDeviceProp) == {size[1]}"
    abi = (build.SOURCES / "abi.h").read_text()
    for name, value in re.findall(r"^ *(?:enum \{)? *(cu\w+|CU_\w+|CUDA_\w+) = (\d+),", abi, flags=re.MULTILINE):
        yield f"(long){name} == {value}"
    structures = {
        "cudaPointerAttributes": ("type 0", "device 4", "devicePointer 8", "hostPointer 16"),
        "cudaFuncAttributes": (
            "maxThreadsPerBlock 24",
            "numRegs 28",
            "binaryVersion 36",
            "maxDynamicSharedSizeBytes 44",
        ),
        "cudaLaunchConfig_st": ("blockDim 12", "dynamicSmemBytes 24", "stream 32"),
        "CUmemAllocationProp_st": ("requestedHandleTypes 4", "location 8"),
        "CUmemLocation_st": ("id 4",),
    }
    for structure, members in structures.items():
        for member in members:
            name, offset = member.split()
            yield f"offsetof(struct {structure}, {name}) == {offset}"


def test_the_stated_layouts_are_those_of_nvidias_headers(virtual_gpu: VirtualGpu, tmp_path: Path) -> None:
    del virtual_gpu  # only for its failure where there is no compiler or no CUDA
    (header,) = nvidia_files("cuda_runtime_api.h")
    checks = list(layout_checks(header))
    assert len(checks) > 100
    source = tmp_path / "check.c"
    asserts = "".join(f'_Static_assert({check}, "{check}");\n' for check in checks)
    source.write_text(f"#include <stddef.h>\n#include <cuda.h>\n#include <cuda_runtime_api.h>\n{asserts}")
    # NVIDIA's packages leave out this header, which holds only decorations for its own compiler.
    (tmp_path / "crt").mkdir()
    (tmp_path / "crt" / "host_defines.h").write_text(HOST_DEFINES)
    command = [build.find_compiler(), "-fsyntax-only", f"-I{header.parent}", "-idirafter", str(tmp_path), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ---- the description of a GPU, and running things on it ----


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"devices": 0}, "devices must be 1 to 8, not 0"),
        ({"devices": True}, "devices must be 1 to 8, not True"),
        ({"capacity": 0}, "capacity must be a positive number of bytes, not 0"),
        ({"capacity": 1.5}, "capacity must be a positive number of bytes, not 1.5"),
        ({"taken": -1}, "taken must be a number of bytes, not -1"),
        ({"name": ""}, "name must have 1 to 255 bytes, not ''"),
        ({"compute_capability": (9,)}, "compute_capability must be (major, minor), not (9,)"),
        ({"processes": {1: -1}}, "processes must map process ids to bytes, not {1: -1}"),
    ],
)
def test_a_wrong_description_is_refused_in_one_line(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        VirtualGpu(**wrong)


def test_a_wrong_variable_ends_the_process(virtual_gpu: VirtualGpu) -> None:
    with pytest.raises(ChildFailed, match="virtual GPU: VIRTUAL_GPU_DEVICES must be 1 to 8, not '9'"):
        virtual_gpu.run(count_devices, env={"VIRTUAL_GPU_DEVICES": "9"})


def fail_with(text: str) -> None:
    raise KeyError(text)


def wait_for_ever() -> None:
    print("waiting", flush=True)
    threading.Event().wait()


def test_running_functions_scripts_and_commands(virtual_gpu: VirtualGpu, tmp_path: Path) -> None:
    with pytest.raises(ChildFailed, match=r"(?s)fail_with ended with exit status 1.*KeyError: 'no such thing'"):
        virtual_gpu.run(fail_with, "no such thing")
    with pytest.raises(ChildFailed, match=r"(?s)wait_for_ever took more than 5 seconds.*waiting"):
        virtual_gpu.run(wait_for_ever, timeout=5)
    with pytest.raises(ValueError, match="not a function at the top of a module"):
        virtual_gpu.run(lambda: None)
    script = tmp_path / "script.py"
    script.write_text("import os, sys; print(os.environ['VIRTUAL_GPU_NAME'], sys.argv[1:], os.getcwd()); sys.exit(3)")
    done = virtual_gpu.run(script, "a", 1)
    assert (done.returncode, done.stdout) == (3, f"Virtual GPU ['a', '1'] {REPOSITORY}\n")
    assert virtual_gpu.run(["sh", "-c", "echo $X"], env={"X": "y"}).stdout == "y\n"


def test_the_environment_keeps_what_others_preload(virtual_gpu: VirtualGpu) -> None:
    base = {"LD_PRELOAD": "/lib/other.so", "LD_LIBRARY_PATH": "/lib/others"}
    added = virtual_gpu.environment(base)
    assert added["LD_PRELOAD"].endswith("/libvirtualgpu.so:/lib/other.so")
    assert added["LD_LIBRARY_PATH"].endswith(":/lib/others")
    assert virtual_gpu.environment({**base, **added}) == added  # not twice
    assert set(added) - {"LD_PRELOAD", "LD_LIBRARY_PATH"} == {name for name in added if name.startswith("VIRTUAL_GPU_")}


def launch(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LAUNCHER, *words], cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("virtual_gpu")
def test_the_launcher_passes_output_and_exit_status_through() -> None:
    done = launch("--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")
    assert launch("--", "sh", "-c", "kill -USR1 $$").returncode == 128 + signal.SIGUSR1
    done = launch("--", "no-such-command")
    assert (done.returncode, done.stderr) == (
        127,
        "python -m tests.virtual_gpu: no-such-command: No such file or directory\n",
    )
    done = launch("--capacity", "lots", "--", "true")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "python -m tests.virtual_gpu: error: argument --capacity: not a size like 16GiB, 512MiB or 1000000: 'lots'",
    )
    done = launch("--devices", "9", "--", "true")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "python -m tests.virtual_gpu: error: devices must be 1 to 8, not 9",
    )


@pytest.mark.usefixtures("virtual_gpu")
def test_ending_the_launcher_ends_the_command() -> None:
    command = [*LAUNCHER, "--", "sh", "-c", "echo ready; exec sleep 600"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        assert launcher.stdout.readline() == "ready\n"
        launcher.terminate()
        assert launcher.wait(timeout=60) == 128 + signal.SIGTERM


@pytest.mark.usefixtures("virtual_gpu")
def test_the_launcher_shows_pytorchs_memory_summary() -> None:
    code = (
        "import torch; print(torch.cuda.memory_summary());"
        "print(torch.cuda.mem_get_info(), torch.cuda.get_device_name())"
    )
    options = ("--capacity", "8GiB", "--taken", "512MiB", "--name", "Loris")
    done = launch(*options, "--", sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert "PyTorch CUDA memory summary, device ID 0" in done.stdout
    assert done.stdout.splitlines()[-1] == f"({8 * GIB - 512 * MIB}, {8 * GIB}) Loris"


# ---- compiling ----


def compiler_that_counts(directory: Path) -> tuple[Path, Path]:
    """A C compiler that also adds a line to a file whenever it makes a library."""
    made = directory / "compiled"
    made.write_text("")
    wrapper = directory / "counting-cc"
    wrapper.write_text(
        f'#!/bin/sh\ncase "$*" in *-shared*) echo . >> {made};; esac\nexec {build.find_compiler()} "$@"\n'
    )
    wrapper.chmod(0o755)
    return wrapper, made


@pytest.mark.usefixtures("virtual_gpu")
def test_it_is_compiled_once_for_each_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper, compiled = compiler_that_counts(tmp_path)
    monkeypatch.setenv("CC", str(wrapper))
    sources, cache = tmp_path / "sources", tmp_path / "cache"
    shutil.copytree(build.SOURCES, sources)

    first = build.library_directory(sources=sources, cache=cache)
    assert build.library_directory(sources=sources, cache=cache) == first
    assert compiled.read_text() == ".\n"
    assert sorted(file.name for file in first.iterdir()) == ["libcuda.so.1", "libnvidia-ml.so.1", "libvirtualgpu.so"]

    with (sources / "errors.c").open("a") as file:
        file.write("\n/* changed */\n")
    second = build.library_directory(sources=sources, cache=cache)
    assert second != first
    assert compiled.read_text() == ".\n.\n"

    with (sources / "errors.c").open("a") as file:
        file.write("\nthis is not C\n")
    with pytest.raises(BuildError, match=r"(?s)could not compile the virtual GPU:\n.*errors.c"):
        build.library_directory(sources=sources, cache=cache)
    assert sorted(cache.iterdir()) == sorted([first, second])  # nothing half made is left


def test_processes_that_compile_at_the_same_time_agree(virtual_gpu: VirtualGpu, tmp_path: Path) -> None:
    code = "from tests.virtual_gpu.build import library_directory; print(library_directory())"
    environment = {**os.environ, "VIRTUAL_GPU_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", code]
    started = [
        subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    answers = {process.communicate()[0].strip() for process in started}
    assert [process.returncode for process in started] == [0, 0, 0]
    assert answers == {str(path) for path in tmp_path.iterdir()}
    assert Path(virtual_gpu.environment()["LD_LIBRARY_PATH"].split(":")[0]).name == Path(answers.pop()).name


def test_without_a_compiler_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(BuildError, match=r"^the virtual GPU needs a C compiler and found none \(looked for CC=no-such"):
        build.library_directory()
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match=r"\(looked for cc, gcc, clang\)$"):
        build.library_directory()


def test_a_cache_directory_that_cannot_be_preloaded_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"holds a colon, semicolon or space: set VIRTUAL_GPU_CACHE to another$"):
        build.library_directory(cache=tmp_path / "with space")
    monkeypatch.delenv("VIRTUAL_GPU_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "with space"))
    assert " " not in str(build.cache_directory())


def test_another_platform_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(BuildError, match=r"runs on Linux \(x86-64 or aarch64\), not on darwin"):
        build.library_directory()


# ---- the fixture ----

USES_THE_FIXTURE = """
def test_it(virtual_gpu): pass
def test_another(): pass
"""
CPU_TORCH = "class version:\n    cuda = None\n"


def run_pytest(directory: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a test that uses the fixture, in a process of its own."""
    (directory / "test_example.py").write_text(USES_THE_FIXTURE)
    options = ["-p", "tests.virtual_gpu.plugin", "-p", "no:cacheprovider", f"--rootdir={directory}", "-q", "-rA"]
    ini = directory / "pytest.ini"
    ini.write_text("[pytest]\nmarkers =\n    virtual_gpu: needs it\naddopts = --strict-markers\n")
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-c", str(ini), *words, str(directory)],
        cwd=REPOSITORY,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_fixture_fails_and_never_skips(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, CC="no-such-compiler")
    assert done.returncode == 1, done.stdout
    assert "no virtual GPU: the virtual GPU needs a C compiler and found none" in done.stdout
    assert 'run pytest with -m "not virtual_gpu" to leave out the tests that need it' in done.stdout
    assert "skipped" not in done.stdout
    done = run_pytest(tmp_path, "-m", "not virtual_gpu", CC="no-such-compiler")
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 deselected" in done.stdout


def test_the_fixture_fails_for_a_pytorch_without_cuda(virtual_gpu: VirtualGpu, tmp_path: Path) -> None:
    del virtual_gpu  # only for its failure where there is no compiler
    fake = tmp_path / "fake"
    fake.mkdir()
    (fake / "torch.py").write_text(CPU_TORCH)
    tests = tmp_path / "tests"
    tests.mkdir()
    done = run_pytest(tests, PYTHONPATH=str(fake))
    assert done.returncode == 1, done.stdout
    assert "no virtual GPU: the installed PyTorch is built without CUDA; run pytest with -m" in done.stdout
    assert plugin.missing(lambda: "13.0") is None


def test_outside_the_virtual_gpu_the_helpers_say_so() -> None:
    code = "from tests.virtual_gpu import inside; inside.log()"
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1].startswith("RuntimeError: this process does not run on the virtual GPU")


def nvml_processes() -> dict[str, Any]:
    """What NVML says about the processes of device 0, asked in the way of a monitoring program."""

    class Process(ctypes.Structure):
        _fields_ = (("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint))

    nvml = ctypes.CDLL("libnvidia-ml.so.1")  # found through LD_LIBRARY_PATH
    device, name = ctypes.c_void_p(), ctypes.create_string_buffer(64)
    assert nvml.nvmlInit_v2() == SUCCESS
    assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == SUCCESS
    assert nvml.nvmlDeviceGetName(device, name, 64) == SUCCESS

    def running() -> dict[int, int]:
        processes, count = (Process * 8)(), ctypes.c_uint(8)
        assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(count), processes) == SUCCESS
        return {process.pid: process.bytes for process in processes[: count.value]}

    saw: dict[str, Any] = {"name": name.value.decode(), "no context yet": running()}
    Cuda().malloc(3 * MIB)
    own = os.getpid()
    saw["own"] = running().pop(own)
    inside.set_process(77, 5)
    inside.set_process(own, 6)
    inside.set_process(1234, None)
    saw["changed"] = {("own" if pid == own else pid): size for pid, size in running().items()}
    room, short = (Process * 1)(), ctypes.c_uint(1)
    insufficient = 7
    saw["too short"] = (
        nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(short), room) == insufficient,
        short.value,
    )
    return saw


def test_nvml_lists_the_processes_that_were_set_and_this_one(virtual_gpu: VirtualGpu) -> None:
    saw = dataclasses.replace(virtual_gpu, processes={1234: 3 * GIB}, name="Potto").run(nvml_processes)
    assert saw["name"] == "Potto"
    assert saw["no context yet"] == {"1234": 3 * GIB}
    assert saw["own"] == 3 * MIB
    assert saw["changed"] == {"77": 5, "own": 6}
    assert saw["too short"] == [True, 2]


def write_log(count: int) -> None:
    cuda = Cuda()
    for _ in range(count):
        cuda.free(cuda.malloc(MIB)[1])


def test_several_processes_share_one_log_file(virtual_gpu: VirtualGpu, tmp_path: Path) -> None:
    gpu = dataclasses.replace(virtual_gpu, log=tmp_path / "log")
    gpu.run(write_log, 2)
    gpu.run(write_log, 3)
    calls = inside.read_log(tmp_path / "log")
    assert [call.call for call in calls] == ["cudaMalloc", "cudaFree"] * 5
    assert len({json.loads(line)["pid"] for line in (tmp_path / "log").read_text().splitlines()}) == 2
    # Addresses are the same in every run where the system allows, so that logs can be compared.
    assert len({call.address for call in calls}) == 1
