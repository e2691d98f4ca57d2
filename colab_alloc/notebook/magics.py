"""The magics. Each one parses its line, calls the package, and displays the result; no analysis lives here."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import Any, Final, NoReturn

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_magic, magics_class, no_var_expand
from IPython.display import display

from colab_alloc.conf import version
from colab_alloc.conf.conf import AllocConf
from colab_alloc.conf.problem import AllocConfError
from colab_alloc.language import LANGUAGES
from colab_alloc.notebook import completion, history, report
from colab_alloc.runtime import apply as changing
from colab_alloc.runtime import carry, restart, torch_state, troubles
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


_FLAGS: Final = {
    "--reset": "every option back to PyTorch's default",
    "--options": "the options of this PyTorch, and what they are for",
    "--panel": "a form with sliders, which builds and applies the settings",
    "--restart": "restart the kernel with everything asked for, and these settings; all variables are lost",
    "--keep": "start every new kernel with everything asked for, and these settings",
    "--forget": "undo --keep",
}
_TAKE_SETTINGS: Final = {None, "restart", "keep"}


def alloc_conf_parser() -> argparse.ArgumentParser:
    """Return the parser of `%alloc_conf`, which is also its documentation."""
    parser = _Parser(
        prog="%alloc_conf",
        add_help=False,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Show or set PyTorch's GPU memory options (PYTORCH_CUDA_ALLOC_CONF).",
        epilog=(
            "Examples:\n"
            "  %alloc_conf                                     what was asked for, and what is in effect\n"
            "  %alloc_conf max_split_size_mb:128               set one option, keep the others\n"
            "  %alloc_conf max_split_size_mb:unlimited         back to the default\n"
            "  %alloc_conf --reset                             every option back to its default\n"
            "  %alloc_conf --options                           what there is, and what it is for\n"
            "  %alloc_conf --panel                             the same with sliders\n"
            "  %alloc_conf --restart backend:cudaMallocAsync   restart the kernel with this as well\n"
            "  %alloc_conf --keep                              start every new kernel like this one"
        ),
    )
    parser.add_argument("settings", nargs="*", help="name:value, several with commas between them")
    does = parser.add_mutually_exclusive_group()
    for flag, about in _FLAGS.items():
        does.add_argument(flag, action="store_true", help=about)
    parser.add_argument("--lang", choices=LANGUAGES, help="the language of the panel (en)")
    parser.add_argument("-h", "--help", nargs=0, action=_Help, help="show this help")
    return parser


@magics_class
class AllocMagics(Magics):
    """PyTorch's GPU memory settings: checked, applied, and read back from the allocator."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self.untold: list[str] = []
        self.applied_in = 0

    def tell(self, *_event: Any) -> None:
        """Print, in a cell's output, what has not been said yet."""
        while self.untold:
            print(self.untold.pop(0))  # noqa: T201 - said where the person looks

    @no_var_expand
    @line_magic
    def alloc_conf(self, line: str) -> None:
        """Show or set PyTorch's GPU memory options."""
        try:
            parser = alloc_conf_parser()
            # a whole line that was pasted may have flags of its own
            pasted = "alloc_conf" in line.lower() and not line.lstrip().startswith("-")
            arguments = parser.parse_args([line] if pasted else line.split())
        except _HelpShown:
            return
        asked = next((flag[2:] for flag in _FLAGS if getattr(arguments, flag[2:])), None)
        if arguments.settings and asked not in _TAKE_SETTINGS:
            raise UsageError(f"%alloc_conf: --{asked} takes no settings")
        if arguments.lang and asked != "panel":
            raise UsageError("%alloc_conf: --lang goes with --panel")
        try:
            self._do(asked, " ".join(arguments.settings), arguments.lang or "en")
        except (AllocConfError, restart.RestartError) as error:
            raise UsageError(f"%alloc_conf {line.strip()}: nothing was changed: {error}") from None

    def _do(self, asked: str | None, settings: str, lang: str) -> None:
        conf = AllocConf.parse(settings)
        if settings and not conf:
            raise UsageError(
                f"%alloc_conf {settings}: nothing was changed: there is no setting in it; write NAME:VALUE"
            )
        if asked == "reset":
            display(changing.reset())
            self.applied_in = self._cell()
        elif asked == "options":
            display(report.Reference(status().torch_release))
        elif asked == "panel":
            self._show_panel(lang)
        elif asked == "restart":
            display(restart.restart(conf))
        elif asked == "keep":
            display(restart.keep(conf))
        elif asked == "forget":
            display(restart.forget())
        elif settings:
            self._apply(conf)
        else:
            display(self._status())

    @staticmethod
    def _show_panel(lang: str) -> None:
        from colab_alloc.notebook import offer, panel

        try:
            form = panel.panel(lang)
        except RuntimeError as error:
            raise UsageError(f"%alloc_conf --panel: {error}") from None
        offer.show(form, "This front end shows no widgets: %alloc_conf -h says how to do without them")

    def _apply(self, conf: AllocConf) -> None:
        applied = changing.apply(conf)
        self.applied_in = self._cell()
        display(applied)
        if applied.needs_restart:
            from colab_alloc.notebook import offer

            offer.offer_restart()

    def _cell(self) -> int:
        """Return the number of the cell that runs."""
        shell: Any = self.shell
        return len(shell.history_manager.input_hist_raw) - 1

    def _status(self) -> Status:
        """Return the status, with what this notebook's own cells did in vain."""
        now = status()
        shell: Any = self.shell
        cells = shell.history_manager.input_hist_raw
        return replace(now, warnings=(*now.warnings, *history.findings(cells, self.applied_in)))


AllocMagics.alloc_conf.__doc__ = alloc_conf_parser().format_help()

_COMMAND: Final = "%alloc_conf"


def register(shell: InteractiveShell) -> None:
    """Add the magics to a shell that does not have them yet, apply what was carried, and tell what is amiss."""
    if _registered(shell):
        return
    magics = AllocMagics(shell)
    shell.register_magics(magics)
    shell.set_hook("complete_command", _complete, str_key=_COMMAND)
    shell.events.register("pre_run_cell", magics.tell)
    magics.untold += carry.resume(restart.place())
    torch = version.installed()
    magics.untold += [f"! {warning.en}" for warning in troubles.refused(torch, torch_state.variable(torch))]
    if _is_seen(shell):
        magics.tell()


def unregister(shell: InteractiveShell) -> None:
    """Take the magics out of a shell, and all that registering them left there."""
    for magics in _registered(shell):
        shell.configurables.remove(magics)
        shell.events.unregister("pre_run_cell", magics.tell)
    shell.magics_manager.registry.pop(AllocMagics.__name__, None)
    shell.magics_manager.magics["line"].pop("alloc_conf", None)
    shell.strdispatchers["complete_command"].strs.pop(_COMMAND, None)
    if "colab_alloc.notebook.panel" in sys.modules:
        sys.modules["colab_alloc.notebook.panel"].close_all()
    if "colab_alloc.notebook.cells" in sys.modules:
        sys.modules["colab_alloc.notebook.cells"].CELLS.forget()


def _is_seen(shell: Any) -> bool:
    """Say whether somebody sees what is printed now. A kernel's start-up files, before any request, print to nobody."""
    try:
        return not hasattr(shell, "kernel") or bool(shell.get_parent())
    except LookupError:  # ipykernel 7 without a request
        return False


def _registered(shell: InteractiveShell) -> list[Any]:
    """Return our magics in this shell, those of a module since reloaded included."""
    return [item for item in shell.configurables if type(item).__name__ == AllocMagics.__name__]


def _complete(_shell: InteractiveShell, event: Any) -> list[str]:
    """Answer IPython's completer."""
    flags = [flag for action in alloc_conf_parser()._actions for flag in action.option_strings if flag[:2] == "--"]  # noqa: SLF001
    return [word for word in completion.candidates(event.line, flags) if word.startswith(event.symbol)]
