"""What every result of this package has in common: it shows itself in a terminal and in a notebook."""

from __future__ import annotations


class Result:
    """Base of the result dataclasses (`repr=False`): text for a terminal, HTML for a notebook.

    Both are written in notebook/report.py: the one place where an import points upwards, when a result is shown.
    """

    def __str__(self) -> str:
        from colab_alloc.notebook import report

        return report.text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from colab_alloc.notebook import report

        return report.html(self)
