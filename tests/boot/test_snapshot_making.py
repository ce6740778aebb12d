"""How a snapshot is made: of what, where, by whom, and when not."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.boot import test_snapshot as bed
from tests.boot.test_snapshot import ROOT, Environment, served, why
from trainer_boot import file_lock, snapshot, snapshot_place
from trainer_boot.snapshot_format import Aside

environment, made = bed.environment, bed.made


def test_what_no_distribution_lists_is_not_in_it(environment: Environment, tmp_path: Path) -> None:
    environment.write("snapextra.py", "")
    environment.write("one-1.dist-info/direct_url.json", json.dumps({"dir_info": {"editable": True}}))
    environment.settle()
    environment.use("snapextra", "snapone")
    with pytest.raises(Aside, match="nothing"):
        environment.make()
    assert [path for path in environment.cache.iterdir() if path.name.startswith("import-")] == []


def test_code_is_taken_from_the_cached_file_where_it_fits(environment: Environment) -> None:
    import py_compile

    source = environment.site / "snaptwo.py"
    py_compile.compile(str(source))
    environment.settle()
    environment.use()
    environment.make()
    environment.serve()
    environment.use()
    assert sys.modules["snaptwo"].NAME == "snaptwo"
    assert served() == 6


def test_a_folder_that_has_just_changed_is_left_for_later(environment: Environment) -> None:
    environment.use()
    environment.write("two-1.dist-info/RECORD", "")
    with pytest.raises(Aside, match="just changed"):
        environment.make()


HOLDER = """
import os, sys, time
sys.path.insert(0, {source!r})
from trainer_boot.file_lock import Lock
print("held" if Lock({path!r}).take() else "not held", flush=True)
if os.fork():
    time.sleep(100)
print(os.getpid(), flush=True)
time.sleep(100)
"""


def test_one_maker_at_a_time(environment: Environment) -> None:
    """The lock ends with its owner at once: also where that was killed, and has forked a child that lives on."""
    environment.use()
    path = environment.make()
    script = HOLDER.format(source=str(ROOT / "src"), path=path)
    holder = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    child = int(holder.stdout.readline())
    try:
        with pytest.raises(Aside, match="another process"):
            environment.make()
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        environment.make()
        assert [each.name for each in environment.cache.iterdir()] == [Path(path).name]
    finally:
        os.kill(child, signal.SIGKILL)
        holder.stdout.close()


def test_a_lock_whose_file_was_removed_meanwhile_is_not_held(tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    first, second = file_lock.Lock(path), file_lock.Lock(path)
    assert first.take()
    assert not second.take()
    Path(first.path).unlink()
    Path(first.path).touch()  # of the next one
    first.release()
    assert Path(first.path).exists()
    assert second.take()
    second.release()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "x.lock").symlink_to("/nowhere")  # in a folder of one's own nobody needs it
    assert first.take()
    first.release()


def test_another_private_folder_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = tmp_path / f"trainer-pyz-{os.geteuid()}"
    base = str(tmp_path)
    assert snapshot_place.private_in(base) == str(usual)
    usual.write_text("in the way")
    for name in ("-a", "-b"):
        (tmp_path / f"{usual.name}{name}").mkdir()
        (tmp_path / f"{usual.name}{name}").chmod(0o777)
    other = snapshot_place.private_in(base)
    assert other.startswith(f"{usual}-")
    assert other != snapshot_place.private_in(base)
    snapshot_place.own_folder(other, linked=False)
    assert snapshot_place.private_in(base) == other
    monkeypatch.setattr(snapshot_place, "folders", lambda: [str(tmp_path / f"{usual.name}-a"), other])
    path, told, trusted = snapshot_place.find("0" * 16)
    assert (path.startswith(other), trusted) == (True, True)
    assert told == f"{usual}-a can be written by others (mode 777)"
    monkeypatch.setattr(snapshot_place, "folders", lambda: [str(tmp_path / f"{usual.name}-a")])
    assert snapshot_place.find("0" * 16)[1:] == (told, False)


def test_makers_at_once_leave_one_whole_snapshot(environment: Environment) -> None:
    script = f"""
        import sys
        sys.path[:0] = [{str(ROOT / "src")!r}]
        sys.path.append({str(environment.site)!r})
        import snaptwo
        from trainer_boot import snapshot
        from trainer_boot.snapshot_format import Aside
        try:
            snapshot.make(sites=[{str(environment.site)!r}], cache={str(environment.cache)!r})
            print("made")
        except Aside as aside:
            print(aside.why)
        """
    command = [sys.executable, "-B", "-c", dedent(script)]
    makers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    said = [maker.communicate(timeout=100)[0].strip() for maker in makers]
    assert "made" in said
    assert set(said) <= {"made", "another process is making one"}
    assert len(list(environment.cache.iterdir())) == 1
    assert environment.serve("full")["state"] == "on"


def test_only_the_snapshots_used_last_are_kept(made: Environment) -> None:
    path = Path(str(made.serve()["path"]))
    for number in range(6):
        other = path.with_name(f"import-{number}.snapshot")
        other.touch()
        os.utime(other, (number, number))
    half = path.with_name(path.name + ".1.2.new")
    half.touch()
    os.utime(half, (1, 1))
    path.with_name("notes.txt").touch()
    made.forget()
    made.use()
    made.make()
    kept = {"import-5.snapshot", "import-4.snapshot", "import-3.snapshot", path.name, "notes.txt"}
    assert {each.name for each in made.cache.iterdir()} == kept


def test_a_run_that_finds_none_makes_one(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    assert snapshot.record_if_missing()["state"] == "off"
    assert why(environment.serve()) == "there is none yet"
    environment.use()
    assert snapshot.record_if_missing(10)["made"] is True
    assert environment.serve()["state"] == "on"
    environment.use()
    assert snapshot.record_if_missing(10)["made"] is False
    # a flow that imports more: what was served stays in it
    environment.serve()
    monkeypatch.setattr(snapshot, "WORTH_ADDING", 1)
    environment.use("snapone.late")
    assert snapshot.record_if_missing(10)["made"] is True
    assert environment.serve("full")["state"] == "on"
    environment.use("snaptwo", "snapone.late", "snapone.deep.leaf", "snapspace.plain")
    assert served() == 7


def test_making_ends_in_time(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    environment.serve()
    environment.use()
    note = snapshot.record_if_missing(0)
    assert (note["made"], note["why"]) == (False, "nothing could be added to it")


def test_a_run_is_not_disturbed_where_nothing_can_be_written(environment: Environment) -> None:
    environment.cache.write_text("a file")
    note = environment.serve()
    assert "can't be opened" in why(note)
    environment.use()
    assert snapshot.record_if_missing(10)["state"] == "aside"


def test_where_snapshots_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = f"/tmp/trainer-pyz-{os.geteuid()}"
    monkeypatch.setenv("TRAINER_SNAPSHOT_DIR", str(tmp_path / "given"))
    assert snapshot_place.folders() == [str(tmp_path / "given")]
    monkeypatch.delenv("TRAINER_SNAPSHOT_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert snapshot_place.folders() == [str(tmp_path / "cache/trainer-pyz"), own]
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert snapshot_place.folders() == [str(tmp_path / "home/.cache/trainer-pyz"), own]


def test_a_folder_that_others_can_write_is_not_written_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setattr(snapshot_place, "folders", lambda: [str(tmp_path / "open"), str(tmp_path / "own")])
    assert snapshot_place.make_folder() == str(tmp_path / "own")
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700
