"""status(), apply() and reset() against PyTorch's real caching allocator, after CUDA has started.

Each function below runs in a process of its own on the virtual GPU and returns what it saw.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from dataclasses import replace
from typing import Any

import pytest

from colab_alloc.conf import version
from tests.virtual_gpu import VirtualGpu
from tests.virtual_gpu.gpu import ChildFailed

VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
MIB = 1 << 20


def truth() -> dict[str, Any]:
    """The settings as the allocator holds them, by PyTorch's own full snapshot."""
    import torch

    settings: dict[str, Any] = torch.cuda.memory._snapshot()["allocator_settings"]
    return settings


def in_effect(*names: str) -> dict[str, str]:
    """What status() says is in effect, in words."""
    import colab_alloc

    now = colab_alloc.status()
    return {name: f"{now.in_effect[name]} ({now.sources[name]})" for name in names}


def set_before_cuda_starts() -> dict[str, Any]:
    import colab_alloc

    colab_alloc.apply(colab_alloc.AllocConf(max_split_size_mb=128))
    imported = "torch" in sys.modules
    import torch

    colab_alloc.status()
    started_by_status = torch.cuda.is_initialized()
    torch.ones(1, device="cuda")
    now = colab_alloc.status()
    return {
        "torch imported by apply": imported,
        "CUDA started by status": started_by_status,
        "outcome": now.outcome("max_split_size_mb"),
        "source": now.sources["max_split_size_mb"],
        "truth": truth()["max_split_size"],
        "report": str(now),
    }


def test_what_is_set_before_cuda_starts_is_in_effect_because_the_allocator_says_so(virtual_gpu: VirtualGpu) -> None:
    saw = virtual_gpu.run(set_before_cuda_starts)
    assert not saw["torch imported by apply"]
    assert not saw["CUDA started by status"]
    assert (saw["outcome"], saw["source"], saw["truth"]) == ("in effect", "allocator", 128 * MIB)
    assert "✓ max_split_size_mb 128 MiB: in effect, read back from PyTorch's allocator" in saw["report"]


def change_while_cuda_runs() -> dict[str, Any]:
    import torch

    import colab_alloc

    rounding = "roundup_power2_divisions:[64:8,256:4]"
    os.environ[VARIABLE] = f"expandable_segments:True,garbage_collection_threshold:0.8,{rounding}"
    torch.ones(1, device="cuda")
    applied = colab_alloc.apply(colab_alloc.AllocConf(max_split_size_mb=256))
    first = truth()
    colab_alloc.apply(colab_alloc.AllocConf(max_split_size_mb=colab_alloc.UNLIMITED, expandable_segments=False))
    second = truth()
    return {
        "in effect": str(applied.in_effect),
        "environment": os.environ[VARIABLE],
        "first": first,
        "second": second,
        "status": in_effect("max_split_size_mb", "garbage_collection_threshold", "roundup_power2_divisions"),
    }


def test_a_change_while_cuda_runs_leaves_all_other_options_as_they_were(virtual_gpu: VirtualGpu) -> None:
    saw = virtual_gpu.run(change_while_cuda_runs)
    assert saw["in effect"] == "max_split_size_mb:256"
    first, second = saw["first"], saw["second"]
    assert first["max_split_size"] == 256 * MIB
    assert second["max_split_size"] == -1  # unlimited
    for settings in (first, second):
        assert settings["garbage_collection_threshold"] == pytest.approx(0.8)
        assert (settings["roundup_power2_divisions"]["64"], settings["roundup_power2_divisions"]["256"]) == (8, 4)
    assert (first["expandable_segments"], second["expandable_segments"]) == (True, False)
    assert saw["environment"] == (
        "roundup_power2_divisions:[64:8,256:4],garbage_collection_threshold:0.8,expandable_segments:False"
    )
    assert saw["status"] == {
        "max_split_size_mb": "unlimited (allocator)",
        "garbage_collection_threshold": "0.8 (allocator)",
        "roundup_power2_divisions": "((64, 8), (128, 0), (256, 4)) (allocator)",
    }


def refused_while_cuda_runs(text: str) -> dict[str, Any]:
    import torch

    import colab_alloc

    os.environ[VARIABLE] = "max_split_size_mb:256"
    torch.ones(1, device="cuda")
    try:
        colab_alloc.apply(colab_alloc.AllocConf.parse(text))
    except colab_alloc.AllocConfError as error:
        refusal = str(error)
    return {"refusal": refusal, "truth": truth()["max_split_size"], "environment": os.environ[VARIABLE]}


def test_a_refused_value_reaches_neither_the_allocator_nor_the_environment(virtual_gpu: VirtualGpu) -> None:
    saw = virtual_gpu.run(refused_while_cuda_runs, "garbage_collection_threshold:0.5,max_split_size_mb:10")
    assert re.search("max_split_size_mb must be 2[01] or more", saw["refusal"])
    assert (saw["truth"], saw["environment"]) == (256 * MIB, "max_split_size_mb:256")


def refused_by_pytorch_alone() -> dict[str, Any]:
    """As when our table is wrong: a value that only PyTorch finds bad, after one that it takes."""
    import torch

    import colab_alloc
    from colab_alloc.conf import objections

    os.environ[VARIABLE] = "max_split_size_mb:256"
    torch.ones(1, device="cuda")
    objections._RULES = ()
    try:
        colab_alloc.apply(colab_alloc.AllocConf(max_split_size_mb=64, garbage_collection_threshold=1.5))
    except colab_alloc.AllocConfError as error:
        refusal = str(error)
    return {"refusal": refusal, "truth": truth(), "environment": os.environ[VARIABLE]}


def test_what_pytorch_refuses_half_way_is_taken_back(virtual_gpu: VirtualGpu) -> None:
    saw = virtual_gpu.run(refused_by_pytorch_alone)
    assert "PyTorch refuses it: garbage_collect_threshold " in saw["refusal"]
    assert saw["truth"]["max_split_size"] == 256 * MIB
    assert saw["truth"]["garbage_collection_threshold"] == 0
    assert saw["environment"] == "max_split_size_mb:256"


def set_too_late_by_hand() -> dict[str, Any]:
    import torch

    import colab_alloc

    torch.ones(1, device="cuda")
    os.environ[VARIABLE] = "max_split_size_mb:128"
    late = colab_alloc.status()
    colab_alloc.apply(late.asked_for)
    return {"late": str(late), "then": colab_alloc.status().outcome("max_split_size_mb")}


def test_a_variable_set_after_cuda_started_is_told_to_have_no_effect(virtual_gpu: VirtualGpu) -> None:
    saw = virtual_gpu.run(set_too_late_by_hand)
    assert (
        f"! max_split_size_mb 128 MiB: not in effect: {VARIABLE} was changed after CUDA had started; "
        "apply it now with %alloc_conf max_split_size_mb:128"
    ) in saw["late"]
    assert saw["then"] == "in effect"


def read_while_recording() -> dict[str, Any]:
    import torch

    import colab_alloc

    os.environ[VARIABLE] = "max_split_size_mb:128,garbage_collection_threshold:0.7"
    torch.ones(1, device="cuda")
    torch.cuda.memory._record_memory_history(max_entries=1000)
    unread = in_effect("max_split_size_mb")["max_split_size_mb"]
    torch.cuda.memory._record_memory_history(enabled=None)
    colab_alloc.status()
    torch.cuda.memory._record_memory_history(max_entries=1000)
    tensor = torch.ones(1 << 20, device="cuda")
    saw: dict[str, Any] = {
        "unread": unread,
        "status": in_effect("max_split_size_mb", "garbage_collection_threshold"),
    }
    try:
        colab_alloc.apply(colab_alloc.AllocConf(max_split_size_mb=256))
    except colab_alloc.AllocConfError as error:
        saw["refusal"] = str(error)
    del tensor
    saw["actions"] = [entry["action"] for entry in torch.cuda.memory._snapshot()["device_traces"][0]]
    torch.cuda.memory._record_memory_history(enabled=None)
    saw["after"] = truth()["max_split_size"], truth()["garbage_collection_threshold"]
    return saw


def test_a_running_recording_gets_no_entry_of_ours(virtual_gpu: VirtualGpu) -> None:
    saw = virtual_gpu.run(read_while_recording)
    assert saw["actions"] == ["alloc", "segment_alloc", "free_requested", "free_completed"] or saw["actions"] == [
        "segment_alloc",
        "alloc",
        "free_requested",
        "free_completed",
    ]
    values = {name: said.split(" ")[0] for name, said in saw["status"].items()}
    assert values == {"max_split_size_mb": "128", "garbage_collection_threshold": "0.7"}
    assert "(allocator)" not in str(saw["status"])
    assert saw["unread"] in {"128 (last text the allocator read)", "None (not shown while memory is recorded)"}
    assert saw["after"] == [(256 if "refusal" not in saw else 128) * MIB, pytest.approx(0.7)]


def other_back_end() -> dict[str, Any]:
    import colab_alloc

    colab_alloc.apply(colab_alloc.AllocConf(backend="cudaMallocAsync"))
    import torch

    torch.ones(1, device="cuda")
    applied = colab_alloc.apply(colab_alloc.AllocConf(max_split_size_mb=128))
    outcome = colab_alloc.status().outcome("max_split_size_mb")
    back = colab_alloc.apply(colab_alloc.AllocConf(backend="native", max_split_size_mb=64))
    reset = colab_alloc.reset()
    return {
        "said": str(applied).splitlines()[0],
        "outcome": outcome,
        "back": str(back.needs_restart),
        "running": torch.cuda.get_allocator_backend(),
        "in effect": in_effect("backend", "max_split_size_mb"),
        "reset": str(reset.needs_restart),
        "environment": os.environ.get(VARIABLE),
    }


def test_under_cudas_own_allocator_the_options_of_the_native_one_are_ignored(virtual_gpu: VirtualGpu) -> None:
    assert virtual_gpu.run(other_back_end) == {
        "said": "! backend:cudaMallocAsync ignores max_split_size_mb",
        "outcome": "ignored",
        "back": "backend:native,max_split_size_mb:64",
        "running": "cudaMallocAsync",
        "in effect": {
            "backend": "cudaMallocAsync (allocator)",
            "max_split_size_mb": "None (not used by this back end)",
        },
        "reset": "backend:native",
        "environment": None,
    }


def back_end_too_late() -> dict[str, Any]:
    import torch

    import colab_alloc

    applied = colab_alloc.apply(colab_alloc.AllocConf(backend="cudaMallocAsync", max_split_size_mb=128))
    torch.ones(1, device="cuda")  # would fail if the variable named a back end that is not the loaded one
    return {
        "needs restart": str(applied.needs_restart),
        "status": str(colab_alloc.status()),
        "truth": truth()["max_split_size"],
    }


def test_a_back_end_chosen_too_late_does_not_break_the_process(virtual_gpu: VirtualGpu) -> None:
    saw = virtual_gpu.run(back_end_too_late)
    assert saw["needs restart"] == "backend:cudaMallocAsync"
    assert "→ backend cudaMallocAsync: needs a kernel restart: too late in this process" in saw["status"]
    assert saw["truth"] == 128 * MIB


def reset_while_cuda_runs() -> dict[str, Any]:
    import torch

    import colab_alloc

    os.environ[VARIABLE] = "max_split_size_mb:128,expandable_segments:True"
    torch.ones(1, device="cuda")
    applied = colab_alloc.reset()
    settings = truth()
    return {
        "in effect": str(applied.in_effect),
        "environment": os.environ.get(VARIABLE),
        "expandable": settings["expandable_segments"],
        "status": in_effect("max_split_size_mb"),
    }


def test_reset_while_cuda_runs_is_read_back_too(virtual_gpu: VirtualGpu) -> None:
    assert virtual_gpu.run(reset_while_cuda_runs) == {
        "in effect": "max_split_size_mb:unlimited,expandable_segments:False",
        "environment": None,
        "expandable": False,
        "status": {"max_split_size_mb": "unlimited (allocator)"},
    }


def count_snapshot_cost() -> dict[str, Any]:
    import torch

    import colab_alloc
    from colab_alloc.runtime import torch_state

    tensors = [torch.empty(1 << 18, device="cuda") for _ in range(300)]
    ours = torch_state._smallest_snapshot(torch)
    full = torch.cuda.memory._snapshot()
    colab_alloc.status()
    return {
        "segments ours": len(ours["segments"]),
        "segments all": len(full["segments"]),
        "same settings": ours["allocator_settings"] == full["allocator_settings"],
        "tensors": len(tensors),
    }


def test_reading_the_settings_copies_no_blocks(virtual_gpu: VirtualGpu) -> None:
    saw = virtual_gpu.run(count_snapshot_cost)
    assert saw["same settings"]
    small_numbers_live_on = sys.version_info >= (3, 12)
    assert saw["segments all"] > 1
    assert saw["segments ours"] == (0 if small_numbers_live_on else saw["segments all"])


def the_generic_variable() -> dict[str, Any]:
    import torch

    import colab_alloc

    now = colab_alloc.status()
    torch.ones(1, device="cuda")
    return {"variable": now.variable, "outcome": colab_alloc.status().outcome("max_split_size_mb")}


def test_the_generic_variable_is_known_where_torch_reads_it(virtual_gpu: VirtualGpu) -> None:
    saw = virtual_gpu.run(the_generic_variable, env={"PYTORCH_ALLOC_CONF": "max_split_size_mb:96"})
    build = version.installed()
    assert build is not None
    if build.release >= (2, 10):
        assert saw == {"variable": "PYTORCH_ALLOC_CONF", "outcome": "in effect"}
    else:  # 2.9 asks people to use it, and does not read it
        assert saw == {"variable": VARIABLE, "outcome": "not asked for"}


def on_two_devices() -> str:
    import torch

    import colab_alloc

    colab_alloc.apply(colab_alloc.AllocConf(max_split_size_mb=128))
    for device in range(torch.cuda.device_count()):
        torch.ones(1, device=f"cuda:{device}")
    return colab_alloc.status().outcome("max_split_size_mb")


def test_settings_are_one_for_all_devices(virtual_gpu: VirtualGpu) -> None:
    assert replace(virtual_gpu, devices=2).run(on_two_devices) == "in effect"


def rescue_from_a_broken_variable() -> dict[str, Any]:
    import colab_alloc

    told = colab_alloc.status().warnings
    colab_alloc.apply(colab_alloc.AllocConf.parse(os.environ[VARIABLE]))
    import torch

    torch.ones(1, device="cuda")
    return {"told": told, "truth": truth()["max_split_size"], "imported": "torch" in sys.modules}


def import_alone() -> None:
    import torch

    torch.cuda.init()


def test_a_variable_that_would_kill_the_process_is_told_and_put_right_first(virtual_gpu: VirtualGpu) -> None:
    broken: dict[str, str | None] = {VARIABLE: "max_split_size_mb=128"}
    with pytest.raises(ChildFailed, match="import_alone ended with exit status"):
        virtual_gpu.run(import_alone, env=broken)
    saw = virtual_gpu.run(rescue_from_a_broken_variable, env=broken)
    assert VARIABLE in saw["told"][0]
    assert "write max_split_size_mb:128" in saw["told"][0]
    assert saw["truth"] == 128 * MIB


def limit_while_cuda_runs() -> dict[str, Any]:
    import torch

    import colab_alloc

    torch.ones(1, device="cuda")
    colab_alloc.apply(colab_alloc.AllocConf(garbage_collection_threshold=0.8))
    before = colab_alloc.status().warnings
    applied = colab_alloc.apply(colab_alloc.AllocConf(per_process_memory_fraction=0.5))
    after = colab_alloc.status().warnings
    try:
        torch.empty(9 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        message = str(error)
    return {"applied": str(applied.in_effect), "before": before, "after": after, "message": message}


def test_a_memory_limit_takes_effect_while_cuda_runs(virtual_gpu: VirtualGpu) -> None:
    build = version.installed()
    assert build is not None
    if build.release < (2, 10):
        with pytest.raises(ChildFailed, match=r"per_process_memory_fraction came with PyTorch 2\.10"):
            virtual_gpu.run(limit_while_cuda_runs)
        return
    saw = virtual_gpu.run(limit_while_cuda_runs)
    assert saw["applied"] == "per_process_memory_fraction:0.5"
    assert "8.00 GiB allowed" in saw["message"]
    assert any("does nothing until a memory limit is set" in warning for warning in saw["before"])
    assert not any("does nothing until a memory limit is set" in warning for warning in saw["after"])


def larger_than_the_card() -> dict[str, Any]:
    import torch

    import colab_alloc

    conf = colab_alloc.AllocConf(max_split_size_mb=20_000)
    before = len(colab_alloc.apply(conf).problems)
    torch.ones(1, device="cuda")
    return {"before": before, "after": [problem.message for problem in colab_alloc.apply(conf).problems]}


def test_a_size_above_the_card_is_told_once_the_card_is_known(virtual_gpu: VirtualGpu) -> None:
    saw = virtual_gpu.run(larger_than_the_card)
    message = "max_split_size_mb 20000 is larger than the GPU's memory (16384 MiB): it does nothing"
    assert saw == {"before": 0, "after": [message]}


def what_the_allocator_does_not_show() -> dict[str, Any]:
    import torch

    import colab_alloc

    name = "max_non_split_rounding_mb"
    torch.ones(1, device="cuda")
    first = in_effect(name)[name]
    colab_alloc.apply(colab_alloc.AllocConf({name: 64, "max_split_size_mb": 128}))
    second = in_effect(name)[name]
    colab_alloc.apply(colab_alloc.AllocConf(garbage_collection_threshold=0.5))
    third = in_effect(name)[name]
    torch.cuda.memory._set_allocator_settings("max_split_size_mb:256")  # somebody else
    fourth = in_effect(name)[name]
    applied = colab_alloc.apply(colab_alloc.AllocConf({name: 64, "max_split_size_mb": 128}))
    return {"seen": [first, second, third, fourth], "applied": str(applied), "status": str(colab_alloc.status())}


def test_what_the_allocator_does_not_show_is_known_from_the_texts_it_read(virtual_gpu: VirtualGpu) -> None:
    build = version.installed()
    assert build is not None
    saw = virtual_gpu.run(what_the_allocator_does_not_show)
    first, second, third, fourth = saw["seen"]
    assert first.startswith("20 (")
    assert second == "64 (last text the allocator read)"
    if build.release >= (2, 10):  # reset by every text that does not name it, so apply() names it again
        assert third == "64 (last text the allocator read)"
        assert fourth == "20 (last text the allocator read)"
    else:
        assert third == fourth == "64 (set here before)"
    for said in (saw["applied"], saw["status"]):  # nobody claims to have read it back
        assert re.search("max_split_size_mb 128 MiB: in effect( now)?, read back from PyTorch's allocator", said)
        assert re.search(
            "max_non_split_rounding_mb 64 MiB: in effect( now)?, by the text that PyTorch's allocator", said
        )


def apply_from_many_threads() -> dict[str, Any]:
    import threading

    import torch

    import colab_alloc

    torch.ones(1, device="cuda")
    stop = threading.Event()

    def train() -> None:
        while not stop.is_set():
            torch.empty(1 << 22, device="cuda")

    def change(first: int) -> None:
        for size in range(first, first + 20):
            colab_alloc.apply(colab_alloc.AllocConf(max_split_size_mb=size))
            colab_alloc.status()

    training = threading.Thread(target=train)
    training.start()
    changing = [threading.Thread(target=change, args=(first,)) for first in (30, 60, 90)]
    for thread in changing:
        thread.start()
    for thread in changing:
        thread.join()
    stop.set()
    training.join()
    return {"truth": truth()["max_split_size"] // MIB, "asked": os.environ[VARIABLE]}


def test_threads_may_change_settings_while_others_allocate(virtual_gpu: VirtualGpu) -> None:
    saw = virtual_gpu.run(apply_from_many_threads)
    assert saw["asked"] == f"max_split_size_mb:{saw['truth']}"


class Inherited:
    """A data set whose items are what its worker finds in the environment."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, _index: int) -> int:
        return int(os.environ[VARIABLE].partition(":")[2])


def load_data_in_a_worker() -> list[int]:
    import torch

    import colab_alloc

    torch.ones(1, device="cuda")
    colab_alloc.apply(colab_alloc.AllocConf(max_split_size_mb=192))
    return [int(batch) for batch in torch.utils.data.DataLoader(Inherited(), num_workers=1)]


def test_workers_that_load_data_inherit_what_was_applied(virtual_gpu: VirtualGpu) -> None:
    assert virtual_gpu.run(load_data_in_a_worker) == [192, 192]


def settings_that_wait_and_limits_that_do_not() -> dict[str, Any]:
    import torch

    import colab_alloc

    saw: dict[str, Any] = {}
    colab_alloc.apply("per_process_memory_fraction:0.9")
    torch.ones(1, device="cuda")
    now = colab_alloc.status()
    saw["fraction"] = (now.outcome("per_process_memory_fraction"), now.in_effect["per_process_memory_fraction"])
    saw["again"] = colab_alloc.apply("per_process_memory_fraction:0.3").problems
    colab_alloc.apply("backend:cudaMallocAsync")
    late = colab_alloc.apply("pinned_use_background_threads:True")
    saw["late"] = str(late.needs_restart)
    saw["limited"] = [problem.message for problem in colab_alloc.apply("garbage_collection_threshold:0.8").problems]
    return saw


def test_a_fraction_kept_in_bytes_is_in_effect_and_what_came_too_late_is_not(virtual_gpu: VirtualGpu) -> None:
    build = version.installed()
    assert build is not None
    if build.release < (2, 10):
        with pytest.raises(ChildFailed, match=r"per_process_memory_fraction came with PyTorch 2\.10"):
            virtual_gpu.run(settings_that_wait_and_limits_that_do_not)
        return
    odd = dataclasses.replace(virtual_gpu, capacity=15_828_319_999)  # what a T4 has: no fraction of it is whole bytes
    saw = odd.run(settings_that_wait_and_limits_that_do_not)
    assert saw == {
        "fraction": ["in effect", 0.9],
        "again": [],
        "late": "pinned_use_background_threads:True",
        "limited": [],
    }
