"""What `%load_ext colab_alloc` costs, beside `import ipywidgets` in the same run.

Run it as `python -m tests.benchmarks.load_ext`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from typing import Final

ROUNDS: Final = 15

TIMED: Final = """
import time
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
shell = InteractiveShell.instance(config=Config({{"HistoryManager": {{"enabled": False}}}}))
begin = time.perf_counter()
{statement}
print(time.perf_counter() - begin)
"""

STATEMENTS: Final = {
    "%load_ext colab_alloc": 'shell.run_line_magic("load_ext", "colab_alloc")',
    "import ipywidgets": "import ipywidgets",
}


def seconds(statement: str, compiled: str) -> float:
    """Return how long the statement took in a fresh IPython shell, with the modules compiled as an installer does."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", TIMED.format(statement=statement)],
        env=environment | {"PYTHONPYCACHEPREFIX": compiled},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    """Print the medians and their ratio; the statements take turns, so that both meet the same machine."""
    with tempfile.TemporaryDirectory() as compiled:
        rounds = [
            {name: seconds(statement, compiled) for name, statement in STATEMENTS.items()} for _ in range(1 + ROUNDS)
        ][1:]  # the first one compiles the modules
    medians = {name: statistics.median(times[name] for times in rounds) for name in STATEMENTS}
    for name, median in medians.items():
        print(f"{name:24} {median * 1000:6.1f} ms (median of {ROUNDS})")
    load, widgets = medians.values()
    print(f"{'ratio':24} {load / widgets:6.2f}")


if __name__ == "__main__":
    main()
