"""Tab completion of `%alloc_conf`: option names, sensible values, and its own flags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from colab_alloc.conf import grammar, version
from colab_alloc.conf.options import OPTIONS, known_to

_UNFINISHED_VALUE: Final = re.compile(r"(\w+)\s*:\s*[\w.]*$")
_UNFINISHED_FLAG: Final = re.compile(r"(?:^|\s)-[-\w]*$")
_UNFINISHED_NAME: Final = re.compile(r"(?:^|[\s,])\w*$")


def candidates(line: str, flags: Iterable[str]) -> Iterator[str]:
    """Yield what could stand at the end of the line.

    Args:
        line: the line up to the cursor, the magic's name included.
        flags: the magic's own flags, like "--reset".
    """
    arguments = line.partition(" ")[2]
    value = _UNFINISHED_VALUE.search(arguments)
    if value:
        option = OPTIONS.get(value[1])
        yield from (grammar.written(example) for example in option.examples) if option else ()
    elif _UNFINISHED_FLAG.search(arguments):
        yield from flags
    elif _UNFINISHED_NAME.search(arguments):
        build = version.installed()
        named = set(re.findall(r"(\w+)\s*:", arguments))
        known = known_to(build.release if build else version.NEWEST)
        yield from (f"{option.name}:" for option in known if option.name not in named)
        if not arguments.strip():
            yield from flags
