"""The command line of a child: it gives the flags of this process, under every option."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.boot import bed
from trainer_boot import interpreter

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
# prints what the interpreter is set to; its child, started by our words, does the same
PROGRAM = f"""
import json, subprocess, sys, warnings, _imp
facts = [list(sys.flags), sys.warnoptions, sys._xoptions, _imp.check_hash_based_pycs, sys.pycache_prefix,
         sys.__stdout__.write_through, sys.dont_write_bytecode]
print(json.dumps(facts), flush=True)
if len(sys.argv) < 2:
    sys.path.insert(0, {SOURCE!r})
    from trainer_boot import interpreter
    sys.exit(subprocess.run([*interpreter.python(), FILE, "child"]).returncode)
"""
OPTIONS = [
    "-I", "-E", "-s", "-P", "-O", "-OO", "-B", "-S", "-b", "-bb", "-u", "-q", "-d", "-v", "-X dev", "-X utf8=1",
    "-X pycache_prefix=/nowhere/at/all", "-X int_max_str_digits=5000", "-X warn_default_encoding", "-X no_debug_ranges",
    "-X importtime", "-X faulthandler", "-X frozen_modules=off", "-W error::FutureWarning -W ignore", "-X trainer=1",
    "--check-hash-based-pycs always", "-I -O -B -u -X utf8=0 -W once", "-E -s -X dev",
]  # fmt: skip


def pairs(python: str, folder: Path, options: list[str], **variables: str) -> list[object]:
    """What parent and child say of themselves, for each of the options."""
    program = folder / "program.py"
    program.write_text(PROGRAM.replace("FILE", repr(str(program))))
    # without a locale Python sets one for its children, and the UTF-8 mode for itself
    environ = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **variables}
    running = [
        subprocess.Popen(
            [python, *words.split(), str(program)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
            text=True,
        )
        for words in options
    ]
    found: list[object] = []
    for process in running:
        output = process.communicate(timeout=100)[0]
        assert process.returncode == 0, process.args
        found.append([json.loads(line) for line in output.splitlines()])
    return found


@pytest.mark.parametrize("other", [False, True])
def test_a_child_has_the_flags_of_its_parent(tmp_path: Path, other: bool) -> None:
    python = bed.other_python() if other else sys.executable
    if python is None:
        pytest.skip("there is no other Python here")
    for words, found in zip(OPTIONS, pairs(python, tmp_path, OPTIONS), strict=True):
        assert isinstance(found, list)
        parent, child = found
        assert child == parent, words


def test_flags_that_come_from_variables_stay_too(tmp_path: Path) -> None:
    variables = {"PYTHONSAFEPATH": "1", "PYTHONWARNINGS": "ignore,once", "PYTHONOPTIMIZE": "1", "PYTHONUNBUFFERED": "1"}
    (found,) = pairs(sys.executable, tmp_path, [""], **variables)
    assert isinstance(found, list)
    parent, child = found
    assert child == parent
    assert parent[1] == ["ignore", "once"]


def test_tools_of_their_own_see_no_folder_and_no_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pip.py").write_text("raise SystemExit('planted')")
    program = [*interpreter.tool(), "-m", "pip", "--version"]
    done = subprocess.run(
        program, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert "planted" not in done.stderr
