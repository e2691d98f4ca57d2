"""The panel: a configuration built from controls, applied, kept, and carried over a restart.

Data flows one way: what the person does changes the draft or the process; then everything shown is made anew from the
two (`_show`). The process is asked again after every cell, so that panels and magics stay in step.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from html import escape
from typing import Any, Final

import ipywidgets as widgets

from colab_alloc.conf import objections, version
from colab_alloc.conf.conf import AllocConf
from colab_alloc.conf.options import OPTIONS, Kind, Option, Value, known_to
from colab_alloc.conf.presets import DOCUMENTATION, PRESETS
from colab_alloc.conf.problem import AllocConfError, Problem
from colab_alloc.conf.values import same
from colab_alloc.conf.version import shown
from colab_alloc.language import LANGUAGES, Words
from colab_alloc.notebook import report, words
from colab_alloc.notebook.cells import CELLS
from colab_alloc.notebook.controls import Control, control, discard
from colab_alloc.notebook.offer import RestartButton
from colab_alloc.notebook.report import Line
from colab_alloc.runtime import apply as changing
from colab_alloc.runtime import card, restart, torch_state, troubles
from colab_alloc.runtime.status import status

Draft = dict[str, Value]

_open: Final[weakref.WeakSet[Panel]] = weakref.WeakSet()

# Colours are the notebook's own; where it has none of that name, those that are legible on light and dark.
_STYLE: Final = """<style>
.colab-alloc-panel { max-width: 62em; padding: .6em .9em; border: 1px solid rgba(128,128,128,.45); border-radius: 6px; }
.colab-alloc-panel, .colab-alloc-panel .widget-html-content, .colab-alloc-panel .widget-label,
.colab-alloc-panel .widget-readout { color: var(--jp-ui-font-color1, var(--colab-primary-text-color, inherit)); }
.colab-alloc-panel .widget-html, .colab-alloc-panel .widget-html-content { height: auto; line-height: 1.5; }
.colab-alloc-panel .widget-label { overflow: visible; text-align: left; }
.colab-alloc-panel .widget-html { align-self: stretch; }
.colab-alloc-ar .widget-label { text-align: right; margin: 0 0 0 8px; }
.colab-alloc-ar .widget-inline-hbox, .colab-alloc-ar .widget-hbox { flex-direction: row-reverse !important; }
.colab-alloc-ar .jp-Collapse-header, .colab-alloc-ar .p-Collapse-header { direction: rtl; }
.colab-alloc-row { border-top: 1px solid rgba(128,128,128,.25); padding: .35em 0; overflow: visible; }
.colab-alloc-quiet { opacity: .78; }
.colab-alloc-panel a { color: var(--jp-content-link-color, #4285f4); text-decoration: underline; }
.colab-alloc-note { font-weight: 600; }
.colab-alloc-code { display: flex; align-items: start; gap: .5em; margin: .15em 0; direction: ltr; }
.colab-alloc-code textarea { flex: 1; resize: none; font: .92em/1.5 var(--jp-code-font-family, monospace);
  color: inherit; background: rgba(128,128,128,.12); border: 1px solid rgba(128,128,128,.45); border-radius: 3px;
  padding: .2em .4em; }
.colab-alloc-code button { color: inherit; background: rgba(128,128,128,.18); border: 1px solid rgba(128,128,128,.45);
  border-radius: 3px; padding: .1em .8em; cursor: pointer; }
.colab-alloc-panel :focus-visible { outline: 2px solid #2f7de1; outline-offset: 1px; }
</style>"""
_CODE_WIDTH: Final = 84  # characters that fit in a line
_NO_PRESET: Final = ""  # ipywidgets 7 shows no choice whose value is None
# execCommand also works where the page is not served over https, and within Colab's frames.
_COPY: Final = "this.previousElementSibling.select();document.execCommand('copy');this.textContent=this.dataset.copied"


class Panel:
    """The form for PyTorch's allocator variable.

    Args:
        lang: "en" or "ar".

    Attributes:
        widget: what to display.
    """

    def __init__(self, lang: str = "en") -> None:
        if lang not in LANGUAGES:
            raise ValueError(f"lang must be one of {', '.join(LANGUAGES)}, not {lang!r}")
        self.lang = lang
        self.cell = _running_cell()
        self._lock = threading.RLock()
        self._draft: dict[str, Value] = {}
        self._clicked = False
        self._said: list[Line] = []
        self._controls: dict[str, Control] = {}
        self._notes: dict[str, Any] = {}
        self._now, self._keeps = status(), restart.place().keeps()
        self._make()
        self._show()
        _open.add(self)
        CELLS.after_each(refresh_all)

    def close(self) -> None:
        """Take the panel off the page, and everything it left in the kernel."""
        if self not in _open:
            return
        _open.discard(self)
        discard(self.widget)
        if not _open:
            CELLS.no_longer_after_each(refresh_all)

    def end(self, lines: list[Line]) -> None:
        """Leave only these sentences on the page: the kernel, and all that could answer, is going."""
        again = Line("wait", self._say(words.RUN_AGAIN))
        self._message.value = report.html_lines([*lines, again], self.lang)
        gone = [child for child in self.widget.children if child not in (self._style, self._message)]
        self.widget.children = [self._style, self._message]
        for child in gone:
            discard(child)
        _open.discard(self)

    def _disconnected(self, change: Any) -> None:
        if change.new is None:
            self.close()

    def refresh(self) -> None:
        """Show the process as it is now."""
        with self._lock:
            before, self._now, self._keeps = (self._now, self._keeps), status(), restart.place().keeps()
            if before != (self._now, self._keeps):
                self._show()

    # What is on the page

    def _make(self) -> None:
        say = self._say
        self._style = widgets.HTML(_STYLE + self._html(f"<b>{escape(say(words.TITLE))}</b>"))
        self._banner, self._line, self._message = (widgets.HTML() for _ in range(3))
        known = known_to(self._now.torch_release)
        common = [self._row(option) for option in known if option.common]
        rare = [self._row(option) for option in known if not option.common]
        unknown = [option for option in OPTIONS.values() if option not in known]
        folded = widgets.Accordion([widgets.VBox(rare), widgets.HTML(self._html(_unknown_options(unknown, self.lang)))])
        folded.set_title(0, say(words.MORE_OPTIONS, count=len(rare)))
        folded.set_title(1, say(words.NOT_IN_THIS_PYTORCH, count=len(unknown)))
        folded.selected_index = None
        self.widget = widgets.VBox(
            [
                self._style,
                self._banner,
                self._presets(),
                *common,
                folded,
                self._line,
                self._message,
                self._buttons(),
                widgets.HTML(
                    self._html(f'<span class="colab-alloc-quiet">{escape(say(words.WHILE_A_CELL_RUNS))}</span>')
                ),
            ]
        )
        self.widget.add_class("colab-alloc-panel")
        self.widget.add_class(f"colab-alloc-{self.lang}")
        self.widget.observe(self._disconnected, "comm")

    def _presets(self) -> Any:
        presets = [preset for preset in PRESETS if preset.known_to(self._now.torch_release)]
        self._preset = widgets.Dropdown(
            options=[
                (self._say(words.NO_PRESET), _NO_PRESET),
                *((self._say(preset.name), preset) for preset in presets),
            ],
            description=self._say(words.PRESET),
            style={"description_width": "initial"},
            layout={"width": "32em"},
        )
        self._preset_about = widgets.HTML()
        self._preset.observe(self._preset_chosen, "value")
        return widgets.VBox([self._preset, self._preset_about], layout=self._aligned())

    def _row(self, option: Option) -> Any:
        made = control(option, self._changed, self._lock, self._now.torch_release, self.lang)
        note = widgets.HTML()
        link = f'<a href="{DOCUMENTATION}" target="_blank" rel="noopener">{escape(self._say(words.DOCUMENTATION))}</a>'
        off = self._say(words.ZERO_IS_OFF) if option.kind is Kind.FRACTION and not option.default else ""
        about = f'<span class="colab-alloc-quiet">{escape(self._say(option.summary))} {escape(off)} {link}</span>'
        self._controls[option.name], self._notes[option.name] = made, note
        row = widgets.VBox([made.widget, widgets.HTML(self._html(about)), note], layout=self._aligned())
        row.add_class("colab-alloc-row")
        return row

    def _buttons(self) -> Any:
        self._apply_button = self._button(words.APPLY, self._apply, "primary")
        self._reset_button = self._button(words.RESET, self._reset)
        self._restart_button = RestartButton(self.lang, self._tell, lambda: self._between_cells(self._restart))
        self._keep_button = self._button(words.KEEP, self._keep)
        self._forget_button = self._button(words.FORGET, self._forget)
        close = widgets.Button(description=self._say(words.CLOSE), layout={"width": "auto"})
        close.on_click(lambda _: self.close())
        buttons = [
            self._apply_button,
            self._reset_button,
            self._restart_button.widget,
            self._keep_button,
            self._forget_button,
            close,
        ]
        return widgets.HBox(buttons, layout={"flex_flow": "row wrap"})

    def _button(self, name: Words, work: Callable[[Draft], None], style: str = "") -> Any:
        button = widgets.Button(description=self._say(name), button_style=style, layout={"width": "auto"})
        button.on_click(lambda _: self._between_cells(work))
        return button

    def _aligned(self) -> dict[str, str]:
        """Begin at the side where the language begins; sliders and configuration texts run left to right in each."""
        return {"align_items": "flex-end" if self.lang == "ar" else "flex-start"}

    def _say(self, said: Words, **gaps: object) -> str:
        return said.in_(self.lang, **gaps)

    def _html(self, content: str) -> str:
        return report.directed(content, self.lang)

    # What the person does

    def _changed(self, option: Option) -> None:
        with self._lock:
            self._draft[option.name] = self._controls[option.name].value
            self._preset.value = _NO_PRESET
            self._drafted()

    def _drafted(self) -> None:
        """Show a draft that was changed, without what is no change."""
        asked_for = self._now.asked_for
        self._draft = {
            name: value
            for name, value in self._draft.items()
            if not same(name, value, asked_for.get(name, OPTIONS[name].default), self._now.torch_release)
        }
        self._restart_button.calm()
        if not self._clicked:
            self._said = []
        self._show()

    def _preset_chosen(self, change: Any) -> None:
        preset = change.new
        with self._lock:
            if preset == _NO_PRESET:
                self._preset_about.value = ""
                return
            source = f'<span class="colab-alloc-quiet" dir="ltr">({escape(preset.source)})</span>'
            self._preset_about.value = self._html(f"{escape(self._say(preset.purpose))} {source}")
            self._draft = {name: OPTIONS[name].default for name in self._now.asked_for} | dict(preset.conf)
            for made in self._controls.values():
                if made.unreadable:
                    made.show(made.value)
            self._drafted()

    def _tell(self, lines: list[Line]) -> None:
        with self._lock:
            self._said = lines
            self._show()

    def _between_cells(self, work: Callable[[Draft], None]) -> None:
        """Do what a click asks for, with the draft as it is at the click, when no cell runs."""
        with self._lock:
            draft = dict(self._draft)
            self._clicked = True
            if not CELLS.between(lambda: self._do(work, draft)):
                self._tell([Line("wait", self._say(words.WAITS))])

    def _do(self, work: Callable[[Draft], None], draft: Draft) -> None:
        with self._lock:
            self._said, self._clicked = [], False
            self._restart_button.calm()
            try:
                work(draft)
            except (AllocConfError, restart.RestartError) as error:
                self._said = [Line("bad", self._say(words.REFUSED, error=str(error)))]
            if self in _open:
                self._now, self._keeps = status(), restart.place().keeps()
                self._show()
        refresh_all()

    def _apply(self, draft: Draft) -> None:
        if draft:
            changing.apply(AllocConf(draft))
        self._draft = {name: value for name, value in self._draft.items() if draft.get(name) != value}
        self._preset.value = _NO_PRESET

    def _reset(self, _draft: Draft) -> None:
        changing.reset()
        self._draft = {}
        self._preset.value = _NO_PRESET
        for made in self._controls.values():
            made.show(made.option.default)

    def _restart(self, draft: Draft) -> None:
        prepared = restart.prepare(AllocConf(draft))  # fails before anything is changed
        self._apply(draft)
        self._said = report.restart_lines(prepared, self.lang)
        if prepared.front_end.restarts:
            for each in list(_open):
                each.end(self._said)
            restart.shut_down()

    def _keep(self, draft: Draft) -> None:
        self._said = report.kept_lines(restart.keep(AllocConf(draft)), self.lang)

    def _forget(self, _draft: Draft) -> None:
        self._said = report.kept_lines(restart.forget(), self.lang)

    # What is shown of the draft and the process

    def _show(self) -> None:
        wanted = self._now.asked_for | self._draft
        capacity = torch_state.capacity()
        problems = wanted.problems(capacity=capacity, limited=torch_state.memory_is_limited(), lang=self.lang)
        for name, made in self._controls.items():
            made.end_at(capacity or card.memory())
            value = wanted.get(name, OPTIONS[name].default)
            if made.value != value:
                made.show(value)
            idle = self._idle(name, wanted)
            made.enable(idle is None or name in wanted)
            self._notes[name].value = self._note(name, idle, problems)
        self._banner.value = self._html(self._banner_html())
        self._line.value = self._html(self._line_html(wanted))
        self._message.value = report.html_lines(self._said, self.lang)
        self._show_buttons()

    def _show_buttons(self) -> None:
        wrong = any(made.unreadable for made in self._controls.values()) or self._would_be_refused()
        late = any(self._late(name) for name in self._draft)
        waits = any(self._now.outcome(name) == "needs a restart" for name in self._now.asked_for)
        self._apply_button.disabled = wrong or not self._draft
        self._restart_button.widget.disabled = wrong or not (late or waits)
        self._keep_button.disabled = wrong
        self._forget_button.disabled = not self._keeps

    def _would_be_refused(self) -> bool:
        try:
            changing.merged(AllocConf(self._draft), self._now.asked_for)
        except AllocConfError:
            return True
        return False

    def _idle(self, name: str, wanted: AllocConf) -> str | None:
        """Say why an option does nothing whatever its value, given the others; None when it does something."""
        needed = OPTIONS[name].needs
        if name != "backend" and wanted.get("backend") == "cudaMallocAsync":
            return self._say(objections.IGNORED_BY_BACK_END, name=name)
        if needed and same(needed, wanted.get(needed, OPTIONS[needed].default), OPTIONS[needed].default):
            return self._say(objections.IDLE_ALONE, name=name, needed=needed)
        return None

    def _note(self, name: str, idle: str | None, problems: list[Problem]) -> str:
        lines = []
        unreadable = self._controls[name].unreadable
        if unreadable:
            lines.append(Line("bad", self._say(words.NOT_A_SIZE, name=name, text=unreadable)))
        if name in self._draft:
            lines.append(Line("wait", self._say(words.CHANGED_NEEDS_RESTART if self._late(name) else words.CHANGED)))
        if idle:
            lines.append(Line("bad", idle))
        else:
            lines += [
                Line("bad", problem.message)
                for problem in problems
                if problem.option == name and problem.severity != "repair"
            ]
        return f'<div class="colab-alloc-note">{report.html_lines(lines, self.lang)}</div>' if lines else ""

    def _late(self, name: str) -> bool:
        return name in changing.too_late(
            AllocConf({name: self._draft[name]}), self._now.asked_for | self._draft, self._now
        )

    def _banner_html(self) -> str:
        warnings = troubles.all_of(version.installed(), self._now.variable)
        lines = [*report.verdict(self._now, self.lang), *(Line("bad", self._say(warning)) for warning in warnings)]
        if self._draft:
            settings = report.named(AllocConf(self._draft))
            lines.append(Line("wait", self._say(words.NOT_APPLIED, settings=settings)))
        state = escape(report.state(self._now, self.lang))
        return f'<div class="colab-alloc-quiet">{state}</div>' + report.html_lines(lines, self.lang)

    def _line_html(self, wanted: AllocConf) -> str:
        text, variable = wanted.for_torch(), self._now.variable
        about = f"<b>{escape(self._say(words.THE_LINE))}</b>"
        if not text:
            return f'{about} <code dir="ltr">{variable}</code> {escape(self._say(words.NOT_SET))}'
        return about + "".join(
            (f"<div>{escape(self._say(title))}</div>" if title is not words.THE_LINE else "")
            + self._copyable(self._say(title), code)
            for title, code in (
                (words.THE_LINE, f"{variable}={text}"),
                (words.FOR_A_SCRIPT, f'import os; os.environ["{variable}"] = "{text}"'),
                (words.FOR_A_SHELL, f"export {variable}='{text}'"),
            )
        )

    def _copyable(self, title: str, code: str) -> str:
        copied, copy = escape(self._say(words.COPIED)), escape(self._say(words.COPY))
        return (
            f'<div class="colab-alloc-code"><textarea readonly rows="{-(-len(code) // _CODE_WIDTH)}" '
            f'aria-label="{escape(title)}">{escape(code)}</textarea><button type="button" '
            f'aria-label="{copy}: {escape(title)}" data-copied="{copied}" onclick="{_COPY}">{copy}</button></div>'
        )


def _unknown_options(options: list[Option], lang: str) -> str:
    said = []
    for option in options:
        when, release = (words.WENT, option.until) if option.until else (words.CAME, option.since)
        said.append(f"<div><code>{option.name}</code> {escape(when.in_(lang, release=shown(release)))}</div>")
    return "".join(said)


def panel(lang: str = "en") -> Any:
    """Return a new panel, to display.

    Args:
        lang: "en" or "ar".

    Raises:
        ValueError: there are no words in that language.
        RuntimeError: this is no notebook.
    """
    if not hasattr(restart.shell(), "kernel"):
        raise RuntimeError("the panel needs a notebook; elsewhere use %alloc_conf, or colab_alloc.apply()")
    cell = _running_cell()
    for each in list(_open):
        if cell is not None and each.cell == cell:
            each.close()  # this cell was run before: the page shows the new panel in place of that one
    return Panel(lang).widget


def _running_cell() -> str | None:
    """Return what the front end calls the cell that runs; None where it does not say."""
    try:
        cell = restart.shell().get_parent()["metadata"]["cellId"]
    except (AttributeError, LookupError):
        return None
    return str(cell)


def refresh_all() -> None:
    """Show the process as it is now in every open panel."""
    for each in list(_open):
        each.refresh()


def close_all() -> None:
    """Close every open panel."""
    for each in list(_open):
        each.close()
