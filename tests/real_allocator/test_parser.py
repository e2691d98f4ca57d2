"""predict() against the parsers of the installed PyTorch: the same outcome, the same words, the same settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from colab_alloc.conf import version
from colab_alloc.conf.options import OPTIONS
from colab_alloc.conf.predict import Verdict, predict
from colab_alloc.conf.values import same
from colab_alloc.runtime import torch_state
from tests.real_allocator import zygote
from tests.real_allocator.cases import SEEN_ON_2_14
from tests.virtual_gpu import VirtualGpu

ROOT = Path(__file__).parents[2]


IN_A_NEW_PROCESS = """
import json, torch
try:
    torch.cuda.init()
except (RuntimeError, ValueError) as error:
    print(json.dumps({"outcome": "raises at CUDA start", "message": str(error)}))
else:
    backend = torch.cuda.get_allocator_backend()
    shown = torch.cuda.memory._snapshot()["allocator_settings"] if backend == "native" else {}
    print(json.dumps({"outcome": "accepted", "settings": shown}))
"""


def in_a_new_process(gpu: VirtualGpu, text: str) -> dict[str, Any]:
    """Return what a process of its own saw. Its exit code says nothing: 2.9 can abort when all is done.

    (Its libraries hold the parser of 2.10 already, and a destructor at exit runs it for the first time.)
    """
    done = gpu.run([sys.executable, "-c", IN_A_NEW_PROCESS], env={zygote.VARIABLE: text})
    if not done.stdout:
        return {"outcome": "aborts the process at import"}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


class RealParser:
    """PyTorch's own parsers, at import and at CUDA start."""

    def __init__(self, gpu: VirtualGpu) -> None:
        self.gpu = gpu
        self.processes = [self._start(gpu, stage) for stage in ("import", "start")]

    @staticmethod
    def _start(gpu: VirtualGpu, stage: str) -> subprocess.Popen[str]:
        inherited = {name: value for name, value in os.environ.items() if name not in torch_state.ALL_VARIABLES}
        return subprocess.Popen(
            [sys.executable, "-m", zygote.__name__, stage],
            cwd=ROOT,
            env=inherited | gpu.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, text: str) -> dict[str, Any]:
        """Return what the installed PyTorch does with this text in a new process.

        A fork cannot change the back end that its parent has loaded, so a text with another one gets a process of
        its own.
        """
        if "cudaMallocAsync" in text:
            return in_a_new_process(self.gpu, text)
        at_import, at_start = (self._ask(process, text) for process in self.processes)
        return at_start if at_import["outcome"] == "accepted" else at_import

    @staticmethod
    def _ask(process: subprocess.Popen[str], text: str) -> dict[str, Any]:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(text) + "\n")
        stdin.flush()
        answer: dict[str, Any] = json.loads(stdout.readline())
        return answer

    def close(self) -> None:
        """Let both processes end."""
        for process in self.processes:
            process.communicate()


@pytest.fixture(scope="module")
def parser(virtual_gpu: VirtualGpu) -> Iterator[RealParser]:
    parser = RealParser(virtual_gpu)
    yield parser
    parser.close()


def agree(verdict: Verdict, real: dict[str, Any]) -> None:
    """Hold the prediction against what PyTorch did."""
    assert verdict.outcome == real["outcome"], real
    if "message" in real:
        assert verdict.message is not None
        assert verdict.message in real["message"]
    for option in OPTIONS.values():
        if option.setting_key in real.get("settings", {}):
            effective = torch_state._from_setting(option, real["settings"][option.setting_key])
            predicted = verdict.settings.get(option.name, option.default)
            assert same(option.name, effective, predicted, version.release(verdict.torch)), option.name


NUMBERS = st.sampled_from(
    "0 1 2 3 4 11 16 19 20 21 30 64 128 256 1000 65536 2147483647 2147483648 17592186044415 17592186044416 "
    "18446744073709551615 18446744073709551616 99999999999999999999 -1 -20 +30 64.5 128abc 1e3 0x80 0b1".split()
)
FRACTIONS = st.sampled_from(
    "0 0.0 0.5 .8 1 1.0 1. 1.5 80 1e-3 1e-320 1e-400 1e400 0x1p-2 0x inf -inf nan -0.1 0.5x 0,5".split()
)
WORDS = st.sampled_from("True False true FALSE on 1 native cuda async None SIZE 'x' \"x\" # ; = { } > ١٢٨ é".split())
ENTRY = st.builds(
    "{}{}{}".format, st.one_of(NUMBERS, st.just(">")), st.sampled_from([":"] * 8 + ["=", "", ","]), NUMBERS
)
LISTS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["["] * 9 + ["{", "[["]),
    st.lists(ENTRY, max_size=4).map(",".join),
    st.sampled_from(["]"] * 9 + ["", "}", ",]", "]]"]),
)
SENSIBLE_LISTS = st.lists(
    st.builds("{}:{}".format, st.sampled_from([*"1 2 4 16 64 256 1024 65536".split(), ">"]), st.sampled_from("01248")),
    max_size=4,
).map(lambda pairs: f"[{','.join(pairs)}]")
NAMES = st.one_of(
    st.sampled_from([name for option in OPTIONS.values() for name in (option.name, *option.aliases)]),
    st.sampled_from(["foo", "max_split_size", "MAX_SPLIT_SIZE_MB", "max_split_size_mb ", '"max_split_size_mb', ""]),
)
SETTING = st.builds(
    "{}{}{}".format,
    NAMES,
    st.sampled_from([":"] * 12 + [" : ", "=", ",", "::", "", ":\n", "："]),
    st.one_of(NUMBERS, NUMBERS, FRACTIONS, WORDS, LISTS, SENSIBLE_LISTS),
)


def usual_values(name: str) -> st.SearchStrategy[str]:
    """Values of an option that are mostly accepted."""
    kind = OPTIONS[name].kind.name
    return {
        "BACKEND": st.just("native"),
        "FLAG": st.sampled_from(["True", "False"]),
        "FRACTION": st.sampled_from([".5", "0.25", "0.9x", "1e-5", "0x1p-3", "1"]),
        "COUNT": st.sampled_from(["1", "2", "128"]),
        "MIB": st.sampled_from(["20", "64", "128", "1024", "-1", "100000000000000"]),
        "DIVISIONS": st.one_of(st.sampled_from("1248"), SENSIBLE_LISTS),
    }[kind]


USUAL = st.sampled_from(list(OPTIONS)).flatmap(lambda name: usual_values(name).map(lambda value: f"{name}:{value}"))
TEXTS = st.one_of(
    st.lists(USUAL, max_size=4).map(",".join),
    st.builds(
        lambda settings, separator, end: separator.join(settings) + end,
        st.lists(st.one_of(USUAL, SETTING), max_size=4),
        st.sampled_from([","] * 8 + [" ", ", ", ";", ",,", ":", "\n"]),
        st.sampled_from([""] * 8 + [",", " ", ":", "]", "["]),
    ),
    st.text(alphabet=",:[]> \t\n19aT=_", max_size=12),
    st.text(
        alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
        max_size=20,
    ),
)


@settings(max_examples=5000, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(text=TEXTS)
@example("")
@example("max_split_size_mb:64,large_segment_size_mb:64")
@example("roundup_power2_divisions:4,roundup_power2_divisions:[4:2]")
@example("backend:[")
def test_five_thousand_texts_are_predicted_as_pytorch_reads_them(parser: RealParser, text: str) -> None:
    agree(predict(text), parser.ask(text))


@pytest.mark.parametrize("text", SEEN_ON_2_14)
def test_what_people_really_typed_is_predicted_as_pytorch_reads_it(parser: RealParser, text: str) -> None:
    agree(predict(text), parser.ask(text))


@pytest.mark.parametrize(
    "text",
    [
        "max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
        "max_split_size_mb:512MB",
        "max_split_size_mb=128",
        "expandable_segments:true",
        "foo:1",
        "backend:async",
        "roundup_power2_divisions:[256=1]",
        "max_split_size_mb:128;garbage_collection_threshold:0.6",
    ],
)
def test_a_fork_answers_as_a_new_process_does(virtual_gpu: VirtualGpu, parser: RealParser, text: str) -> None:
    assert in_a_new_process(virtual_gpu, text) == parser.ask(text)


@pytest.mark.parametrize(
    "text",
    [
        "backend:cudaMallocAsync,max_split_size_mb:10",
        "backend:native,backend:cudaMallocAsync",
        "backend:cudaMallocAsync,backend:native",
        "max_split_size_mb:128,backend:cudaMallocAsync,foo:1",
    ],
)
def test_the_other_back_end_is_predicted_too(parser: RealParser, text: str) -> None:
    agree(predict(text), parser.ask(text))
