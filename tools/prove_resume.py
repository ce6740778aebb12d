"""A run killed by SIGKILL at random moments and started again ends with the very weights of a run left alone.

The file is copied alone into an empty folder and trains there. Each trial draws one random moment between its start
and the time a whole run takes, kills the whole process group then, and starts the same command again.

    uv run python -m tools.prove_resume                 20 moments, writes docs/proofs/resume.json
    uv run python -m tools.prove_resume --moments 3 --nproc 2 --seed 7
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.proof import losses, need_pyz, small_text, train, weights_sha256, write
from tools.proof import parser as proof_parser

SETTINGS = {
    "data.sequence": "64", "batch.size": "16", "model.layers": "2", "model.width": "64", "model.heads": "2",
    "model.dropout": "0.1", "checkpoint.every": "5", "eval.every": "20", "eval.samples": "32",
    "log.progress": "none", "precision.compute": "fp32", "run.threads": "1",
}  # fmt: skip


def command(run: str, data: Path, nproc: int, updates: int) -> list[str]:
    """The arguments of `train`."""
    flags = [word for name, value in SETTINGS.items() for word in (f"--{name}", value)]
    return [
        "--nproc",
        str(nproc),
        "--run.folder",
        run,
        "--run.steps",
        str(updates),
        *flags,
        "--data.text",
        str(data),
        "--data.validation",
        str(data.parent / "held.txt"),
    ]


def trial(pyz: Path, folder: Path, arguments: list[str], after: float) -> None:
    """One start, killed with all its children after `after` seconds unless it has ended by itself."""
    process = subprocess.Popen(
        [sys.executable, str(pyz), "train", *run_file(folder, arguments)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(after)
    except subprocess.TimeoutExpired:
        kill_tree(process.pid)
        process.wait()


def run_file(folder: Path, arguments: list[str]) -> list[str]:
    """An empty run file, so that the embedded default is not what is trained."""
    (folder / "run.toml").touch()
    return ["run.toml", *arguments]


def kill_tree(pid: int) -> None:
    """SIGKILL to a process and all below it; ranks have sessions of their own."""
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    for child in children.stdout.split():
        kill_tree(int(child))
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def main() -> int:
    parser = proof_parser(__doc__)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--nproc", type=int, default=1)
    parser.add_argument("--updates", type=int, default=200, help="length of the run")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pyz = folder / "trainer.pyz"
        shutil.copy(need_pyz(arguments.pyz), pyz)
        data = small_text(folder)
        (folder / "held.txt").write_bytes(data.read_bytes()[:20_000])
        start = time.perf_counter()
        alone = train(pyz, folder, *run_file(folder, command("alone", data, arguments.nproc, arguments.updates)))
        whole = time.perf_counter() - start
        assert alone.returncode == 0, alone.stderr
        expected, expected_losses = weights_sha256(folder / "alone"), losses(folder / "alone")
        rows = []
        for number in range(arguments.moments):
            run = f"run-{number}"
            after = draw.uniform(0.3, whole * 1.02)
            trial(pyz, folder, command(run, data, arguments.nproc, arguments.updates), after)
            kept = sorted(path.name for path in (folder / run / "checkpoints").glob("step-*"))
            again = train(pyz, folder, *run_file(folder, command(run, data, arguments.nproc, arguments.updates)))
            same = (
                again.returncode == 0
                and weights_sha256(folder / run) == expected
                and losses(folder / run) == expected_losses
            )
            rows.append({"killed_after_s": round(after, 2), "newest_then": kept[-1] if kept else None, "same": same})
            print(
                f"{number + 1:>3}: killed after {after:5.2f} of {whole:.2f} s, had {rows[-1]['newest_then']}: "
                f"{'same weights and losses' if same else 'DIFFERENT ' + again.stderr[-500:]}",
                flush=True,
            )
            shutil.rmtree(folder / run)
    good = sum(bool(row["same"]) for row in rows)
    print(f"{good} of {len(rows)} with the same sha256 ({expected})")
    name = "resume" if arguments.nproc == 1 else f"resume-{arguments.nproc}-ranks"
    write(name, {"same": good, "moments": rows, "whole_run_s": round(whole, 2), "weights": expected}, arguments)
    return 0 if good == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
