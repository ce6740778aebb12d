"""Where checkpoints lie: whole or not at all, newest kept, nothing lost by a failed save."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.checkpoint.helpers import content, hidden, mounted, save
from trainer.checkpoint.durable import writing_to
from trainer.checkpoint.store import Store, explicit, verify
from trainer.errors import UserError


def steps(store: Store) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in store.list()]


def test_a_commit_is_found_whole_with_what_was_said_about_it(tmp_path: Path) -> None:
    store = Store(tmp_path, 3)
    path = save(store, 42)
    assert path == tmp_path / "checkpoints" / "step-00000042"
    assert store.newest() == (path, [])
    assert store.meta(path) == {"step": 42, "cursor": 1344}
    assert (path / "parts" / "one.pt").read_bytes() == content(42, 90)
    manifest = verify(path)
    assert set(manifest.files) == {"model.pt", "rank-00000.pt", "parts/one.pt"}
    assert manifest.size == 5790
    assert hidden(store.folder) == []


def test_an_empty_run_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert Store(tmp_path / "absent", 3).newest() == (None, [])
    assert Store(tmp_path / "absent", 3).list() == []


def test_what_is_begun_is_not_seen_and_can_be_aborted(tmp_path: Path) -> None:
    store = Store(tmp_path, 3)
    save(store, 1)
    temporary = store.begin(2)
    (temporary / "model.pt").write_bytes(b"half")
    assert steps(store) == [1]
    store.abort(temporary)
    store.abort(temporary)
    assert hidden(store.folder) == []


def test_the_newest_are_kept_and_the_oldest_go_only_after_the_commit(tmp_path: Path) -> None:
    store = Store(tmp_path, 2)
    for step in (10, 20):
        save(store, step)
    temporary = store.begin(30)
    (temporary / "model.pt").write_bytes(b"x")
    assert steps(store) == [10, 20]
    store.commit(temporary, 30, {})
    assert steps(store) == [20, 30]


def test_with_one_kept_there_is_always_one(tmp_path: Path) -> None:
    store = Store(tmp_path, 1)
    for step in range(1, 5):
        save(store, step)
        assert steps(store) == [step]


def test_after_going_back_the_newest_is_the_one_committed_last(tmp_path: Path) -> None:
    for step in (20, 40, 60):
        save(Store(tmp_path, 3), step)
    resumed = Store(tmp_path, 2)
    path = save(resumed, 30)
    assert resumed.newest()[0] == path
    assert steps(resumed) == [30, 60]
    assert save(resumed, 35) == resumed.newest()[0]
    assert steps(resumed) == [30, 35]


def test_a_damaged_one_does_not_count_as_kept(tmp_path: Path) -> None:
    store = Store(tmp_path, 2)
    for step in (1, 2):
        save(store, step)
    (store.list()[-1] / "model.pt").unlink()
    save(store, 3)
    assert steps(store) == [1, 2, 3]
    save(store, 4)
    assert steps(store) == [3, 4], "once enough whole ones are newer, a damaged one goes"


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    store = Store(tmp_path, 3)
    save(store, 7)
    (store.list()[0] / "stale.pt").write_bytes(b"of a run with more ranks")
    temporary = store.begin(7)
    (temporary / "model.pt").write_bytes(b"new")
    path = store.commit(temporary, 7, {})
    assert sorted(file.name for file in path.iterdir()) == ["manifest.json", "model.pt"]
    assert (path / "model.pt").read_bytes() == b"new"
    assert hidden(store.folder) == []


def test_killed_between_the_two_renames_the_former_one_is_found_and_put_back(tmp_path: Path) -> None:
    store = Store(tmp_path, 3)
    path = save(store, 7)
    path.rename(store.folder / ".step-00000007.old")
    assert store.newest()[0] == store.folder / ".step-00000007.old"
    Store(tmp_path, 3).begin(8)
    assert store.newest()[0] == path


def test_the_next_save_sweeps_what_dead_writers_left(tmp_path: Path) -> None:
    store = Store(tmp_path, 3)
    mine = store.begin(1)
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    host = mine.name.split(".")[2].rsplit("-", 2)[0]
    for pid in (int(dead.stdout), os.getpid()):  # in a container a restarted writer has its predecessor's number
        (store.folder / f".step-00000002.{host}-{pid}-0123abcd").mkdir()
    alive = store.folder / f".step-00000002.{host}-{os.getppid()}-0123abcd"
    elsewhere = store.folder / ".step-00000002.other_host-1-0123abcd"
    idle = store.folder / ".step-00000002.other_host-2-0123abcd"
    for folder in (alive, elsewhere, idle):
        folder.mkdir()
    os.utime(idle, (1.0, 1.0))
    second = store.begin(3)
    assert set(hidden(store.folder)) == {mine.name, alive.name, elsewhere.name, second.name}


def test_a_missing_file_of_another_rank_is_not_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.checkpoint.store._wait_for.__defaults__", (0.2,))
    store = Store(tmp_path, 3)
    temporary = store.begin(1)
    (temporary / "rank-00000.pt").write_bytes(b"x")
    with pytest.raises(UserError, match=r"rank-00001\.pt of another rank did not appear"):
        store.commit(temporary, 1, {}, files=["rank-00000.pt", "rank-00001.pt"])
    assert store.list() == []
    assert hidden(store.folder) == []


def test_a_full_disk_is_told_and_older_checkpoints_stay(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=64k") as folder:
        store = Store(folder, 3)
        good = save(store, 1)
        temporary = store.begin(2)
        with (
            pytest.raises(UserError, match=f"{temporary}: No space left on device") as raised,
            writing_to(temporary),
        ):
            (temporary / "model.pt").write_bytes(content(2, 100_000))
        store.abort(temporary)
        assert "--run.folder" in raised.value.fix
        assert "Free space" in raised.value.fix
        assert store.newest() == (good, [])
        assert hidden(store.folder) == []


def test_a_disk_that_fills_up_at_the_commit_leaves_nothing_half(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=64k") as folder:
        store = Store(folder, 3)
        good = save(store, 1)
        temporary = store.begin(2)
        with open(temporary / "model.pt", "wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            while True:
                file.write(bytes(4096))
        with pytest.raises(UserError, match="No space left on device"):
            store.commit(temporary, 2, {})
        assert store.newest() == (good, [])
        assert hidden(store.folder) == []


def test_a_read_only_file_system_is_told(tmp_path: Path) -> None:
    with mounted(tmp_path / "locked", "size=1m") as folder:
        store = Store(folder, 3)
        good = save(store, 1)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        with pytest.raises(UserError, match="Read-only file system") as raised:
            store.begin(2)
        assert "writable" in raised.value.fix
        assert store.newest() == (good, [])
        with pytest.raises(UserError, match="Read-only file system"):
            Store(folder / "new", 3).begin(1)


def test_a_file_in_the_way_is_told(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("not a folder")
    with pytest.raises(UserError, match="cannot save a checkpoint"):
        Store(tmp_path, 1).begin(1)


def test_a_path_that_is_no_checkpoint_is_refused_with_one_that_is(tmp_path: Path) -> None:
    path = save(Store(tmp_path, 3), 5)
    assert explicit(path) == path
    with pytest.raises(UserError, match="there is no checkpoint") as raised:
        explicit(tmp_path / "checkpoints" / "step-00000006")
    assert raised.value.status == 2
    for place in (tmp_path, tmp_path / "checkpoints"):
        with pytest.raises(UserError, match="is not a checkpoint") as raised:
            explicit(place)
        assert str(path) in raised.value.fix


def test_numbers_that_json_cannot_hold_are_our_own_mistake(tmp_path: Path) -> None:
    store = Store(tmp_path, 3)
    temporary = store.begin(1)
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.commit(temporary, 1, {"loss_scale": float("inf")})
    assert hidden(store.folder) == []


def test_nothing_of_it_imports_torch() -> None:
    names = "trainer.checkpoint.store, trainer.commands.checkpoints, trainer.metrics.writer, trainer.metrics.progress"
    code = f"import sys, {names}; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
