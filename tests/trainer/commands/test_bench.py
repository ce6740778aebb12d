"""`trainer bench startup`: real starts, side by side."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.beds.runs import command, environ
from trainer.cli import main


@pytest.mark.long
@pytest.mark.timeout(600)
def test_one_round_in_one_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "found.json"
    assert main(["bench", "startup", "--rounds", "1", "--json", str(target)]) == 0
    printed = capsys.readouterr()
    found = json.loads(target.read_text())
    rows = found["contenders"]
    assert list(rows) == [
        "hand-written script",
        "trainer, no layer",
        "trainer",
        "trainer, policy fast",
    ]
    assert rows["hand-written script"]["ratio"] == 1.0
    assert all(row["median"] > 0 and row["losses"] == rows["trainer"]["losses"] for row in rows.values())
    assert {note["state"] for note in rows["trainer, no layer"]["layers"]} == {"off"}
    assert {note["layer"]: note["state"] for note in rows["trainer"]["layers"]}["gc"] == "on"
    assert {note["layer"]: note["state"] for note in rows["trainer, policy fast"]["layers"]}["lazy"] == "on"
    assert printed.out.splitlines()[0].startswith("time to the first update, one process")
    assert printed.out.splitlines()[-1] == "the losses of all are the same, bit for bit"
    assert "trainer: round 1 of 1" in printed.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_comparison_leaves_nothing(tmp_path: Path, number: int) -> None:
    with subprocess.Popen(
        command("bench", "startup", "--nproc", "2"),
        cwd=tmp_path,
        env=environ(TMPDIR=str(tmp_path)),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stderr
        assert "making its snapshot" in process.stderr.readline()
        while len(_started_in(tmp_path)) < 3:  # itself, a parent and a rank at least
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(number)
        assert process.wait(60) == 130
    assert _started_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def _started_in(folder: Path) -> list[int]:
    """All processes that have the folder for temporary files."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if f"TMPDIR={folder}".encode() in variables:
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["steps"], "no such benchmark: steps"),
        (["startup", "--nproc", "3"], "--nproc 3: the measured batch of 8 samples cannot be split evenly"),
        (["startup", "--rounds", "0"], "--rounds must be at least 1, not 0"),
        (["startup", "--json", "/no/such/folder/x.json"], "--json: /no/such/folder/x.json cannot be written"),
        (["startup", "--optim.lr", "1"], "bench takes no settings (--optim.lr)"),
        (["startup", "--round", "1"], "unknown flag --round"),
    ],
)
def test_what_is_wrong_is_told_before_anything_runs(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    assert capsys.readouterr().err.splitlines()[0] == f"error: {told}"
