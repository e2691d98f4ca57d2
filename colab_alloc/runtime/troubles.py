"""What keeps settings from working in this process, as far as that can be seen without starting anything.

Each function looks for one kind of trouble and yields sentences for the person.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from typing import Final

from colab_alloc.conf.conf import AllocConf
from colab_alloc.conf.predict import OLDEST_PREDICTED, Verdict, predict
from colab_alloc.conf.problem import AllocConfError, Problem
from colab_alloc.conf.version import NEWEST, TorchBuild, shown
from colab_alloc.runtime import torch_state

NO_CACHING: Final = "PYTORCH_NO_CUDA_MEMORY_CACHING"

# What other libraries are known to do to expandable segments, by the module that is loaded.
_AGAINST_EXPANDABLE_SEGMENTS: Final = {
    "vllm": "vLLM's sleep mode frees nothing, or fails, with expandable_segments:True",
    "torch_memory_saver": "torch_memory_saver cannot pause memory with expandable_segments:True",
    "deepspeed": "DeepSpeed has been seen to hang at start-up with expandable_segments:True",
}


def all_of(torch: TorchBuild | None, variable: str) -> Iterator[str]:
    """Return every trouble there is.

    Args:
        torch: the PyTorch of this process.
        variable: the variable it takes its settings from.
    """
    yield from _no_gpu(torch)
    yield from refused(torch, variable)
    yield from _idle(torch, variable)
    yield from _other_variables(torch, variable)
    yield from _newer_than_known(torch)
    yield from _no_caching(torch)
    yield from _other_libraries(variable)


def _no_gpu(torch: TorchBuild | None) -> Iterator[str]:
    if torch is None:
        yield "PyTorch is not installed: nothing reads the variable yet"
    elif not torch.has_gpu_allocator:
        yield f"PyTorch {torch.version} is a build without CUDA: it has no GPU allocator to configure"
    elif not torch_state.cuda_started() and not torch_state.driver_found():
        change = "in Colab choose Runtime > Change runtime type > a GPU"
        yield f"No GPU driver was found, so this runtime has no GPU that PyTorch could use ({change})"


def to_come(torch: TorchBuild | None, variable: str) -> Verdict | None:
    """Return what PyTorch will do with the variable when CUDA starts; None once it has, and where nobody knows."""
    number = torch.release if torch else NEWEST
    if number < OLDEST_PREDICTED or torch_state.cuda_started():
        return None
    return predict(os.environ.get(variable, ""), shown(number))


def refused(torch: TorchBuild | None, variable: str) -> Iterator[str]:
    """Tell what PyTorch will do to a text it does not take, before it does so."""
    verdict = to_come(torch, variable)
    if verdict is not None and verdict.outcome != "accepted":
        told = _told(verdict.text, verdict.message)
        yield f"{variable}={verdict.text!r} {_consequence(verdict.outcome)}: {told}"


def _idle(torch: TorchBuild | None, variable: str) -> Iterator[str]:
    """Tell what is odd in a text that PyTorch takes, or has taken."""
    text = os.environ.get(variable, "")
    if any(refused(torch, variable)):
        return
    limited = torch_state.cuda_started() and torch_state.memory_is_limited()
    for problem in _problems(text):
        if problem.severity != "warning":
            yield f"{variable}={text!r}: {problem}"
        elif not (limited and problem.option == "garbage_collection_threshold"):
            yield problem.message


def _consequence(outcome: str) -> str:
    if outcome == "raises at CUDA start":
        return "is refused by PyTorch when CUDA starts, and the process is unusable then"
    if torch_state.imported() is not None:
        return "is refused by PyTorch when CUDA starts, and aborts processes started from here as they import PyTorch"
    return "makes `import torch` abort the process"


def _told(text: str, message: str | None) -> str:
    """Say what is wrong in our words where we have them, and what to write."""
    try:
        conf = AllocConf.parse(text)
    except AllocConfError as error:
        return str(error)
    errors = [str(problem) for problem in conf.problems() if problem.severity == "error"]
    return "; ".join(errors) or f"{message}; write {conf.for_torch()}"


def _problems(text: str) -> list[Problem]:
    try:
        return AllocConf.parse(text).problems(capacity=torch_state.capacity())
    except AllocConfError as error:
        return error.problems


def _other_variables(torch: TorchBuild | None, variable: str) -> Iterator[str]:
    """The first variable that is set counts, alone; 2.9 asks people to use one that it does not read."""
    for name in torch_state.ALL_VARIABLES:
        if name != variable and name in os.environ:
            reader = f"PyTorch {torch.version}" if torch else "PyTorch"
            why = f"{variable} is set and comes first" if variable in os.environ else f"{reader} does not read it"
            yield f"{name}={os.environ[name]!r} has no effect: {why}"


def _newer_than_known(torch: TorchBuild | None) -> Iterator[str]:
    if torch is not None and torch.release > NEWEST:
        yield f"PyTorch {torch.version} is newer than {shown(NEWEST)}, the newest known here, and is treated like that"


def _no_caching(torch: TorchBuild | None) -> Iterator[str]:
    """Up to 2.6 any value disables the cache, even 0; from 2.9 on only 1 does (2.7 and 2.8 were not looked at)."""
    value = os.environ.get(NO_CACHING)
    only_one = torch is None or torch.release >= (2, 7)
    if value is not None and (value == "1" or not only_one):
        yield f"{NO_CACHING}={value} switches the caching allocator off: none of its options does anything"


def _other_libraries(variable: str) -> Iterator[str]:
    try:
        conf = AllocConf.parse(os.environ.get(variable, ""))
    except AllocConfError:
        return
    if conf.get("expandable_segments"):
        yield from (said for module, said in _AGAINST_EXPANDABLE_SEGMENTS.items() if module in sys.modules)
        if "microsoft" in platform.release().lower():
            yield "Under WSL2 expandable_segments:True has been seen to fail with driver errors"
    if conf.get("backend") == "cudaMallocAsync":
        yield "backend:cudaMallocAsync keeps no record of blocks: snapshots and recordings of memory are not possible"
