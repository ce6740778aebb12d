"""Slices of the long proofs, on the file built for this session."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools import startup_picture, startup_steps
from trainer import startup

# each starts many trainers, one after the other
pytestmark = pytest.mark.timeout(400)

ROOT = Path(__file__).parent.parent.parent


def tool(name: str, *arguments: str) -> str:
    """Runs a tool that must succeed; what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", f"tools.{name}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_killed_runs_end_with_the_weights_of_one_left_alone(pyz: Path) -> None:
    printed = tool("prove_resume", "--moments", "1", "--updates", "40", "--seed", "5", "--pyz", str(pyz), "--no-json")
    assert "1 of 1 with the same sha256" in printed


def test_one_and_two_ranks_have_the_same_losses(pyz: Path) -> None:
    assert "fp64: worst" in tool("prove_ranks", "--updates", "4", "--pyz", str(pyz), "--no-json")


def test_memory_does_not_grow_with_the_corpus(pyz: Path) -> None:
    assert "ratio" in tool("prove_memory", "--megabytes", "10,60", "--pyz", str(pyz), "--no-json")


def test_mistakes_are_told_in_two_lines(pyz: Path) -> None:
    assert "8 of 8 as they should be" in tool("prove_errors", "--usage", "--pyz", str(pyz), "--no-json")


def test_another_place_builds_the_same_bytes(pyz: Path, tmp_path: Path) -> None:
    other = tmp_path / "another place" / "trainer.pyz"
    other.parent.mkdir()
    command = [sys.executable, "-m", "build", "--quiet", "--output", str(other)]
    changed = {**os.environ, "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "1", "LC_ALL": "C"}
    subprocess.run(command, cwd=ROOT, check=True, env=changed, umask=0o077)
    assert other.read_bytes() == pyz.read_bytes()


def test_damaged_files_are_refused_or_do_what_the_whole_one_does(pyz: Path) -> None:
    assert "12 of 12 changes; silent differences: 0" in tool(
        "prove_tampering", "--changes", "12", "--pyz", str(pyz), "--no-json"
    )


def test_planted_modules_run_only_where_plain_python_runs_them(pyz: Path) -> None:
    words = ["--options=-I", "--ways", "train, started;exec, one", "--pyz", str(pyz), "--no-json"]
    assert "2 of 2 starts ran nothing that plain Python would not run" in tool("prove_interpreter_flags", *words)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as other users")
def test_what_other_users_could_have_written_is_not_entered() -> None:
    setups = "bin is 0777;torch/__init__.py is another's;the folder is another's;lock of a killed maker"
    assert "6 of 6 as they should be" in tool("prove_other_users", "--only", setups, "--no-json")


def test_answers_are_measured_beside_bare_python(pyz: Path, tmp_path: Path) -> None:
    drawn = tmp_path / "startup.svg"
    flows = ["--flows", "version,help,wrong", "--rounds", "2"]
    printed = tool("bench_startup", *flows, "--pyz", str(pyz), "--picture", str(drawn))
    assert "python -c pass" in printed
    assert drawn.read_text().startswith("<svg")


def test_killed_ranks_go_on(pyz: Path) -> None:
    printed = tool("prove_restarts", "--kills", "2", "--nproc", "2", "--no-json", "--pyz", str(pyz))
    assert "2 restarts after 2 kills, status 0, losses differ by at most 0.0e+00" in printed


def test_killed_runs_leave_nothing(pyz: Path) -> None:
    kinds = "two ranks, loader workers;exec, two ranks;one rank"
    printed = tool("prove_leftovers", "--kinds", kinds, "--runs", "6", "--no-json", "--pyz", str(pyz))
    assert "7 runs, 2 killed; 0 left" in printed


def test_the_first_updates_are_those_of_a_hand_written_script(pyz: Path, tmp_path: Path) -> None:
    bed = startup_steps.bed(tmp_path)
    contenders = startup_steps.contenders("ddp", pyz, tmp_path)
    plain, ours = bed.run(contenders["plain"]), bed.run(contenders["trainer"])
    assert ours.losses == plain.losses
    assert len(ours.losses) == 2
    assert min(ours.seconds, plain.seconds) > 0
    assert [note["layer"] for note in ours.layers] == list(startup.layers())
    assert (tmp_path / "snapshots").is_dir()


def test_the_picture_shows_first_updates_before_answers() -> None:
    steps = {"rounds": 7, "one process": {"plain": {"ratio": 1.0}, "trainer": {"ratio": 0.4}, "x": {"skipped": "no"}}}
    answers = {"--version": {"trainer.pyz": {"ratio": 1.5}, "zipapp": {"ratio": 1.9}, "pex": {"ratio": 50.25}}}
    drawn = startup_picture.picture({"first_update": steps, "answers": answers, "memory": {"rounds": 7}})
    root = ElementTree.fromstring(drawn)
    texts = ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("text")]
    order = ["one process", "plain", "trainer", "0.40", "--version", "trainer.pyz", "1.50", "pex", "50.25"]
    assert [text for text in texts if text in [*order, "x", "memory"]] == order
    bars = [float(element.get("width", 0)) for element in root.iter() if element.get("rx")]
    assert bars[1] == pytest.approx(0.4 * bars[0], abs=0.1)
    assert bars[3] == pytest.approx(1.9 / 1.5 * bars[2], abs=0.1)
    assert bars[3] < bars[4] < 700 - startup_picture.LEFT  # too long to be drawn: cut, its figure tells


def test_all_contenders_of_a_step_do_the_same_work() -> None:
    short = ["--models", "tiny", "--rounds", "1", "--updates", "10"]
    printed = tool("bench_step", "--contenders", "trainer", *short, "--layouts", "one,full,pipeline")
    losses = [line.rsplit(" ", 1)[1] for line in printed.splitlines() if "loss" in line]
    assert len(losses) == 6, printed
    assert losses[0::2] == losses[1::2], printed


@pytest.mark.parametrize(
    "name",
    [
        "typecheck",
        "bench_startup",
        "bench_step",
        "prove_build",
        "prove_curves",
        "prove_tampering",
        "prove_one_file",
        "startup_scale",
    ],
)
def test_every_tool_explains_itself(name: str) -> None:
    assert "uv run" in tool(name, "--help")
