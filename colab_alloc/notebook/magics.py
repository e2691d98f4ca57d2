"""The magics. Each one parses its line, calls the package, and displays the result; no analysis lives here."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_magic, magics_class, no_var_expand
from IPython.display import display

from colab_alloc.conf.conf import AllocConf
from colab_alloc.conf.problem import AllocConfError
from colab_alloc.runtime import apply as changing
from colab_alloc.runtime.status import status


class _Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are IPython's one-line usage errors."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}; {self.prog} -h shows how it is used")


class _HelpShown(Exception):  # noqa: N818 - nothing went wrong
    """-h was given; the help has been printed."""


class _Help(argparse.Action):
    """Print the help and leave the magic, not the kernel."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        print(parser.format_help())  # noqa: T201 - a magic answers by printing
        raise _HelpShown


def alloc_conf_parser() -> argparse.ArgumentParser:
    """Return the parser of `%alloc_conf`, which is also its documentation."""
    parser = _Parser(
        prog="%alloc_conf",
        add_help=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Show or set PyTorch's GPU memory options (PYTORCH_CUDA_ALLOC_CONF).",
        epilog=(
            "Examples:\n"
            "  %alloc_conf                                     what was asked for, and what is in effect\n"
            "  %alloc_conf max_split_size_mb:128               set one option, keep the others\n"
            "  %alloc_conf max_split_size_mb:unlimited         back to the default\n"
            "  %alloc_conf --reset                             every option back to its default"
        ),
    )
    parser.add_argument("settings", nargs="*", help="name:value, several with commas between them")
    parser.add_argument("--reset", action="store_true", help="every option back to PyTorch's default")
    parser.add_argument("-h", "--help", nargs=0, action=_Help, help="show this help")
    return parser


@magics_class
class AllocMagics(Magics):
    """PyTorch's GPU memory settings: checked, applied, and read back from the allocator."""

    @no_var_expand
    @line_magic
    def alloc_conf(self, line: str) -> None:
        """Show or set PyTorch's GPU memory options."""
        try:
            arguments = alloc_conf_parser().parse_args(line.split())
        except _HelpShown:
            return
        if arguments.reset and arguments.settings:
            raise UsageError("%alloc_conf: give settings or --reset, not both")
        if arguments.reset:
            display(changing.reset())
        elif arguments.settings:
            display(self._apply(" ".join(arguments.settings)))
        else:
            display(status())

    @staticmethod
    def _apply(settings: str) -> changing.Applied:
        try:
            return changing.apply(AllocConf.parse(settings))
        except AllocConfError as error:
            raise UsageError(f"%alloc_conf {settings}: nothing was changed: {error}") from None


AllocMagics.alloc_conf.__doc__ = alloc_conf_parser().format_help()


def register(shell: InteractiveShell) -> None:
    """Add the magics to a shell that does not have them yet."""
    if not _registered(shell):
        shell.register_magics(AllocMagics)


def unregister(shell: InteractiveShell) -> None:
    """Take the magics out of a shell, and all that registering them left there."""
    for magics in _registered(shell):
        shell.configurables.remove(magics)
    shell.magics_manager.registry.pop(AllocMagics.__name__, None)
    shell.magics_manager.magics["line"].pop("alloc_conf", None)


def _registered(shell: InteractiveShell) -> list[Any]:
    """Return our magics in this shell, those of a module since reloaded included."""
    return [item for item in shell.configurables if type(item).__name__ == AllocMagics.__name__]
