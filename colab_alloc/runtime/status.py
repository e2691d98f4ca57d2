"""status(): which PyTorch, has CUDA started, what was asked for, and what is in effect."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from colab_alloc.conf import version
from colab_alloc.conf.conf import AllocConf
from colab_alloc.conf.options import OPTIONS, Change, Value
from colab_alloc.conf.predict import Verdict
from colab_alloc.conf.problem import AllocConfError
from colab_alloc.conf.values import same
from colab_alloc.conf.version import NEWEST, Release
from colab_alloc.result import Result
from colab_alloc.runtime import torch_state, troubles
from colab_alloc.runtime.ledger import LEDGER


@dataclass(frozen=True, repr=False)
class Status(Result):
    """The state of this process.

    Args:
        torch_version: the PyTorch imported or installed, None when there is none.
        variable: the environment variable that PyTorch takes its settings from, as the environment is now.
        environment: every allocator variable that is set.
        cuda_initialized: whether CUDA has started here; from then on the variable is no longer read.
        asked_for: what the variable says, and what waits for a restart.
        in_effect: option to the value the allocator uses, None where unknown; empty before CUDA starts, but for the
            back end, which is settled when PyTorch is imported.
        to_come: what PyTorch will do with the variable when CUDA starts; None once it has.
        sources: option to how the value in effect is known.
        warnings: what the person should know, a sentence each.
        after_restart: what of asked_for came too late for this process.
    """

    torch_version: str | None
    variable: str
    environment: Mapping[str, str]
    cuda_initialized: bool
    asked_for: AllocConf
    in_effect: Mapping[str, Value | None]
    to_come: Verdict | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    after_restart: AllocConf = field(default_factory=AllocConf)

    @property
    def torch_release(self) -> Release:
        """The release whose options hold here: the newest known one when there is no PyTorch."""
        return version.release(self.torch_version) if self.torch_version else NEWEST

    def outcome(self, name: str) -> str:
        """Return what became of an option.

        One of "in effect", "at CUDA start", "refused", "misread", "needs a restart", "ignored", "not in effect",
        "unknown", "not asked for".
        """
        if name not in self.asked_for:
            return "not asked for"
        if name in self.after_restart:
            return "needs a restart"
        backend = self.in_effect.get("backend", self.asked_for.get("backend"))
        if name != "backend" and backend == "cudaMallocAsync":
            return "ignored"
        return self._compared(name)

    def _compared(self, name: str) -> str:
        """Hold what is in effect against what was asked for."""
        current = self.in_effect.get(name)
        if current is None:
            return "unknown" if self.cuda_initialized else self._foreseen(name)
        if same(name, current, self.asked_for[name], self.torch_release):
            return "in effect"
        return "not in effect" if OPTIONS[name].change is Change.ANY_TIME else "needs a restart"

    def _foreseen(self, name: str) -> str:
        """Hold what PyTorch will read against what was asked for."""
        if self.to_come is None:
            return "at CUDA start"
        if self.to_come.outcome != "accepted":
            return "refused"
        read = self.to_come.settings.get(name, OPTIONS[name].default)
        return "at CUDA start" if same(name, read, self.asked_for[name], self.torch_release) else "misread"


def status() -> Status:
    """Return the state of this process; imports nothing, starts nothing, works without PyTorch."""
    with LEDGER.lock:
        return _status()


def _status() -> Status:
    torch = version.installed()
    variable = torch_state.variable(torch)
    started = torch_state.cuda_started()
    reading = torch_state.read_in_effect() if started else None
    in_effect = reading.values if reading else torch_state.settled_at_import()
    return Status(
        torch_version=torch.version if torch else None,
        variable=variable,
        environment={name: os.environ[name] for name in torch_state.ALL_VARIABLES if name in os.environ},
        cuda_initialized=started,
        asked_for=asked_for(variable) | LEDGER.after_restart,
        in_effect=in_effect,
        to_come=troubles.to_come(torch, variable),
        sources=reading.sources if reading else dict.fromkeys(in_effect, torch_state.FROM_ALLOCATOR),
        after_restart=LEDGER.after_restart,
        warnings=tuple(said.en for said in troubles.all_of(torch, variable)),
    )


def asked_for(variable: str) -> AllocConf:
    """Return what the variable asks for, as far as it can be understood: what was meant, not what PyTorch reads."""
    try:
        return AllocConf.parse(os.environ.get(variable, ""))
    except AllocConfError:
        return AllocConf()
