"""Every result as plain text and as HTML: the same words in both, no state told by colour alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from html import escape
from typing import Any, Final

from colab_alloc.conf import grammar, version
from colab_alloc.conf.conf import AllocConf
from colab_alloc.conf.options import OPTIONS, Kind, Option, Value, known_to
from colab_alloc.conf.predict import Verdict
from colab_alloc.conf.values import same
from colab_alloc.result import Result
from colab_alloc.runtime import torch_state
from colab_alloc.runtime.apply import Applied
from colab_alloc.runtime.status import Status

_MARKS: Final = {"good": "✓", "wait": "→", "bad": "!"}
_TABLE: Final = "border-collapse:collapse;margin:.4em 0;font:inherit;color:inherit"
_CELL: Final = "text-align:left;padding:.2em 1em .2em 0;border-bottom:1px solid rgba(128,128,128,.35)"


@dataclass(frozen=True)
class Line:
    """One sentence of a report.

    Args:
        tone: "good" (true now), "wait" (true later) or "bad" (needs attention).
        words: the sentence.
    """

    tone: str
    words: str


@dataclass(frozen=True)
class Report:
    """A result, said: a heading, sentences, and perhaps a table.

    Args:
        heading: what it is about; empty for none.
        lines: what there is to say.
        columns, rows: a table; empty for none.
        footnote: what the table leaves out; empty for nothing.
    """

    heading: str
    lines: Sequence[Line]
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    footnote: str = ""


def text(result: Any) -> str:
    """Return a result as plain text."""
    report = report_of(result)
    lines = [f"{_MARKS[line.tone]} {line.words}" for line in report.lines]
    parts = [report.heading, _text_table(report), report.footnote, "\n".join(lines)]
    return "\n".join(part for part in parts if part)


def html(result: Any) -> str:
    """Return a result as HTML that takes the notebook's own colours and font."""
    report = report_of(result)
    parts = [
        _quiet(report.heading),
        _html_table(report),
        _quiet(report.footnote),
        *(f"<div><b>{_MARKS[line.tone]}</b> {escape(line.words)}</div>" for line in report.lines),
    ]
    return f'<div class="colab-alloc" style="line-height:1.6">{"".join(parts)}</div>'


def _quiet(words: str) -> str:
    return f'<div style="opacity:.75">{escape(words)}</div>' if words else ""


@singledispatch
def report_of(result: object) -> Report:
    """Say a result."""
    raise TypeError(f"no report for {type(result).__name__}")


@report_of.register
def _(status: Status) -> Report:
    known = known_to(status.torch_release)
    rows = [
        (
            option.name,
            shown(option.name, status.asked_for[option.name]) if option.name in status.asked_for else "-",
            _in_effect(status, option.name),
            shown(option.name, option.default),
        )
        for option in known
        if option.common or option.name in status.asked_for or _differs(status, option.name)
    ]
    rest = len(known) - len(rows)
    return Report(
        heading=_heading(status),
        lines=[*_verdict(status), *(Line("bad", warning) for warning in status.warnings)],
        columns=("option", "asked for", "in effect", "default"),
        rows=rows,
        footnote=f"{rest} more options of this PyTorch are not asked for",
    )


@report_of.register
def _(applied: Applied) -> Report:
    lines = []
    for sentence, names in _by_source(applied.in_effect, applied.sources):
        lines.append(Line("good", f"{_names(applied.in_effect.only(*names))}: in effect now, {sentence}"))
    if applied.at_cuda_start:
        lines.append(Line("wait", f"{_names(applied.at_cuda_start)}: from CUDA's start on; {_assignment(applied)}"))
    if applied.needs_restart:
        why = "too late in this process; restart the kernel and set it first, before PyTorch is imported"
        lines.append(Line("wait", f"{_names(applied.needs_restart)}: {why}"))
    lines += [Line("bad", problem.message) for problem in applied.problems if problem.severity == "warning"]
    lines += [
        Line("wait", f"repaired: {problem.message}") for problem in applied.problems if problem.severity == "repair"
    ]
    if not lines:
        return Report("", [Line("good", "Every option is at its default already")])
    if applied.cuda_initialized:
        habit = "set options in the first cell, before anything uses the GPU"
        lines.append(Line("bad", f"CUDA had already started: memory it holds keeps its form. Better {habit}"))
    return Report("", lines)


@dataclass(frozen=True, repr=False)
class Reference(Result):
    """The options of one PyTorch release, to look up.

    Args:
        torch: the release.
    """

    torch: version.Release


@report_of.register
def _(reference: Reference) -> Report:
    rows = [
        (
            option.name,
            shown(option.name, option.default),
            _values(option, reference.torch),
            option.change.value,
            f"{option.summary} {option.use}",
        )
        for option in known_to(reference.torch)
    ]
    heading = f"The options of PyTorch {version.shown(reference.torch)}; sizes are in MiB"
    return Report(heading, [], ("option", "default", "values", "can change", "what it is for"), rows)


def _values(option: Option, torch: version.Release) -> str:
    if option.kind is Kind.BACKEND:
        return " or ".join(map(str, option.examples))
    allowed = str(option.range_in(torch)) if option.ranges else ""
    return allowed if option.kind is Kind.FRACTION and allowed else f"{option.kind.value}{allowed and ', '}{allowed}"


@report_of.register
def _(verdict: Verdict) -> Report:
    what = f"PyTorch {verdict.torch} with {verdict.text!r}"
    if verdict.message is not None:
        return Report("", [Line("bad", f"{what}: {verdict.outcome}: {verdict.message.strip()}")])
    read = ", ".join(f"{name} {shown(name, value)}" for name, value in verdict.settings.items())
    return Report("", [Line("good", f"{what}: accepted; it reads {read or 'nothing'}")])


def _assignment(applied: Applied) -> str:
    if applied.text:
        return f"{applied.variable}={applied.text} is set, for this process and those it starts"
    return f"{applied.variable} is not set, so PyTorch uses its defaults"


def shown(name: str, value: Value) -> str:
    """Return a value as people read it, with its unit."""
    option = OPTIONS[name]
    if value == 0 and value is not False and not option.default_can_be_written:
        return "off"
    return f"{value} MiB" if option.kind is Kind.MIB and isinstance(value, int) else grammar.written(value)


def _names(conf: AllocConf) -> str:
    return ", ".join(f"{name} {shown(name, value)}" for name, value in conf.items())


def _heading(status: Status) -> str:
    torch = f"PyTorch {status.torch_version}" if status.torch_version else "PyTorch is not installed"
    started = "CUDA has started" if status.cuda_initialized else "CUDA has not started"
    return f"{torch} · {started} · {status.variable} {_environment(status)}"


def _environment(status: Status) -> str:
    value = status.environment.get(status.variable)
    return "is not set" if value is None else f"= {value}"


def _in_effect(status: Status, name: str) -> str:
    if name not in status.in_effect:
        return "-"
    value = status.in_effect[name]
    if value is None:
        return status.sources[name]
    source = status.sources[name]
    plain = source in {torch_state.FROM_ALLOCATOR, torch_state.FROM_DEFAULT}
    return shown(name, value) if plain else f"{shown(name, value)} ({source})"


def _differs(status: Status, name: str) -> bool:
    value = status.in_effect.get(name)
    return value is not None and not same(name, value, OPTIONS[name].default, status.torch_release)


def _verdict(status: Status) -> list[Line]:
    """Say of each thing asked for whether it is true now, later, or not at all."""
    if not status.asked_for:
        return [Line("good", "Nothing is asked for: PyTorch uses its defaults")]
    good = status.asked_for.only(*(name for name in status.asked_for if status.outcome(name) == "in effect"))
    lines = [
        Line("good", f"{_names(good.only(*names))}: in effect, {sentence}")
        for sentence, names in _by_source(good, status.sources)
    ]
    sentences = {
        "at CUDA start": ("wait", "will be read when CUDA starts"),
        "refused": ("bad", "not to be had with this text, which PyTorch refuses"),
        "misread": ("bad", f"PyTorch will read {status.variable} otherwise than it looks"),
        "needs a restart": ("wait", "needs a kernel restart: too late in this process"),
        "ignored": ("bad", "not read by the back end cudaMallocAsync"),
        "not in effect": ("bad", f"not in effect: {status.variable} was changed after CUDA had started"),
        "unknown": ("wait", "whether it is in effect is not shown"),
    }
    for outcome, (tone, sentence) in sentences.items():
        names = [name for name in status.asked_for if status.outcome(name) == outcome]
        if names:
            lines.append(
                Line(tone, f"{_names(status.asked_for.only(*names))}: {sentence}{_remedy(status, outcome, names)}")
            )
    return lines


def _by_source(conf: AllocConf, sources: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Group options by how it is known that they are in effect, said in words."""
    read_back = [name for name in conf if sources[name] == torch_state.FROM_ALLOCATOR]
    told = [name for name in conf if name not in read_back]
    if read_back:
        yield "read back from PyTorch's allocator", read_back
    if told:
        yield "by the text that PyTorch's allocator read; it does not show more", told


def _remedy(status: Status, outcome: str, names: Sequence[str]) -> str:
    if outcome not in {"not in effect", "refused", "misread"}:
        return ""
    return f"; apply it now with %alloc_conf {status.asked_for.only(*names).for_torch()}"


def _text_table(report: Report) -> str:
    if not report.rows:
        return ""
    table = [report.columns, *report.rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(report.columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    )


def _html_table(report: Report) -> str:
    if not report.rows:
        return ""
    head = "".join(f'<th scope="col" style="{_CELL}">{escape(column)}</th>' for column in report.columns)
    rows = "".join(
        f'<tr><th scope="row" style="{_CELL};font-weight:normal"><code>{escape(row[0])}</code></th>'
        + "".join(f'<td style="{_CELL}">{escape(cell)}</td>' for cell in row[1:])
        + "</tr>"
        for row in report.rows
    )
    return f'<table style="{_TABLE}"><tr>{head}</tr>{rows}</table>'
