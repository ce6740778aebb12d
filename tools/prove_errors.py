"""Wrong run files, flags and surroundings: what is printed for each, and the exit status.

Each must end with an `error:` and a `fix:` line for every mistake, no traceback, and the status of the table below; odd
surroundings that a run can live with must leave it complete. Mounts a small tmpfs and a read-only one and hides /proc,
so it needs root; without it those are left out and said so.

    uv run python -m tools.prove_errors                writes docs/proofs/errors.json
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

from tools.proof import losses, need_pyz, small_text, train, write
from tools.proof import parser as proof_parser

SMALL = (
    "--data.sequence",
    "64",
    "--batch.size",
    "8",
    "--model.layers",
    "2",
    "--model.width",
    "64",
    "--model.heads",
    "2",
    "--run.steps",
    "4",
    "--log.progress",
    "none",
    "--data.holdout",
    "0",
    "--precision.compute",
    "fp32",
)


@contextlib.contextmanager
def mounted(place: Path, options: str) -> Iterator[Path]:
    """A tmpfs at `place` for a while."""
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


class Trials:
    """Runs the wrong starts of one folder and collects what they print."""

    def __init__(self, pyz: Path, folder: Path) -> None:
        self.pyz = pyz
        self.folder = folder
        self.rows: list[dict[str, object]] = []
        self.data = small_text(folder, 50_000)
        (folder / "run.toml").write_text(f'[data]\ntext = ["{self.data}"]\n')

    def start(self, name: str, status: int, *arguments: str, python: str = sys.executable) -> None:
        """One wrong start."""
        if python == sys.executable:
            done = train(self.pyz, self.folder, *arguments)
        else:
            done = subprocess.run(
                [python, str(self.pyz), "train", *arguments],
                cwd=self.folder,
                capture_output=True,
                text=True,
                check=False,
            )
        self.judge(name, status, done)

    def judge(self, name: str, status: int, done: "subprocess.CompletedProcess[str]") -> None:
        """Each error with its fix, the right status, no traceback."""
        lines = [line for line in done.stderr.splitlines() if line.startswith(("error:", "fix:"))]
        good = (
            done.returncode == status
            and [line.partition(":")[0] for line in lines] == ["error", "fix"] * max(1, len(lines) // 2)
            and "Traceback" not in done.stderr
        )
        self.keep(name, done, good, lines)

    def shell(self, text: str) -> "subprocess.CompletedProcess[str]":
        """A command of ODD; what it prints as text."""
        env = {
            **os.environ,
            "T": f"{sys.executable} {self.pyz}",
            "S": " ".join(SMALL),
            "W": "env WORLD_SIZE=2 MASTER_ADDR=127.0.0.1",
        }
        return subprocess.run(
            ["sh", "-c", text], cwd=self.folder, env=env, capture_output=True, text=True, check=False, errors="replace"
        )

    def keep(self, name: str, done: "subprocess.CompletedProcess[str]", good: bool, lines: list[str]) -> None:
        """Prints and keeps one row."""
        told = [line.replace(str(self.folder), "...").replace(sys.prefix, "...") for line in lines]
        self.rows.append({"what": name, "status": done.returncode, "printed": told, "good": good})
        print(f"{'good' if good else 'BAD '} {name}: status {done.returncode}")
        for line in told if good else done.stderr.splitlines()[-12:]:
            print(f"       {line}")


def usage(trials: Trials) -> None:
    """Mistakes in files and flags."""
    folder = trials.folder
    (folder / "misspelt.toml").write_text("[optim]\nlearning_rat = 0.1\nwarmupp = 3\n")
    (folder / "wrong.toml").write_text('[run]\nsteps = "many"\n')
    trials.start("misspelt key in a run file", 2, "misspelt.toml")
    trials.start("misspelt flag", 2, "run.toml", "--optim.warmpu", "3")
    trials.start("wrong type in a run file", 2, "wrong.toml")
    trials.start("value out of range", 2, "run.toml", "--optim.lr", "nan")
    trials.start("missing data", 2, "run.toml", "--data.text", str(folder / "nowhere" / "*.txt"))
    trials.start("batch that does not divide", 2, "run.toml", "--batch.size", "7", "--nproc", "2")
    trials.start("unknown device", 2, "run.toml", "--run.device", "tpu")
    trials.start("heads that do not divide the width", 2, "run.toml", *SMALL, "--model.heads", "3")


def surroundings(trials: Trials) -> None:
    """A folder, a disk, a file or an environment that does not serve."""
    folder, pyz = trials.folder, trials.pyz
    if os.geteuid() == 0:
        with mounted(folder / "locked", "ro") as locked:
            trials.start("no permission to the run folder", 1, "run.toml", *SMALL, "--run.folder", str(locked / "r"))
        with mounted(folder / "full", "size=300k") as full:
            trials.start(
                "full disk",
                1,
                "run.toml",
                *SMALL,
                "--run.folder",
                str(full / "r"),
                "--data.cache",
                str(folder / "tokens"),
            )
    else:
        print("left out without root: read-only mount, full disk")
    damaged = folder / "damaged.pyz"
    raw = bytearray(pyz.read_bytes())
    raw[len(raw) // 2 : len(raw) // 2 + 4096] = bytes(4096)
    damaged.write_bytes(raw)
    truncated = folder / "truncated.pyz"
    truncated.write_bytes(pyz.read_bytes()[: len(raw) // 3])
    for name, file in (("damaged archive", damaged), ("truncated archive", truncated)):
        done = subprocess.run(
            [sys.executable, str(file), "self", "verify"], capture_output=True, text=True, check=False, cwd=folder
        )
        if name == "truncated archive":
            # without the zip's end Python takes it for a script: none of our code ever runs
            assert done.returncode == 1
            print(f"note {name}: refused by Python itself: {done.stderr.strip().splitlines()[-1]}")
            continue
        trials.judge(name, 1, done)
    assert train(pyz, folder, "run.toml", *SMALL, "--run.folder", "first").returncode == 0
    trials.start("checkpoint of another model", 2, "run.toml", *SMALL, "--run.folder", "first", "--model.width", "32")
    trials.start(
        "a folder that holds a run, resume never",
        2,
        "run.toml",
        *SMALL,
        "--run.folder",
        "first",
        "--run.resume",
        "never",
    )
    bare = folder / "bare"
    venv.create(bare, with_pip=False)
    trials.start("environment without torch", 3, "run.toml", *SMALL, python=str(bare / "bin" / "python"))


# name, status, a shell command; $T is the trainer, $S small settings
ODD = (
    ("standard output is full", 1, "$T train run.toml $S --run.folder full-out >/dev/full"),
    ("standard output is full, two ranks", 1, "$T train run.toml $S --run.folder full-out-2 --nproc 2 >/dev/full"),
    ("--version into a full device", 1, "$T --version >/dev/full"),
    ("check into a full device", 1, "$T check run.toml >/dev/full"),
    ("seed of 2**70", 2, "$T train run.toml $S --run.seed 1180591620717411303424"),
    ("seed below zero", 2, "$T train run.toml $S --run.seed -1"),
    ("seed with an exponent", 2, "$T train run.toml $S --run.seed 1e9"),
    ("run folder is a file", 2, "$T train run.toml $S --run.folder run.toml"),
    ("run folder below a file", 2, "$T train run.toml $S --run.folder run.toml/deep"),
    ("name of the run folder too long", 1, f"$T train run.toml $S --run.folder {'x' * 300}"),
    ("current directory is gone", 1, "mkdir gone; cd gone; rmdir ../gone; $T train ../run.toml $S"),
    ("run file is a folder", 2, "$T train . $S"),
    ("name in other bytes that is not there", 2, "$T train $(printf 'x\\377.toml')"),
    ("limit on memory, torch does not fit", 3, "ulimit -v 1500000; $T train run.toml $S --run.folder limit"),
    ("limit on memory, two forked ranks", 3, "ulimit -v 1500000; $T train run.toml $S --run.folder limit --nproc 2"),
    ("model larger than memory", 1, "$T train run.toml $S --run.folder large --model.vocabulary 1099511627776"),
    ("limit on the size of files", 1, "ulimit -f 20; $T train run.toml $S --run.folder short"),
    ("task of srun without RANK", 2, "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 $T train run.toml $S"),
    ("task of mpirun without RANK", 2, "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 $T train run.toml $S"),
    ("nobody at MASTER_ADDR", 1, "$W RANK=1 MASTER_PORT=9 $T train run.toml $S --run.folder met --fault.timeout 2"),
    ("MASTER_ADDR is no name", 1,
     "RANK=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 WORLD_SIZE=2 MASTER_ADDR=no-such.invalid MASTER_PORT=9 "
     "$T train run.toml $S --run.folder met --fault.timeout 2"),
)  # fmt: skip
# what a run can live with: it is complete, with status 0
LIVED_WITH = (
    ("all standard streams closed", "$T train run.toml $S --run.folder a1 <&- >&- 2>&-", "a1"),
    ("all standard streams closed, two ranks", "$T train run.toml $S --run.folder a2 --nproc 2 <&- >&- 2>&-", "a2"),
    ("standard error is full", "$T train run.toml $S --run.folder a3 2>/dev/full", "a3"),
    ("the reader has gone, two ranks", "($T train run.toml $S --run.folder a4 --nproc 2 2>&1; exit $?) | true", "a4"),
    ("run folder in other bytes", "$T train run.toml $S --run.folder $(printf 'a5\\377')", "a5\udcff"),
    (
        "locale of ASCII",
        "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 $T train run.toml $S --run.folder é --nproc 2",
        "é",
    ),
    ("largest seed", "$T train run.toml $S --run.folder a6 --run.seed 9223372036854775807 --nproc 2", "a6"),
    ("run folder is the current one", "mkdir a7; cd a7; $T train ../run.toml $S --run.folder .", "a7"),
    ("twelve descriptors", "ulimit -n 12; $T train run.toml $S --run.folder a9", "a9"),
    ("no home", "HOME=/nonexistent $T train run.toml $S --run.folder a8", "a8"),
)
WITHOUT_PROC = (
    ("no /proc", "$T train run.toml $S --run.folder p1", "p1"),
    ("no /proc, two ranks", "$T train run.toml $S --run.folder p2 --nproc 2", "p2"),
)


def odd(trials: Trials) -> None:
    """Odd surroundings: one error each, or a run that is complete."""
    for name, status, text in ODD:
        trials.judge(name, status, trials.shell(text))
    rows = [*LIVED_WITH]
    if os.geteuid() == 0:
        hide = "unshare -m sh -c 'mount -t tmpfs none /proc; {}'"
        rows += [(name, hide.format(text), run) for name, text, run in WITHOUT_PROC]
    else:
        print("left out without root: no /proc")
    for name, text, run in rows:
        done = trials.shell(text)
        updates = len(losses(trials.folder / run)) if (trials.folder / run / "metrics.jsonl").exists() else 0
        trials.keep(name, done, done.returncode == 0 and updates == 4 and "Traceback" not in done.stderr, [])


def main() -> int:
    parser = proof_parser(__doc__)
    parser.add_argument("--usage", action="store_true", help="mistakes in files and flags only")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pyz = folder / "trainer.pyz"
        shutil.copy(need_pyz(arguments.pyz), pyz)
        trials = Trials(pyz, folder)
        usage(trials)
        if not arguments.usage:
            surroundings(trials)
            odd(trials)
    good = sum(bool(row["good"]) for row in trials.rows)
    print(f"{good} of {len(trials.rows)} as they should be")
    write("errors", {"good": good, "rows": trials.rows}, arguments)
    return 0 if good == len(trials.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
