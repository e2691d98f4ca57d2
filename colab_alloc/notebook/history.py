"""Finds, in this notebook's own cells, attempts to set allocator options that never reached PyTorch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from colab_alloc.runtime.torch_state import ALL_VARIABLES

_NAME: Final = "|".join(ALL_VARIABLES)

# A magic, a shell line or os.environ that sets a variable; the variable's name is in the group.
_SETS: Final = re.compile(
    r"""(?:^\s*%(?:set_)?env\s+|^\s*!\s*(?:export\s+)?"""
    r"""|os\.environ\s*(?:\[|\.setdefault\(|\.update\(\s*\{)\s*['"]|putenv\(\s*['"])(\w+)""",
    re.IGNORECASE,
)
_LOOKS_MEANT: Final = re.compile(r"TORCH\w*(?:ALLOC|SPLIT)|CUDA\w*(?:ALLOC_CONF|SPLIT)|MAX_SPLIT_SIZE", re.IGNORECASE)
_MADE_UP: Final = re.compile(
    r"torch(?:\.\w+)*\.(?:max_split_size(?:_mb)?|set_allocator_config|set_max_split_size(?:_mb)?"
    r"|roundup_power2_divisions|garbage_collection_threshold)\b"
)
_CELL_IN_A_SHELL: Final = re.compile(r"^\s*%%(?:bash|sh|script|!)", re.IGNORECASE)
_EXPORT: Final = re.compile(rf"^\s*(?:export\s+)(?:{_NAME})\s*=")

_SHELL: Final = re.compile(rf"^\s*!\s*(?:export\s+|set\s+)?(?:{_NAME})\s*=\s*(?:\"[^\"]*\"|'[^']*'|\S*)(.*)")
_PYTHON: Final = re.compile(rf"^\s*(?:{_NAME})\s*=(?!=)")
_MAGIC: Final = re.compile(rf"^\s*%(?:set_)?env\s+(?:{_NAME})\s*[=\s]\s*(.*)$")


def findings(cells: Sequence[str], applied_in: int = 0) -> Iterator[str]:
    """Yield a sentence for each line that did not do what it was meant to do.

    Args:
        cells: the source of every cell run so far, by execution number; cell 0 is empty. Cells up to the one where
            settings were last applied are left out: that was the last word.
        applied_in: the number of the cell in which settings were last applied; 0 for none.
    """
    for number, cell in enumerate(cells):
        if number <= applied_in:
            continue
        looks = (_in_a_shell_cell,) if _CELL_IN_A_SHELL.search(cell) else _LOOKS
        for line in cell.splitlines():
            if line.lstrip().startswith("#"):
                continue
            why = next(filter(None, (look(line) for look in looks)), None)
            if why:
                yield f"Cell {number}, {line.strip()[:120]!r}: {why}"


def _in_a_shell(line: str) -> str | None:
    match = _SHELL.search(line)
    if not match or match[1].strip(" ;&"):
        return None  # with a command behind it, it holds for that command, as meant
    return "set in a shell that ended with the line; this kernel never saw it"


def _in_a_shell_cell(line: str) -> str | None:
    return "set in a shell that ended with the cell; this kernel never saw it" if _EXPORT.search(line) else None


def _as_a_name(line: str) -> str | None:
    if not _PYTHON.search(line):
        return None
    return "gives a name to something in Python; PyTorch reads the environment"


def _with_what_the_magic_keeps(line: str) -> str | None:
    match = _MAGIC.search(line)
    if match and match[1].strip().startswith(("'", '"')):
        return "%env keeps the quotes as part of the value, and PyTorch refuses them"
    if match and "#" in match[1]:
        return "%env keeps the comment as part of the value"
    return None


def _under_another_name(line: str) -> str | None:
    match = _SETS.search(line)
    if not match or match[1] in ALL_VARIABLES or not _LOOKS_MEANT.search(match[1]):
        return None
    return f"{match[1]} is not a variable that PyTorch reads"


def _by_an_api_that_is_not_there(line: str) -> str | None:
    match = _MADE_UP.search(line)
    return f"PyTorch has no {match[0]}: the option can only be set by the variable" if match else None


_LOOKS: Final[tuple[Callable[[str], str | None], ...]] = (
    _in_a_shell,
    _as_a_name,
    _with_what_the_magic_keeps,
    _under_another_name,
    _by_an_api_that_is_not_there,
)
