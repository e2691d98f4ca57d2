"""The description of a virtual GPU, and running things on it."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.virtual_gpu.build import LIBRARY, library_directory

GIB = 1024**3
MAX_DEVICES = 8
MAX_PROCESSES = 64
MAX_NAME_BYTES = 255
REPOSITORY = Path(__file__).parents[2]


class ChildFailed(RuntimeError):  # noqa: N818 - it says what happened, like subprocess.TimeoutExpired
    """A function run on the virtual GPU raised, ended its process, or took too long; the text holds its output."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VirtualGpu:
    """CUDA devices that have memory and nothing else. All devices are alike.

    Attributes:
        devices: how many, 1 to 8.
        capacity: memory of each device, bytes.
        name: what each device calls itself.
        compute_capability: (major, minor).
        taken: memory of each device that other processes use at the start, bytes.
        hold_events: whether recorded events stay incomplete until `inside.release_events` or a synchronise call.
        processes: what NVML lists on each device: process id -> bytes.
        log: file to which every memory call to the driver is appended, one JSON object a line.
    """

    devices: int = 1
    capacity: int = 16 * GIB
    name: str = "Virtual GPU"
    compute_capability: tuple[int, int] = (9, 0)
    taken: int = 0
    hold_events: bool = False
    processes: Mapping[int, int] = dataclasses.field(default_factory=dict)
    log: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if not (is_count(self.devices) and 1 <= self.devices <= MAX_DEVICES):
            raise ValueError(f"devices must be 1 to {MAX_DEVICES}, not {self.devices!r}")
        if not (is_count(self.capacity) and self.capacity > 0):
            raise ValueError(f"capacity must be a positive number of bytes, not {self.capacity!r}")
        if not is_count(self.taken):
            raise ValueError(f"taken must be a number of bytes, not {self.taken!r}")
        if not 0 < len(self.name.encode()) <= MAX_NAME_BYTES or "\0" in self.name:
            raise ValueError(f"name must have 1 to {MAX_NAME_BYTES} bytes, not {self.name!r}")
        if len(self.compute_capability) != 2 or not all(map(is_count, self.compute_capability)):
            raise ValueError(f"compute_capability must be (major, minor), not {self.compute_capability!r}")
        if len(self.processes) > MAX_PROCESSES:
            raise ValueError(f"processes must be at most {MAX_PROCESSES}, not {len(self.processes)}")
        if not all(is_count(pid) and is_count(size) for pid, size in self.processes.items()):
            raise ValueError(f"processes must map process ids to bytes, not {dict(self.processes)!r}")

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """The variables that put a new process on this GPU; compiles the library if need be.

        Args:
            base: the environment they will be added to (by default this process's). Its LD_PRELOAD and
                LD_LIBRARY_PATH are kept, after ours.

        Raises:
            BuildError: the library cannot be compiled here.
        """
        base = os.environ if base is None else base
        directory = str(library_directory())
        return {
            "LD_PRELOAD": prepended(f"{directory}/{LIBRARY}", base.get("LD_PRELOAD")),
            "LD_LIBRARY_PATH": prepended(directory, base.get("LD_LIBRARY_PATH")),
            "VIRTUAL_GPU_DEVICES": str(self.devices),
            "VIRTUAL_GPU_CAPACITY": str(self.capacity),
            "VIRTUAL_GPU_NAME": self.name,
            "VIRTUAL_GPU_COMPUTE_CAPABILITY": "{}.{}".format(*self.compute_capability),
            "VIRTUAL_GPU_TAKEN": str(self.taken),
            "VIRTUAL_GPU_HOLD_EVENTS": str(int(self.hold_events)),
            "VIRTUAL_GPU_PROCESSES": ",".join(f"{pid}:{size}" for pid, size in self.processes.items()),
            # Always there, so that a GPU inside another's environment does not write to the other's log.
            "VIRTUAL_GPU_LOG": "" if self.log is None else str(Path(self.log).absolute()),
        }

    def run(
        self,
        target: Callable[..., Any] | str | os.PathLike[str] | Sequence[str],
        *args: Any,
        timeout: float = 300,
        env: Mapping[str, str | None] | None = None,
    ) -> Any:
        """Runs something on this GPU, in a new process with the repository's root as working directory.

        Args:
            target: a function of a module, called with `args` (JSON values) in the new process; or a Python
                script; or a command as a list. The last two take `args` as further words.
            args: see target.
            timeout: seconds after which the process is killed.
            env: further environment variables; None as a value removes one.

        Returns:
            The function's result (a JSON value), or a `subprocess.CompletedProcess` with text output.

        Raises:
            ChildFailed: the function did not return; the text holds the output of its process.
            subprocess.TimeoutExpired: a script or command took too long.
        """
        environment = {**os.environ, **self.environment()}
        for variable, value in (env or {}).items():
            if value is None:
                environment.pop(variable, None)
            else:
                environment[variable] = value
        if callable(target):
            return call(target, args, timeout, environment)
        command = [sys.executable, os.fspath(target)] if isinstance(target, str | os.PathLike) else list(target)
        return subprocess.run(
            [*command, *map(str, args)],
            env=environment,
            cwd=REPOSITORY,
            timeout=timeout,
            capture_output=True,
            text=True,
            check=False,
        )


def call(function: Callable[..., Any], args: Sequence[Any], timeout: float, environment: Mapping[str, str]) -> Any:
    """Calls a function in a new process and returns its result."""
    name = f"{function.__module__}.{function.__qualname__}"
    if function.__module__ == "__main__" or not function.__qualname__.isidentifier():
        raise ValueError(f"{name} cannot be run in a new process: it is not a function at the top of a module")
    with tempfile.TemporaryDirectory() as directory:
        result = Path(directory) / "result.json"
        words = [function.__module__, function.__qualname__, json.dumps(args), str(result)]
        command = [sys.executable, "-m", "tests.virtual_gpu.child", *words]
        try:
            done = subprocess.run(
                command,
                env=environment,
                cwd=REPOSITORY,
                timeout=timeout,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
        except subprocess.TimeoutExpired as expired:
            output = expired.output.decode(errors="replace") if expired.output else ""
            raise ChildFailed(f"{name} took more than {timeout} seconds\n{output}") from None
        if done.returncode or not result.is_file():
            raise ChildFailed(f"{name} ended with exit status {done.returncode}\n{done.stdout}")
        return json.loads(result.read_text())


def prepended(item: str, others: str | None) -> str:
    """A list of paths with one more in front; not twice."""
    rest = [other for other in (others or "").split(":") if other and other != item]
    return ":".join([item, *rest])


def is_count(value: object) -> bool:
    """Whether a value is an int from 0 on (True and False are not)."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
