"""A restart in a real kernel, as a Jupyter server does it: the same launch, the same connection file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from colab_alloc.runtime import torch_state
from tests.virtual_gpu import VirtualGpu

START_CUDA = "import torch; torch.ones(1, device='cuda')"


class Kernel:
    """A kernel in a home of its own, and what a server does with it."""

    def __init__(self, gpu: VirtualGpu, home: Path) -> None:
        inherited = {name: value for name, value in os.environ.items() if name not in torch_state.ALL_VARIABLES}
        self.home = home
        home.mkdir(exist_ok=True)
        self.manager = KernelManager(kernel_name="python3", connection_file=str(home / "kernel-test.json"))
        self.manager.start_kernel(
            env=inherited | gpu.environment() | {"HOME": str(home), "IPYTHONDIR": str(home / "ipython")}
        )
        self.client = self._connect()

    def _connect(self) -> BlockingKernelClient:
        client: BlockingKernelClient = self.manager.client()
        client.start_channels()
        client.wait_for_ready(timeout=120)
        return client

    def run(self, code: str) -> str:
        """Run a cell and return what it shows."""
        shown = []

        def note(message: dict[str, object]) -> None:
            content = message["content"]
            assert isinstance(content, dict)
            if message["msg_type"] == "stream":
                shown.append(content["text"])
            elif message["msg_type"] == "error":
                shown.append("\n".join(content["traceback"]))
            elif message["msg_type"] in {"display_data", "execute_result"}:
                shown.append(content["data"]["text/plain"])

        self.client.execute_interactive(code, output_hook=note, timeout=120)
        return "\n".join(shown)

    def starts_again(self) -> None:
        """Wait until the kernel has ended by itself, and start it as a server's restarter does."""
        deadline = time.monotonic() + 60
        while self.manager.is_alive():
            assert time.monotonic() < deadline, "the kernel did not end"
            time.sleep(0.1)
        self.client.stop_channels()
        self.manager.restart_kernel(now=True)
        self.client = self._connect()

    def close(self) -> None:
        """End it for good."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel(virtual_gpu: VirtualGpu, tmp_path: Path) -> Iterator[Kernel]:
    kernel = Kernel(virtual_gpu, tmp_path / "home")
    yield kernel
    kernel.close()


def test_the_back_end_is_in_effect_after_one_line(kernel: Kernel) -> None:
    kernel.run("%load_ext colab_alloc")
    kernel.run(START_CUDA)
    offered = kernel.run("%alloc_conf backend:cudaMallocAsync")
    assert "too late in this process; %alloc_conf --restart restarts the kernel with it" in offered
    assert "Restart with: %alloc_conf --restart" in offered  # the text of the button
    ended = kernel.run("get_ipython().run_line_magic('alloc_conf', '--restart')\nprint('it went on')")
    assert "Restarting the kernel; then in effect: backend cudaMallocAsync" in ended
    assert "it went on" not in ended
    assert "Traceback" not in ended
    kernel.starts_again()
    first = kernel.run(START_CUDA)
    assert first.startswith("→ colab_alloc: carried over the restart: backend:cudaMallocAsync")
    assert "✓ backend cudaMallocAsync: in effect, read back from PyTorch's allocator" in kernel.run("%alloc_conf")
    assert "carried over" not in kernel.run("print(1)")


def test_only_that_once(kernel: Kernel) -> None:
    kernel.run("import colab_alloc as ca\nca.restart(ca.AllocConf(max_split_size_mb=128))")
    kernel.starts_again()
    assert "max_split_size_mb 128 MiB: will be read when CUDA starts" in kernel.run("%alloc_conf")
    kernel.run("get_ipython().kernel.do_shutdown(True)")
    kernel.starts_again()
    assert "not found" in kernel.run("%alloc_conf")
    assert not list((kernel.home / "ipython" / "profile_default" / "startup").glob("*colab_alloc*"))


def test_kept_for_every_new_kernel(kernel: Kernel, virtual_gpu: VirtualGpu) -> None:
    kernel.run("%load_ext colab_alloc")
    assert "Kept for every new kernel" in kernel.run("%alloc_conf --keep max_split_size_mb:128")
    other = Kernel(virtual_gpu, kernel.home)
    other.run(START_CUDA)
    assert "✓ max_split_size_mb 128 MiB: in effect" in other.run("%alloc_conf")
    assert "Nothing is kept" in other.run("%alloc_conf --forget")
    other.close()
    third = Kernel(virtual_gpu, kernel.home)
    assert "not found" in third.run("%alloc_conf")
    third.close()


def test_a_broken_file_stops_no_kernel_and_is_told_once(kernel: Kernel) -> None:
    kernel.run("%load_ext colab_alloc\n%alloc_conf --keep max_split_size_mb:128")
    (kernel.home / "ipython" / "profile_default" / "colab_alloc.kept").write_text("garbage")
    kernel.run("get_ipython().kernel.do_shutdown(True)")
    kernel.starts_again()
    said = kernel.run("print('alive')")
    assert said.startswith("! colab_alloc: ")
    assert "is ignored: it is not what colab_alloc writes" in said
    assert "alive" in said
    assert kernel.run("print('alive')").strip() == "alive"


def test_where_start_up_files_are_not_run_loading_brings_it(kernel: Kernel) -> None:
    kernel.run("import colab_alloc as ca\nca.restart(ca.AllocConf(max_split_size_mb=128))")
    (kernel.home / "ipython" / "profile_default" / "startup" / "00-colab_alloc.py").unlink()
    kernel.starts_again()
    assert "not found" in kernel.run("%alloc_conf")
    assert "carried over the restart: max_split_size_mb:128" in kernel.run("%load_ext colab_alloc")
