"""The magics. Each one parses its line, calls the package, and displays the result; no analysis lives here."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any, Final, NoReturn

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_magic, magics_class, no_var_expand
from IPython.display import display

from colab_alloc.conf import version
from colab_alloc.conf.conf import AllocConf
from colab_alloc.conf.problem import AllocConfError
from colab_alloc.notebook import completion, history, report
from colab_alloc.runtime import apply as changing
from colab_alloc.runtime import torch_state, troubles
from colab_alloc.runtime.status import Status, status


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
            "  %alloc_conf --reset                             every option back to its default\n"
            "  %alloc_conf --options                           what there is, and what it is for"
        ),
    )
    parser.add_argument("settings", nargs="*", help="name:value, several with commas between them")
    parser.add_argument("--reset", action="store_true", help="every option back to PyTorch's default")
    parser.add_argument("--options", action="store_true", help="the options of this PyTorch, and what they are for")
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
        asked = [name for name in ("settings", "reset", "options") if getattr(arguments, name)]
        if len(asked) > 1:
            raise UsageError("%alloc_conf: give settings, --reset or --options, one of them")
        if arguments.reset:
            display(changing.reset())
        elif arguments.options:
            display(report.Reference(status().torch_release))
        elif arguments.settings:
            display(self._apply(line.strip()))
        else:
            display(self._status())

    @staticmethod
    def _apply(settings: str) -> changing.Applied:
        try:
            return changing.apply(AllocConf.parse(settings))
        except AllocConfError as error:
            raise UsageError(f"%alloc_conf {settings}: nothing was changed: {error}") from None

    def _status(self) -> Status:
        """Return the status, with what this notebook's own cells did in vain."""
        now = status()
        shell: Any = self.shell
        cells = shell.history_manager.input_hist_raw
        return replace(now, warnings=(*now.warnings, *history.findings(cells)))


AllocMagics.alloc_conf.__doc__ = alloc_conf_parser().format_help()

_COMMAND: Final = "%alloc_conf"


def register(shell: InteractiveShell) -> None:
    """Add the magics to a shell that does not have them yet, and tell of a variable that PyTorch will not take."""
    if _registered(shell):
        return
    shell.register_magics(AllocMagics)
    shell.set_hook("complete_command", _complete, str_key=_COMMAND)
    torch = version.installed()
    for warning in troubles.refused(torch, torch_state.variable(torch)):
        print(f"! {warning}")  # noqa: T201 - said before the kernel is lost


def unregister(shell: InteractiveShell) -> None:
    """Take the magics out of a shell, and all that registering them left there."""
    for magics in _registered(shell):
        shell.configurables.remove(magics)
    shell.magics_manager.registry.pop(AllocMagics.__name__, None)
    shell.magics_manager.magics["line"].pop("alloc_conf", None)
    shell.strdispatchers["complete_command"].strs.pop(_COMMAND, None)


def _registered(shell: InteractiveShell) -> list[Any]:
    """Return our magics in this shell, those of a module since reloaded included."""
    return [item for item in shell.configurables if type(item).__name__ == AllocMagics.__name__]


def _complete(_shell: InteractiveShell, event: Any) -> list[str]:
    """Answer IPython's completer."""
    flags = [flag for action in alloc_conf_parser()._actions for flag in action.option_strings if flag[:2] == "--"]  # noqa: SLF001
    return [word for word in completion.candidates(event.line, flags) if word.startswith(event.symbol)]
