"""The pytest fixture `virtual_gpu`. Loaded by tests/conftest.py."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.virtual_gpu.build import BuildError
from tests.virtual_gpu.gpu import VirtualGpu

LEAVE_OUT = 'run pytest with -m "not virtual_gpu" to leave out the tests that need it'
PRINT_CUDA_VERSION = "import torch; print(torch.version.cuda)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test that uses the fixture."""
    for item in items:
        if "virtual_gpu" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.virtual_gpu)


def installed_cuda() -> str | None:
    """The CUDA version that the installed PyTorch was built for; None for a build without CUDA.

    Asked in a new process: this one must not import PyTorch.

    Raises:
        BuildError: PyTorch is missing or cannot be imported.
    """
    if importlib.util.find_spec("torch") is None:
        raise BuildError("PyTorch is not installed")
    done = subprocess.run([sys.executable, "-c", PRINT_CUDA_VERSION], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"PyTorch cannot be imported:\n{done.stderr}")
    version = done.stdout.strip()
    return None if version == "None" else version


def missing(cuda_version: Callable[[], str | None] = installed_cuda) -> str | None:
    """Why there can be no virtual GPU here, in words for the person who runs the tests; None if there can."""
    try:
        VirtualGpu().environment()
        if cuda_version() is None:
            return f"the installed PyTorch is built without CUDA; {LEAVE_OUT}"
    except BuildError as error:
        return f"{error}; {LEAVE_OUT}"
    return None


@pytest.fixture(scope="session")
def virtual_gpu() -> VirtualGpu:
    """A virtual GPU of 16 GiB; `dataclasses.replace` makes others. Fails, never skips, where there can be none."""
    reason = missing()
    if reason:
        pytest.fail(f"no virtual GPU: {reason}", pytrace=False)
    return VirtualGpu()
