"""How the time to read a text grows with its length, for texts made to be slow.

Run it as `python -m tests.benchmarks.parse`. A reader of linear time shows ratios near 10.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from colab_alloc import AllocConf, AllocConfError, predict

SHORT, LONG = 10_000, 100_000

PATTERNS: Final = {
    "options": "max_split_size_mb:128,",
    "unknown names": "abcdefghij:1,",
    "pairs": "[1:1,",
    "blanks": " ",
    "colons": ":",
    "opening brackets": "a:[",
    "quotes": "'\"",
    "words": "a ",
    "variable names": "PYTORCH_CUDA_ALLOC_CONF=",
    "digits": "9",
    "exponents": "1e",
}


def seconds(function: Callable[[str], object], text: str) -> float:
    """Return the shortest of three runs."""
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        function(text)
        times.append(time.perf_counter() - begin)
    return min(times)


def read(text: str) -> None:
    """Parse, and say what is wrong."""
    try:
        AllocConf.parse(text).problems(torch="2.14")
    except AllocConfError as error:
        str(error)


def main() -> None:
    """Print, for each pattern, the time at two lengths and their ratio."""
    for name, pattern in PATTERNS.items():
        for function in (read, predict):
            short, long = (seconds(function, (pattern * length)[:length]) for length in (SHORT, LONG))
            print(f"{name:18} {function.__name__:8} {short * 1e3:8.2f} ms {long * 1e3:9.2f} ms  x{long / short:6.1f}")


if __name__ == "__main__":
    main()
