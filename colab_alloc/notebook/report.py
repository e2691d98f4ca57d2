"""Every result as plain text and as HTML: the same words in both, no state told by colour alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from html import escape
from typing import Any, Final

from colab_alloc.conf import grammar, version
from colab_alloc.conf.conf import AllocConf
from colab_alloc.conf.options import OPTIONS, Kind, Option, Value, known_to
from colab_alloc.conf.predict import Verdict
from colab_alloc.conf.values import same
from colab_alloc.language import Words, apart
from colab_alloc.notebook import words
from colab_alloc.result import Result
from colab_alloc.runtime import torch_state
from colab_alloc.runtime.apply import Applied
from colab_alloc.runtime.restart import COLAB, Kept, Restart
from colab_alloc.runtime.status import Status, status

_MARKS: Final = {"good": "✓", "wait": "→", "bad": "!"}
_MIRRORED: Final = {**_MARKS, "wait": "←"}
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
        html_lines(report.lines, "en"),
    ]
    return f'<div class="colab-alloc" style="line-height:1.6">{"".join(parts)}</div>'


def html_lines(lines: Iterable[Line], lang: str) -> str:
    """Return sentences as HTML that runs in the direction of their language."""
    marks = _MIRRORED if lang == "ar" else _MARKS
    said = (f"<div><b>{marks[line.tone]}</b> {escape(line.words)}</div>" for line in lines)
    return directed("".join(said), lang)


def directed(content: str, lang: str) -> str:
    """Return HTML that runs in the direction of its language."""
    direction = "rtl" if lang == "ar" else "ltr"
    return f'<div dir="{direction}" lang="{lang}">{content}</div>'


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
        lines=[*verdict(status), *(Line("bad", warning) for warning in status.warnings)],
        columns=("option", "asked for", "in effect", "default"),
        rows=rows,
        footnote=f"{rest} more options of this PyTorch are not asked for",
    )


@report_of.register
def _(applied: Applied) -> Report:
    lines = []
    for sentence, names in _by_source(applied.in_effect, applied.sources):
        lines.append(Line("good", f"{named(applied.in_effect.only(*names))}: in effect now, {sentence.en}"))
    if applied.at_cuda_start:
        lines.append(Line("wait", f"{named(applied.at_cuda_start)}: from CUDA's start on; {_assignment(applied)}"))
    if applied.needs_restart:
        why = "too late in this process; %alloc_conf --restart restarts the kernel with it"
        lines.append(Line("wait", f"{named(applied.needs_restart)}: {why}"))
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
            option.change.value.en,
            f"{option.summary.en} {option.use.en}",
        )
        for option in known_to(reference.torch)
    ]
    heading = f"The options of PyTorch {version.shown(reference.torch)}; sizes are in MiB"
    return Report(heading, [], ("option", "default", "values", "can change", "what it is for"), rows)


def _values(option: Option, torch: version.Release) -> str:
    if option.kind is Kind.BACKEND:
        return " or ".join(map(str, option.examples))
    allowed = option.range_in(torch).words.en if option.ranges else ""
    return allowed if option.kind is Kind.FRACTION and allowed else f"{option.kind.value}{allowed and ', '}{allowed}"


@report_of.register
def _(verdict: Verdict) -> Report:
    what = f"PyTorch {verdict.torch} with {verdict.text!r}"
    if verdict.message is not None:
        return Report("", [Line("bad", f"{what}: {verdict.outcome}: {verdict.message.strip()}")])
    read = ", ".join(f"{name} {shown(name, value)}" for name, value in verdict.settings.items())
    return Report("", [Line("good", f"{what}: accepted; it reads {read or 'nothing'}")])


@report_of.register
def _(restart: Restart) -> Report:
    return Report("", restart_lines(restart))


@report_of.register
def _(kept: Kept) -> Report:
    return Report("", kept_lines(kept))


def kept_lines(kept: Kept, lang: str = "en") -> list[Line]:
    """Say what every new kernel starts with."""
    if kept.conf is None:
        return [Line("good", words.FORGOTTEN.in_(lang))]
    settings = named(kept.conf) or words.DEFAULTS
    lines = [Line("good", words.KEPT.in_(lang, settings=settings))]
    return [*lines, Line("wait", words.KEPT_ON_COLAB.in_(lang))] if kept.front_end is COLAB else lines


def restart_lines(restart: Restart, lang: str = "en") -> list[Line]:
    """Say what a restart that was prepared will do, and what is left to the person."""
    where, text = restart.front_end, restart.conf.for_torch()
    settings = named(restart.conf) or words.DEFAULTS
    if not restart.carried:
        assignment = f"{status().variable}='{text}'" if text else words.NOTHING_SET
        said = words.CANNOT_RESTART.in_(lang, front_end=where.name, by_hand=where.by_hand, assignment=assignment)
        return [Line("bad", said)]
    if where.restarts:
        said = words.RESTARTING.in_(lang, settings=settings)
        lines = [Line("wait", said), Line("wait", where.notice.in_(lang))]
    else:
        said = words.RESTART_BY_HAND.in_(lang, settings=settings, by_hand=where.by_hand)
        unless = words.UNLESS_CARRIED.in_(lang, line=f"%alloc_conf {text or '--reset'}")
        lines = [Line("wait", said), Line("wait", unless)]
    return lines if restart.before_first_cell else [*lines, Line("bad", words.LOAD_FIRST.in_(lang))]


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


def named(conf: AllocConf) -> str:
    """Return settings as people read them."""
    return ", ".join(f"{name} {shown(name, value)}" for name, value in conf.items())


def _heading(status: Status) -> str:
    return f"{state(status)} · {status.variable} {_environment(status)}"


def state(status: Status, lang: str = "en") -> str:
    """Say which PyTorch there is, and whether CUDA has started."""
    torch = f"PyTorch {status.torch_version}" if status.torch_version else words.NO_PYTORCH.in_(lang)
    started = words.CUDA_HAS_STARTED if status.cuda_initialized else words.CUDA_HAS_NOT_STARTED
    return f"{torch} · {started.in_(lang)}"


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


def verdict(status: Status, lang: str = "en") -> list[Line]:
    """Say of each thing asked for whether it is true now, later, or not at all."""
    if not status.asked_for:
        said = status.environment.get(status.variable)  # what is wrong with it is among the warnings
        return [] if said else [Line("good", words.NOTHING_ASKED.in_(lang))]
    lines = []
    for outcome, (tone, sentence) in words.OUTCOMES.items():
        those = status.asked_for.only(*(name for name in status.asked_for if status.outcome(name) == outcome))
        for source, names in _by_source(those, status.sources) if outcome == "in effect" else [(None, those)]:
            said = sentence.in_(lang, variable=status.variable, source=source or "")
            remedy = _remedy(status, outcome, names)
            if names:
                settings = apart(named(those.only(*names)), lang)
                lines.append(Line(tone, f"{settings}: {said}{remedy}"))
    return lines


def _by_source(conf: AllocConf, sources: Mapping[str, str]) -> Iterator[tuple[Words, list[str]]]:
    """Group options by how it is known that they are in effect, said in words."""
    read_back = [name for name in conf if sources[name] == torch_state.FROM_ALLOCATOR]
    told = [name for name in conf if name not in read_back]
    if read_back:
        yield words.READ_BACK, read_back
    if told:
        yield words.TOLD, told


def _remedy(status: Status, outcome: str, names: Iterable[str]) -> str:
    those = status.asked_for.only(*names)
    if outcome not in {"not in effect", "refused", "misread"} or any(p.severity == "error" for p in those.problems()):
        return ""
    return f"; apply it now with %alloc_conf {those.for_torch()}"


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
