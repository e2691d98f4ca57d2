"""Runs a command on the virtual GPU: python -m tests.virtual_gpu [options] -- command."""

import argparse
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence

from tests.virtual_gpu.build import BuildError
from tests.virtual_gpu.gpu import GIB, VirtualGpu

UNITS = {"": 1, "KIB": 1024, "MIB": 1024**2, "GIB": GIB}
COMMAND_NOT_FOUND = 127


def size(text: str) -> int:
    """Bytes of a text such as 16GiB, 512MiB or 1000000."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]iB|)", text.strip(), flags=re.IGNORECASE)
    if not match:
        raise argparse.ArgumentTypeError(f"not a size like 16GiB, 512MiB or 1000000: {text!r}")
    return int(float(match[1]) * UNITS[match[2].upper()])


def capability(text: str) -> tuple[int, int]:
    """(major, minor) of a text such as 8.6."""
    match = re.fullmatch(r"(\d+)\.(\d+)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"not a compute capability like 8.6: {text!r}")
    return int(match[1]), int(match[2])


def process(text: str) -> tuple[int, int]:
    """(process id, bytes) of a text such as 1234:2GiB."""
    pid, colon, memory = text.partition(":")
    if not (colon and pid.isdigit()):
        raise argparse.ArgumentTypeError(f"not a process like 1234:2GiB: {text!r}")
    return int(pid), size(memory)


def parser() -> argparse.ArgumentParser:
    """The launcher's options."""
    default = VirtualGpu()
    made = argparse.ArgumentParser(
        prog="python -m tests.virtual_gpu",
        usage="%(prog)s [options] -- command [argument ...]",
        description="Runs a command on a virtual GPU: PyTorch's real CUDA allocator without a GPU.",
    )
    made.add_argument("--devices", type=int, default=default.devices, help="how many GPUs, 1 to 8")
    made.add_argument("--capacity", type=size, default=default.capacity, help="memory of each (default 16GiB)")
    made.add_argument("--name", default=default.name, help="what each calls itself")
    made.add_argument(
        "--compute-capability", type=capability, default=default.compute_capability, help="default 9.0", metavar="X.Y"
    )
    made.add_argument("--taken", type=size, default=0, help="memory of each that other processes use (default 0)")
    made.add_argument("--hold-events", action="store_true", help="events complete only when something waits for them")
    made.add_argument(
        "--process",
        type=process,
        action="append",
        default=[],
        dest="processes",
        help="a process that NVML lists; may be repeated",
        metavar="PID:SIZE",
    )
    made.add_argument("--log", help="file to which every memory call to the driver is appended")
    made.add_argument("command", nargs="+", help=argparse.SUPPRESS)
    return made


def main(words: Sequence[str]) -> int:
    """Runs the command and returns the exit status for the shell: its own, or 128 + the signal that ended it."""
    made = parser()
    options = vars(made.parse_args(words))
    command = options.pop("command")
    try:
        environment = VirtualGpu(**{**options, "processes": dict(options["processes"])}).environment()
    except (ValueError, BuildError) as error:
        made.error(str(error))
    started: list[subprocess.Popen[bytes]] = []
    # The terminal sends Ctrl-C to the command too, which decides what to do; a request to end is passed on. Both are
    # in place before the command starts, which does not inherit them.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: started[0].terminate() if started else sys.exit(128 + signal.SIGTERM))
    try:
        started.append(subprocess.Popen(command, env={**os.environ, **environment}))
    except OSError as error:
        print(f"{made.prog}: {command[0]}: {error.strerror}", file=sys.stderr)
        return COMMAND_NOT_FOUND
    status = started[0].wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
