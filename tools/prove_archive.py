"""The archive under a running job: replaced, overwritten, cut off, deleted, on a file system that goes away.

A job imports sixty modules that check themselves, reads their data files and starts children, while at a random moment
something happens to its file. It must end with the sum of its own build, or with one error that says what happened:
never with another sum (code of two builds), a foreign error, or a hang. Under the running Python and, where there is
one, under another for which the archive has no code.

    uv run python -m tools.prove_archive                         writes docs/proofs/archive.json
    uv run python -m tools.prove_archive --rounds 2 --kinds cp,mv --no-json
"""

import collections
import json
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.beds import slowfs
from tests.boot import bed
from tools.proof import ROOT, write
from tools.proof import parser as proof_parser

COUNT = 60
OWN = sum(range(COUNT))
JOB = '''
import importlib, importlib.resources, os, random, sys, time

def load(seed, pause=0.0):
    """All modules and their data, in an order of its own."""
    names = [f"m{i:02d}" for i in range(60)]
    random.Random(seed).shuffle(names)
    total = 0
    for name in names:
        time.sleep(pause)
        module = importlib.import_module("lazy." + name)
        data = importlib.resources.files("lazy").joinpath("data", name + ".txt").read_text()
        assert module.PAD.split()[0] == name and data.split()[0] == name, name
        assert int(data.split()[1]) == module.VALUE, name
        total += module.VALUE
    return total

def forked():
    """Forty children at once; the sum of each, or its status."""
    answers = []
    for seed in range(40):
        inward, outward = os.pipe()
        if not os.fork():
            status = 1
            try:
                os.write(outward, str(load(seed)).encode())
                status = 0
            except Exception as error:
                os.write(outward, f"{type(error).__name__}: {error}".encode())
            finally:
                os._exit(status)
        os.close(outward)
        answers.append(inward)
    found = {os.read(inward, 1000).decode() for inward in answers}
    for _ in answers: os.wait()
    return sorted(found)

def child(seed):
    return load(seed)

def started(method):
    import multiprocessing
    found = set()
    context = multiprocessing.get_context(method)
    for seed in range(2):
        with context.Pool(1) as pool:
            found.add(pool.apply_async(child, (seed,)).get(20))
    return sorted(found)

def main():
    how = sys.argv[1]
    print("READY", flush=True)
    if how == "load":
        print("sum", load(0, float(sys.argv[2])))
    else:
        sys.stdin.readline()
        print("sum", *(forked() if how == "fork" else started(how)))
'''


def files(own: bool) -> bed.Files:
    """Of the job's build, or of another one in which every second module has another value."""
    made: dict[str, str | bytes] = {"lazy/__init__.py": "", "app.py": JOB}
    for i in range(COUNT):
        value = i if own or i % 2 else i + 1000
        made[f"lazy/m{i:02d}.py"] = f"VALUE = {value}\nPAD = {f'm{i:02d} ' * 5000!r}\n"
        made[f"lazy/data/m{i:02d}.txt"] = f"m{i:02d} {value} " + random.Random(i).randbytes(20_000).hex()
    return made


@dataclass
class Bed:
    """The two builds, and the place of a round."""

    folder: Path
    own: Path
    other: Path
    draw: random.Random
    python: str = sys.executable

    def place(self, round_: Path) -> Path:
        """A fresh copy of the job's build."""
        round_.mkdir(parents=True)
        return Path(shutil.copyfile(self.own, round_ / "app.pyz"))

    def job(self, place: Path, *words: str) -> "subprocess.Popen[str]":
        """Started, and past its first line."""
        job = subprocess.Popen(
            [self.python, "-s", str(place), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
        )
        assert job.stdout is not None
        if not select.select([job.stdout], [], [], 30)[0] or job.stdout.readline() != "READY\n":
            raise RuntimeError(f"the job did not start: {job.communicate()[1]}")
        return job


def copy_over(bed_: Bed, place: Path) -> None:
    """As `cp` does: the same file, other bytes, a piece at a time."""
    data = bed_.other.read_bytes()
    with open(place, "r+b") as file:
        file.truncate(0)
        for start in range(0, len(data), 1 << 14):
            file.write(data[start : start + (1 << 14)])
            file.flush()


def copy_same_size(bed_: Bed, place: Path) -> None:
    """Without cutting it off first: each byte is of one build or of the other."""
    data = bed_.other.read_bytes()
    with open(place, "r+b") as file:
        file.write(data)


def move_over(bed_: Bed, place: Path) -> None:
    """As `mv` does."""
    Path(shutil.copyfile(bed_.other, place.with_suffix(".new"))).replace(place)


def cut_off(bed_: Bed, place: Path) -> None:
    """At any length."""
    os.truncate(place, bed_.draw.randrange(place.stat().st_size))


def damage(bed_: Bed, place: Path) -> None:
    """A few kilobytes of it are zeros."""
    at = bed_.draw.randrange(place.stat().st_size)
    with open(place, "r+b") as file:
        file.seek(at)
        file.write(bytes(4096))


def remove(bed_: Bed, place: Path) -> None:
    """As `rm` does."""
    place.unlink()


ACTS: dict[str, Callable[[Bed, Path], None]] = {
    "cp": copy_over,
    "cp without truncation": copy_same_size,
    "mv": move_over,
    "rm": remove,
    "truncated": cut_off,
    "damaged": damage,
}
MUST_GO_ON = ("mv", "rm", "unmounted")  # the file is still there for who has it open


@contextmanager
def ended(job: "subprocess.Popen[str]") -> Iterator[None]:
    """No job is left behind."""
    try:
        yield
    finally:
        if job.poll() is None:
            job.kill()
        job.communicate()


def judge(job: "subprocess.Popen[str]", output: str, errors: str) -> str:
    """own, told, or what went wrong."""
    if job.returncode == 0 and output == f"sum {OWN}\n":
        return "own"
    what = ("has changed since", "was damaged after", "is gone since")
    told = sum(any(phrase in line for phrase in what) for line in errors.splitlines())
    two_lines = errors.count("\n") == 2 and errors.startswith("error: ") and "\nfix: " in errors
    if job.returncode == 1 and "sum" not in output and told and two_lines:
        return "told"
    return f"status {job.returncode}, {output!r}, {errors[-2000:]}"


def alone(bed_: Bed, kind: str, number: int) -> str:
    """One process that imports on and on."""
    place = bed_.place(bed_.folder / f"round-{number}")
    job = bed_.job(place, "load", "0.001")
    with ended(job):
        time.sleep(bed_.draw.random() * 0.12)
        ACTS[kind](bed_, place)
        output, errors = job.communicate(timeout=60)
        return judge(job, output, errors)


def with_children(bed_: Bed, kind: str, number: int) -> str:
    """Children that begin after it, or forks while it happens. `kind`: "spawn, cp"."""
    method, _, act = kind.partition(", ")
    place = bed_.place(bed_.folder / f"round-{number}")
    job = bed_.job(place, "fork" if method == "forks" else method)
    with ended(job):
        assert job.stdin is not None
        if method == "forks":
            job.stdin.write("\n")
            job.stdin.flush()
            time.sleep(bed_.draw.random() * 0.1)
            ACTS[act](bed_, place)
        else:
            ACTS[act](bed_, place)
            job.stdin.write("\n")
            job.stdin.flush()
        try:
            output, errors = job.communicate(timeout=90)
        except subprocess.TimeoutExpired:
            return "hangs"
    if method != "forks":
        return judge(job, output, errors)
    answers = output.removeprefix("sum ").strip()
    rest = answers.replace(str(OWN), "", 1).strip()
    if job.returncode == 0 and answers == str(OWN):
        return "own"
    if job.returncode == 0 and rest and all(word.startswith("BundleError") for word in [rest]) and "Assert" not in rest:
        return "told"
    return f"status {job.returncode}, {output!r}, {errors[-2000:]}"


def on_a_server(bed_: Bed, kind: str, number: int) -> str:
    """The archive lies on a file system in user space, which is taken out of the tree or killed."""
    source = bed_.folder / f"round-{number}"
    bed_.place(source)
    with slowfs.SlowFiles(source, bed_.folder / f"mount-{number}", meta_ms=0.1, read_ms=0.3) as server:
        job = bed_.job(server.target / "app.pyz", "load", "0.001")
        with ended(job):
            time.sleep(bed_.draw.random() * 0.2)
            server.detach() if kind == "unmounted" else server.kill()
            output, errors = job.communicate(timeout=60)
            return judge(job, output, errors)


def kinds() -> dict[str, Callable[[Bed, str, int], str]]:
    """All that can happen."""
    found: dict[str, Callable[[Bed, str, int], str]] = dict.fromkeys(ACTS, alone)
    found |= dict.fromkeys([f"forks, {act}" for act in ("cp", "mv", "rm", "truncated")], with_children)
    methods = ("spawn", "forkserver")
    found |= dict.fromkeys([f"{method}, {act}" for method in methods for act in ("cp", "mv", "rm")], with_children)
    return found | dict.fromkeys(["unmounted", "server killed"], on_a_server)


def before(result: dict[str, int]) -> dict[str, dict[str, int]]:
    """What an earlier call with the same numbers has found of other kinds."""
    place = ROOT / "docs" / "proofs" / "archive.json"
    known = json.loads(place.read_text()) if place.exists() else {}
    same = all(known.get(name) == value for name, value in result.items())
    return dict(known["outcomes"]) if same else {}


def main() -> None:
    """Command line."""
    parser = proof_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=20, metavar="N", help="of each kind (20)")
    parser.add_argument("--kinds", default="", metavar="A,B", help="these only, separated by semicolons if with commas")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chosen = kinds()
    if arguments.kinds:
        names = arguments.kinds.split(";" if ";" in arguments.kinds else ",")
        chosen = {name: chosen[name] for name in names}
    lacks = slowfs.lacks()
    pythons = [sys.executable, *filter(None, [bed.other_python()])]
    found: dict[str, dict[str, int]] = {}
    wrong = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="archive-")))
        bed.CODE = folder / "code"
        own, other = [
            bed.archive(folder / f"{name}.pyz", files(name == "own"), "app:main", minify=True)
            for name in ("own", "other")
        ]
        number = 0
        for kind, trial in chosen.items():
            if trial is on_a_server and lacks:
                print(f"{kind}: not done: {lacks}")
                continue
            counts: collections.Counter[str] = collections.Counter()
            for round_ in range(arguments.rounds):
                number += 1
                draw = random.Random(f"{arguments.seed} {kind} {round_}")
                outcome = trial(Bed(folder, own, other, draw, pythons[round_ % len(pythons)]), kind, number)
                if outcome not in ("own", "told") or (kind.endswith(MUST_GO_ON) and outcome != "own"):
                    wrong.append(f"{kind}, round {round_}: {outcome}")
                    outcome = "WRONG"
                counts[outcome] += 1
            found[kind] = dict(sorted(counts.items()))
            print(f"{kind}: {found[kind]}", flush=True)
    for line in wrong:
        print(line)
    print(f"{number} rounds, {len(wrong)} wrong")
    result = {"rounds of each": arguments.rounds, "seed": arguments.seed}
    write("archive", {**result, "outcomes": {**before(result), **found}}, arguments)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
