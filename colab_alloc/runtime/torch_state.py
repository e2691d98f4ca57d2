"""Reads the running PyTorch. Nothing here imports it, starts CUDA, or adds to a memory recording."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from colab_alloc.conf import divisions, version
from colab_alloc.conf.options import UNLIMITED, Kind, Option, Value, known_to
from colab_alloc.conf.version import NEWEST, Release, TorchBuild
from colab_alloc.runtime.ledger import LEDGER, as_read

CUDA_VARIABLE: Final = "PYTORCH_CUDA_ALLOC_CONF"
HIP_VARIABLE: Final = "PYTORCH_HIP_ALLOC_CONF"
VARIABLE: Final = "PYTORCH_ALLOC_CONF"
ALL_VARIABLES: Final = (CUDA_VARIABLE, HIP_VARIABLE, VARIABLE)

# A pool that no allocation can have, since one of the two numbers of every real pool is 0: a snapshot of it copies
# no blocks, but carries the settings all the same.
_NO_SUCH_POOL: Final = (1, 1)
# _cuda_memorySnapshot gives up a reference to each number in its argument that is not its own (seen on 2.11.0 and
# 2.14.1), so only numbers that Python never frees may be passed: small ones, from Python 3.12 on (PEP 683).
_SMALL_NUMBERS_ARE_IMMORTAL: Final = sys.version_info >= (3, 12)

# How a value in effect is known.
FROM_ALLOCATOR: Final = "allocator"
FROM_LAST_TEXT: Final = "last text the allocator read"
FROM_LEDGER: Final = "set here before"
FROM_DEFAULT: Final = "default"
UNKNOWN: Final = "not exposed by this PyTorch"
UNKNOWN_NOW: Final = "not shown while memory is recorded"

_MIB: Final = 1 << 20
_SIZE_T: Final = 1 << 64


def imported() -> ModuleType | None:
    """Return the torch module if this process has imported it."""
    return sys.modules.get("torch")


def _release() -> Release:
    """Return the release of the imported PyTorch."""
    torch: Any = imported()
    return version.release(torch.__version__)


def cuda_started() -> bool:
    """Say whether this process has started CUDA, that is, whether the allocator has read its settings.

    Any thread may ask, also while another one is still importing PyTorch.
    """
    started = getattr(getattr(imported(), "cuda", None), "is_initialized", None)
    return started is not None and bool(started())


def variables_read(torch: TorchBuild | None) -> tuple[str, ...]:
    """Return the variables this build reads for the GPU's allocator, the first one that is set wins.

    A variable set to nothing counts as set; texts of several are never merged (torch 2.9.1, 2.11.0, 2.12.1 and
    2.14.1 were run; CUDAAllocatorConfig.h, parseArgs).
    """
    hip = (HIP_VARIABLE,) if torch and torch.hip else ()
    generic = (VARIABLE,) if (torch.release if torch else NEWEST) >= (2, 10) else ()
    return (CUDA_VARIABLE, *hip, *generic)


def variable(torch: TorchBuild | None) -> str:
    """Return the variable this build takes its settings from, as the environment is now."""
    names = variables_read(torch)
    return next((name for name in names if name in os.environ), names[0])


@dataclass(frozen=True)
class Reading:
    """What is in effect in a process whose CUDA has started.

    Args:
        values: option to value; None is "unknown".
        sources: option to how its value is known, one of the texts above.
        last_text: the configuration text the allocator read last, None where the version does not tell.
    """

    values: dict[str, Value | None]
    sources: dict[str, str]
    last_text: str | None


def read_in_effect() -> Reading:
    """Ask the allocator what is in effect. CUDA must have started."""
    torch: Any = imported()
    number = _release()
    if torch.cuda.get_allocator_backend() != "native":
        return _reading_of_other_backend(torch, number)
    shown = _allocator_settings(torch)
    text = _last_text(torch, shown)
    if text is not None and not LEDGER.texts and text == os.environ.get(variable(version.installed()), ""):
        LEDGER.note(text, torch.__version__)  # the text CUDA started with
    values: dict[str, Value | None] = {}
    sources: dict[str, str] = {}
    for option in known_to(number):
        values[option.name], sources[option.name] = _one(option, torch, shown, text)
    return Reading(values, sources, text)


def _one(option: Option, torch: Any, shown: dict[str, Any], text: str | None) -> tuple[Value | None, str]:
    """Return the value of one option by the surest way there is, and which way that was."""
    if option.kind is Kind.BACKEND:
        return "native", FROM_ALLOCATOR
    if option.name == "per_process_memory_fraction":
        return round(torch.cuda.get_per_process_memory_fraction(), 6), FROM_ALLOCATOR  # it is kept in bytes
    if option.setting_key in shown:
        return _from_setting(option, shown[option.setting_key]), FROM_ALLOCATOR
    value, source = _remembered(option, torch.__version__, text)
    recording = not shown and option.setting_key is not None
    return value, UNKNOWN_NOW if source == UNKNOWN and recording else source


def _remembered(option: Option, torch: str, text: str | None) -> tuple[Value | None, str]:
    """Return the value of an option from the last text the allocator read, and from those known before it."""
    last = as_read(text, torch) if text is not None else None
    if last is not None and option.name in last:
        return last[option.name], FROM_LAST_TEXT
    if last is not None and option.reset_by_others(version.release(torch)):
        return option.default, FROM_LAST_TEXT
    if option.name in LEDGER.settings:
        return LEDGER.settings[option.name], FROM_LEDGER
    return (option.default, FROM_DEFAULT) if text in LEDGER.texts else (None, UNKNOWN)


def _reading_of_other_backend(torch: Any, number: Release) -> Reading:
    """CUDA's own asynchronous allocator has no split blocks and no settings of its own to show."""
    values: dict[str, Value | None] = {option.name: None for option in known_to(number)}
    sources = dict.fromkeys(values, "not used by this back end")
    values["backend"], sources["backend"] = torch.cuda.get_allocator_backend(), FROM_ALLOCATOR
    return Reading(values, sources, None)


def _allocator_settings(torch: Any) -> dict[str, Any]:
    """Return the settings as the allocator holds them; nothing while a recording runs, which would get an entry."""
    if torch._C._cuda_isHistoryEnabled():
        return {}
    settings: dict[str, Any] = _smallest_snapshot(torch)["allocator_settings"]
    return settings


def _smallest_snapshot(torch: Any) -> dict[str, Any]:
    """Return a snapshot with as little in it as this release allows: 2.8 takes a pool, 2.11 can omit the trace."""
    snapshot: dict[str, Any]
    if _SMALL_NUMBERS_ARE_IMMORTAL and _release() >= (2, 11):
        snapshot = torch._C._cuda_memorySnapshot((*_NO_SUCH_POOL, False))
    elif _SMALL_NUMBERS_ARE_IMMORTAL and _release() >= (2, 8):
        snapshot = torch._C._cuda_memorySnapshot(_NO_SUCH_POOL)
    else:
        snapshot = torch.cuda.memory._snapshot()
    return snapshot


def _last_text(torch: Any, shown: dict[str, Any]) -> str | None:
    """Return the text the allocator read last, in whichever way this version tells it."""
    if CUDA_VARIABLE in shown:
        return str(shown[CUDA_VARIABLE])
    ask = getattr(torch._C, "_accelerator_getAllocatorSettings", None)
    return str(ask()) if ask else None


def _from_setting(option: Option, shown: Any) -> Value:
    """Return the option's value from the form the snapshot gives it: bytes, or 16 slots."""
    if option.kind is Kind.DIVISIONS:
        return divisions.from_slots(tuple(int(slot) % _SIZE_T for slot in shown.values()))
    if option.kind is Kind.MIB:
        size = int(shown) % _SIZE_T  # shown as a signed number
        return UNLIMITED if size == _SIZE_T - 1 else size // _MIB
    if option.kind is Kind.FRACTION:
        return float(shown)
    value: Value = shown
    return value


def settled_at_import() -> dict[str, Value | None]:
    """Return what is settled although CUDA has not started: the back end, once PyTorch is imported."""
    torch: Any = imported()
    found = version.installed()
    if torch is None or found is None or not found.has_gpu_allocator:
        return {}
    return {"backend": torch.cuda.get_allocator_backend()}


def set_running(text: str) -> None:
    """Make the running allocator read a configuration text. CUDA must have started.

    Raises:
        RuntimeError, ValueError: PyTorch refuses the text; options before the refused one may have been set.
    """
    torch: Any = imported()
    if _release() >= (2, 10):
        torch._C._accelerator_setAllocatorSettings(text)
    else:  # up to 2.9 the accelerator's settings are not the GPU allocator's
        torch._C._cuda_cudaCachingAllocator_set_allocator_settings(text)
    LEDGER.note(text, torch.__version__)


def limit_memory(fraction: float) -> None:
    """Let this process take only that share of each GPU's memory. CUDA must have started.

    The option of the same meaning is only looked at when CUDA starts (2.14: DeviceCachingAllocator's constructor).
    """
    torch: Any = imported()
    for device in range(torch.cuda.device_count()):
        torch.cuda.set_per_process_memory_fraction(fraction, device)


def capacity() -> int | None:
    """Return the memory of the current device, bytes; None before CUDA has started."""
    torch: Any = imported()
    if not cuda_started():
        return None
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)


def memory_is_limited() -> bool:
    """Say whether a limit is known to be in force on the current device; up to 2.9 one of 1.0 cannot be seen."""
    torch: Any = imported()
    if not cuda_started() or torch.cuda.get_allocator_backend() != "native":
        return False
    read = getattr(torch.cuda, "get_per_process_memory_fraction", None)  # not up to 2.5
    return read is not None and read() < 1


@functools.cache
def driver_found() -> bool:
    """Say whether this machine has a GPU driver that PyTorch could use. Loading it starts nothing."""
    names = {"linux": ("libcuda.so.1", "libamdhip64.so"), "win32": ("nvcuda.dll",)}
    for name in names.get(sys.platform, ()):
        with contextlib.suppress(OSError):
            ctypes.CDLL(name)
            return True
    return False
