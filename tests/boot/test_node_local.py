"""Copies of a snapshot on the node: who makes them, who waits, where, and what happens where there is no room."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.boot import test_snapshot as bed
from tests.boot.test_snapshot import ROOT, Environment, served
from trainer_boot import node_local, snapshot, snapshot_format, snapshot_place

environment, made = bed.environment, bed.made

MOUNTS = """\
22 28 0:20 / /proc rw,nosuid shared:13 - proc proc rw
28 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
41 28 0:45 / /home rw,relatime shared:21 - nfs4 server:/home rw,vers=4.2
43 28 0:46 /part /data rw,relatime - fuse.sshfs server: rw
44 28 0:47 / /dev/shm rw - tmpfs tmpfs rw
"""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "node"
    monkeypatch.setenv("TRAINER_NODE_DIR", str(folder))
    return folder


@pytest.fixture
def shared(made: Environment) -> str:
    """The path of a snapshot."""
    (path,) = made.cache.glob("import-*.snapshot")
    return str(path)


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A file system of its own in memory; skips where this user may not mount."""
    folder.mkdir(mode=0o700, exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"mode=0700,{options}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("this user can't mount")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def content(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_kinds_of_file_systems() -> None:
    devices = ("254:1", "0:45", "0:46", "0:47", "9:9")
    assert [node_local.kind_of(device, MOUNTS) for device in devices] == ["ext4", "nfs4", "nfs", "tmpfs", ""]
    assert node_local.kind_of("1:1", "damaged\n\n28 1 1:1 / /\n") == ""
    assert not node_local.is_shared("/no/such/file")


def test_what_lies_on_the_node_is_read_where_it_is(shared: str, node: Path) -> None:
    assert node_local.nearer(shared) == (shared, "")
    assert node_local.nearer(shared, "off") == (shared, "")
    assert not node.exists()


def test_what_lies_on_a_shared_file_system_is_copied(
    made: Environment, shared: str, node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_local, "kind_of", lambda device, mounts: "lustre")
    note = made.serve()
    assert (note["state"], note["why"], note["path"]) == ("on", "from a copy on this node", shared)
    made.use()
    assert served() == 6
    (copy,) = node.glob("*.snapshot")
    assert copy.read_bytes() == Path(shared).read_bytes()
    assert (copy.stat().st_mode & 0o777, node.stat().st_mode & 0o777) == (0o600, 0o700)
    # another content has another name
    first = copy.stat().st_ino
    assert node_local.nearer(shared, "on")[0] == str(copy)
    assert copy.stat().st_ino == first
    made.write("snapone/late.py", "LATE = 2\n")
    made.forget()
    made.use("snapone.late", "snaptwo")
    made.make()
    assert node_local.nearer(shared, "on")[0] not in (shared, str(copy))


def test_processes_at_once_make_one_copy(shared: str, node: Path) -> None:
    script = f"""
        import sys
        sys.path.insert(0, {str(ROOT / "src")!r})
        from trainer_boot import node_local
        sys.stdin.read(1)
        print(*node_local.nearer({shared!r}, "on"), sep="|")
        """
    command = [sys.executable, "-c", dedent(script)]
    racers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("x")
        racer.stdin.flush()
    said = {racer.communicate(timeout=100)[0].strip() for racer in racers}
    (name,) = content(node)
    assert said == {f"{node / name}|from a copy on this node"}


def test_who_waits_too_long_reads_the_shared_file(
    shared: str, node: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The lock ends with the process that has it, however it ends."""
    monkeypatch.setattr(node_local, "WAIT_SECONDS", 0.1)
    copy = node_local.nearer(shared, "on")[0]
    Path(copy).unlink()
    script = f"""
        import sys, time
        sys.path.insert(0, {str(ROOT / "src")!r})
        from trainer_boot.file_lock import Lock
        print("held" if Lock({copy!r}).take() else "not held", flush=True)
        time.sleep(60)
        """
    holder = subprocess.Popen([sys.executable, "-c", dedent(script)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    began = time.monotonic()
    assert node_local.nearer(shared, "on") == (shared, "no copy on this node: another process was too slow to make it")
    assert time.monotonic() - began < 5
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert node_local.nearer(shared, "on")[0] == copy


def test_a_full_disk_leaves_nothing_behind(shared: str, node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mounted(node, "size=64k"):
        assert node_local.nearer(shared, "on") == (shared, f"no copy on this node: {node} has no room")
        monkeypatch.setattr(node_local, "LEFT_FREE", -(1 << 40))
        Path(shared).write_bytes(Path(shared).read_bytes() + bytes(1 << 17))
        path, why = node_local.nearer(shared, "on")
        assert path == shared
        assert "No space left" in why
        assert content(node) == []


def test_no_code_need_be_run_from_there(made: Environment, shared: str, node: Path) -> None:
    with mounted(node, "noexec,nosuid,nodev,size=128m"):
        note = made.serve_from_node()
        assert note["why"] == "from a copy on this node"
        made.use()
        assert served() == 6
        made.forget()
        snapshot.withdraw()


def test_what_can_not_be_written_is_done_without(shared: str, node: Path, tmp_path: Path) -> None:
    with mounted(node, "ro,size=1m"):
        path, why = node_local.nearer(shared, "on")
        assert path == shared
        assert why.startswith("no copy on this node")


def test_folders_of_others_are_not_used(
    shared: str, node: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.mkdir()
    node.chmod(0o777)
    assert "can be written by others" in node_local.nearer(shared, "on")[1]
    monkeypatch.delenv("TRAINER_NODE_DIR")
    own, linked = tmp_path / "own", tmp_path / "linked"
    own.mkdir(mode=0o700)
    linked.symlink_to(own)
    monkeypatch.setattr(node_local, "folders", lambda: [str(linked)])
    assert "is not a directory" in node_local.nearer(shared, "on")[1]
    monkeypatch.setattr(node_local, "folders", lambda: [str(linked), str(own)])
    assert node_local.nearer(shared, "on")[0].startswith(f"{own}/")
    monkeypatch.setattr(node_local, "folders", list)
    assert node_local.nearer(shared, "on") == (shared, "no copy on this node: no folder")


def test_a_damaged_copy_is_taken_away(shared: str, node: Path) -> None:
    copy = Path(node_local.nearer(shared, "on")[0])
    data = bytearray(copy.read_bytes())
    data[-1] ^= 0xFF
    copy.write_bytes(data)
    path, why = node_local.nearer(shared, "on")
    assert (path, "damaged" in why) == (shared, True)
    assert node_local.nearer(shared, "on")[0] == str(copy)
    assert copy.read_bytes() == Path(shared).read_bytes()


def test_a_damaged_snapshot_is_told_as_without_a_copy(made: Environment, shared: str, node: Path) -> None:
    Path(shared).write_bytes(b"short")
    assert "no copy" in node_local.nearer(shared, "on")[1]
    note = made.serve_from_node()
    assert (note["state"], "damaged" in str(note["why"])) == ("aside", True)


def test_the_copies_used_last_stay(shared: str, node: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node.mkdir(mode=0o700)
    for number in range(4):
        other = node / f"import-{number}.snapshot"
        other.write_bytes(bytes(1000))
        os.utime(other, (number + 1, number + 1))
    for name in ("import-x.snapshot.lock", "import-x.snapshot.1.2.new"):
        (node / name).touch()
        os.utime(node / name, (1, 1))
    (node / "notes").touch()
    monkeypatch.setattr(node_local, "MOST_BYTES", Path(shared).stat().st_size + 2500)
    copy = node_local.nearer(shared, "on")[0]
    assert content(node) == sorted([Path(copy).name, "import-2.snapshot", "import-3.snapshot", "notes"])
    assert not (node / "import-x.snapshot.lock").exists()


def test_where_copies_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRAINER_NODE_DIR", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    own = f"trainer-pyz-{os.geteuid()}"
    assert f"{tmp_path}/{own}" in node_local.folders()
    assert node_local.folders()[-1] == f"/tmp/{own}"
    monkeypatch.setenv("TRAINER_NODE_DIR", str(tmp_path / "given"))
    assert node_local.folders() == [str(tmp_path / "given")]


def test_the_name_says_the_content(shared: str) -> None:
    head = Path(shared).read_bytes()[: snapshot_format.HEADER_SIZE]
    name = node_local._name(shared, head)
    assert name.startswith(Path(shared).name.removesuffix(snapshot_place.SUFFIX) + "-")
    assert node_local._name(shared, head[:-1] + b"?") != name
