"""Modules planted where Python would look: none runs that plain Python with the same options would not run.

Planted are modules with the names of what a start imports (torch, numpy, json ...) and of what Python runs by itself
(sitecustomize), in the current folder, beside the file, beside the program and on PYTHONPATH. Each notes that it was
run, and then is the real one. Beside every way to start ranks stands what plain Python does under the same options:
running a zip (for `train`) or a script (for `exec`), with children by spawn. Every process of a job also notes its
flags: they must be those that the job was started with.

    uv run python -m tools.prove_interpreter_flags            writes docs/proofs/interpreter-flags.json
    uv run python -m tools.prove_interpreter_flags --options=-I --ways "train, started;exec, started" --no-json
"""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

from tools.proof import need_pyz, write
from tools.proof import parser as proof_parser

NAMES = ("torch", "numpy", "json", "random", "sitecustomize", "usercustomize", "trainer", "trainer_boot", "packaging")
PLACES = ("current", "beside-file", "beside-program", "pythonpath")
OPTIONS = (
    "", "-I", "-E", "-s", "-P", "-O", "-W ignore::UserWarning", "-E -P", "-I -O -B -u",
    "-X utf8=1 -X int_max_str_digits=5000 -X pycache_prefix=CACHE",
)  # fmt: skip
# notes that it ran, then is the module of that name that would be there without it
PLANTED = """
import os, sys
with open({log!r}, "a") as file:
    file.write({mark!r} + "\\n")
import importlib.machinery, importlib.util
spec = None
for finder in sys.meta_path:
    path = [each for each in sys.path if os.path.abspath(each) not in {planted!r}]
    spec = finder.find_spec(__name__, None if finder is not importlib.machinery.PathFinder else path)
    if spec is not None and spec.origin != __file__:
        break
if spec is not None and spec.loader is not None:
    module = importlib.util.module_from_spec(spec)
    sys.modules[__name__] = module
    spec.loader.exec_module(module)
"""
FLAGS = """
def note():
    import json, os, sys
    facts = [list(sys.flags), sys.warnoptions, sys._xoptions, sys.pycache_prefix]
    with open(FLAGS_LOG, "a") as file:
        file.write(json.dumps(facts) + "\\n")
note()
"""
MODEL = (
    FLAGS
    + """
import torch
class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
class Samples:
    def __len__(self):
        return 64
    def __getitem__(self, index):
        note()
        return {"x": torch.full((4,), float(index))}
def loss(model, batch):
    return model(batch["x"].to(model.weight.dtype)).square().sum(), len(batch["x"])
"""
)
PROGRAM = (
    FLAGS
    + """
import torch, numpy, json, random
if __name__ == "__main__":
    import os
    import torch.utils.data as data
    if "spawn" in os.environ.get("LOADER", ""):
        samples = data.TensorDataset(torch.arange(2.0))
        for batch in data.DataLoader(samples, num_workers=1, multiprocessing_context="spawn"):
            pass
"""
)
# what plain Python would run: the same imports, in a zip that is started as trainer.pyz is
PLAIN = """
import importlib
for name in {names!r}:
    try:
        importlib.import_module(name)
    except ImportError:
        pass
"""
RUN_FILE = """
[run]
threads = 1
steps = 1
device = "cpu"
[model]
build = "{named}/model.py:Net"
loss = "{named}/model.py:loss"
[data]
dataset = "{named}/model.py:Samples"
[batch]
size = 4
[checkpoint]
final = false
[log]
progress = "none"
"""


class Way(NamedTuple):
    """How ranks come to be: words before `trainer.pyz`, after it, and who is compared with it."""

    words: str
    plain: str
    torchrun: bool = False
    variables: tuple[tuple[str, str], ...] = ()


WITHOUT_FORK = "gc,snapshot,prefetch,libraries,lazy,overlays,exit"
WAYS = {
    "train, one": Way("train run.toml", "zip"),
    "train, forked": Way("train run.toml --nproc 2", "zip"),
    "train, started": Way(f"train run.toml --nproc 2 --start.layers {WITHOUT_FORK}", "zip"),
    "train, torchrun": Way("train run.toml", "zip", True),
    "train, loader workers": Way("train run.toml --data.workers 1", "zip"),
    "verify, started": Way("verify run.toml --nproc 2 --updates 1", "zip"),
    "exec, one": Way("exec programs/program.py", "script"),
    "exec, forked": Way("exec --nproc 2 programs/program.py", "script"),
    "exec, started": Way(f"exec --nproc 2 --start.layers {WITHOUT_FORK} programs/program.py", "script"),
    "exec, torchrun": Way("exec programs/program.py", "script", True),
    "exec, spawned workers": Way("exec programs/program.py", "script", variables=(("LOADER", "spawn"),)),
}


class Bed:
    """The planted modules, the file, and logs of what ran with which flags."""

    def __init__(self, pyz: Path, folder: Path) -> None:
        self.folder = folder
        self.log, self.flags = folder / "ran.txt", folder / "flags.txt"
        self.work = folder / "work"
        self.programs, self.beside = self.work / "programs", folder / "file"
        self.pythonpath, self.named = folder / "on-path", folder / "named"
        where = dict(zip(PLACES, (self.work, self.beside, self.programs, self.pythonpath), strict=True))
        for each in (*where.values(), self.named):
            each.mkdir(exist_ok=True, parents=True)
        planted = [str(place) for place in where.values()]
        for kind, place in where.items():
            for name in NAMES:
                mark = f"{kind}/{name}"
                text = PLANTED.format(log=str(self.log), mark=mark, planted=planted)
                (place / f"{name}.py").write_text(text)
        self.pyz = self.beside / "trainer.pyz"
        self.pyz.write_bytes(pyz.read_bytes())
        flags = repr(str(self.flags))
        (self.named / "model.py").write_text(MODEL.replace("FLAGS_LOG", flags))
        (self.programs / "program.py").write_text(PROGRAM.replace("FLAGS_LOG", flags))
        (self.work / "run.toml").write_text(RUN_FILE.format(named=self.named))
        plain = PLAIN.format(names=NAMES)
        (self.programs / "plain.py").write_text(plain)
        with zipfile.ZipFile(self.beside / "plain.pyz", "w") as archive:
            archive.writestr("__main__.py", plain)
        self.environ = {
            name: value for name, value in os.environ.items() if not name.startswith(("TRAINER_", "PYTHON"))
        } | {
            "PYTHONPATH": str(self.pythonpath),
            "TRAINER_SNAPSHOT_DIR": str(folder / "snapshots"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def run(self, words: list[str], variables: tuple[tuple[str, str], ...] = ()) -> tuple[int, set[str], str]:
        """Status, the planted modules that ran, and what was printed."""
        for log in (self.log, self.flags):
            log.write_text("")
        done = subprocess.run(
            words,
            cwd=self.work,
            env=self.environ | dict(variables),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        return done.returncode, set(self.log.read_text().split()), done.stdout + done.stderr

    def plain(self, options: list[str], way: Way) -> tuple[set[str], list[str]]:
        """The planted modules that plain Python runs, started in the same way, and the flags of its processes."""
        place = {"zip": self.beside / "plain.pyz", "script": self.programs / "plain.py"}[way.plain]
        if way.variables:  # the program itself, whose children plain Python starts
            place = self.programs / "program.py"
        _, ran, _ = self.run([sys.executable, *options, str(place)], way.variables)
        noted = self.noted() or [expected(options, self.environ)]
        if way.plain == "script":  # the trainer is a zip, and starts before the program
            ran |= self.run([sys.executable, *options, str(self.beside / "plain.pyz")])[1]
        return ran, noted

    def noted(self) -> list[str]:
        """The flags of the processes that ran the user's code, each kind once."""
        return sorted(set(self.flags.read_text().splitlines()))


def expected(options: list[str], environ: dict[str, str]) -> str:
    """What plain Python under these options says of its flags."""
    text = "import json, sys; print(json.dumps([list(sys.flags), sys.warnoptions, sys._xoptions, sys.pycache_prefix]))"
    clean = {name: value for name, value in environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, *options, "-c", text], env=clean, capture_output=True, text=True, check=True
    ).stdout.strip()


def tried(bed: Bed, options: str, name: str, way: Way) -> dict[str, Any]:
    """One row: what ran of what was planted, and what of it plain Python would not have run."""
    given = options.replace("CACHE", str(bed.folder / "bytecode")).split()
    allowed, flags = bed.plain(given, way)
    words = [sys.executable, *given, str(bed.pyz), *way.words.split(), *_folder(way, bed)]
    if way.torchrun:
        agent = ["-I", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
        words = [sys.executable, *agent, *words]
    status, ran, printed = bed.run(words, way.variables)
    noted = bed.noted()
    same = noted == flags
    row = {
        "options": options,
        "way": name,
        "status": status,
        "planted_that_ran": len(ran),
        "not_plain": sorted(ran - allowed),
        "flags_as_started": same,
    }
    if status or not same or ran - allowed:
        print(printed[-2000:], *noted, sep="\n", file=sys.stderr)
    return row


def _folder(way: Way, bed: Bed) -> list[str]:
    if way.words.startswith("train") or way.words.startswith("verify"):
        return ["--run.folder", tempfile.mkdtemp(dir=bed.folder)]
    return []


def main() -> int:
    parser = proof_parser(__doc__)
    parser.add_argument("--options", help="interpreter options, separated by ';' (default: all)")
    parser.add_argument("--ways", help="separated by ';' (default: all)")
    arguments = parser.parse_args()
    options = OPTIONS if arguments.options is None else arguments.options.split(";")
    ways = list(WAYS) if arguments.ways is None else arguments.ways.split(";")
    rows = []
    with tempfile.TemporaryDirectory(prefix="trainer-flags-") as name:
        bed = Bed(need_pyz(arguments.pyz), Path(name))
        for given in options:
            for way in ways:
                row = tried(bed, given, way, WAYS[way])
                good = not row["status"] and not row["not_plain"] and row["flags_as_started"]
                rows.append(row)
                print(f"{'good' if good else 'BAD '} python {given or '(no option)'}: {way}: "
                      f"{row['planted_that_ran']} planted modules ran, {len(row['not_plain'])} "
                      f"that plain Python would not run; flags {'as started' if row['flags_as_started'] else 'DIFFER'}",
                      flush=True)  # fmt: skip
    bad = [row for row in rows if row["status"] or row["not_plain"] or not row["flags_as_started"]]
    print(f"{len(rows) - len(bad)} of {len(rows)} starts ran nothing that plain Python would not run")
    write("interpreter-flags", {"planted": NAMES, "places": PLACES, "starts": len(rows), "bad": len(bad),
                                "rows": rows}, arguments)  # fmt: skip
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
