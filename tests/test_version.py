"""Releases, and the installed PyTorch found without importing it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from colab_alloc.conf import version

VERSION_PY = """\
from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '2.14.1+cu130'
debug = False
cuda: Optional[str] = '13.0'
git_version = '5c488690'
hip: Optional[str] = None
"""


def install(folder: Path, text: str) -> None:
    """Put a package named torch there that must not be imported."""
    package = folder / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('torch was imported')")
    (package / "version.py").write_text(text)


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A process that finds packages in one folder alone, and has not imported torch."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


@pytest.mark.parametrize(("text", "release"), [("2.14.1+cu130", (2, 14)), ("2.9", (2, 9)), ("v1.13.1", (1, 13))])
def test_a_version_text_has_a_release(text: str, release: version.Release) -> None:
    assert version.release(text) == release
    assert version.release(version.shown(release)) == release


def test_what_is_no_version_is_named() -> None:
    with pytest.raises(ValueError, match="'newest' is not a PyTorch version: write it like 2"):
        version.release("newest")


def test_the_installed_build_is_read_without_importing_it(no_torch: Path) -> None:
    install(no_torch, VERSION_PY)
    assert version.installed() == version.TorchBuild("2.14.1+cu130", cuda="13.0", hip=None)
    assert "torch" not in sys.modules


def test_a_cpu_build_has_no_gpu_allocator(no_torch: Path) -> None:
    install(no_torch, VERSION_PY.replace("'13.0'", "None"))
    build = version.installed()
    assert build is not None
    assert not build.has_gpu_allocator


@pytest.mark.parametrize("text", ["", "nothing = 'of use'"])
def test_a_torch_without_a_version_is_none(no_torch: Path, text: str) -> None:
    install(no_torch, text)
    assert version.installed() is None


def test_no_torch_is_none(no_torch: Path) -> None:  # noqa: ARG001 - it is the fixture that matters
    assert version.installed() is None


def test_the_imported_torch_counts_first(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = SimpleNamespace(__version__="2.11.0", version=SimpleNamespace(cuda="12.8", hip=None))
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    assert version.installed() == version.TorchBuild("2.11.0", "12.8")
