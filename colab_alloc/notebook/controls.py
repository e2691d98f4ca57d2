"""One option's control in a form: a widget that fits the kind of value, and always holds one the option can have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import ipywidgets as widgets

from colab_alloc.conf import divisions, values, version
from colab_alloc.conf.options import UNLIMITED, Kind, Option, Value
from colab_alloc.notebook import words

Lock = AbstractContextManager[bool]

_ROW: Final = "38em"
_LABEL: Final = "17em"
_TABLE: Final = "table"  # the choice "per size"; ipywidgets 7 would show no choice whose value is None
_MOST_SHOWN: Final = 1 << 17  # MiB: stops end at 128 GiB where the GPU's memory is not known
_NUMBERS: Final = (1, 2, 4, 8, 16, 32, 64)
_TO_START_WITH: Final[Value] = ((256, 1), (512, 2), (1024, 4), (divisions.REST, 8))  # PyTorch's own example
_SIZES: Final = tuple(1 << slot for slot in range(16))  # PyTorch has 16 slots: 1 MiB to 32 GiB


class Control:
    """What all controls share.

    Args:
        option: the option it is for.
        on_change: called when the person has changed it.
        lock: held while it is shown and while it is changed, which can be on different threads.

    Attributes:
        widget: what to display.
        unreadable: what the person typed, when that is no value of the option; the control keeps the value before it.
    """

    def __init__(self, option: Option, on_change: Callable[[Option], None], lock: Lock) -> None:
        self.option = option
        self._lock = lock
        self.unreadable: str | None = None
        self.widget: Any = None
        self._inputs: list[Any] = []
        self._on_change = on_change
        self._showing = False

    @property
    def value(self) -> Value:
        """The value it stands at."""
        raise NotImplementedError

    def show(self, value: Value) -> None:
        """Put it at a value, which is no change by the person."""
        with self._lock:
            self._showing = True
            try:
                self.unreadable = None
                self._show(value)
            finally:
                self._showing = False

    def end_at(self, capacity: int | None) -> None:
        """Let its choices end at the memory of the GPU, bytes; None is "unknown"."""

    def enable(self, enabled: bool) -> None:
        """Let the person use it, or not."""
        for widget in self._inputs:
            widget.disabled = not enabled

    def _show(self, value: Value) -> None:
        raise NotImplementedError

    def _listen(self, *inputs: Any) -> None:
        for widget in inputs:
            self._inputs.append(widget)
            widget.observe(self._changed, "value")

    def _changed(self, change: Any) -> None:
        with self._lock:
            if not self._showing:
                self._take(change.owner, change.new)
                self._on_change(self.option)

    def _take(self, source: Any, value: Any) -> None:
        """Make the control agree with what the person did to one part of it, also if another thread was showing it."""
        if source.value != value:
            self.show(value)


class _Simple(Control):
    """A control that is one widget, whose value is the option's."""

    def __init__(self, option: Option, on_change: Callable[[Option], None], lock: Lock, widget: Any) -> None:
        super().__init__(option, on_change, lock)
        self.widget = widget
        self._listen(widget)

    @property
    def value(self) -> Value:
        value: Value = self.widget.value
        return value

    def _show(self, value: Value) -> None:
        if isinstance(self.widget, widgets.Dropdown):
            self.widget.options = _with(self.widget.options, (str(value), value))
        self.widget.value = value


class _Size(Control):
    """A slider over sensible sizes, roughly logarithmic, and a box to type any other."""

    def __init__(
        self, option: Option, on_change: Callable[[Option], None], lock: Lock, torch: version.Release, lang: str
    ) -> None:
        super().__init__(option, on_change, lock)
        self._torch = torch
        self._capacity: int | None = None
        self._words = {UNLIMITED: words.UNLIMITED.in_(lang), 0: words.OFF.in_(lang)}
        self._slider = widgets.SelectionSlider(
            options=self._stops_with(option.default), continuous_update=False, **_described(option.name)
        )
        self._box = widgets.Text(
            placeholder=self._label(option.default),
            continuous_update=False,
            **_beside(words.TYPE_A_SIZE.in_(lang), "11em"),
        )
        self._listen(self._slider, self._box)
        self.widget = widgets.HBox([self._slider, self._box], layout={"flex_flow": "row wrap"})

    def end_at(self, capacity: int | None) -> None:
        if capacity != self._capacity:
            self._capacity = capacity
            self.show(self.value)

    @property
    def value(self) -> Value:
        value: Value = self._slider.value
        return value

    def _label(self, value: Any) -> str:
        return self._words.get(value) or f"{value} MiB"

    def _stops_with(self, value: Value) -> list[tuple[str, Value]]:
        """Return the stops, and between them the value that is to be shown."""
        stops = {*_stops(self.option, self._torch, self._capacity), value}
        ordered = sorted(stops, key=lambda stop: float("inf") if stop is UNLIMITED else stop)
        return [(self._label(stop), stop) for stop in ordered]

    def _show(self, value: Value) -> None:
        self._slider.options = self._stops_with(value)
        self._slider.value = value
        self._box.value = "" if value == self.option.default else str(value)

    def _take(self, source: Any, value: Any) -> None:
        if source is self._slider:
            self.show(value)
            return
        typed = value.strip()
        try:
            self.show(values.typed(self.option, typed) if typed else self.option.default)
        except values.Unreadable:
            self.unreadable = typed


class _Divisions(Control):
    """One number for every size, or a table of sizes with a number each."""

    def __init__(self, option: Option, on_change: Callable[[Option], None], lock: Lock, lang: str) -> None:
        super().__init__(option, on_change, lock)
        self._lang = lang
        self._all = widgets.Dropdown(options=self._numbers(0), **_described(option.name))
        self._table = widgets.VBox([])
        self._rows: list[tuple[Any, Any]] = []
        self._listen(self._all)
        self.widget = widgets.VBox([self._all, self._table])

    @property
    def value(self) -> Value:
        return tuple(self._pairs()) if self._all.value == _TABLE else self._all.value

    def enable(self, enabled: bool) -> None:
        super().enable(enabled)
        for widget in all_of(self._table)[1:]:
            if hasattr(widget, "disabled"):
                widget.disabled = not enabled

    def _numbers(self, value: int) -> list[tuple[str, int | str]]:
        several = sorted({*_NUMBERS[1:], *([value] if value else [])})
        numbers = ((str(number), number) for number in several)
        return [(words.OFF.in_(self._lang), 0), *numbers, (words.PER_SIZE.in_(self._lang), _TABLE)]

    def _pairs(self) -> list[tuple[divisions.SizeKey, int]]:
        """Return the table, each size once, the larger sizes last."""
        pairs = {size.value: number.value for size, number in self._rows}
        return sorted(pairs.items(), key=lambda pair: float("inf") if pair[0] == divisions.REST else pair[0])

    def _next_size(self) -> divisions.SizeKey:
        taken = [size.value for size, _ in self._rows]
        free = [size for size in _SIZES if size >= 256 and size not in taken]  # noqa: PLR2004 - where people begin
        return divisions.REST if divisions.REST not in taken else free[0] if free else _SIZES[0]

    def _show(self, value: Value) -> None:
        per_size = isinstance(value, tuple)
        self._all.options = self._numbers(value if isinstance(value, int) else 0)
        self._all.value = _TABLE if per_size else value
        old = self._table.children
        self._rows = [self._row(size, number) for size, number in value] if isinstance(value, tuple) else []
        rows = [self._displayed(row) for row in self._rows]
        self._table.children = [*rows, self._add_button()] if per_size else []
        for widget in old:
            discard(widget)

    def _add_button(self) -> Any:
        button = widgets.Button(description=words.ADD_SIZE.in_(self._lang))
        button.on_click(lambda _: self._edit([*self._pairs(), (self._next_size(), 2)]))
        return button

    def _row(self, size: divisions.SizeKey, number: int) -> tuple[Any, Any]:
        bounded = ((words.UP_TO.in_(self._lang, size=n), n) for n in _SIZES)
        sizes = [*bounded, (words.LARGER.in_(self._lang), divisions.REST)]
        numbers = [(str(n), n) for n in sorted({0, *_NUMBERS, number})]
        row = (
            widgets.Dropdown(options=sizes, value=size, **_beside(words.SIZE.in_(self._lang), "17em")),
            widgets.Dropdown(options=numbers, value=number, **_beside(words.DIVISIONS.in_(self._lang), "12em")),
        )
        for widget in row:
            widget.observe(self._row_changed, "value")
        return row

    def _displayed(self, row: tuple[Any, Any]) -> Any:
        remove = widgets.Button(description=words.REMOVE_SIZE.in_(self._lang), layout={"width": "auto"})
        remove.on_click(lambda _: self._edit([(s.value, n.value) for s, n in self._rows if s is not row[0]]))
        return widgets.HBox([*row, remove], layout={"margin": "0 0 0 2em", "flex_flow": "row wrap"})

    def _row_changed(self, _change: Any) -> None:
        with self._lock:
            if not self._showing:
                if len(self._pairs()) < len(self._rows):
                    self.show(self.value)  # a size that is there twice becomes one row
                self._on_change(self.option)

    def _edit(self, pairs: list[tuple[divisions.SizeKey, int]]) -> None:
        with self._lock:
            self.show(tuple(pairs) if pairs else 0)
            self._on_change(self.option)

    def _take(self, _source: Any, value: Any) -> None:
        self.show(_TO_START_WITH if value == _TABLE else value)


def control(
    option: Option, on_change: Callable[[Option], None], lock: Lock, torch: version.Release, lang: str
) -> Control:
    """Return a control for an option, at its default.

    Args:
        option: the option.
        on_change: called when the person has changed it.
        lock: held while it is shown and while it is changed.
        torch: the release whose ranges hold.
        lang: "en" or "ar".
    """
    made: Control
    if option.kind is Kind.MIB:
        made = _Size(option, on_change, lock, torch, lang)
    elif option.kind is Kind.DIVISIONS:
        made = _Divisions(option, on_change, lock, lang)
    else:
        made = _Simple(option, on_change, lock, _simple_widget(option))
    made.show(option.default)
    return made


def all_of(widget: Any) -> list[Any]:
    """Return a widget and all widgets in it."""
    return [widget, *(inner for child in getattr(widget, "children", ()) for inner in all_of(child))]


def discard(widget: Any) -> None:
    """Close a widget and all widgets in it, with the models of their looks."""
    for each in all_of(widget):
        for part in (getattr(each, "style", None), each.layout, each):
            if part is not None:
                part.close()


def _simple_widget(option: Option) -> Any:
    if option.kind is Kind.FLAG:
        return widgets.Checkbox(indent=False, **_beside(option.name, "auto"))
    if option.kind is Kind.FRACTION:
        return widgets.FloatSlider(
            min=0, max=1, step=0.01, readout_format=".3f", continuous_update=False, **_described(option.name)
        )
    choices = option.examples if option.kind is Kind.BACKEND else [1 << power for power in range(8)]
    return widgets.Dropdown(options=[(str(choice), choice) for choice in choices], **_described(option.name))


def _described(label: str) -> dict[str, Any]:
    """Return the looks of a row's main widget: labels one below the other."""
    return {"description": label, "style": {"description_width": _LABEL}, "layout": {"width": _ROW}}


def _beside(label: str, width: str) -> dict[str, Any]:
    """Return the looks of a widget beside another."""
    return {"description": label, "style": {"description_width": "initial"}, "layout": {"width": width}}


def _with(options: Sequence[tuple[str, Any]], extra: tuple[str, Any]) -> list[tuple[str, Any]]:
    return [*options] if extra[1] in [value for _, value in options] else [*options, extra]


def _stops(option: Option, torch: version.Release, capacity: int | None) -> list[Value]:
    """Return sizes to stop at: the least PyTorch takes, powers of two and halfway between, up to the GPU's memory."""
    least = int(option.range_in(torch).low or 1)
    most = capacity >> 20 if capacity else _MOST_SHOWN
    powers = [1 << power for power in range(most.bit_length())]
    sizes = {least, *(n for power in powers for n in (power, power * 3 // 2) if least < n < most)}
    return [*sizes, option.default]
