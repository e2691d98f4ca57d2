"""colab_alloc: PyTorch's GPU memory settings in a notebook - checked, applied, and read back from the allocator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from colab_alloc.conf.conf import AllocConf
from colab_alloc.conf.options import UNLIMITED
from colab_alloc.conf.predict import Verdict, predict
from colab_alloc.conf.problem import AllocConfError, Problem
from colab_alloc.runtime.apply import Applied, apply, reset
from colab_alloc.runtime.restart import Restart, RestartError, restart
from colab_alloc.runtime.status import Status, status

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"

__all__ = [
    "UNLIMITED",
    "AllocConf",
    "AllocConfError",
    "Applied",
    "Problem",
    "Restart",
    "RestartError",
    "Status",
    "Verdict",
    "apply",
    "panel",
    "predict",
    "reset",
    "restart",
    "status",
]


def panel(lang: str = "en") -> Any:
    """Return a form that builds and applies a configuration, to display in a notebook.

    Args:
        lang: "en" or "ar".

    Raises:
        ValueError: there are no words in that language.
        RuntimeError: this is no notebook.
    """
    from colab_alloc.notebook import panel as form

    return form.panel(lang)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Answer `%load_ext colab_alloc`."""
    from colab_alloc.notebook import magics

    magics.register(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Answer `%unload_ext colab_alloc`."""
    from colab_alloc.notebook import magics

    magics.unregister(shell)
