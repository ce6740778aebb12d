"""The slow file system of the benchmark: what is seen through it, what it costs, what it counts."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.beds import slowfs

pytestmark = pytest.mark.skipif(bool(slowfs.lacks()), reason=slowfs.lacks())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A small tree."""
    folder = tmp_path / "source"
    (folder / "deep" / "deeper").mkdir(parents=True)
    (folder / "deep" / "deeper" / "module.py").write_text("print('from', __file__)\n")
    (folder / "large").write_bytes(os.urandom(1_000_000))
    (folder / "link").symlink_to("deep")
    for number in range(3000):
        (folder / "deep" / f"{number:04}").touch()
    return folder


@pytest.fixture
def slow(source: Path, tmp_path: Path) -> Iterator[slowfs.SlowFiles]:
    with slowfs.SlowFiles(source, tmp_path / "mount", meta_ms=2, read_ms=5) as mounted:
        yield mounted
    assert not (tmp_path / "mount").is_mount()


def test_all_is_there_and_nothing_can_be_written(slow: slowfs.SlowFiles, source: Path) -> None:
    assert (slow.target / "large").read_bytes() == (source / "large").read_bytes()
    assert sorted(path.name for path in slow.target.iterdir()) == ["deep", "large", "link"]
    assert len(list((slow.target / "link").iterdir())) == 3001
    assert (slow.target / "link").readlink() == Path("deep")
    assert (slow.target / "large").stat().st_mtime_ns == (source / "large").stat().st_mtime_ns
    assert not (slow.target / "none").exists()
    with pytest.raises(OSError, match="Read-only"):
        (slow.target / "new").touch()


def test_requests_are_counted_and_take_their_time(slow: slowfs.SlowFiles) -> None:
    before = slow.counts()
    start = time.monotonic()
    assert (slow.target / "deep" / "deeper" / "module.py").read_text()
    first = time.monotonic() - start
    found = {name: value - before[name] for name, value in slow.counts().items()}
    assert (found["lookup"], found["open"], found["read"]) == (3, 1, 1)
    assert found["bytes"] == len("print('from', __file__)\n")
    assert first >= 0.002 * (found["lookup"] + found["open"]) + 0.005
    before = slow.counts()
    assert (slow.target / "deep" / "deeper" / "module.py").read_text()
    again = {name: value - before[name] for name, value in slow.counts().items()}
    assert (again["lookup"], again["open"], again["read"]) == (0, 1, 0)  # names and data are cached, opens never


def test_a_name_that_is_not_there_is_asked_for_once(slow: slowfs.SlowFiles) -> None:
    before = slow.counts()["absent"]
    for _ in range(3):
        assert not (slow.target / "deep" / "none.py").exists()
    assert slow.counts()["absent"] == before + 1


def test_it_takes_the_place_of_a_folder_for_one_command(slow: slowfs.SlowFiles, source: Path) -> None:
    folder = source / "deep"
    before = slow.counts()["read"]
    command = [*slow.over([folder]), sys.executable, str(folder / "deeper" / "module.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"from {folder}/deeper/module.py\n"
    assert slow.counts()["read"] > before
    assert not folder.is_mount()


def test_the_mount_goes_with_whoever_made_it(source: Path, tmp_path: Path) -> None:
    text = f"""
import os, signal
from pathlib import Path
from tests.beds.slowfs import SlowFiles
SlowFiles(Path({str(source)!r}), Path({str(tmp_path / "mount")!r})).__enter__()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", text], check=False, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert done.returncode == -9
    deadline = time.monotonic() + 20
    while _mounted(tmp_path / "mount") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _mounted(tmp_path / "mount")


def _mounted(folder: Path) -> bool:
    """As the kernel lists it: a question to a mount that is just going is an error."""
    return f" {folder} " in Path("/proc/mounts").read_text()
