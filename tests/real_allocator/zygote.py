"""Answers what PyTorch does with a configuration text, thousands of times a minute.

A new process per text would take seconds each: importing PyTorch is slow. Here a process stops just before the step
in question, and every text is tried in a fork of it, which takes that step as a new process would:

- `import`: loads libc10_cuda.so, whose static initialisers are what reads the text at `import torch`;
- `start`: has imported PyTorch, and starts CUDA, which reads the text from the environment for the first time.

Run as `python -m tests.real_allocator.zygote import` (or `start`); texts come in, and answers go out, as JSON lines.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

VARIABLE: Final = "PYTORCH_CUDA_ALLOC_CONF"


def library(name: str) -> str:
    """The path of one of PyTorch's libraries; PyTorch is not imported."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "lib" / name)


def load_library() -> dict[str, Any]:
    ctypes.CDLL(library("libc10_cuda.so"))
    return {"outcome": "accepted"}


def start_cuda() -> dict[str, Any]:
    import torch

    try:
        torch.cuda.init()
    except (RuntimeError, ValueError) as error:
        return {"outcome": "raises at CUDA start", "message": str(error)}
    return {"outcome": "accepted", "settings": torch.cuda.memory._snapshot()["allocator_settings"]}


def in_a_fork(step: Callable[[], dict[str, Any]], text: str) -> dict[str, Any]:
    """Take the step with this text in the environment, in a copy of this process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.environ[VARIABLE] = text
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
        os.write(writing, json.dumps(step()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        said = answer.read()
    os.waitpid(child, 0)
    verdict: dict[str, Any] = json.loads(said) if said else {"outcome": "aborts the process at import"}
    return verdict


def main(stage: str) -> None:
    """Answer every line of stdin."""
    if stage == "import":
        ctypes.CDLL(library("libc10.so"), ctypes.RTLD_GLOBAL)
        step = load_library
    else:
        import torch  # noqa: F401 - so that its forks have imported it

        step = start_cuda
    for line in sys.stdin:
        print(json.dumps(in_a_fork(step, json.loads(line))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
