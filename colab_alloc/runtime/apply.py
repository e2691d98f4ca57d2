"""apply() and reset(): change what can be changed now, and say what needs a restart."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from colab_alloc.conf.conf import AllocConf
from colab_alloc.conf.options import OPTIONS, Change
from colab_alloc.conf.problem import AllocConfError, Problem, Severity
from colab_alloc.conf.values import same
from colab_alloc.result import Result
from colab_alloc.runtime import torch_state
from colab_alloc.runtime.ledger import LEDGER
from colab_alloc.runtime.status import Status, asked_for, status


@dataclass(frozen=True, repr=False)
class Applied(Result):
    """What became of a configuration that was applied.

    Args:
        in_effect: in effect now.
        at_cuda_start: in the environment, where PyTorch reads it when CUDA starts.
        needs_restart: too late for this process.
        variable: the environment variable this PyTorch reads.
        text: what that variable is set to now; empty when it is not set.
        cuda_initialized: whether CUDA had started already.
        sources: option to how what is in effect is known, as in Status.
        problems: what is worth knowing all the same.
    """

    in_effect: AllocConf
    at_cuda_start: AllocConf
    needs_restart: AllocConf
    variable: str
    text: str
    cuda_initialized: bool
    sources: Mapping[str, str]
    problems: tuple[Problem, ...] = ()


def apply(settings: Mapping[str, Any] | str) -> Applied:
    """Apply settings over those asked for before; options not named stay as they are.

    Args:
        settings: an AllocConf, a dict of names and values, or a text.

    Raises:
        AllocConfError: the installed PyTorch would refuse the settings; nothing was changed.
        TypeError: they are in none of these forms.
    """
    conf = AllocConf.of(settings)
    with LEDGER.lock:
        before = status()
        wanted = merged(conf, before.asked_for)
        late = conf.only(*too_late(conf, wanted, before))
        now = conf.without(*late)
        environment = merged(now, asked_for(before.variable))
        loaded = before.in_effect.get("backend")
        if loaded and environment.get("backend", loaded) != loaded:  # PyTorch would fail at CUDA start
            late |= environment.only("backend")
            environment = environment.without("backend")
        dropped = _dropped(before, environment | late)
        if now and before.cuda_initialized and before.in_effect["backend"] == "native":
            _change_running(now, before)
        LEDGER.after_restart = LEDGER.after_restart.without(*conf) | late
        _write_environment(before.variable, environment)
        known = {problem.message for problem in _of(before.asked_for, "warning")}
        judged = wanted.without(*(name for name in LEDGER.after_restart if name not in conf))
        new = [p for p in _of(judged, "warning") if p.option in conf or p.message not in known]
        for listener in LEDGER.listeners:
            listener()
        return _applied(now, late, status(), [*dropped, *new, *conf.repairs])


def _dropped(before: Status, environment: AllocConf) -> list[Problem]:
    """Tell what the variables said until now and will say no more: what PyTorch refuses, or does not read."""
    told = []
    for name, text in before.environment.items():
        unread = name != before.variable
        lost = not AllocConf.readable(text) or set(AllocConf.parse(text)) - set(environment)
        if text and (unread or lost):
            why = "PyTorch does not read it" if unread else "PyTorch refuses it"
            told.append(Problem("warning", None, (0, 0), f"{name}={text!r} was replaced: {why}"))
    return told


def merged(conf: AllocConf, before: AllocConf) -> AllocConf:
    """Return settings over those asked for before, of which what PyTorch refuses is dropped.

    Raises:
        AllocConfError: the installed PyTorch would refuse the settings.
    """
    _refuse(conf)
    wrong_before = _of(before, "error")
    wanted = before.without(*(problem.option or "" for problem in wrong_before)) | conf
    _refuse(wanted)
    return wanted


def reset() -> Applied:
    """Return every option to PyTorch's default and remove the variables."""
    with LEDGER.lock:
        before = status()
        changed = [
            name
            for name, option in OPTIONS.items()
            if option.known_to(before.torch_release)
            and (name in before.asked_for or before.in_effect.get(name) not in (None, option.default))
        ]
        told = _dropped(before, AllocConf({name: OPTIONS[name].default for name in changed}))
        applied = apply(AllocConf({name: OPTIONS[name].default for name in changed}))
        for name in torch_state.ALL_VARIABLES:
            os.environ.pop(name, None)
        for listener in LEDGER.listeners:
            listener()
        return replace(applied, text="", problems=tuple(told))


def _of(conf: AllocConf, severity: Severity) -> list[Problem]:
    """Return the problems of one severity that a configuration has on the GPU of this process."""
    problems = conf.problems(capacity=torch_state.capacity(), limited=torch_state.memory_is_limited())
    return [problem for problem in problems if problem.severity == severity]


def _refuse(conf: AllocConf) -> None:
    errors = _of(conf, "error")
    if errors:
        raise AllocConfError(str(conf), errors)


def too_late(conf: AllocConf, wanted: AllocConf, before: Status) -> list[str]:
    """Return the options of conf whose moment has passed in this process, unless they are as asked already."""
    running = before.in_effect.get("backend")
    passed = {Change.BEFORE_IMPORT} if running else set()
    if before.cuda_initialized and running == "native":
        passed |= {Change.BEFORE_CUDA}
    elif before.cuda_initialized and wanted.get("backend", "native") == "native":
        passed |= set(Change)  # settings of the native back end have to wait for it
    return [
        name
        for name, value in conf.items()
        if OPTIONS[name].change in passed
        and not same(name, before.in_effect.get(name) or OPTIONS[name].default, value, before.torch_release)
    ]


def _change_running(now: AllocConf, before: Status) -> None:
    """Make the running allocator use these settings and keep all others as they are in effect."""
    in_effect = {name: value for name, value in before.in_effect.items() if value is not None}
    reset = [n for n in before.in_effect if OPTIONS[n].reset_by_others(before.torch_release) and n not in now]
    unknown = [name for name in reset if name not in in_effect]
    if unknown:
        message = f"{unknown[0]} would be reset: while memory is being recorded this PyTorch does not show its settings"
        fix = "it after torch.cuda.memory._record_memory_history(enabled=None)"
        raise AllocConfError(str(now), [Problem("error", unknown[0], (0, len(str(now))), message, fix)])
    old = AllocConf({name: in_effect[name] for name in (*reset, *now) if name in in_effect}).without("backend")
    try:
        _send(old | now.without("backend"))
    except (RuntimeError, ValueError) as error:
        _send(old)  # a refused text is applied up to its error
        problem = Problem("error", None, (0, len(str(now))), f"PyTorch refuses it: {str(error).splitlines()[0]}")
        raise AllocConfError(str(now), [problem]) from error


def _send(conf: AllocConf) -> None:
    torch_state.set_running(conf.for_torch())
    fraction = conf.get("per_process_memory_fraction")
    if isinstance(fraction, float):
        torch_state.limit_memory(fraction)


def _write_environment(variable: str, wanted: AllocConf) -> None:
    """Set the variable for this process and its children; a variable with nothing to say is removed.

    The other variables are removed: this PyTorch, or another one started from here, could read them instead.
    """
    text = wanted.for_torch()
    for name in torch_state.ALL_VARIABLES:
        if name != variable or not text:
            os.environ.pop(name, None)
    if text:
        os.environ[variable] = text


def _applied(now: AllocConf, late: AllocConf, after: Status, told: list[Problem]) -> Applied:
    """Sort what was applied by what the allocator says of it now."""
    text = after.environment.get(after.variable, "")
    if not after.cuda_initialized:
        return Applied(AllocConf(), now, late, after.variable, text, after.cuda_initialized, {}, tuple(told))
    found = {name: after.in_effect.get(name) for name in now}
    missed = [
        Problem("warning", name, (0, 0), f"{name} was set to {now[name]}, but the allocator says {value}")
        for name, value in found.items()
        if value is not None and not same(name, value, now[name], after.torch_release)
    ]
    in_effect = now.only(*(name for name, value in found.items() if value is not None))
    in_effect = in_effect.without(*(problem.option or "" for problem in missed))
    problems = (*told, *missed)
    return Applied(in_effect, AllocConf(), late, after.variable, text, after.cuda_initialized, after.sources, problems)
