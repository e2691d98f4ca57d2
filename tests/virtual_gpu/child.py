"""The new process of `VirtualGpu.run`: calls one function and writes its result to a file."""

import importlib
import json
import sys
from pathlib import Path


def main(module: str, function: str, arguments: str, result: str) -> None:
    """Calls module.function with arguments (a JSON list); its result goes to the file `result`, as JSON."""
    value = getattr(importlib.import_module(module), function)(*json.loads(arguments))
    Path(result).write_text(json.dumps(value))


if __name__ == "__main__":
    main(*sys.argv[1:])
