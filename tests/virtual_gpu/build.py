"""Compiles the virtual GPU with the system's C compiler, once for every content of its sources."""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent / "csrc"
LIBRARY = "libvirtualgpu.so"
# Programs that look for NVIDIA's driver libraries find the same file under these names.
DRIVER_LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
FLAGS = ("-shared", "-fPIC", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden")
LINKED = ("-ldl", "-lpthread")
COMPILERS = ("cc", "gcc", "clang")
# LD_PRELOAD and LD_LIBRARY_PATH separate their items by these.
SEPARATORS = (":", ";", " ")


class BuildError(Exception):
    """The virtual GPU cannot be built here; the text says why, in one line or with the compiler's output."""


def library_directory(*, sources: Path = SOURCES, cache: Path | None = None) -> Path:
    """The directory with the compiled library, compiled now if it is not there yet.

    Args:
        sources: directory of the C files.
        cache: directory for compiled libraries; by default the one `cache_directory` names.

    Raises:
        BuildError: no compiler, another platform than Linux on x86-64 or aarch64, or a compiler's error.
    """
    if sys.platform != "linux" or platform.machine() not in {"x86_64", "aarch64"}:
        raise BuildError(
            f"the virtual GPU runs on Linux (x86-64 or aarch64), not on {sys.platform} ({platform.machine()})"
        )
    compiler = find_compiler()
    cache = cache or cache_directory()
    if any(separator in str(cache) for separator in SEPARATORS):
        raise BuildError(
            f"the cache directory '{cache}' holds a colon, semicolon or space: set VIRTUAL_GPU_CACHE to another"
        )
    finished = cache / content_hash(sources, compiler)
    if not (finished / LIBRARY).is_file():
        compile_into(finished, sources, compiler)
    return finished


def find_compiler() -> str:
    """Path of the C compiler: the one the variable CC names, or the first of cc, gcc and clang.

    Raises:
        BuildError: there is none.
    """
    wanted = os.environ.get("CC")
    for name in (wanted,) if wanted else COMPILERS:
        path = shutil.which(name)
        if path:
            return path
    looked_for = f"CC={wanted}" if wanted else ", ".join(COMPILERS)
    raise BuildError(f"the virtual GPU needs a C compiler and found none (looked for {looked_for})")


def cache_directory() -> Path:
    """Where compiled libraries are kept: VIRTUAL_GPU_CACHE, the user's cache directory, or a temporary one."""
    chosen = os.environ.get("VIRTUAL_GPU_CACHE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - no HOME is no error
    directory = Path(base) / "colab_alloc" / "virtual_gpu"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        writable = False
    else:
        writable = os.access(directory, os.W_OK)
    if writable and directory.is_absolute() and not any(separator in str(directory) for separator in SEPARATORS):
        return directory
    return Path(tempfile.gettempdir()) / f"colab_alloc_virtual_gpu_{os.getuid()}"


def content_hash(sources: Path, compiler: str) -> str:
    """Name of the library that these sources and this compiler make."""
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False).stdout
    digest = hashlib.sha256(repr((compiler, FLAGS, LINKED, platform.machine())).encode() + version)
    for file in sorted(sources.glob("*.[ch]")):
        digest.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:24]


def compile_into(finished: Path, sources: Path, compiler: str) -> None:
    """Compiles beside the final directory and renames: another process sees all of it or nothing.

    Raises:
        BuildError: the compiler's output, if it fails.
    """
    finished.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=finished.parent, prefix="building-") as temporary:
        building = Path(temporary) / finished.name
        building.mkdir()
        files = [str(file) for file in sorted(sources.glob("*.c"))]
        command = [compiler, *FLAGS, "-o", str(building / LIBRARY), *files, *LINKED]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(f"{compiler} could not compile the virtual GPU:\n{done.stdout}{done.stderr}")
        for name in DRIVER_LIBRARIES:
            (building / name).symlink_to(LIBRARY)
        try:
            building.rename(finished)
        except OSError:
            # Another process was faster: its directory holds the same.
            if not (finished / LIBRARY).is_file():
                raise
