"""The file: a zip for whoever reads zips, the same bytes wherever it is built, and never half of it in its place."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from build.archive import Zip
from build.errors import BuildError
from build.tree import File, Tree
from build.write import Draft, write
from tests.boot import bed

FILES: bed.Files = {
    "pack/__init__.py": '"""Docstring."""\n',
    "pack/part.py": 'def value():\n    """Docstring."""\n    return 42  # a comment\n',
    "pack/empty.txt": b"",
    "pack/ä.txt": b"umlaut" * 100,
    "app.py": "from pack.part import value\nprint(value())",
}


@pytest.fixture(scope="module", autouse=True)
def code_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    bed.CODE = tmp_path_factory.mktemp("code")


def test_zip_tools_read_it(tmp_path: Path) -> None:
    place = bed.archive(tmp_path / "app.pyz", FILES)
    with zipfile.ZipFile(place) as archive:
        assert archive.testzip() is None
        assert archive.read("pack/ä.txt") == b"umlaut" * 100
        names = archive.namelist()
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {info.external_attr >> 16 for info in archive.infolist()} == {0o100644}
    assert names.index("__main__.pyc") < names.index("__main__.py")
    assert {name for name in names if not name.startswith(("_trainer/", "trainer_boot/", "__main__"))} == set(FILES)
    listed = bed.run(["-m", "zipfile", "-l", place])
    assert "pack/part.py" in listed.stdout
    if shutil.which("unzip"):
        unzip = subprocess.run(["unzip", "-tqq", place], capture_output=True, text=True, check=False)
        assert (unzip.returncode, unzip.stdout, unzip.stderr) == (0, "", "")


def test_plain_zipimport_reads_it(tmp_path: Path) -> None:
    place = bed.archive(tmp_path / "app.pyz", FILES, minify=True)
    command = ["-c", "import pack.part; print(pack.part.value(), pack.part.__loader__)"]
    for python in filter(None, [sys.executable, bed.other_python()]):
        done = bed.run(command, python=python, environment={"PYTHONPATH": str(place)}, folder=tmp_path)
        assert bed.lines(done)[0].startswith("42 <zipimporter object")


BUILD = """
import sys, hashlib
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.boot import bed
bed.CODE = Path("code")
files = {name: bytes.fromhex(data) for name, data in (pair.split("=") for pair in sys.argv[2].split(","))}
print(hashlib.sha256(bed.archive(Path("out.pyz"), files, minify=True).read_bytes()).hexdigest())
"""


def test_the_same_bytes_wherever_and_whoever(tmp_path: Path) -> None:
    files = ",".join(f"{path}={bed.bytes_of(content).hex()}" for path, content in FILES.items())
    settings = [
        {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8"},
        {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C", "PYTHONUTF8": "1", "SOURCE_DATE_EPOCH": "77"},
    ]
    found = []
    for number, variables in enumerate(settings):
        folder = tmp_path / ("x" * (number * 20 + 1))
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", BUILD, bed.ROOT, files],
            cwd=folder,
            env={**os.environ, **variables},
            umask=0o077 if number else 0o022,
            capture_output=True,
            text=True,
            check=False,
        )
        found += bed.lines(done)
    assert found[0] == found[1]


def test_the_build_information_says_what_is_inside(tmp_path: Path) -> None:
    tree = bed.tree_of(FILES, minify=True)
    data = write(tree, bed.code_of(tree), {"version": "1"}, entry="app", lock=b"the lock", requirements=b"[]")
    (tmp_path / "app.pyz").write_bytes(data)
    with zipfile.ZipFile(tmp_path / "app.pyz") as archive:
        information = json.loads(archive.read("_trainer/build.json"))
        assert archive.read("_trainer/requirements.json") == b"[]"
    assert information["entry"] == "app"
    assert information["version"] == "1"
    assert set(information["sha256"]) == {"files", "originals", "code"}
    assert set(information["sha256"]["code"]) == {bed.running()[0].version}


@pytest.mark.parametrize(
    ("extra", "entry", "fault"),
    [
        (File("__main__.py", b"", "dist"), "app", "where the build puts its own"),
        (File("_trainer/x", b"", "dist"), "app", "where the build puts its own"),
        (File("there.py", b"", "dist", "elsewhere", False, b""), "app", "not where module elsewhere belongs"),
        (File("x.txt", b"", "dist"), "no.such:main", "module no.such is missing"),
    ],
)
def test_a_tree_that_is_no_trainer_is_refused(extra: File, entry: str, fault: str) -> None:
    tree = bed.tree_of(FILES)
    with pytest.raises(BuildError, match=fault):
        write(Tree.of([*tree, extra]), bed.code_of(tree), {}, entry=entry)


def test_more_than_a_zip_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("build.archive._MOST_FILES", 2)
    archive = Zip(0)
    archive.add("a", b"")
    archive.add("b", b"")
    with pytest.raises(ValueError, match="more than a zip can hold"):
        archive.add("c", b"")


def test_a_draft_that_was_not_published_leaves_nothing(tmp_path: Path) -> None:
    output = tmp_path / "new" / "app.pyz"
    with Draft(output) as draft:
        draft.fill(b"one")
        draft.publish()
    with pytest.raises(RuntimeError), Draft(output) as draft:
        draft.fill(b"two")
        raise RuntimeError
    assert output.read_bytes() == b"one"
    assert list(output.parent.iterdir()) == [output]


def test_everybody_may_run_it(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with Draft(tmp_path / "app.pyz") as draft:
            draft.fill(b"x")
            draft.publish()
    finally:
        os.umask(before)
    assert (tmp_path / "app.pyz").stat().st_mode & 0o7777 == 0o755


def test_a_place_that_can_t_be_written_is_an_error_with_a_fix(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BuildError, match="can't write into"), Draft(tmp_path / "file" / "app.pyz"):
        pass
    (tmp_path / "folder.pyz").mkdir()
    with pytest.raises(BuildError, match="can't replace"), Draft(tmp_path / "folder.pyz") as draft:
        draft.fill(b"x")
        draft.publish()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


STOPPED = """
import sys, time
from pathlib import Path
import build.__main__ as tool
from build.write import Draft

output = Path(sys.argv.pop())

def build(options):
    with Draft(output) as draft:
        draft.fill(b"half")
        print("READY", flush=True)
        time.sleep(60)

tool.build = build
sys.exit(tool.main())
"""


@pytest.mark.parametrize(("sent", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_stopped_build_leaves_the_old_file(tmp_path: Path, sent: signal.Signals, status: int) -> None:
    output = tmp_path / "app.pyz"
    output.write_bytes(b"old")
    tool = subprocess.Popen(
        [sys.executable, "-c", STOPPED, output], cwd=bed.ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with tool:
        assert tool.stdout is not None
        assert tool.stdout.readline() == "READY\n"
        assert len(list(tmp_path.iterdir())) == 2
        time.sleep(0.1)
        tool.send_signal(sent)
        _, errors = tool.communicate(timeout=100)
    assert tool.returncode == status, errors
    assert "Traceback" not in errors
    assert output.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [output]
