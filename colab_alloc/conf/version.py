"""PyTorch releases, and which PyTorch is installed here - found without importing it."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

Release = tuple[int, int]

# The first and the last release whose options the table in options.py describes.
OLDEST: Final[Release] = (1, 13)
NEWEST: Final[Release] = (2, 14)


def release(version: str) -> Release:
    """Return the release of a PyTorch version text: "2.14.1+cu130" is (2, 14).

    Raises:
        ValueError: the text does not begin with a release number.
        TypeError: it is no text.
    """
    if not isinstance(version, str):
        raise TypeError(f"a PyTorch version is a text like '2.14', not {version!r}")
    match = re.match(r"\s*v?(\d+)\.(\d+)", version)
    if not match:
        raise ValueError(f"{version!r} is not a PyTorch version: write it like 2.14 or 2.14.1")
    return int(match[1]), int(match[2])


def shown(number: Release) -> str:
    """Return a release as people write it: (2, 14) is "2.14"."""
    return f"{number[0]}.{number[1]}"


@dataclass(frozen=True)
class TorchBuild:
    """An installed PyTorch.

    Args:
        version: its full version text, like "2.14.1+cu130".
        cuda: the CUDA version it was built for, None for a build without CUDA.
        hip: the ROCm version it was built for, None for a build without ROCm.
    """

    version: str
    cuda: str | None = None
    hip: str | None = None

    @property
    def release(self) -> Release:
        """The release, like (2, 14)."""
        return release(self.version)

    @property
    def has_gpu_allocator(self) -> bool:
        """Whether this build has the allocator that the variable configures."""
        return self.cuda is not None or self.hip is not None


def installed() -> TorchBuild | None:
    """Return the PyTorch that is imported, else the one that `import torch` would find, else None."""
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "version"):
        return TorchBuild(str(torch.__version__), torch.version.cuda, torch.version.hip)
    spec = importlib.util.find_spec("torch") if torch is None else None
    if spec is None or spec.origin is None:
        return None
    return _read(Path(spec.origin).with_name("version.py"))


def _read(file: Path) -> TorchBuild | None:
    """Read torch/version.py, which holds plain assignments, as text."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    assigned = (re.match(r"(__version__|cuda|hip)\b[^=]*=\s*(.+)", line) for line in lines)
    values = {match[1]: ast.literal_eval(match[2]) for match in assigned if match}
    if "__version__" not in values:
        return None
    return TorchBuild(values["__version__"], values.get("cuda"), values.get("hip"))
