"""One run file, many starts on a loaded machine: each chooses the same number format and gives the same losses.

uv run python -m tools.prove_numbers              100 starts beside four busy processes
uv run python -m tools.prove_numbers --starts 10
"""

import argparse
import collections
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.beds.runs import trainer, warm_trainer
from tools import proof

RUN_FILE = """
[run]
steps = 2
device = "cpu"
threads = 1
[model]
layers = 1
width = 64
[data]
text = ["text.txt"]
sequence = 32
holdout = 0
[batch]
size = 8
[checkpoint]
final = false
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--burners", type=int, default=4, help="processes that keep the cores busy")
    parser.add_argument("--no-json", action="store_true", help="print only, leave docs/proofs as it is")
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="prove-numbers-") as folder:
        found = starts(Path(folder), arguments.starts, burners=arguments.burners)
    seconds = time.monotonic() - began
    choices = collections.Counter(choice for choice, _ in found)
    losses = collections.Counter(loss for _, loss in found)
    print(f"{len(found)} starts beside {arguments.burners} busy processes, {seconds:.0f} s")
    for name, counts in (("choice", choices), ("losses", losses)):
        for value, count in counts.items():
            print(f"  {count:4} x {name} {value}")
    result = {
        "starts": len(found),
        "burners": arguments.burners,
        "seconds": round(seconds),
        "choices": dict(choices),
        "losses": dict(losses),
    }
    proof.write("numbers", result, arguments)
    return 0 if len(choices) == len(losses) == 1 else 1


def starts(folder: Path, count: int, *, burners: int, warm: bool = False) -> list[tuple[str, str]]:
    """(the line that tells the format, the losses in full) of `count` starts of the run file in `folder`, while
    `burners` processes keep cores busy. `warm`: forked from a process that has imported torch."""
    (folder / "run.toml").write_text(RUN_FILE)
    (folder / "text.txt").write_text("the same text in every run\n" * 300)
    burn = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(burn) for _ in range(burners)]
    try:
        return [_start(folder, number, warm) for number in range(count)]
    finally:
        for each in busy:
            each.kill()
            each.wait()


def _start(folder: Path, number: int, warm: bool) -> tuple[str, str]:
    run_folder = folder / f"run-{number}"
    words = ["train", "run.toml", "--run.folder", str(run_folder), "--log.progress", "none"]
    done = (warm_trainer if warm else trainer)(*words, cwd=folder, timeout=300)
    if done.returncode:
        raise RuntimeError(done.stderr)
    choice = next(line for line in done.stderr.splitlines() if line.startswith("precision.compute "))
    return choice, " ".join(repr(loss) for loss in proof.losses(run_folder))


if __name__ == "__main__":
    sys.exit(main())
