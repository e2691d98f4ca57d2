"""The pictures: the parts over time, and the map of segments. Figures only: no window, no pyplot, no global state.

Words in pictures are English: matplotlib before 3.11 cannot shape Arabic. What is around a picture speaks both.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter

from colab_alloc.memory.history import Mark, Record
from colab_alloc.memory.sample import MemorySample
from colab_alloc.memory.segments import SegmentMap
from colab_alloc.units import GIB, MIB, percent, size


class Look(NamedTuple):
    """How a part is drawn.

    Args:
        colour: one of Okabe and Ito's, which people of every colour vision tell apart.
        hatch: a pattern, for who sees no colour.
    """

    colour: str
    hatch: str = ""


LOOKS: Final = {
    "tensors": Look("#0072B2"),
    "rounding": Look("#56B4E9", "////"),
    "waiting": Look("#F0E442", "...."),
    "split": Look("#D55E00", "xxxx"),
    "cached": Look("#009E73", "\\\\\\\\"),
    "other": Look("#AAAAAA", "||||"),
    "free": Look("#FFFFFF"),
    "allocated": Look("#0072B2"),
}
_STACKED: Final = ("tensors", "rounding", "waiting", "split", "cached")
_INK, _QUIET, _ALARM = "#222222", "#666666", "#B00020"
_STYLE: Final[Any] = {
    "font.size": 9,
    "font.family": "sans-serif",
    "hatch.linewidth": 0.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _QUIET,
    "xtick.color": _QUIET,
    "ytick.color": _QUIET,
}

WIDTH: Final = 9.0  # inches
DPI: Final = 150
_HEIGHT: Final = 4.3  # inches, each GPU
_ZOOM_BELOW: Final = 0.25  # of the card: where less was ever held, the picture shows the lower part of the card only
_MOST_LABELS: Final = 12
_MOST_PATTERNED: Final = 2000  # pieces of a map; patterns and outlines of more would hide them, and take minutes


def png(figure: Figure, dpi: int = DPI) -> bytes:
    """Return a figure as a PNG file."""
    buffer = io.BytesIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def over_time(record: Record, width: float = WIDTH) -> Figure:
    """Draw where the memory was, one row of pictures for each GPU.

    Args:
        record: what was sampled.
        width: inches.

    Raises:
        ValueError: the width is not positive.
    """
    with mpl.rc_context(_STYLE):
        devices = record.devices
        figure = _figure(width, _HEIGHT * max(1, len(devices)))
        if not devices:
            figure.text(0.5, 0.5, "nothing was sampled yet", ha="center", color=_QUIET)
            return figure
        rows = figure.add_gridspec(len(devices), 1, left=0.075, right=0.985, top=0.93, bottom=0.1, hspace=0.32)
        for row, device in enumerate(devices):
            cells = rows[row].subgridspec(2, 2, width_ratios=(3, 1), height_ratios=(3.2, 1), hspace=0.12, wspace=0.06)
            marks = [mark for mark in record.marks if mark.device in {None, device}]
            moments = _Moments(record.samples(device))
            top = figure.add_subplot(cells[0, 0])
            _draw_parts(top, moments, marks)
            _draw_shares(figure.add_subplot(cells[1, 0], sharex=top), moments)
            _draw_numbers(figure.add_subplot(cells[:, 1]), moments.samples[-1])
        return figure


def _figure(width: float, height: float) -> Figure:
    if not width > 0:
        raise ValueError(f"width must be more than 0 inches, not {width:g}")
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    return figure


class _Moments:
    """The samples of one GPU as arrays over time."""

    def __init__(self, samples: Sequence[MemorySample]) -> None:
        self.samples = samples
        self.begin = samples[0].time
        last = samples[-1].time - self.begin
        self.unit, self.seconds = ("min", 60) if last > 600 else ("s", 1)  # noqa: PLR2004 - ten minutes
        self.end = max(last, 1.0) / self.seconds
        self.times = np.array([*(self.place(sample.time) for sample in samples), self.end])
        self.capacity = samples[-1].capacity
        self.per_unit, self.byte_unit = (GIB, "GiB") if self.capacity >= GIB else (MIB, "MiB")

    def place(self, time: float) -> float:
        """Return where a moment is on the axis."""
        return (time - self.begin) / self.seconds

    def of(self, name: str) -> Any:
        """Return the bytes of a part or line, in the axis's unit; what is not reported is nothing to draw."""
        return self._array([(getattr(sample, name) or 0) / self.per_unit for sample in self.samples])

    def share(self, name: str) -> Any:
        """Return a share; not a number where there is none."""
        values = (getattr(sample, name) for sample in self.samples)
        return self._array([np.nan if value is None else value for value in values])

    @staticmethod
    def _array(values: list[float]) -> Any:
        return np.array([*values, values[-1]])  # the last one lasts to the right edge

    def new_peak(self, name: str) -> MemorySample | None:
        """Return the sample by which the allocator's own peak was last raised; None if it is from before."""
        peaks = [getattr(sample, f"peak_{name}") for sample in self.samples]
        highest = max(peaks)
        first = peaks.index(highest)
        began_with_it = first == 0 and getattr(self.samples[0], name) < highest
        return None if began_with_it or not highest else self.samples[first]


def _draw_parts(axes: Any, moments: _Moments, marks: Sequence[Mark]) -> None:
    """Draw the parts stacked, `other` hanging from the top, and the two lines."""
    bottom = np.zeros_like(moments.times)
    for name in _STACKED:
        top = bottom + moments.of(name)
        _fill(axes, moments.times, bottom, top, LOOKS[name])
        bottom = top
    capacity = moments.capacity / moments.per_unit
    ceiling = np.full_like(moments.times, capacity)
    _fill(axes, moments.times, ceiling - moments.of("other"), ceiling, LOOKS["other"])
    axes.step(moments.times, moments.of("reserved"), where="post", color=_INK, lw=1.3, ls="--")
    axes.step(moments.times, moments.of("allocated"), where="post", color=_INK, lw=1.3)
    _limit(axes, moments, capacity)
    for name in ("reserved", "allocated"):
        _draw_peak(axes, moments, name)
    _draw_marks(axes, moments, marks)
    axes.set_ylabel(moments.byte_unit, color=_QUIET)
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.tick_params(labelbottom=False)
    axes.set_axisbelow(False)


def _fill(axes: Any, times: Any, bottom: Any, top: Any, look: Look) -> None:
    if np.any(top > bottom):
        axes.fill_between(
            times, bottom, top, step="post", facecolor=look.colour, hatch=look.hatch, edgecolor=_edge(look), lw=0
        )


def _edge(look: Look) -> str:
    """Return the colour of a pattern's lines."""
    return "#00000066" if look.hatch else "none"


def _limit(axes: Any, moments: _Moments, capacity: float) -> None:
    """Show the whole card, or say that it is only its lower part."""
    peak = max(*moments.of("reserved"), *moments.of("allocated"))
    zoomed = 0 < peak < _ZOOM_BELOW * capacity
    axes.set_xlim(0, moments.end)
    axes.set_ylim(0, peak * 1.3 if zoomed else capacity * 1.01)
    title = f"GPU {moments.samples[-1].device}"
    if zoomed:
        title += f" - enlarged: the card goes up to {size(moments.capacity)}"
    axes.set_title(title, loc="left", fontsize=9.5, color=_INK)
    if not zoomed:
        axes.axhline(capacity, color=_QUIET, lw=0.8)


def _draw_peak(axes: Any, moments: _Moments, name: str) -> None:
    sample = moments.new_peak(name)
    if sample is None:
        return
    peak = getattr(sample, f"peak_{name}")
    at, height = moments.place(sample.time), peak / moments.per_unit
    left = at > moments.end / 2
    axes.plot([at], [height], marker="v" if name == "reserved" else "^", ms=6, color=_INK, mec="white", clip_on=False)
    axes.annotate(
        f"peak {name} {size(peak)}",
        (at, height),
        xytext=(-7 if left else 7, 5 if name == "reserved" else -3),
        textcoords="offset points",
        ha="right" if left else "left",
        va="bottom" if name == "reserved" else "top",
        fontsize=8,
        color=_INK,
        bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.8},
    )


def _draw_marks(axes: Any, moments: _Moments, marks: Sequence[Mark]) -> None:
    """Draw a line at each mark, with words at the newest ones of each kind."""
    for kind, colour, words in (("retry", _QUIET, "retry"), ("label", _INK, None), ("oom", _ALARM, "OUT OF MEMORY")):
        those = [mark for mark in marks if mark.kind == kind]
        named = set(those[-_MOST_LABELS:] if kind == "label" else those[-1:])
        for mark in those:
            at = min(max(moments.place(mark.time), 0), moments.end)
            axes.axvline(at, color=colour, lw=1.6 if kind == "oom" else 0.9, ls="-" if kind == "oom" else ":")
            if mark in named:
                _name(axes, at, mark.text if words is None else words, colour)


def _name(axes: Any, at: float, words: str, colour: str) -> None:
    """Write along a vertical line, within the picture."""
    in_picture = axes.get_xaxis_transform()
    axes.annotate(
        words if len(words) <= 28 else f"{words[:27]}…",  # noqa: PLR2004 - as much as there is room for
        (at, 0.985),
        xycoords=in_picture,
        xytext=(3 if at < axes.get_xlim()[1] * 0.97 else -11, 0),
        textcoords="offset points",
        rotation=90,
        va="top",
        fontsize=7.5,
        color=colour,
        parse_math=False,
        bbox={"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.75},
    )


def _draw_shares(axes: Any, moments: _Moments) -> None:
    """Draw the two shares of what PyTorch holds."""
    for name, colour, style, words in (
        ("unused_share", _INK, "-", "unused"),
        ("fragmentation", LOOKS["split"].colour, "--", "fragmentation"),
    ):
        line = moments.share(name)
        axes.step(moments.times, line, where="post", color=colour, ls=style, lw=1.3, label=words)
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks([0, 0.5, 1])
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel(moments.unit, color=_QUIET, labelpad=1)
    axes.legend(loc="upper left", ncols=2, fontsize=7.5, frameon=True, framealpha=0.8, edgecolor="none", borderpad=0.2)


def _draw_numbers(axes: Any, sample: MemorySample) -> None:
    """Write the numbers now, beside what each part looks like, under the whole card to scale."""
    axes.set_axis_off()
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 17.5)
    axes.text(0, 17.1, f"now, of {size(sample.capacity)}", color=_QUIET, va="center")
    _draw_card(axes, sample, 15.7)
    height = 14.9
    for name, value in reversed(sample.parts.items()):
        _swatch(axes, height, LOOKS[name])
        _number(axes, height, name, value)
        height -= 1.12
    for name, style in (("reserved", "--"), ("allocated", "-")):
        axes.plot([0, 0.09], [height, height], color=_INK, lw=1.3, ls=style)
        _number(axes, height, name, getattr(sample, name))
        height -= 1.12
    for name in ("peak_reserved", "peak_allocated"):
        _number(axes, height, name.replace("_", " "), getattr(sample, name))
        height -= 1.12
    for words, share in (("unused", sample.unused_share), ("fragmentation", sample.fragmentation)):
        _write(axes, height, words, "-" if share is None else percent(share))
        height -= 1.12
    events = [f"{name} {count}" for name, count in (("retries", sample.retries), ("ooms", sample.ooms)) if count]
    axes.text(0.12, height, " · ".join(events), color=_ALARM, va="center")


def _draw_card(axes: Any, sample: MemorySample, height: float) -> None:
    left = 0.0
    for name, value in sample.parts.items():
        look, width = LOOKS[name], (value or 0) / sample.capacity
        if name == "other":  # hangs from the card's end, as it does above
            left = 1 - width
        if name != "free":
            axes.add_patch(
                Rectangle((left, height), width, 0.75, fc=look.colour, hatch=look.hatch, ec=_edge(look), lw=0)
            )
        left += width
    axes.add_patch(Rectangle((0, height), 1, 0.75, fc="none", ec=_QUIET, lw=0.8))


def _swatch(axes: Any, height: float, look: Look) -> None:
    axes.add_patch(Rectangle((0, height - 0.35), 0.09, 0.7, fc=look.colour, hatch=look.hatch, ec=_edge(look), lw=0))
    axes.add_patch(Rectangle((0, height - 0.35), 0.09, 0.7, fc="none", ec=_QUIET, lw=0.6))


def _number(axes: Any, height: float, words: str, value: int | None) -> None:
    _write(axes, height, words, "not reported" if value is None else size(value))


def _write(axes: Any, height: float, words: str, value: str) -> None:
    axes.text(0.12, height, words, color=_INK, va="center")
    axes.text(1, height, value, color=_INK, va="center", ha="right")


def segments(found: SegmentMap, rows: int, width: float = WIDTH) -> Figure:
    """Draw each segment as a row to scale, each block as a piece of it, the most stuck ones at the top.

    Args:
        found: what to draw.
        rows: how many segments to draw.
        width: inches.

    Raises:
        ValueError: the width is not positive, or there would be no row.
    """
    if rows < 1:
        raise ValueError(f"rows must be 1 or more, not {rows}")
    with mpl.rc_context(_STYLE):
        shown = found.segments[:rows]
        figure = _figure(width, 1.3 + 0.26 * max(1, len(shown)))
        axes = figure.add_subplot()
        longest = max((segment.size for segment in shown), default=MIB)
        unit, name = (GIB, "GiB") if longest >= GIB else (MIB, "MiB")
        patterned = sum(len(segment.pieces) for segment in shown) <= _MOST_PATTERNED
        for state in ("allocated", "waiting", "split", "cached"):
            boxes = [
                _box(row, piece.offset / unit, piece.size / unit)
                for row, segment in enumerate(shown)
                for piece in segment.pieces
                if piece.state == state
            ]
            look = LOOKS[state]
            _add_boxes(axes, boxes, look, patterned=patterned)
            label = f"{state} {size(found.total(state))}"
            axes.add_patch(Rectangle((0, 0), 0, 0, fc=look.colour, hatch=look.hatch, ec=_edge(look), lw=0, label=label))
        axes.set_xlim(0, longest / unit)
        axes.set_ylim(max(1, len(shown)) - 0.4, -0.6)
        axes.set_yticks(range(len(shown)), [_row_name(segment) for segment in shown], fontsize=7.5)
        axes.set_xlabel(_left_out(found, rows, name), color=_QUIET)
        axes.set_title(_map_title(found), loc="left", fontsize=9.5, color=_INK, pad=24)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4, fontsize=8, frameon=False, borderaxespad=0.2)
        figure.tight_layout()
        return figure


def _box(row: int, left: float, width: float) -> list[tuple[float, float]]:
    low, high, right = row - 0.4, row + 0.4, left + width
    return [(left, low), (left, high), (right, high), (right, low)]


def _add_boxes(axes: Any, boxes: Iterable[Any], look: Look, *, patterned: bool) -> None:
    axes.add_collection(
        PolyCollection(
            list(boxes),
            facecolors=look.colour,
            hatch=look.hatch if patterned else "",
            edgecolors="#00000066" if patterned else "none",
            linewidths=0.4 if patterned else 0,
        )
    )


def _row_name(segment: Any) -> str:
    stream = f" stream {segment.stream:x}" if segment.stream else ""
    return f"{segment.kind}{stream} {size(segment.size)}"


def _map_title(found: SegmentMap) -> str:
    blocks = sum(len(segment.pieces) for segment in found.segments)
    title = f"GPU {found.device}: {len(found.segments):,} segments, {blocks:,} blocks, {size(found.reserved)}"
    scattered = found.scattered
    return title if scattered is None else f"{title} - free memory scattered {percent(scattered)}"


def _left_out(found: SegmentMap, rows: int, unit: str) -> str:
    rest = found.segments[rows:]
    held = size(sum(segment.size for segment in rest))
    return f"{unit} - {len(rest):,} more segments with {held} are not drawn" if rest else unit
