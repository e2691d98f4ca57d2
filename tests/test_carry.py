"""Files that carry a configuration: written whole or not at all, and never in the way of a kernel."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from colab_alloc import AllocConf, status
from colab_alloc.conf.version import TorchBuild
from colab_alloc.runtime import carry
from tests import fake_torch

CONF = AllocConf(max_split_size_mb=128)
VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> carry.Place:
    fake_torch.install(monkeypatch, TorchBuild("2.14.1+cu130", cuda="13.0"))
    monkeypatch.setattr(carry, "_resumed", False)
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    connection = runtime / "kernel-1.json"
    connection.write_text("{}")
    return carry.Place(tmp_path / "ipython" / "profile_default", connection)


def restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on it is another process."""
    monkeypatch.setattr(carry, "_THIS_PROCESS", "another")
    monkeypatch.setattr(carry, "_resumed", False)


def files(place: carry.Place) -> list[str]:
    assert place.connection
    found = [*place.profile.rglob("*"), *place.connection.parent.iterdir()]
    return sorted(file.name for file in found if file.is_file() and file.name != "kernel-1.json")


def test_over_one_restart_and_no_other(place: carry.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert carry.carry_once(CONF, place)
    assert files(place) == ["00-colab_alloc.py", "kernel-1.colab_alloc"]
    restarted(monkeypatch)
    assert carry.resume(place) == ["→ colab_alloc: carried over the restart: max_split_size_mb:128"]
    assert os.environ[VARIABLE] == "max_split_size_mb:128"
    assert files(place) == []
    restarted(monkeypatch)
    assert carry.resume(place) == []


def test_a_restart_that_has_not_happened_is_not_taken_for_one(place: carry.Place) -> None:
    carry.carry_once(CONF, place)
    assert carry.resume(place) == []
    assert VARIABLE not in os.environ
    assert "kernel-1.colab_alloc" in files(place)


def test_another_kernel_does_not_take_it(place: carry.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place.connection
    carry.carry_once(CONF, place)
    restarted(monkeypatch)
    assert carry.resume(carry.Place(place.profile, place.connection.with_name("kernel-2.json"))) == []
    assert files(place) == ["00-colab_alloc.py", "kernel-1.colab_alloc"]


def test_what_is_carried_is_the_whole(place: carry.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    carry.carry_once(CONF, place)
    restarted(monkeypatch)
    monkeypatch.setenv(VARIABLE, "expandable_segments:True,garbage_collection_threshold:0.5")  # the server's own
    carry.resume(place)
    assert os.environ[VARIABLE] == "max_split_size_mb:128,expandable_segments:False"


def test_nothing_can_be_carried_too(place: carry.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    carry.carry_once(AllocConf(), place)
    restarted(monkeypatch)
    monkeypatch.setenv(VARIABLE, "max_split_size_mb:64")
    assert carry.resume(place) == ["→ colab_alloc: carried over the restart: PyTorch's defaults"]
    assert VARIABLE not in os.environ


def test_kept_for_every_new_kernel_until_forgotten(place: carry.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    carry.keep(CONF, place)
    for _ in range(2):
        restarted(monkeypatch)
        fake_torch.forget(monkeypatch)
        (said,) = carry.resume(place)
        assert "kept for every new kernel: max_split_size_mb:128" in said
        assert status().asked_for == CONF
    assert files(place) == ["00-colab_alloc.py", "colab_alloc.kept"]
    carry.forget(place)
    assert files(place) == []
    carry.forget(place)


def test_what_is_kept_is_the_whole(place: carry.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    carry.keep(AllocConf(), place)
    monkeypatch.setenv(VARIABLE, "max_split_size_mb:64")
    (said,) = carry.resume(place)
    assert "kept for every new kernel: PyTorch's defaults" in said
    assert status().asked_for == AllocConf()


def test_what_comes_too_late_is_told(place: carry.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    carry.carry_once(AllocConf(backend="cudaMallocAsync", max_split_size_mb=128), place)
    restarted(monkeypatch)
    fake_torch.start(monkeypatch, TorchBuild("2.14.1+cu130", cuda="13.0"))  # the cell before had imported it
    (said,) = carry.resume(place)
    assert said.endswith("; too late in this process for backend:cudaMallocAsync: %alloc_conf --restart brings it")


def test_half_a_failure_keeps_and_forgets_nothing_by_halves(place: carry.Place) -> None:
    place.startup.parent.mkdir(parents=True)
    place.startup.mkdir()  # it can neither be written nor removed as a file
    with pytest.raises(OSError, match="directory"):
        carry.keep(CONF, place)
    assert not place.keeps()
    place.startup.rmdir()
    carry.keep(CONF, place)
    place.startup.unlink()
    place.startup.mkdir()
    carry.forget(place)
    assert not place.keeps()


def test_forgetting_leaves_no_loader_for_kernels_that_are_gone(place: carry.Place) -> None:
    assert place.connection
    carry.carry_once(CONF, place)
    place.connection.unlink()
    other = carry.Place(place.profile, place.connection.with_name("kernel-2.json"))
    carry.keep(CONF, other)
    carry.forget(other)
    assert files(place) == []


def test_what_is_kept_is_applied_once_in_a_process(place: carry.Place) -> None:
    carry.keep(CONF, place)
    carry.resume(place)
    del os.environ[VARIABLE]
    assert carry.resume(place) == []  # %reload_ext
    assert VARIABLE not in os.environ


def test_a_restart_wins_over_what_is_kept(place: carry.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    carry.keep(AllocConf(expandable_segments=True), place)
    carry.carry_once(CONF, place)
    restarted(monkeypatch)
    carry.resume(place)
    assert status().asked_for["max_split_size_mb"] == 128
    assert status().asked_for["expandable_segments"] is False
    assert files(place) == ["00-colab_alloc.py", "colab_alloc.kept"]


def content(**changes: object) -> str:
    good = {"format": 1, "written": time.time(), "conf": "max_split_size_mb:128", "process": "x"}
    return "# colab_alloc\n" + json.dumps({**good, **changes})


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (b"", "not what colab_alloc writes"),
        (b"\xff\xfe\x00garbage", "not what colab_alloc writes"),
        (content()[:-20].encode(), "not what colab_alloc writes"),
        (b"# colab_alloc\n[1, 2]", "not what colab_alloc writes"),
        (b"# colab_alloc\n" + b"[" * 50_000, "not what colab_alloc writes"),
        (content(written="yesterday").encode(), "not what colab_alloc writes"),
        (content(written=10**400).encode(), "not what colab_alloc writes"),
        (content(written=float("nan")).encode(), "written too long ago"),
        (content(format=2).encode(), "another version of colab_alloc wrote it"),
        (content(written=time.time() - 2 * 86400).encode(), "written too long ago"),
        (content(conf="max_split_size_mb:10").encode(), "must be 20 or more in PyTorch 2.14"),
        (content(conf="nonsense").encode(), "nonsense"),
        (content(conf=None).encode(), "None"),
    ],
)
def test_what_cannot_be_used_is_ignored_with_one_warning(
    place: carry.Place, monkeypatch: pytest.MonkeyPatch, broken: bytes, why: str
) -> None:
    assert place.once
    carry.carry_once(CONF, place)
    place.once.write_bytes(broken)
    restarted(monkeypatch)
    (said,) = carry.resume(place)
    assert said.startswith(f"! colab_alloc: {place.once} is ignored: ")
    assert why in said
    assert "\n" not in said
    assert VARIABLE not in os.environ
    assert files(place) == []  # not told again


def test_a_directory_in_its_place_is_ignored_too(place: carry.Place) -> None:
    place.kept.mkdir(parents=True)
    (said,) = carry.resume(place)
    assert "is ignored" in said


def test_only_the_user_can_read_them_and_the_first_line_says_what_they_are(place: carry.Place) -> None:
    carry.carry_once(CONF, place)
    carry.keep(CONF, place)
    for file in (place.once, place.kept, place.startup):
        assert file
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.read_text().startswith("# colab_alloc: ")


def test_a_full_disk_leaves_everything_as_it_was(place: carry.Place, monkeypatch: pytest.MonkeyPatch) -> None:
    carry.keep(CONF, place)
    before = place.kept.read_text()

    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device"):
        carry.keep(AllocConf(max_split_size_mb=256), place)
    with pytest.raises(OSError, match="No space left on device"):
        carry.carry_once(CONF, place)
    assert place.kept.read_text() == before
    assert files(place) == ["00-colab_alloc.py", "colab_alloc.kept"]


AS_NOBODY = """
import os, sys
from pathlib import Path
from colab_alloc import AllocConf
from colab_alloc.runtime import carry
if os.getuid() == 0:
    os.setuid(65534)  # root may write anywhere
home = Path(sys.argv[1])
for write in (carry.keep, carry.carry_once):
    try:
        write(AllocConf(max_split_size_mb=128), carry.Place(home / "ipython" / "profile", home / "kernel-1.json"))
    except OSError as error:
        print(type(error).__name__)
print(carry.resume(carry.Place(home / "ipython" / "profile", home / "kernel-1.json")))
"""


def test_a_read_only_home_is_an_error_for_who_asks_and_none_for_who_starts() -> None:
    home = Path(tempfile.mkdtemp())
    home.chmod(0o555)
    command = [sys.executable, "-c", AS_NOBODY, str(home)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["PermissionError", "PermissionError", "[]"]
    assert list(home.iterdir()) == []
    home.rmdir()


def test_a_profile_that_ipython_made_up_does_not_last(place: carry.Place) -> None:
    made_up = Path(tempfile.mkdtemp())
    temporary = carry.Place(made_up / "profile_default", place.connection)
    with pytest.raises(OSError, match="is a temporary one, as the home directory is not writable"):
        carry.keep(CONF, temporary)
    assert not carry.carry_once(CONF, temporary)  # it is there for %load_ext, not before the first cell
    assert "kernel-1.colab_alloc" in files(place)


def test_what_was_carried_for_kernels_that_are_gone_is_cleared_away(place: carry.Place) -> None:
    assert place.connection
    place.connection.with_name("kernel-0.colab_alloc").write_text("old")
    carry.carry_once(CONF, place)
    assert files(place) == ["00-colab_alloc.py", "kernel-1.colab_alloc"]


def test_the_start_up_file_is_plain_python_that_survives_our_absence(place: carry.Place) -> None:
    carry.keep(CONF, place)
    without = "import builtins; builtins.get_ipython = lambda: None; "
    run = f"exec(open({str(place.startup)!r}).read())"
    done = subprocess.run([sys.executable, "-c", without + run], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("! colab_alloc was not loaded: ")
