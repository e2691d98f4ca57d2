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
from colab_alloc.language import Words
from colab_alloc.runtime import torch_state

NO_CACHING: Final = "PYTORCH_NO_CUDA_MEMORY_CACHING"

# What other libraries are known to do to expandable segments, by the module that is loaded.
_AGAINST_EXPANDABLE_SEGMENTS: Final = {
    "vllm": Words(
        "vLLM's sleep mode frees nothing, or fails, with expandable_segments:True",
        "وضع السكون في vLLM لا يحرّر شيئًا، أو يفشل، مع expandable_segments:True",
    ),
    "torch_memory_saver": Words(
        "torch_memory_saver cannot pause memory with expandable_segments:True",
        "لا يستطيع torch_memory_saver إيقاف الذاكرة مؤقتًا مع expandable_segments:True",
    ),
    "deepspeed": Words(
        "DeepSpeed has been seen to hang at start-up with expandable_segments:True",
        "شوهد DeepSpeed يتجمّد عند البدء مع expandable_segments:True",
    ),
}


def all_of(torch: TorchBuild | None, variable: str) -> Iterator[Words]:
    """Return every trouble there is.

    Args:
        torch: the PyTorch of this process.
        variable: the variable it takes its settings from.
    """
    yield from no_gpu(torch)
    yield from refused(torch, variable)
    yield from _idle(torch, variable)
    yield from _other_variables(torch, variable)
    yield from _newer_than_known(torch)
    yield from _no_caching(torch)
    yield from _other_libraries(variable)


def no_gpu(torch: TorchBuild | None) -> Iterator[Words]:
    """Tell why PyTorch has no GPU to work with here; nothing where it may have one."""
    if torch is None:
        yield Words(
            "PyTorch is not installed: nothing reads the variable yet", "PyTorch غير مثبّت: فلا شيء يقرأ المتغيّر بعد"
        )
    elif not torch.has_gpu_allocator:
        yield Words(
            "PyTorch {version} is a build without CUDA: it has no GPU allocator to configure",
            "PyTorch {version} مبنيّ بلا CUDA: فليس فيه مخصِّص لذاكرة الرسوم يُضبط",
        ).filled(version=torch.version)
    elif not torch_state.cuda_started() and not torch_state.driver_found():
        yield Words(
            "No GPU driver was found, so this runtime has no GPU that PyTorch could use "
            "(in Colab choose Runtime > Change runtime type > a GPU)",
            "لم يُعثر على برنامج تشغيل لوحدة رسوم، فليس هنا وحدة يستعملها PyTorch "
            "(في Colab اختر «وقت التشغيل» ثم «تغيير نوع وقت التشغيل» ثم وحدة رسوم)",
        )


def to_come(torch: TorchBuild | None, variable: str) -> Verdict | None:
    """Return what PyTorch will do with the variable when CUDA starts; None once it has, and where nobody knows."""
    number = torch.release if torch else NEWEST
    if number < OLDEST_PREDICTED or torch_state.cuda_started():
        return None
    return predict(os.environ.get(variable, ""), shown(number))


def refused(torch: TorchBuild | None, variable: str) -> Iterator[Words]:
    """Tell what PyTorch will do to a text it does not take, before it does so."""
    verdict = to_come(torch, variable)
    if verdict is not None and verdict.outcome != "accepted":
        told = _told(verdict.text, verdict.message)
        message = Words("{assignment} {consequence}: {told}", "{assignment} {consequence}: {told}")
        assignment = f"{variable}={verdict.text!r}"
        yield message.filled(assignment=assignment, consequence=_consequence(verdict.outcome), told=told)


def _idle(torch: TorchBuild | None, variable: str) -> Iterator[Words]:
    """Tell what is odd in a text that PyTorch takes, or has taken."""
    text = os.environ.get(variable, "")
    if any(refused(torch, variable)):
        return
    for problem, in_arabic in zip(_problems(text, "en"), _problems(text, "ar"), strict=True):
        if problem.severity != "warning":
            yield Words("{assignment}: {problem}", "{assignment}: {problem}").filled(
                assignment=f"{variable}={text!r}", problem=Words(str(problem), str(in_arabic))
            )
        else:
            yield Words(problem.message, in_arabic.message)


def _consequence(outcome: str) -> Words:
    if outcome == "raises at CUDA start":
        return Words(
            "is refused by PyTorch when CUDA starts, and the process is unusable then",
            "يرفضه PyTorch عند بدء CUDA، فلا تعود العملية صالحة للعمل",
        )
    if torch_state.imported() is not None:
        return Words(
            "is refused by PyTorch when CUDA starts, and aborts processes started from here as they import PyTorch",
            "يرفضه PyTorch عند بدء CUDA، وتنهار العمليات التي تُشغَّل من هنا حين تستورد PyTorch",
        )
    return Words("makes `import torch` abort the process", "يجعل `import torch` يُنهي العملية قسرًا")


def _told(text: str, message: str | None) -> str:
    """Say what is wrong in our words where we have them, and what to write."""
    try:
        conf = AllocConf.parse(text)
    except AllocConfError as error:
        return str(error)
    errors = [str(problem) for problem in conf.problems() if problem.severity == "error"]
    return "; ".join(errors) or f"{message}; write {conf.for_torch()}"


def _problems(text: str, lang: str) -> list[Problem]:
    try:
        limited = torch_state.memory_is_limited()
        return AllocConf.parse(text).problems(capacity=torch_state.capacity(), limited=limited, lang=lang)
    except AllocConfError as error:
        return error.problems


def _other_variables(torch: TorchBuild | None, variable: str) -> Iterator[Words]:
    """The first variable that is set counts, alone; 2.9 asks people to use one that it does not read."""
    first = Words("{variable} is set and comes first", "فالمتغيّر {variable} مضبوط وهو المقدَّم").filled(variable=variable)
    unread = Words("{reader} does not read it", "فإن {reader} لا يقرؤه").filled(
        reader=f"PyTorch {torch.version}" if torch else "PyTorch"
    )
    for name in torch_state.ALL_VARIABLES:
        if name != variable and name in os.environ:
            why = first if variable in os.environ else unread
            message = Words("{assignment} has no effect: {why}", "لا أثر لـ{assignment}: {why}")
            yield message.filled(assignment=f"{name}={os.environ[name]!r}", why=why)


def _newer_than_known(torch: TorchBuild | None) -> Iterator[Words]:
    if torch is not None and torch.release > NEWEST:
        yield Words(
            "PyTorch {version} is newer than {newest}, the newest known here, and is treated like that",
            "PyTorch {version} أحدث من {newest}، وهو أحدث ما يُعرف هنا، فيُعامَل معاملته",
        ).filled(version=torch.version, newest=shown(NEWEST))


def _no_caching(torch: TorchBuild | None) -> Iterator[Words]:
    """Up to 2.6 any value disables the cache, even 0; from 2.9 on only 1 does (2.7 and 2.8 were not looked at)."""
    value = os.environ.get(NO_CACHING)
    only_one = torch is None or torch.release >= (2, 7)
    if value is not None and (value == "1" or not only_one):
        yield Words(
            "{assignment} switches the caching allocator off: none of its options does anything",
            "يعطّل {assignment} المخصِّص ذا الذاكرة المخبّأة: فلا أثر لأي من خياراته",
        ).filled(assignment=f"{NO_CACHING}={value}")


def _other_libraries(variable: str) -> Iterator[Words]:
    try:
        conf = AllocConf.parse(os.environ.get(variable, ""))
    except AllocConfError:
        return
    if conf.get("expandable_segments"):
        yield from (said for module, said in _AGAINST_EXPANDABLE_SEGMENTS.items() if module in sys.modules)
        if "microsoft" in platform.release().lower():
            yield Words(
                "Under WSL2 expandable_segments:True has been seen to fail with driver errors",
                "شوهد expandable_segments:True تحت WSL2 يفشل بأخطاء من برنامج التشغيل",
            )
    if conf.get("backend") == "cudaMallocAsync":
        yield Words(
            "backend:cudaMallocAsync keeps no record of blocks: snapshots and recordings of memory are not possible",
            "لا يحتفظ backend:cudaMallocAsync بسجلّ للكتل: فلا لقطات للذاكرة ولا تسجيلات",
        )
