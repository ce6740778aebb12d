"""Shared objects by their paths: torch's are opened without a search, and each symbol is bound as ever."""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from trainer_boot import libraries, libraries_making, snapshot
from trainer_boot.layers import Note

ROOT = Path(__file__).parent.parent.parent

IMPORT = """
    import json, os, sys
    from trainer_boot import layers, snapshot
    notes = layers.put_on(["snapshot", "libraries"] if sys.argv[1] == "fast" else ["snapshot"])
    note = next(note for note in notes if note["layer"] == "libraries")
    if sys.argv[1] == "fast" and "LD_LIBRARY_PATH" in os.environ:
        sys.exit(print(json.dumps({"note": note})))
    import torch
    made = snapshot.record_if_missing(100)
    print(json.dumps({"note": note, "made": made["made"], "sum": torch.ones(3).sum().item()}))
    """
INSIDE = ("/torch/", "/nvidia/", "/numpy")


def start(folder: Path, way: str, *before: str, **variables: str) -> dict[str, Any]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    environ |= {"TRAINER_SNAPSHOT_DIR": str(folder / "cache"), "PYTHONPATH": str(ROOT / "src"), **variables}
    done = subprocess.run(
        [*before, sys.executable, "-c", dedent(IMPORT), way],
        env=environ,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a snapshot of an import of torch."""
    place = tmp_path_factory.mktemp("libraries")
    first = start(place, "fast")
    assert (first["note"]["state"], first["made"]) == ("aside", True)
    return place


def test_the_linker_searches_no_folder_of_torch_any_more(folder: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("there is no strace")

    def searched(way: str, state: str) -> int:
        table = folder / way
        note = start(folder, way, "strace", "-o", str(table), "-e", "trace=openat")["note"]
        assert note["state"] == state
        return sum(
            "ENOENT" in line and ".so" in line and any(part in line for part in ("/torch/", "libtorch", "numpy.libs"))
            for line in table.read_text().splitlines()
        )

    assert searched("fast", "on") <= 2 < 50 < searched("plain", "off")


def test_each_symbol_is_bound_as_without_it(folder: Path) -> None:
    def bindings(way: str) -> set[str]:
        log = folder / f"bound-{way}"
        found = start(folder, way, LD_DEBUG="bindings", LD_DEBUG_OUTPUT=str(log))
        assert found["sum"] == 3.0
        if way == "fast":
            assert found["note"] == {"layer": "libraries", "state": "on", "why": "", "opened": 3}
        (place,) = [path for path in folder.glob(f"bound-{way}.*") if path.stat().st_size > 1 << 20]
        lines = re.findall(r"binding file (\S+) \[0\] to (\S+) \[0\]: (.*)", place.read_text(errors="replace"))
        place.unlink()
        assert len(lines) > 50_000
        # what Python itself calls for the first time while it opens them is not the question
        return {" ".join(line) for line in lines if any(part in line[0] for part in INSIDE)}

    assert bindings("fast") == bindings("plain")


def test_it_steps_aside_where_the_linker_is_told_to_look_elsewhere(folder: Path) -> None:
    note = start(folder, "fast", LD_LIBRARY_PATH="/nowhere")["note"]
    assert (note["state"], note["why"]) == ("aside", "LD_LIBRARY_PATH is set")


def test_a_library_that_is_gone_leaves_all_to_the_linker(tmp_path: Path) -> None:
    (machine, flags) = (Path(sys.executable).read_bytes()[18:20], Path(sys.executable).read_bytes()[48:52])
    note: Note = {"state": "on"}
    chain: libraries.Chain = (f"{tmp_path}/libgone.so",)
    none: libraries.Chain = ()
    chains = {"mine": (chain, none), "other": (chain, none)}
    opener = libraries.Opener(((0, 0), machine, flags, chains, {}), note)
    opener.before("yours")
    assert note == {"state": "on"}
    opener.before("mine")
    assert note["state"] == "aside"
    assert "libgone.so" in str(note["why"])
    note.clear()
    opener.before("other")
    assert note == {}


def test_the_made_object_is_one_that_tools_can_read(tmp_path: Path) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("there is no readelf")
    place = tmp_path / "stub.so"
    head = Path(sys.executable).read_bytes()[:64]
    place.write_bytes(libraries.stub(("/lib/one.so", "/lib/två.so.2"), head[18:20], head[48:52]))
    said = subprocess.run(["readelf", "-dlW", str(place)], capture_output=True, text=True, check=True)
    assert re.findall(r"\(NEEDED\).*\[(.*)\]", said.stdout) == ["/lib/one.so", "/lib/två.so.2"]
    assert re.search(r"GNU_STACK.* RW ", said.stdout)
    assert "rror" not in said.stderr
    read = libraries_making.Library(str(place))
    assert read.needed == ["/lib/one.so", "/lib/två.so.2"]


def test_without_a_snapshot_it_is_aside() -> None:
    snapshot.withdraw()
    assert libraries.serve()["why"] == "there is no snapshot that says where they are"


def test_two_libraries_of_one_name_are_left_alone(tmp_path: Path) -> None:
    head = Path(sys.executable).read_bytes()[:64]
    for path, needed in (("a/libx.so", ()), ("b/libx.so", ()), ("root.so", ("libx.so",))):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(libraries.stub(needed, head[18:20], head[48:52]))
    each = {str(path): libraries_making.Library(str(path)) for path in tmp_path.rglob("*.so")}
    root, one, two = f"{tmp_path}/root.so", f"{tmp_path}/a/libx.so", f"{tmp_path}/b/libx.so"
    assert libraries_making._chain(root, each, {"libx.so": [one]}) == (root, one)
    with pytest.raises(libraries_making.Ambiguous):
        libraries_making._chain(root, each, {"libx.so": [one, two]})


def compiled(place: Path, value: int, *options: str) -> str:
    """A small library whose function `value_of_it` gives the value."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    place.parent.mkdir(parents=True, exist_ok=True)
    source = place.with_suffix(".c")
    source.write_text(f"int value_of_it(void) {{ return {value}; }}\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(place), str(source), *options], check=True)
    return str(place)


def opener(note: Note, chain: tuple[str, ...], given: tuple[str, ...], name: str) -> libraries.Opener:
    head = Path(sys.executable).read_bytes()[:64]
    chains = {"mine": (chain, given)}
    return libraries.Opener(((0, 0), head[18:20], head[48:52], chains, dict.fromkeys(chain, name)), note)


def test_a_library_of_that_name_from_elsewhere_is_the_one_that_stays(tmp_path: Path) -> None:
    """By name the linker would take the one that is there; by path it would load a second one."""
    name = f"libtwice{os.getpid()}.so"
    here = compiled(tmp_path / "here/any.so", 1, f"-Wl,-soname,{name}")
    other = compiled(tmp_path / "other/some.so", 2, f"-Wl,-soname,{name}")
    assert ctypes.CDLL(here).value_of_it() == 1
    note: Note = {"state": "on"}
    opener(note, (other,), (), name).before("mine")
    assert note == {"state": "on", "why": f"mine: {here} has the name of another library"}
    assert other not in libraries_making.loaded()


def test_what_was_loaded_before_has_to_be_loaded_now(tmp_path: Path) -> None:
    name = f"libgiven{os.getpid()}.so"
    place = compiled(tmp_path / name, 3, f"-Wl,-soname,{name}")
    note: Note = {"state": "on"}
    opener(note, (place,), (place,), name).before("mine")
    assert note["why"] == f"mine: {place} is not loaded yet"
    opener(note, (place,), (), name).before("mine")
    assert place in libraries_making.loaded()
    assert note["opened"] == 1
    opener(note, (place,), (place,), name).before("mine")
    assert note["state"] == "on"


def test_a_library_of_the_system_is_found_anyway_unless_a_folder_of_the_chain_has_it(tmp_path: Path) -> None:
    root = compiled(tmp_path / "root/libroot.so", 1, "-Wl,-rpath,$ORIGIN/../extra:/elsewhere")
    library = libraries_making.Library(root)
    assert library.folders == [f"{tmp_path}/root/../extra", "/elsewhere"]
    path, known = "/lib/libsystem.so.1", {root: library, "/lib/libsystem.so.1": libraries_making.Library(root)}
    known[path].folders.clear()
    listing = b"\0/lib/libsystem.so.1\0"
    assert libraries_making._is_found(path, (root, path), known, listing)
    assert not libraries_making._is_found(path, (root, path), known, b"\0/other/lib/libsystem.so.1\0")
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra/libsystem.so.1").touch()
    assert not libraries_making._is_found(path, (root, path), known, listing)
