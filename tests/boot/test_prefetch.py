"""Prefetch: what a process has touched is recorded, and read again only where it is not in memory."""

import ctypes
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainer_boot import prefetch, prefetch_making, snapshot_serving
from trainer_boot.layers import Note

PAGES = 600


class Files:
    """Two files of many pages, and a stand-in for a snapshot that names parts of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.pages: list[prefetch.Pages] = []
        for name in ("one", "two"):
            path = folder / name
            path.write_bytes(os.urandom(PAGES * prefetch.PAGE))
            status = path.stat()
            ranges = ((0, 40 * prefetch.PAGE), (300 * prefetch.PAGE, 290 * prefetch.PAGE))
            self.pages.append((str(path), status.st_mtime_ns, status.st_size, ranges))
        (folder / "snapshot").write_bytes(bytes(5000))
        index = SimpleNamespace(pages=tuple(self.pages))
        reader = SimpleNamespace(index=index, path=str(folder / "snapshot"), is_cold=lambda: False)
        finder = SimpleNamespace(reader=reader, before=[])
        monkeypatch.setattr(snapshot_serving, "running", lambda: finder)
        self.finder = finder

    def forget(self) -> None:
        """Out of memory with them; skips where the file system keeps them."""
        for _ in range(100):  # on a busy machine some pages stay at first
            for path, *_ in self.pages:
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            if self.in_memory() == 0:
                return
            time.sleep(0.01)
        pytest.skip("this file system keeps files in memory")

    def in_memory(self) -> float:
        """The share of what is named."""
        found = b""
        for path, _, size, ranges in self.pages:
            with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
                there = ctypes.create_string_buffer(PAGES)
                first = ctypes.c_char.from_buffer(mapped)
                asked = ctypes.CDLL(None).mincore(ctypes.byref(first), ctypes.c_size_t(size), there)
                del first
            assert asked == 0
            for offset, length in ranges:
                found += there.raw[offset // prefetch.PAGE : (offset + length) // prefetch.PAGE]
        return sum(value & 1 for value in found) / len(found)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    yield Files(tmp_path, monkeypatch)
    assert prefetch.finish(stop=True)


def begun(files: Files) -> Note:
    """Reading, of files that are not in memory: a kernel that reads ahead may bring them back at the first question."""
    for _ in range(10):
        files.forget()
        note = prefetch.start()
        if note["why"] == "reading":
            break
    return note


def descriptors() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def reading() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "prefetch"]


def test_what_is_not_in_memory_is_read(files: Files) -> None:
    files.forget()
    before = descriptors()
    note = begun(files)
    assert note["why"] == "reading"
    assert prefetch.finish()
    assert files.in_memory() == 1
    assert (note["state"], note["why"]) == ("on", "")
    assert note["bytes"] == 2 * 330 * prefetch.PAGE  # the snapshot itself was written right before
    assert reading() == []
    assert descriptors() == before


def test_nothing_is_read_and_no_thread_started_where_all_is_in_memory(files: Files) -> None:
    for path, *_ in files.pages:
        Path(path).read_bytes()
    note = prefetch.start()
    assert (note["state"], note["why"], note["bytes"]) == ("on", "all is in memory already", 0)
    assert reading() == []
    assert files.finder.before == []


def test_the_import_of_torch_waits_for_it(files: Files) -> None:
    begun(files)
    (before,) = files.finder.before
    before("numpy")
    before("torch")
    assert reading() == []
    assert files.in_memory() == 1


def test_it_can_be_stopped(files: Files) -> None:
    files.forget()
    note = prefetch.start()
    assert prefetch.finish(stop=True)
    assert reading() == []
    assert int(str(note["bytes"])) <= 2 * 330 * prefetch.PAGE + 5000


def test_changed_and_missing_files_are_left_alone(files: Files) -> None:
    files.forget()
    first = Path(files.pages[0][0])
    os.utime(first, ns=(1, 1))
    Path(files.pages[1][0]).unlink()
    note = prefetch.start()
    assert prefetch.finish()
    assert note.get("bytes", 0) in (0, 5000)


@pytest.mark.parametrize(
    ("environ", "share"),
    [
        ({}, (0, 1)),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}, (1, 4)),
        ({"LOCAL_RANK": "4", "LOCAL_WORLD_SIZE": "4"}, (0, 1)),
        ({"LOCAL_RANK": "x", "LOCAL_WORLD_SIZE": "4"}, (0, 1)),
    ],
)
def test_ranks_of_a_machine_share_the_work(environ: dict[str, str], share: tuple[int, int]) -> None:
    assert prefetch._share(environ) == share  # type: ignore[arg-type]  # any mapping will do
    pieces = prefetch._pieces(((0, 5 * prefetch.PIECE), (7 * prefetch.PIECE, 10)))
    assert sorted(piece for number in range(3) for piece in pieces[number::3]) == pieces
    assert sum(length for _, length in pieces) == 5 * prefetch.PIECE + 10


def test_without_a_snapshot_it_is_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_serving, "running", lambda: None)
    assert prefetch.start()["state"] == "aside"


def test_touched_pages_are_recorded(tmp_path: Path) -> None:
    """Of a mapping that can be executed, as shared objects are."""
    path = tmp_path / "object"
    path.write_bytes(bytes(PAGES * prefetch.PAGE))
    with open(path, "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC | mmap.PROT_WRITE)
        for page in (200, 201, 500):
            mapped[page * prefetch.PAGE] = 1
        found = {each[0]: each for each in prefetch_making.record()}
        mapped.close()
    _, changed, size, ranges = found[str(path)]
    assert (changed, size) == (path.stat().st_mtime_ns, path.stat().st_size)
    numbers = [(offset // prefetch.PAGE, length // prefetch.PAGE) for offset, length in ranges]
    assert numbers == [(0, 1), (200, 2), (500, 1)]
    assert any("/lib" in name and ".so" in name for name in found)


def test_what_another_process_has_recorded_is_kept(tmp_path: Path) -> None:
    here = tmp_path / "of another process"
    here.write_bytes(bytes(10))
    facts = here.stat().st_mtime_ns, here.stat().st_size
    gone = (str(tmp_path / "gone"), 1, 1, ((0, 1),))
    kept = (str(here), *facts, ((0, 10),))
    changed = (str(here), facts[0] + 1, facts[1], ((0, 10),))
    assert kept in prefetch_making.record([gone, kept])
    assert str(here) not in [each[0] for each in prefetch_making.record([changed])]


def test_a_process_with_little_memory_left_for_threads_reads_what_it_can(tmp_path: Path) -> None:
    script = f"""
import os, resource, sys
sys.path.insert(0, {str(Path(prefetch.__file__).parent.parent)!r})
from trainer_boot import prefetch
path = {str(tmp_path / "file")!r}
open(path, "wb").write(bytes(1 << 20))
status = os.stat(path)
import threading
import time
def refuse(thread): raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
running = prefetch.Prefetch([(path, status.st_mtime_ns, status.st_size, ((0, 1 << 20),))], (0, 1), {{}})
print(running.finish(1.0, False))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr
