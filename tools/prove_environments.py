"""Environments that are made, killed on the way, shared, rolled back: never a broken one that is used.

With small wheels from an index on this machine: `env create` killed (SIGKILL to its process group) at random moments
while an older generation is there, several at once, on file systems that run full, on a store that can't be written or
that others could have written, interrupted, without uv on PATH, without network. With --real the built file: its own
lock, torch and all, from the package index of this machine; times of create, check, use. Each part is written as it
ends, beside what the file has of the others.

    uv run python -m tools.prove_environments                 20 moments, updates docs/proofs/environments.json
    uv run python -m tools.prove_environments --real made     the real thing; --real offline: packed, and made from that
    uv run python -m tools.prove_environments --moments 3 --no-json
"""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.beds import environments
from tools import environment_trials as trials
from tools.proof import ROOT, need_pyz, small_text, write
from tools.proof import parser as proof_parser

RESULT = ROOT / "docs" / "proofs" / "environments.json"
ROUNDS = 15
PREFIX = "prove-environments-"
TEMPORARY = re.compile(rf"/[\w./-]*{PREFIX}\w+")


def main() -> int:
    parser = proof_parser(__doc__)
    parser.add_argument("--moments", type=int, default=20, help="how often `env create` is killed (20)")
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument(
        "--trials",
        default=",".join(["killed", "together", *(name for name in trials.TRIALS if name != "nearly-full")]),
        help="which, by commas",
    )
    parser.add_argument("--real", default="", metavar="PARTS", help="made,offline: the built file's own lock instead")
    parser.add_argument("--inside", help="(the tool's own: one trial, in a namespace)")
    parser.add_argument("--folder", type=Path, help="(the tool's own) a folder to work in; kept")
    parser.add_argument("--address", default="", help="(the tool's own)")
    options = parser.parse_args()
    if options.inside:
        place = object.__new__(trials.Place)
        place.folder = options.folder
        place.older, place.newer = options.folder / "older.pyz", options.folder / "newer.pyz"
        print(json.dumps(trials.TRIALS[options.inside](place, options.address)))
        return 0
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=options.folder) as name:
        Path(name).chmod(0o755)
        if options.real:
            for part in options.real.split(","):
                result = REAL[part](_bench(Path(name), need_pyz(options.pyz)), Path(name))
                print(json.dumps(result, indent=1), flush=True)
                _keep("real", {part: result}, options)
        else:
            _keep("small_wheels", _small(Path(name), options), options)
    return 0


def _keep(section: str, result: dict[str, Any], options: Any) -> None:
    """Writes it beside what the file has of other parts now."""
    found: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() and not options.no_json else {}
    told: dict[str, Any] = json.loads(TEMPORARY.sub("FOLDER", json.dumps(result)))
    found[section] = {**found.get(section, {}), **told}
    for key in ("commit", "python", "torch", "cores"):
        found.pop(key, None)
    write("environments", found, options)


def _small(folder: Path, options: Any) -> dict[str, Any]:
    """All trials with small wheels."""
    place = trials.Place(folder / "small")
    found: dict[str, Any] = {}
    with environments.served(place.folder / "index") as address:
        for name in options.trials.split(","):
            began = time.perf_counter()
            if name == "killed":
                found[name] = trials.killed(place, address, options.moments, options.seed)
                states = [each["then"] for each in found[name]["moments"]]
                told = (
                    f"{len(states)} killed, {states.count('whole')} whole and {states.count('none')} not made; 0 broken"
                )
            elif name == "together":
                found[name] = {f"{count} at once": trials.together(place, address, count) for count in (2, 4)}
                told = "one makes it, the others wait"
            elif name in trials.MOUNTING:
                found[name] = trials.apart(name, place.folder, address)
                told = "as it should be"
            else:
                found[name] = trials.TRIALS[name](place, address)
                told = "as it should be"
            print(f"{name}: {told} ({time.perf_counter() - began:.1f} s)", flush=True)
    return found


def _bench(folder: Path, pyz: Path) -> environments.Bench:
    """The built file, and the package index that this machine has."""
    bench = environments.Bench(folder, pyz)
    bench.variables |= {name: os.environ[name] for name in os.environ if name.startswith(("UV_", "SSL_", "PIP_"))}
    bench.variables |= {"HOME": str(Path.home()), "TRAINER_SNAPSHOT_DIR": str(folder / "snapshots")}
    del bench.variables["UV_CACHE_DIR"]
    return bench


def _made(bench: environments.Bench, folder: Path) -> dict[str, Any]:
    """Killed once, made, checked, trained in."""
    pyz = bench.file
    found: dict[str, Any] = {"bytes_of_the_file": pyz.stat().st_size, "killed": _killed_once(bench)}
    began, before = time.perf_counter(), _processor_seconds()
    made = bench.env("create")
    found["create_s"] = round(time.perf_counter() - began, 1)
    found["create_processor_s"] = round(_processor_seconds() - before, 1)
    found |= {"packages": made["packages"], "mebibytes": made["size"] >> 20, "made_s": made["seconds"]}
    print(f"made: {found['create_s']} s, {found['packages']} packages, {found['mebibytes']:,} MiB", flush=True)
    python = f"{made['path']}/bin/python"
    command = [python, str(pyz), "env", "check"]
    bare, checked = _times([python, "-c", "pass"], bench.variables), _times(command, bench.variables)
    beyond = {key: round(checked[key] - bare[key], 1) for key in bare}
    found["check_ms"] = {"python -c pass": bare, "env check": checked, "beyond": beyond}
    began = time.perf_counter()
    subprocess.run([*command, "--full"], env=bench.variables, check=True)
    found["check_full_s"] = round(time.perf_counter() - began, 1)
    name = Path(made["path"]).name
    found["use_ms"] = _times(bench.command("env", "use", name), bench.variables)
    words = ["train", "--run.steps", "2", "--data.sequence", "32", "--model.width", "32", "--model.layers", "1"]
    text = str(small_text(folder, 30_000))
    words += ["--run.folder", str(folder / "run"), "--eval.sample_tokens", "2", "--nproc", "1"]
    words += ["--data.text", text, "--data.validation", text]
    began = time.perf_counter()
    trained = bench.run(*words)
    if trained.returncode:
        raise trials.Broken(trained.stderr)
    found["train_from_a_bare_python_s"] = round(time.perf_counter() - began, 1)
    found["entering_ms"] = _entering(bench, made["path"])
    return found


def _killed_once(bench: environments.Bench) -> dict[str, Any]:
    """SIGKILL in the middle of installing torch; then there is none, and the next command makes one."""
    process = subprocess.Popen(
        bench.command("env", "create"), env=bench.variables, cwd=bench.folder, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    drafts = bench.store / "environments"
    while process.poll() is None and not list(drafts.glob(".new-*/lib/python3*/site-packages/torch*")):
        time.sleep(0.01)
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = bench.train()
    if done.returncode != 3 or bench.env("list")["environments"]:
        raise trials.Broken(done.stdout + done.stderr)
    return {"then": "none", "drafts_left": len(list(drafts.glob(".new-*")))}


def _entering(bench: environments.Bench, path: str) -> dict[str, dict[str, float]]:
    """What it costs to begin under another Python: beside a start in the environment itself."""
    (bench.folder / "empty.py").write_text("")
    words = [str(bench.file), "exec", "--start.layers", "", "empty.py"]
    direct = _times([f"{path}/bin/python", *words], bench.variables, bench.folder)
    entered = _times([bench.python, *words], bench.variables, bench.folder)
    return {"in the environment": direct, "from a bare Python": entered}


def _offline(bench: environments.Bench, folder: Path) -> dict[str, Any]:
    """Packed, then made in a namespace without a network, by a uv that comes from the folder."""
    variables = {"PATH": "/usr/bin:/bin", "TRAINER_ENV_STORE": str(folder / "offline")}
    began = time.perf_counter()
    packed = bench.env("pack", str(folder / "packed"), variables=variables)
    seconds = time.perf_counter() - began
    alone = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    command = [*alone, *bench.command("env", "create", "--no-snapshot", "--json", "--from", str(folder / "packed"))]
    empty = {"UV_CACHE_DIR": str(folder / "empty-cache")}
    began = time.perf_counter()
    done = subprocess.run(
        command, env={**bench.variables, **variables, **empty}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise trials.Broken(done.stderr)
    size = sum(each["size"] for each in packed["files"])
    return {
        "pack_s": round(seconds, 1),
        "files": len(packed["files"]),
        "mebibytes": size >> 20,
        "create_s": round(time.perf_counter() - began, 1),
    }


REAL = {"made": _made, "offline": _offline}


def _times(command: list[str], variables: dict[str, str], folder: Path | None = None) -> dict[str, float]:
    """Milliseconds: the median, the fastest, and the least processor time, which other work disturbs least."""
    times, processor = [], []
    for _ in range(ROUNDS):
        before = _processor_seconds()
        began = time.perf_counter()
        subprocess.run(command, env=variables, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
        processor.append(_processor_seconds() - before)
    found = {"median": sorted(times)[ROUNDS // 2], "fastest": min(times), "processor": min(processor)}
    return {name: round(1000 * seconds, 1) for name, seconds in found.items()}


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
