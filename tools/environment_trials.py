"""What prove_environments does to `env create`, with small wheels that take a second to install.

After each trial, whatever happened to it: a program that needs torch either runs in a whole environment or is told that
there is none; every environment of the store is compared file by file; the same command then makes what was to be made.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.beds import environments
from tests.beds.environments import Bench

Result = dict[str, Any]
ROOT = Path(__file__).resolve().parent.parent
NAMESPACE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
FULL_KIB = (0, 16, 64, 256, 512, 768, 1024, 1280, 1536, 1792, 2048, 2560)
CODE_LINES = 4000


class Broken(AssertionError):
    """An environment that is not whole was used, or what should work did not."""


class Place:
    """Two files of two locks, an index of their wheels."""

    def __init__(self, folder: Path, real_uv: bool = True) -> None:
        self.folder = folder
        self.wheels = environments.Wheels(folder / "wheels")
        self.older, self.newer = folder / "older.pyz", folder / "newer.pyz"
        folder.mkdir(parents=True, exist_ok=True)
        for file, version in ((self.older, "2.14.0"), (self.newer, "2.15.0")):
            self.wheels.hashes.pop("torch", None)
            self.wheels.add("torch", version, files=60, size=CODE_LINES)
            if file is self.older:
                self.wheels.add("numpy", "2.4.6", files=20)
                self.wheels.add("helper", "1.0")
                self.wheels.add_uv("0.13.9", real_uv)
            self.wheels.pages(folder / "index")
            environments.pyz(self.wheels.lock(folder / f"lock-{version}"), file)

    def bench(self, name: str, file: Path, address: str | None, base: str = sys.executable) -> Bench:
        """The file in a store of that name, under a bare Python made from `base`."""
        bench = Bench(self.folder, file, address, base)
        bench.store = self.folder / "stores" / name
        bench.store.parent.mkdir(exist_ok=True)
        bench.variables["TRAINER_ENV_STORE"] = str(bench.store)
        return bench


def whole(bench: Bench) -> str:
    """What a program that needs torch finds: "none" or "whole". Broken where that is neither."""
    done = bench.train()
    if done.returncode == 3 and "has no torch" in done.stderr and "env create" in done.stderr:
        found = "none"
    elif done.returncode == 0 and done.stdout.startswith("torch 2.1"):
        found = "whole"
    else:
        raise Broken(f"{done.returncode}: {done.stdout} {done.stderr}")
    for stored in bench.env("list")["environments"]:
        python = [f"{stored['path']}/bin/python", str(bench.file), "env", "check", "--full"]
        compared = subprocess.run(python, env=bench.variables, capture_output=True, text=True, check=False)
        if stored["fits"] and compared.returncode:
            raise Broken(compared.stderr)
    return found


def made_again(bench: Bench) -> None:
    """The same command makes it, and leaves nothing else."""
    bench.create()
    if whole(bench) != "whole":
        raise Broken("made, and not found")
    if _hidden(bench):
        raise Broken(f"left: {_hidden(bench)}")


def killed(place: Place, address: str, moments: int, seed: int) -> Result:
    """SIGKILL to the whole process group, at random moments; an older generation is there and goes on running."""
    draw = random.Random(seed)
    older = place.bench("killed", place.older, address)
    older.create()
    bench = place.bench("killed", place.newer, address)
    bench.create()  # fills uv's cache
    _forget(bench, "2.15.0")
    began = time.perf_counter()
    bench.create()
    alone = time.perf_counter() - began
    found: list[Result] = []
    too_late = 0
    while len(found) < moments:
        _forget(bench, "2.15.0")
        moment = draw.uniform(0, alone)
        with tempfile.TemporaryFile("w+") as told:
            process = subprocess.Popen(
                bench.command("env", "create", "--no-snapshot"), env=bench.variables, cwd=bench.folder,
                stdout=subprocess.DEVNULL, stderr=told, start_new_session=True,
            )  # fmt: skip
            time.sleep(moment)
            ended = process.poll() is not None
            if not ended:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            told.seek(0)
            last = (told.read().splitlines() or ["] not begun"])[-1].partition("] ")[2]
        drafts = _hidden(bench)
        state = whole(bench)
        before = older.train()
        if "torch 2.14.0" not in before.stdout:
            raise Broken(f"the older generation: {before.stdout} {before.stderr}")
        made_again(bench)
        if ended:
            too_late += 1
        else:
            found.append({"after_s": round(moment, 3), "during": last, "then": state, "drafts_left": len(drafts)})
    rolled = bench.env("rollback")
    if "torch 2.14.0" not in older.train().stdout or "torch 2.15.0" not in bench.train().stdout:
        raise Broken("after rollback")
    return {"alone_s": round(alone, 3), "moments": found, "too_late": too_late, "rolled_back_to": rolled["generation"]}


def together(place: Place, address: str, processes: int) -> Result:
    """Several at once: one makes it, the others wait for it."""
    bench = place.bench(f"together-{processes}", place.newer, address)
    command = bench.command("env", "create", "--no-snapshot", "--json")
    started = [
        subprocess.Popen(command, env=bench.variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    ended = [process.communicate(timeout=300) for process in started]
    if any(process.returncode for process in started):
        raise Broken(str(ended))
    made = sum('"made": true' in output for output, _ in ended)
    generations = bench.env("list")["generations"]
    if made != 1 or whole(bench) != "whole" or len(generations) != 1:
        raise Broken(f"{made} made it, {generations}")
    return {"processes": processes, "made": made, "waited": sum("waiting" in errors for _, errors in ended)}


def full(place: Place, address: str) -> Result:
    """File systems of growing size, each full at another moment; then there is room."""
    return _full(place, address, FULL_KIB)


def nearly_full(place: Place, address: str) -> Result:
    """A slice of that."""
    return _full(place, address, FULL_KIB[2::5])


def _full(place: Place, address: str, sizes: Sequence[int]) -> Result:
    found = {}
    for size in sizes:
        bench = place.bench(f"full-{size}", place.newer, address)
        bench.store.mkdir(parents=True)
        mount = ["mount", "-t", "tmpfs", "-o", f"mode=755,size={max(size, 4)}k", "store", str(bench.store)]
        subprocess.run(mount, check=True)
        if size == 0:
            (bench.store / "filler").write_bytes(b"x" * 4096)
        done = bench.run("env", "create", "--no-snapshot")
        if done.returncode and ("no space is left" not in done.stderr or "Traceback" in done.stderr):
            raise Broken(done.stderr)
        state = whole(bench)
        if (state == "whole") != (done.returncode == 0):
            raise Broken(f"{size}: {done.returncode}, {state}")
        subprocess.run(["mount", "-o", "remount,size=64m", str(bench.store)], check=True)
        made_again(bench)
        found[f"{size} KiB"] = state
        subprocess.run(["umount", str(bench.store)], check=True)
    return found


def read_only(place: Place, address: str) -> Result:
    """A store that can't be written: with the environment in it, and without."""
    bench = place.bench("read-only", place.newer, address)
    bench.create()
    subprocess.run(["mount", "--bind", str(bench.store), str(bench.store)], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", str(bench.store)], check=True)
    there = bench.run("env", "create", "--no-snapshot")
    if there.returncode or "there already" not in there.stdout or whole(bench) != "whole":
        raise Broken(there.stderr)
    other = place.bench("read-only", place.older, address)
    refused = _refusal(other.run("env", "create", "--no-snapshot"), "cannot be written: read-only file system")
    for words in (["rollback"], ["prune"]):
        done = bench.run("env", *words)
        if done.returncode == 0 or "Traceback" in done.stderr:
            raise Broken(done.stderr)
    subprocess.run(["umount", str(bench.store)], check=True)
    return {"used": True, "without_it": refused}


def another_user(place: Place, address: str) -> Result:
    """A user who may only read root's store; then a store that anybody could have written."""
    probe = ["/usr/bin/python3", "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
    if os.geteuid() or not Path(probe[0]).exists() or subprocess.run(probe, check=False).returncode:
        return {"skipped": "needs root, and a Python that every user can start"}
    bench = place.bench("shared", place.newer, address, probe[0])
    bench.create()
    nobody = place.bench("shared", place.older, address, probe[0])
    home = place.folder / "nobody"
    home.mkdir(exist_ok=True)
    os.chown(home, 65534, 65534)
    for each in (place.folder, *place.folder.parents):
        if each.stat().st_mode & 0o005 != 0o005:
            return {"skipped": f"{each} can't be entered by others"}
    variables = bench.variables | {"HOME": str(home), "UV_CACHE_DIR": str(home / "cache")}

    def run(file: Path, *words: str) -> "subprocess.CompletedProcess[str]":
        command = [*NOBODY, bench.python, str(file), *words]
        return subprocess.run(command, env=variables, cwd=bench.folder, capture_output=True, text=True, check=False)

    used = run(place.newer, "exec", "--start.layers", "", "program.py")
    if "torch 2.15.0" not in used.stdout:
        raise Broken(used.stderr)
    refused = _refusal(run(nobody.file, "env", "create", "--no-snapshot"), "cannot be written")
    (bench.store / "environments").chmod(0o777)
    open_to_all = _refusal(bench.train(), "can be written by others")
    (bench.store / "environments").chmod(0o755)
    os.chown(bench.store / "environments", 65534, 65534)
    foreign = _refusal(bench.train(), "belongs to another user")
    trusted = bench.train(variables={"TRAINER_ENV_OWNERS": "65534"})
    if trusted.returncode:
        raise Broken(trusted.stderr)
    return {"used": True, "without_it": refused, "writable_by_all": open_to_all, "foreign": foreign}


def without_uv(place: Place, address: str) -> Result:
    """No uv on PATH: it comes by its locked hash, or not at all."""
    bench = place.bench("without-uv", place.newer, address)
    bench.variables |= {"PATH": "/usr/bin:/bin", "PIP_CACHE_DIR": str(place.folder / "pip")}
    began = time.perf_counter()
    bench.create()
    seconds = time.perf_counter() - began
    if whole(bench) != "whole" or not (bench.store / "tools" / "uv-0.13.9" / "uv").exists():
        raise Broken("no uv in the store")
    other = place.bench("without-uv-forged", place.newer, None)
    forged = place.folder / "forged"
    shutil.copytree(place.folder / "index", forged, dirs_exist_ok=True)
    with open(next((forged / "uv").glob("*.whl")), "ab") as file:
        file.write(b"more")
    with environments.served(forged) as place_of_forged:
        other.variables |= {"PATH": "/usr/bin:/bin", "PIP_INDEX_URL": place_of_forged, "PIP_NO_CACHE_DIR": "1"}
        refused = _refusal(other.run("env", "create", "--no-snapshot"), "not what was locked")
    return {"create_s": round(seconds, 2), "forged": refused}


def without_network(place: Place, address: str) -> Result:
    """Packed where there is a network; made in a namespace that has none, with an empty cache and no uv."""
    packer = place.bench("packing", place.newer, address)
    packed = packer.env("pack", str(place.folder / "packed"))
    bench = place.bench("without-network", place.newer, None)
    bench.variables |= {"PATH": "/usr/bin:/bin", "UV_CACHE_DIR": str(place.folder / "empty-cache")}
    alone = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [*alone, *bench.command("env", "create", "--no-snapshot", *words)]
        variables = {**bench.variables, "PIP_RETRIES": "1"}
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    refused = _refusal(run(), "env pack")
    done = run("--from", str(place.folder / "packed"))
    if done.returncode or whole(bench) != "whole":
        raise Broken(done.stderr)
    damaged = place.folder / "packed" / packed["files"][0]["name"]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    other = place.bench("damaged-folder", place.newer, None)
    forged = _refusal(other.run("env", "create", "--from", str(place.folder / "packed")), "is not the locked")
    return {"files": len(packed["files"]), "without_folder": refused, "damaged_folder": forged}


def interrupted(place: Place, address: str) -> Result:
    """Ctrl-C and SIGTERM on the way."""
    found = {}
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        bench = place.bench(f"interrupted-{number}", place.newer, address)
        process = subprocess.Popen(
            bench.command("env", "create", "--no-snapshot"), env=bench.variables, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        while not _hidden(bench) and process.poll() is None:
            time.sleep(0.005)
        os.killpg(process.pid, number)
        _, errors = process.communicate(timeout=60)
        if process.returncode != status or "Traceback" in errors or _hidden(bench) or whole(bench) != "none":
            raise Broken(f"{process.returncode}: {errors}")
        made_again(bench)
        found[signal.Signals(number).name] = process.returncode
    return found


TRIALS: dict[str, Callable[[Place, str], Result]] = {
    "full": full,
    "nearly-full": nearly_full,
    "read-only": read_only,
    "another-user": another_user,
    "without-uv": without_uv,
    "without-network": without_network,
    "interrupted": interrupted,
}
MOUNTING = ("full", "nearly-full", "read-only")


def apart(name: str, folder: Path, address: str) -> Result:
    """Runs a trial that mounts, in a namespace of its own."""
    import json

    command = [*NAMESPACE, sys.executable, "-m", "tools.prove_environments", "--inside", name]
    command += ["--folder", str(folder), "--address", address]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Broken(f"{name}: {done.stdout} {done.stderr}")
    found: Result = json.loads(done.stdout.splitlines()[-1])
    return found


def _hidden(bench: Bench) -> list[str]:
    return [path.name for path in (bench.store / "environments").glob(".*")]


def _forget(bench: Bench, version: str) -> None:
    """Removes the environment of the newer file and its generation, by hand."""
    profiles, kept = bench.store / "profiles", bench.store / "environments"
    for stored in bench.env("list")["environments"]:
        if stored["versions"]["torch"] == version:
            shutil.rmtree(stored["path"])
            for link in profiles.glob("default-*"):
                if link.readlink().name == Path(stored["path"]).name:
                    link.unlink()
    assert len(list(kept.iterdir())) == 1
    (profiles / "default").unlink(missing_ok=True)
    (profiles / "default").symlink_to("default-1")


def _refusal(done: "subprocess.CompletedProcess[str]", part: str) -> str:
    """The error line of what must be refused, with a fix."""
    kinds = [line.split(":")[0] for line in done.stderr.splitlines() if line.startswith(("error:", "fix:"))]
    if done.returncode == 0 or kinds != ["error", "fix"] or part not in done.stderr or "Traceback" in done.stderr:
        raise Broken(f"not refused for {part!r}: {done.returncode} {done.stdout} {done.stderr}")
    return next(line for line in done.stderr.splitlines() if line.startswith("error:")).removeprefix("error: ")
