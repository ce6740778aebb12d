"""Shows that no question and no refused start changes the data of a run: digests before and after, for each of them.

    uv run python -m tools.prove_prepared_data

A small run is trained from text, then each case runs the trainer once more and compares every prepared file, and every
checkpoint, with what was there. Takes a minute; writes docs/proofs/prepared-data.json.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tools import proof

TINY = [
    "--data.sequence", "32", "--batch.size", "8", "--model.layers", "1", "--model.width", "32", "--model.heads", "2",
    "--run.steps", "6", "--log.progress", "none", "--precision.compute", "fp32", "--run.threads", "1",
    "--run.device", "cpu",
]  # fmt: skip
Trainer = Callable[..., "subprocess.CompletedProcess[str]"]


class Case(NamedTuple):
    """What is run: `words` in the folder `directory`, after `before`; the exit status that is right, and what must be
    printed."""

    name: str
    words: list[str]
    status: int
    printed: str = ""
    before: Callable[[Path], None] | None = None
    directory: str = "."


def lose_the_corpus(place: Path) -> None:
    """The text that the run was trained on is gone."""
    for path in place.glob("*.txt"):
        path.rename(path.with_suffix(".gone"))


def change_the_corpus(place: Path) -> None:
    """Another text under the same names."""
    for path in place.glob("*.gone"):
        path.with_suffix(".txt").write_text("something else\n" * 100)


CASES = [
    Case("eval", ["eval", "out"], 0, "loss:"),
    Case("eval on other validation files", ["eval", "out", "--data.validation", "other/*.txt"], 0, "loss:"),
    Case("eval with another hold-out", ["eval", "out", "--data.holdout", "3"], 0, "loss:"),
    Case("generate", ["generate", "out", "--tokens", "4"], 0),
    Case("prepare with other settings", ["prepare", "run.toml", *TINY, "--data.holdout", "3"], 0, "fingerprint"),
    Case("a train that is refused: another model", ["train", "run.toml", *TINY, "--run.steps", "9", "--model.width",
         "64", "--data.holdout", "4"], 1, "error:"),
    Case("a train that is refused: another text", ["train", "run.toml", *TINY, "--run.steps", "9", "--data.text",
         "other/*.txt"], 1, "error:"),
    Case("eval from another directory", ["eval", "../out"], 0, "loss:", directory="elsewhere"),
    Case("eval without the corpus", ["eval", "out"], 0, "loss:", lose_the_corpus),
    Case("generate without the corpus, from another directory", ["generate", "../out", "--tokens", "4"], 0,
         directory="elsewhere"),
    Case("eval after the corpus changed", ["eval", "out"], 0, "loss:", change_the_corpus),
]  # fmt: skip
"""In this order: each finds what those before it left."""


def digests(run_folder: Path) -> dict[str, str]:
    """Of every file of the data and the checkpoints of a run."""
    files = [path for name in ("data", "checkpoints") for path in (run_folder / name).rglob("*") if path.is_file()]
    return {str(path.relative_to(run_folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def make(place: Path, trainer: Trainer) -> None:
    """A run in `place`/out, text for it, and other text."""
    for number in range(10):
        (place / f"{number}.txt").write_text(f"document {number} says hello to the world\n" * 40)
    for name in ("other", "elsewhere"):
        (place / name).mkdir()
    (place / "other" / "a.txt").write_text("other text for another question\n" * 50)
    (place / "run.toml").write_text('[data]\ntext = ["*.txt"]\n[run]\nfolder = "out"\n')
    done = trainer("train", "run.toml", *TINY, cwd=place)
    assert done.returncode == 0, done.stderr


def show(case: Case, place: Path, trainer: Trainer) -> dict[str, Any]:
    """Run a case; what changed of the files that were there before."""
    if case.before is not None:
        case.before(place)
    before = digests(place / "out")
    done = trainer(*case.words, cwd=place / case.directory)
    after = digests(place / "out")
    changed = [name for name, digest in before.items() if after.get(name) != digest]
    right = done.returncode == case.status or (case.status and done.returncode in (1, 2))
    good = not changed and bool(right) and case.printed in done.stdout + done.stderr
    last = (done.stderr if done.returncode else done.stdout).strip().splitlines()[-2:]
    return {
        "case": case.name,
        "files": len(before),
        "changed": changed,
        "new": sorted(set(after) - set(before)),
        "status": done.returncode,
        "printed": [line.replace(str(place), "PLACE") for line in last],
        "good": good,
    }


def beside_a_running_job(place: Path) -> dict[str, Any]:
    """`prepare` with other settings while a run trains: the run ends as if nobody had."""
    words = [
        sys.executable,
        "-m",
        "trainer",
        "train",
        "run.toml",
        *TINY,
        "--run.folder",
        "second",
        "--run.steps",
        "400",
    ]
    with subprocess.Popen(words, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        while not (place / "second" / "metrics.jsonl").exists() and job.poll() is None:
            time.sleep(0.05)
        before = digests(place / "second")
        other = [sys.executable, "-m", "trainer", "prepare", "run.toml", *TINY, "--run.folder", "second"]
        done = subprocess.run([*other, "--data.holdout", "3"], cwd=place, capture_output=True, text=True, check=False)
        running = job.poll() is None
        after = digests(place / "second")
    changed = [name for name, digest in before.items() if after.get(name) != digest]
    return {
        "case": "prepare beside a running job",
        "files": len(before),
        "changed": changed,
        "running": running,
        "status": [done.returncode, job.returncode],
        "good": not changed and done.returncode == 0 and job.returncode == 0,
    }


def started(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """The trainer of this checkout as a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(proof.ROOT / "src")}
    return subprocess.run(
        [sys.executable, "-m", "trainer", *words], cwd=cwd, capture_output=True, text=True, check=False, env=environment
    )


def main() -> None:
    """All cases, one after the other."""
    given = proof.parser(__doc__).parse_args()
    place = Path(tempfile.mkdtemp(prefix="prove-prepared-data-"))
    try:
        make(place, started)
        rows = [show(case, place, started) for case in CASES]
        for path in place.glob("*.gone"):
            path.rename(path.with_suffix(".txt"))
        rows.append(beside_a_running_job(place))
    finally:
        shutil.rmtree(place)
    for row in rows:
        print(
            f"{'ok   ' if row['good'] else 'WRONG'} {row['case']}: {row['files']} files, {len(row['changed'])} changed"
        )
    proof.write("prepared-data", {"cases": len(rows), "good": sum(row["good"] for row in rows), "rows": rows}, given)
    sys.exit(0 if all(row["good"] for row in rows) else 1)


if __name__ == "__main__":
    main()
