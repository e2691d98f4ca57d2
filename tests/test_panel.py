"""The panel without a browser: what its controls do to the process, and what it says. tests/browser has the clicks."""

from __future__ import annotations

import itertools
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import ipywidgets as widgets
import pytest

import colab_alloc
from colab_alloc import UNLIMITED, AllocConf, apply, reset, status
from colab_alloc.conf.options import OPTIONS, Kind, Value, known_to
from colab_alloc.conf.presets import PRESETS
from colab_alloc.conf.version import TorchBuild
from colab_alloc.language import LANGUAGES
from colab_alloc.notebook import controls, panel, words
from colab_alloc.notebook.cells import CELLS
from colab_alloc.notebook.controls import control
from colab_alloc.notebook.panel import Panel
from colab_alloc.runtime import card, restart, torch_state
from tests import fake_shell, fake_torch

CUDA = TorchBuild("2.14.1+cu130", cuda="13.0")
VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[fake_shell.FakeShell]:
    fake_torch.install(monkeypatch, CUDA)
    monkeypatch.setattr(card, "memory", lambda: None)
    yield fake_shell.install(monkeypatch, tmp_path)
    panel.close_all()
    CELLS.forget()
    fake_torch.forget(monkeypatch)


@pytest.fixture
def form(shell: fake_shell.FakeShell) -> Panel:
    assert shell
    return Panel()


def inside(widget: Any) -> list[Any]:
    return controls.all_of(widget)


def text(widget: Any) -> str:
    """All words in HTML widgets, tags taken out."""

    class Words(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.found: list[str] = []

        def handle_data(self, data: str) -> None:
            self.found.append(data)

    reader = Words()
    for each in inside(widget):
        if isinstance(each, widgets.HTML):
            reader.feed(each.value.partition("</style>")[2] if "</style>" in each.value else each.value)
    return re.sub("[\u2066-\u2069]", "", " ".join(" ".join(reader.found).split()))


def button(form: Panel, name: str) -> Any:
    return next(w for w in inside(form.widget) if isinstance(w, widgets.Button) and w.description == name)


def choose(form: Panel, name: str, value: Value) -> None:
    """Do what a person does: change the main widget of a row."""
    form._controls[name]._inputs[0].value = value


def line(form: Panel) -> str:
    found = re.search(r"<textarea[^>]*>([^<]*)</textarea>", form._line.value)
    return found[1] if found else ""


@pytest.mark.parametrize("torch", ["1.13.1", "2.0.1", "2.9.1", "2.11.0", "2.14.1"])
def test_there_is_a_row_for_each_option_of_this_pytorch(
    shell: fake_shell.FakeShell, monkeypatch: pytest.MonkeyPatch, torch: str
) -> None:
    assert shell
    fake_torch.install(monkeypatch, TorchBuild(torch, cuda="12.8"))
    form = Panel()
    known = {option.name for option in known_to(status().torch_release)}
    assert set(form._controls) == known
    for name in set(OPTIONS) - known:
        assert f"{name} {'was last in' if OPTIONS[name].until else 'came with'} PyTorch" in text(form.widget)


def test_a_choice_is_shown_as_the_exact_line_and_applied_by_a_click(form: Panel) -> None:
    assert "PYTORCH_CUDA_ALLOC_CONF is not set: PyTorch's defaults" in text(form.widget)
    assert button(form, "Apply").disabled
    choose(form, "max_split_size_mb", 128)
    choose(form, "expandable_segments", True)
    assert line(form) == f"{VARIABLE}=max_split_size_mb:128,expandable_segments:True"
    assert "Not applied yet: max_split_size_mb 128 MiB, expandable_segments True" in text(form.widget)
    assert f'os.environ["{VARIABLE}"]' in form._line.value.replace("&quot;", '"')
    assert VARIABLE not in os.environ
    button(form, "Apply").click()
    assert os.environ[VARIABLE] == "max_split_size_mb:128,expandable_segments:True"
    assert "max_split_size_mb 128 MiB, expandable_segments True: will be read when CUDA starts" in text(form.widget)
    assert button(form, "Apply").disabled
    choose(form, "max_split_size_mb", UNLIMITED)
    button(form, "Apply").click()
    assert os.environ[VARIABLE] == "expandable_segments:True"


def test_two_options_against_each_other_are_told_under_their_row(form: Panel) -> None:
    choose(form, "max_split_size_mb", 128)
    choose(form, "expandable_segments", True)
    assert "works against expandable_segments" in form._notes["max_split_size_mb"].value


@pytest.mark.parametrize(
    ("typed", "value"),
    [("300", 300), ("1GiB", 1024), ("١٢٨", 128), (" 64 ", 64), ("", UNLIMITED), ("unlimited", UNLIMITED)],
)
def test_any_size_can_be_typed(form: Panel, typed: str, value: Value) -> None:
    choose(form, "max_split_size_mb", 256)
    slider, box = form._controls["max_split_size_mb"]._inputs
    box.value = typed
    assert form._draft.get("max_split_size_mb", UNLIMITED) == slider.value == value


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("10", "max_split_size_mb must be 20 or more in PyTorch 2.14, not 10"),
        ("128.7", "takes a whole number of MiB, such as 128, not 128.7"),
        ("<b>", "takes a whole number of MiB, such as 128, not <b>"),
        ("-5", "takes a whole number of MiB"),
    ],
)
def test_what_pytorch_would_refuse_says_why_and_cannot_be_applied(form: Panel, typed: str, why: str) -> None:
    form._controls["max_split_size_mb"]._inputs[1].value = typed
    assert why in text(form._notes["max_split_size_mb"])
    assert "<b>" not in form._notes["max_split_size_mb"].value.replace("<b>!</b>", "").replace("<b>→</b>", "")
    for name in ("Apply", "Keep for every new kernel", "Restart and apply"):
        assert button(form, name).disabled
    form._controls["max_split_size_mb"]._inputs[1].value = "128"
    assert not button(form, "Apply").disabled


def test_the_threshold_that_ends_at_one_is_refused_at_one(form: Panel) -> None:
    choose(form, "garbage_collection_threshold", 1.0)
    assert "must be between 0 and 1, ends excluded" in text(form._notes["garbage_collection_threshold"])
    assert button(form, "Apply").disabled


def test_rows_without_effect_are_greyed_with_the_reason(form: Panel) -> None:
    note = form._notes["max_non_split_rounding_mb"]
    assert "max_non_split_rounding_mb does nothing without max_split_size_mb" in text(note)
    assert form._controls["max_non_split_rounding_mb"]._inputs[0].disabled
    choose(form, "max_split_size_mb", 128)
    assert text(note) == ""
    assert not form._controls["max_non_split_rounding_mb"]._inputs[0].disabled
    choose(form, "backend", "cudaMallocAsync")
    for name in form._controls:
        greyed = all(widget.disabled for widget in form._controls[name]._inputs)
        assert greyed == (name not in {"backend", "max_split_size_mb"})  # what was chosen can be taken back
        assert (f"backend:cudaMallocAsync ignores {name}" in text(form._notes[name])) == (name != "backend")


def test_divisions_per_size(form: Panel) -> None:
    table = form._controls["roundup_power2_divisions"]
    choose(form, "roundup_power2_divisions", "table")  # type: ignore[arg-type]
    assert table.value == ((256, 1), (512, 2), (1024, 4), (">", 8))
    rows: Any = table
    size, number = rows._rows[1]
    number.value = 16
    size.value = 128
    assert form._draft["roundup_power2_divisions"] == ((128, 16), (256, 1), (1024, 4), (">", 8))
    first_row = rows._table.children[0]
    first_row.children[-1].click()  # Remove
    assert form._draft["roundup_power2_divisions"] == ((128, 16), (1024, 4), (">", 8))
    rows._table.children[-1].click()
    assert form._draft["roundup_power2_divisions"] == ((128, 16), (256, 2), (1024, 4), (">", 8))
    choose(form, "roundup_power2_divisions", 8)
    assert line(form) == f"{VARIABLE}=roundup_power2_divisions:8"


def test_every_control_shows_every_sensible_value(shell: fake_shell.FakeShell) -> None:
    assert shell
    for option in OPTIONS.values():
        torch = option.until or (2, 14)
        made = control(option, lambda _: pytest.fail("nobody changed it"), threading.RLock(), torch, "en")
        for value in (option.default, *option.examples, *([12345] if option.kind is Kind.MIB else [])):
            made.show(value)
            assert made.value == value, option.name
        assert option.name in [widget.description for widget in inside(made.widget) if hasattr(widget, "description")]


def test_every_control_has_a_label(form: Panel) -> None:
    for widget in inside(form.widget):
        if isinstance(widget, (widgets.ValueWidget, widgets.Button)) and not isinstance(widget, widgets.HTML):
            assert widget.description, widget


def test_panels_and_the_magic_stay_in_step(form: Panel, shell: fake_shell.FakeShell) -> None:
    other = Panel()
    choose(form, "max_split_size_mb", 128)
    button(form, "Apply").click()
    assert other._controls["max_split_size_mb"].value == 128
    apply(AllocConf(expandable_segments=True))  # in a cell
    shell.events.a_cell_ends()
    for each in (form, other):
        assert each._controls["expandable_segments"].value is True
    choose(other, "max_split_size_mb", 64)
    reset()
    shell.events.a_cell_ends()
    assert form._controls["max_split_size_mb"].value is UNLIMITED
    assert other._controls["max_split_size_mb"].value == 64  # what is not applied yet stays


def test_there_and_back_is_no_change(form: Panel) -> None:
    choose(form, "max_split_size_mb", 128)
    choose(form, "max_split_size_mb", UNLIMITED)
    assert "Not applied yet" not in text(form.widget)
    assert button(form, "Apply").disabled


def test_a_choice_that_makes_another_wrong_cannot_be_applied(form: Panel) -> None:
    apply(AllocConf(max_split_size_mb=32))
    form.refresh()
    form._controls["large_segment_size_mb"]._inputs[1].value = "64"
    assert "max_split_size_mb must not be below large_segment_size_mb (64), but is 32" in text(form.widget)
    assert button(form, "Apply").disabled


def test_a_size_that_is_there_twice_becomes_one_row(form: Panel) -> None:
    choose(form, "roundup_power2_divisions", "table")  # type: ignore[arg-type]
    rows: Any = form._controls["roundup_power2_divisions"]
    rows._rows[1][0].value = 256
    assert form._draft["roundup_power2_divisions"] == ((256, 2), (1024, 4), (">", 8))
    assert len(rows._rows) == 3


def test_reset(form: Panel) -> None:
    choose(form, "max_split_size_mb", 128)
    button(form, "Apply").click()
    form._controls["max_split_size_mb"]._inputs[1].value = "nonsense"
    button(form, "Reset").click()
    assert "nonsense" not in text(form.widget)
    assert form._controls["max_split_size_mb"]._inputs[1].value == ""
    assert VARIABLE not in os.environ
    assert form._controls["max_split_size_mb"].value is UNLIMITED
    assert "Nothing is asked for" in text(form.widget)


def test_restart_asks_once_and_applies(
    form: Panel, shell: fake_shell.FakeShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert button(form, "Restart and apply").disabled
    fake_torch.start(monkeypatch, CUDA)  # `import torch` settles the back end
    shell.events.a_cell_ends()
    choose(form, "backend", "cudaMallocAsync")
    assert "changed, not applied yet; needs a kernel restart" in text(form._notes["backend"])
    button(form, "Restart and apply").click()
    assert shell.kernel.restarts == 0
    assert "The page may say that the kernel died and will restart: that is this restart" in text(form.widget)
    choose(form, "backend", "native")
    choose(form, "backend", "cudaMallocAsync")
    button(form, "Restart and apply").click()  # another change in between: it asks again
    button(form, "Really restart? All variables are lost").click()
    shell.kernel.become_idle()
    assert shell.kernel.restarts == 1
    once = restart.place().once
    assert once
    assert "backend:cudaMallocAsync" in once.read_text()
    assert "Restarting the kernel; then in effect: backend cudaMallocAsync" in text(form.widget)


def test_a_first_click_is_forgotten_by_any_other(
    form: Panel, shell: fake_shell.FakeShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_torch.start(monkeypatch, CUDA)
    shell.events.a_cell_ends()
    choose(form, "backend", "cudaMallocAsync")
    button(form, "Restart and apply").click()
    button(form, "Reset").click()
    assert button(form, "Restart and apply").disabled


def test_keep_and_forget(form: Panel) -> None:
    choose(form, "max_split_size_mb", 128)
    button(form, "Keep for every new kernel").click()
    assert "Kept for every new kernel of this profile: max_split_size_mb 128 MiB" in text(form.widget)
    assert restart.place().keeps()
    assert VARIABLE not in os.environ  # keeping is not applying
    button(form, "Forget what is kept").click()
    assert "Nothing is kept for new kernels any more" in text(form.widget)
    assert button(form, "Forget what is kept").disabled


def on_a_subshell(click: Callable[[], None]) -> None:
    clicking = threading.Thread(target=click)
    clicking.start()
    clicking.join()


def test_a_click_while_a_cell_runs_waits_for_it_and_says_so(form: Panel, shell: fake_shell.FakeShell) -> None:
    choose(form, "max_split_size_mb", 128)
    on_a_subshell(button(form, "Apply").click)
    shell.kernel.become_idle()  # as a cell that awaits something lets the main thread be
    assert VARIABLE not in os.environ
    assert words.WAITS.en in text(form.widget)
    choose(form, "max_split_size_mb", 768)  # the click meant what stood there then
    assert words.WAITS.en in text(form.widget)
    shell.events.a_cell_ends()
    assert os.environ[VARIABLE] == "max_split_size_mb:128"
    assert words.WAITS.en not in text(form.widget)
    assert "Not applied yet: max_split_size_mb 768 MiB" in text(form.widget)


def test_a_click_between_cells_is_answered_on_the_main_thread(form: Panel, shell: fake_shell.FakeShell) -> None:
    shell.events.a_cell_ends()
    choose(form, "max_split_size_mb", 128)
    on_a_subshell(button(form, "Apply").click)
    assert VARIABLE not in os.environ
    shell.kernel.become_idle()
    assert os.environ[VARIABLE] == "max_split_size_mb:128"


def test_a_click_just_before_a_cell_waits_for_that_cell(form: Panel, shell: fake_shell.FakeShell) -> None:
    shell.events.a_cell_ends()
    choose(form, "max_split_size_mb", 128)
    on_a_subshell(button(form, "Apply").click)
    shell.events.a_cell_begins()
    shell.kernel.become_idle()
    assert VARIABLE not in os.environ
    shell.events.a_cell_ends()
    assert os.environ[VARIABLE] == "max_split_size_mb:128"


def test_what_the_person_does_while_it_is_shown_is_not_lost(form: Panel) -> None:
    slider = form._controls["max_split_size_mb"]._inputs[0]
    moving = threading.Thread(target=lambda: setattr(slider, "value", 64))
    with form._lock:  # the main thread is about to show the process
        moving.start()
        time.sleep(0.2)
        form._show()
    moving.join()
    assert form._draft == {"max_split_size_mb": 64}
    assert slider.value == 64


def alive() -> int:
    new = getattr(sys.modules["ipywidgets.widgets.widget"], "_instances", None)  # ipywidgets 8
    return len(widgets.Widget.widgets if new is None else new)


def test_a_closed_panel_leaves_nothing_behind(shell: fake_shell.FakeShell) -> None:
    before, threads = alive(), threading.active_count()
    forms = [Panel() for _ in range(3)]
    choose(forms[0], "roundup_power2_divisions", "table")  # type: ignore[arg-type]
    forms[0].close()
    forms[0].close()
    forms[1].widget.close()  # as when the page is lost
    assert CELLS._after_each == [panel.refresh_all]
    button(forms[2], "Close").click()
    assert CELLS._after_each == []
    assert alive() == before
    assert threading.active_count() == threads
    CELLS.forget()
    assert shell.events.callbacks == {"post_run_cell": [], "pre_run_cell": []}


def test_a_cell_that_is_run_again_replaces_its_panel(
    shell: fake_shell.FakeShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = alive()
    for cell in ("a", "b", "a", "a"):
        parent = {"metadata": {"cellId": cell}}
        monkeypatch.setattr(shell, "get_parent", lambda parent=parent: parent, raising=False)
        colab_alloc.panel()
    assert sorted(str(form.cell) for form in panel._open) == ["a", "b"]
    panel.close_all()
    assert alive() == before


def test_keeping_shows_in_every_panel(form: Panel, shell: fake_shell.FakeShell) -> None:
    other = Panel()
    choose(form, "max_split_size_mb", 128)
    button(form, "Keep for every new kernel").click()
    assert not button(other, "Forget what is kept").disabled
    restart.forget()  # %alloc_conf --forget
    shell.events.a_cell_ends()
    assert button(form, "Forget what is kept").disabled


def test_where_the_person_restarts_one_click_leaves_the_settings(
    shell: fake_shell.FakeShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VSCODE_PID", "1")
    fake_torch.start(monkeypatch, CUDA)
    form = Panel()
    choose(form, "backend", "cudaMallocAsync")
    button(form, "Leave for the restart").click()
    assert "waits for this kernel's next start: click Restart in the notebook's toolbar" in text(form.widget)
    assert "run %alloc_conf backend:cudaMallocAsync" in text(form.widget)
    assert shell.kernel.queued == []


def test_a_restart_that_cannot_be_carried_changes_nothing(
    form: Panel, shell: fake_shell.FakeShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_torch.start(monkeypatch, CUDA)
    shell.events.a_cell_ends()
    choose(form, "backend", "cudaMallocAsync")
    connection = restart.place().connection
    assert connection
    monkeypatch.setattr(restart, "_connection_file", lambda _shell: connection / "not" / "a" / "directory.json")
    button(form, "Restart and apply").click()
    button(form, "Really restart? All variables are lost").click()
    assert "Nothing was changed: the configuration cannot be carried over" in text(form.widget)
    assert status().asked_for == AllocConf()
    assert form._draft == {"backend": "cudaMallocAsync"}
    assert shell.kernel.queued == []


def test_after_a_restart_only_a_sentence_is_left(
    form: Panel, shell: fake_shell.FakeShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Panel()
    fake_torch.start(monkeypatch, CUDA)
    shell.events.a_cell_ends()
    choose(form, "backend", "cudaMallocAsync")
    button(form, "Restart and apply").click()
    button(form, "Really restart? All variables are lost").click()
    for each in (form, other):
        assert [type(widget) for widget in inside(each.widget)] == [widgets.VBox, widgets.HTML, widgets.HTML]
        assert "Run this cell again for a panel of the new kernel" in text(each.widget)


def test_presets_are_what_they_say(form: Panel) -> None:
    apply(AllocConf(garbage_collection_threshold=0.5))
    form.refresh()
    for preset in PRESETS:
        form._preset.value = preset
        assert form._draft.get("garbage_collection_threshold", 0.0) == preset.conf.get(
            "garbage_collection_threshold", 0.0
        )
        assert preset.source in text(form.widget)
        assert preset.purpose.en in text(form.widget)
        warned = [problem.message for problem in preset.conf.problems(torch="2.14", platform="linux")]
        assert warned == []
        assert preset.source.startswith("docs/source/notes/cuda.rst")
    choose(form, "max_split_size_mb", 128)  # no longer that preset
    assert form._preset.value == ""
    assert form._preset_about.value == ""


def test_old_releases_offer_only_what_they_have(shell: fake_shell.FakeShell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shell
    fake_torch.install(monkeypatch, TorchBuild("2.0.1", cuda="11.8"))
    offered = [preset for _, preset in Panel()._preset.options if preset]
    assert all(AllocConf(preset.conf).problems(torch="2.0") == [] for preset in offered)
    assert len(offered) == 3


def test_arabic_runs_right_to_left_and_configurations_left_to_right(shell: fake_shell.FakeShell) -> None:
    assert shell
    form = Panel("ar")
    form._controls["max_split_size_mb"]._inputs[1].value = "10"
    shown = [w for w in inside(form.widget) if isinstance(w, widgets.HTML) and w.value]
    assert all('dir="rtl" lang="ar"' in widget.value for widget in shown)
    assert "يجب أن تكون 20 أو أكثر" in text(form.widget)
    assert "\u2068max_split_size_mb 10 MiB\u2069" in form._banner.value
    assert ".colab-alloc-code { display: flex; align-items: start; gap: .5em; margin: .15em 0; direction: ltr; }" in (
        panel._STYLE
    )
    english = [word.en for word in vars(words).values() if isinstance(word, words.Words) and "{" not in word.en]
    captions = [str(getattr(widget, "description", "")) for widget in inside(form.widget)]
    choices = [label for w in inside(form.widget) if hasattr(w, "options") for label, _ in w.options]
    said = " ".join([text(form.widget), *captions, *choices])
    assert not [word for word in english if len(word) > 10 and word in said]


def test_all_words_are_in_every_language() -> None:
    for name, word in vars(words).items():
        if isinstance(word, words.Words):
            assert all(word), name
            gaps = [set(re.findall(r"{(\w+)", said)) for said in word]
            assert all(found == gaps[0] for found in gaps), name
    assert words.Words._fields == LANGUAGES


def test_bad_use_is_refused(form: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    assert form
    with pytest.raises(ValueError, match="lang must be one of en, ar, not 'de'"):
        colab_alloc.panel("de")
    monkeypatch.setattr(restart, "shell", lambda: None)
    with pytest.raises(RuntimeError, match="the panel needs a notebook"):
        colab_alloc.panel()


def test_stops_end_below_the_memory_of_the_gpu(form: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(form, "max_split_size_mb", 256)
    monkeypatch.setattr(torch_state, "capacity", lambda: 16 << 30)  # known when CUDA has started
    form._show()
    slider = form._controls["max_split_size_mb"]._inputs[0]
    assert slider.value == 256
    stops = [value for _, value in slider.options]
    assert stops[0] == 20
    assert stops[-2:] == [12288, UNLIMITED]
    monkeypatch.setattr(torch_state, "capacity", lambda: None)
    monkeypatch.setattr(card, "memory", lambda: 8 << 30)  # the driver knows it before
    form._show()
    assert slider.options[-2][1] == 6144
    ratios = [larger / smaller for smaller, larger in itertools.pairwise(stops[:-1])]
    assert max(ratios) <= 1.5


def test_warnings_are_in_arabic_too(shell: fake_shell.FakeShell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shell
    monkeypatch.setenv(VARIABLE, "max_split_size_mb=128")
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    monkeypatch.setenv("PYTORCH_NO_CUDA_MEMORY_CACHING", "1")
    english, arabic = text(Panel().widget), text(Panel("ar").widget)
    for said in ("makes `import torch` abort the process", "has no effect", "switches the caching allocator off"):
        assert said in english
        assert said not in arabic
    for said in ("يُنهي العملية قسرًا", "لا أثر", "يعطّل PYTORCH_NO_CUDA_MEMORY_CACHING=1 المخصِّص"):
        assert said in arabic
