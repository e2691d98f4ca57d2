"""What may be imported by what, and what loading the extension may not cost."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import colab_alloc

PACKAGE = Path(colab_alloc.__file__).parent
LAYERS = ("conf", "runtime", "memory", "notebook")
# What the person sees when they ask for it; nothing else of the package imports these when it is imported.
FORMS = {"notebook/controls.py", "notebook/offer.py", "notebook/panel.py"}
PICTURES = {"notebook/plots.py"}
EXPENSIVE = {"torch", "matplotlib", "ipywidgets", "numpy", "pandas"}


def imports(file: Path) -> set[str]:
    """The modules a file imports at import time: those at the top, not inside functions."""
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("file", sorted(PACKAGE.rglob("*.py")), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_downwards_and_nothing_expensive_is_imported_eagerly(file: Path) -> None:
    layer = file.relative_to(PACKAGE).parts[0]
    path = file.relative_to(PACKAGE).as_posix()
    is_form = path in FORMS
    allowed = {"ipywidgets"} if is_form else {"matplotlib", "numpy"} if path in PICTURES else set()
    above = LAYERS[LAYERS.index(layer) + 1 :] if layer in LAYERS else ()
    for module in imports(file):
        assert module.split(".")[0] not in EXPENSIVE - allowed
        imported = f"{module.replace('.', '/')}.py".removeprefix("colab_alloc/")
        assert imported not in PICTURES | (set() if is_form else FORMS)
        assert not any(module.startswith(f"colab_alloc.{name}") for name in above)
        if layer != "notebook":
            assert module.split(".")[0] != "IPython"


LOAD = """
import json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
before = set(sys.modules)
shell.run_line_magic("load_ext", "colab_alloc")
shell.run_line_magic("alloc_conf", "")
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_loading_the_extension_and_asking_for_the_status_imports_nothing_expensive() -> None:
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert "colab_alloc.notebook.magics" in loaded
    assert not EXPENSIVE & {module.split(".")[0] for module in loaded}


def test_the_public_names_are_all_there() -> None:
    for name in colab_alloc.__all__:
        assert hasattr(colab_alloc, name), name
