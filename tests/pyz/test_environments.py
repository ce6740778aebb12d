"""Stored environments, made of small wheels by the real uv."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from build.uv import find_uv
from tests.beds import environments
from tests.beds.environments import TAG, Bench
from tests.build_tool.wheel_bed import wheel
from tools import environment_trials as trials

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, pyz: Path) -> trials.Place:
    """Two files of two locks; `pyz` has warmed the build's cache."""
    return trials.Place(tmp_path_factory.mktemp("environments"), real_uv=False)


@pytest.fixture(scope="module")
def address(place: trials.Place) -> Iterator[str]:
    with environments.served(place.folder / "index") as found:
        yield found


@pytest.fixture
def bench(place: trials.Place, address: str, request: pytest.FixtureRequest) -> Bench:
    """The newer file, with a store of the test's own."""
    return place.bench(request.node.name, place.newer, address)


@pytest.fixture
def older(place: trials.Place, address: str, request: pytest.FixtureRequest) -> Bench:
    """The older one, with the same store."""
    return place.bench(request.node.name, place.older, address)


def refusal(done: "subprocess.CompletedProcess[str]") -> tuple[str, str]:
    """What is wrong and the fix."""
    lines = [line for line in done.stderr.splitlines() if line.startswith(("error: ", "fix: "))]
    assert done.returncode
    assert [line.split(":")[0] for line in lines] == ["error", "fix"], done.stderr
    return lines[0], lines[1]


def check(bench: Bench, stored: Any, *words: str) -> tuple[int, Any]:
    """`env check` in that environment."""
    command = [f"{stored['path']}/bin/python", str(bench.file), "env", "check", "--json", *words]
    done = subprocess.run(command, env=bench.variables, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


def test_made_entered_checked_and_made_whole_again(bench: Bench) -> None:
    before = bench.train()
    what, fix = refusal(before)
    assert (before.returncode, "has no torch" in what) == (3, True)
    assert f"{bench.python} {bench.file} env create" in fix
    made = bench.create()
    assert (made["made"], made["packages"], made["fits"], made["generation"]) == (True, 3, True, 1)
    assert made["size"] > 100_000
    assert bench.train().stdout == f"torch 2.15.0 {made['path']} word\n"
    program = subprocess.run([f"{made['path']}/bin/torch-tool"], capture_output=True, text=True, check=True)
    assert program.stdout.startswith(made["path"])
    compiled = next(Path(made["path"]).glob("lib/python3*/site-packages/torch/__pycache__/__init__.*.pyc"))
    assert b".new-" not in compiled.read_bytes()
    again = bench.create()
    assert (again["made"], again["generation"]) == (False, 1)

    assert check(bench, made, "--full")[0] == 0
    part = next(Path(made["path"]).glob("lib/python3*/site-packages/torch/part1.py"))
    part.unlink()  # uv's cache has the same file: it is not to be written
    part.write_text("VALUE = 7\n")
    assert check(bench, made)[0] == 0
    status, found = check(bench, made, "--full")
    assert (status, found["differences"][0]["kind"]) == (3, "changed")
    assert bench.create("--repair")["made"]
    assert check(bench, made, "--full")[0] == 0

    shutil.rmtree(part.parent)
    assert check(bench, made)[1]["differences"][0]["kind"] == "no-code"
    what, fix = refusal(bench.train())
    assert "damaged" in what
    assert "--repair" in fix
    assert bench.run("exec", "program.py", variables={"TRAINER_ENV_ENTER": "0"}).returncode == 3


def test_generations_and_prune(bench: Bench, older: Bench) -> None:
    first, second = older.create(), bench.create()
    assert (first["generation"], second["generation"]) == (1, 2)
    listed = bench.env("list")
    assert listed["current"] == 2
    assert [each["fits"] for each in listed["environments"]].count(True) == 1
    assert bench.env("rollback")["generation"] == 1
    for each, version in ((older, "2.14.0"), (bench, "2.15.0")):
        assert f"torch {version}" in each.train().stdout
    direct = [f"{bench.store}/profiles/default/bin/python", "-c", "import torch; print(torch.__version__)"]
    assert subprocess.run(direct, capture_output=True, text=True, check=True).stdout == "2.14.0\n"
    assert bench.run("env", "rollback").returncode == 1
    name = Path(second["path"]).name
    assert bench.env("use", name[:10])["generation"] == 3
    assert bench.env("use", "2")["generation"] == 2
    assert refusal(bench.run("env", "use", "9"))[0].startswith("error: there is no environment '9'")
    assert "would remove" in bench.run("env", "prune", "--keep", "1", "--dry-run").stdout
    assert Path(first["path"]).exists()

    waiting = older.folder / "waiting.py"
    waiting.write_text("import torch, time\nprint('here', flush=True)\ntime.sleep(60)\n")
    command = older.command("exec", "--start.layers", "", str(waiting))
    process = subprocess.Popen(command, env=older.variables, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    pruned = bench.env("prune", "--keep", "1")
    assert {"name": Path(first["path"]).name, "why": "in use"} in pruned["kept"]
    process.kill()
    process.communicate()
    pruned = bench.env("prune", "--keep", "1")
    assert [each["name"] for each in pruned["removed"]] == [Path(first["path"]).name]
    assert not Path(first["path"]).exists()
    assert older.train().returncode == 3
    assert "torch 2.15.0" in bench.train().stdout


def test_a_private_cache_makes_a_store_that_others_can_read(bench: Bench, tmp_path: Path) -> None:
    variables = {"UV_CACHE_DIR": str(tmp_path / "cache")}
    shutil.rmtree(bench.create(umask=0o077, variables=variables)["path"])
    cached = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    for path in cached:
        path.chmod(path.stat().st_mode & 0o700)
    made = bench.create(umask=0o077, variables=variables)
    assert all(path.stat().st_mode & 0o077 == 0 for path in cached if path.exists())
    for path in [bench.store / "environments", *Path(made["path"]).rglob("*")]:
        if not path.is_symlink():
            wanted = 0o755 if path.is_dir() else 0o444
            assert path.stat().st_mode & wanted == wanted, path


def test_what_a_killed_one_has_left_goes(bench: Bench) -> None:
    process = subprocess.Popen(
        bench.command("env", "create", "--no-snapshot"), env=bench.variables, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    while not list((bench.store / "environments").glob(".new-*/bin")):
        assert process.poll() is None
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert trials.whole(bench) == "none"
    assert bench.env("prune")["removed"] == []
    assert not list((bench.store / "environments").iterdir())
    trials.made_again(bench)


def test_an_index_that_serves_something_else(place: trials.Place, bench: Bench, tmp_path: Path) -> None:
    forged = tmp_path / "forged"
    shutil.copytree(place.folder / "index", forged)
    wheel(forged / "helper", "helper", "1.0", {"helper/__init__.py": b"evil = True\n"}, TAG)
    page = forged / "helper" / "index.html"
    page.write_text(re.sub("#sha256=\\w+", "", page.read_text()))  # and does not say so
    variables = {"UV_CACHE_DIR": str(tmp_path / "cache")}
    with environments.served(forged) as index:
        what, _ = refusal(bench.run("env", "create", variables={**variables, "UV_DEFAULT_INDEX": index}))
    assert "not what was locked" in what
    variables |= {"UV_DEFAULT_INDEX": index, "UV_HTTP_RETRIES": "0"}
    what, fix = refusal(bench.run("env", "create", variables=variables))
    assert "can't reach the package index" in what
    assert "env pack" in fix
    assert trials.whole(bench) == "none"


def test_other_pythons_and_other_files(bench: Bench, older: Bench, tmp_path: Path) -> None:
    older.create("--no-use")
    assert bench.train().returncode == 3
    assert older.train().returncode == 0
    what, _ = refusal(bench.run("env", "create", "--variant", "cpu"))
    assert "no variant 'cpu'" in what
    what, _ = refusal(bench.run("env", "create", "--from", str(tmp_path / "absent")))
    assert "is not a folder" in what
    what, fix = refusal(bench.run("env", "create", "--from", str(tmp_path)))
    assert "lacks " in what
    assert "env pack" in fix
    what, _ = refusal(bench.run("env", "create", "--store", str(older.file)))
    assert "cannot be written" in what


def test_variants_are_locked_made_and_told_apart(place: trials.Place, tmp_path: Path) -> None:
    """With a lock that uv itself has made, from three indexes."""
    indexes = {}
    for name, version in (("main", "2.15.0"), ("cpu", "2.15.0+cpu"), ("cu130", "2.15.0+cu130")):
        wheels = environments.Wheels(tmp_path / "wheels" / name)
        wheels.add("torch", version)
        if name == "main":
            wheels.add("numpy", "2.4.6")
            wheels.add("helper", "1.0")
        indexes[name] = wheels.pages(tmp_path / "index" / name)
    with environments.served(tmp_path / "index") as address:
        (tmp_path / "pyproject.toml").write_text(f"""
[project]
name = "app"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["torch>=2.15", "numpy"]
[project.optional-dependencies]
cpu = ["torch>=2.15"]
cu130 = ["torch>=2.15"]
more = ["helper"]
[tool.uv]
conflicts = [[{{ extra = "cpu" }}, {{ extra = "cu130" }}]]
environments = ["sys_platform == 'linux'"]
[tool.uv.sources]
torch = [{{ index = "cpu", extra = "cpu" }}, {{ index = "cu130", extra = "cu130" }}]
[[tool.uv.index]]
name = "main"
url = "{address}/main/"
default = true
[[tool.uv.index]]
name = "cpu"
url = "{address}/cpu/"
explicit = true
[[tool.uv.index]]
name = "cu130"
url = "{address}/cu130/"
explicit = true
""")
        variables = {**os.environ, "UV_CACHE_DIR": str(tmp_path / "cache")}
        subprocess.run([find_uv(), "lock", "--quiet"], cwd=tmp_path, check=True, env=variables)
        bench = Bench(tmp_path, environments.pyz(tmp_path / "uv.lock", tmp_path / "trainer.pyz"))
        usual = bench.create()
        cpu = bench.create("--variant", "cpu", "--extra", "more")
        cuda = bench.create("--variant", "cu130", "--no-use")
    for stored, variant, packages in ((usual, "", 2), (cpu, "cpu", 3), (cuda, "cu130", 2)):
        status, found = check(bench, stored)
        assert (status, found["variant"], found["packages"], found["differences"]) == (0, variant, packages, [])
    status, found = check(bench, cpu, "--variant", "cu130", "--extra", "")
    assert (status, [each["kind"] for each in found["differences"]]) == (3, ["build"])
    assert "2.15.0+cu130 is locked: another build" in found["differences"][0]["what"]
    status, found = check(bench, cpu, "--variant", "", "--extra", "")
    assert (status, [each["kind"] for each in found["differences"]]) == (0, ["unlabelled"])
    (Path(cuda["path"]) / "trainer-environment.json").unlink()  # then it finds out by itself
    assert check(bench, cuda)[1]["variant"] == "cu130"
    assert "torch 2.15.0+cpu" in bench.train().stdout
    bench.env("rollback")
    assert "torch 2.15.0 " in bench.train().stdout


def test_packed_for_another_machine_and_python(tmp_path: Path) -> None:
    other = "aarch64" if os.uname().machine == "x86_64" else "x86_64"
    wheels = environments.Wheels(tmp_path / "wheels", f"cp312-cp312-manylinux_2_28_{other}")
    wheels.add("torch", "2.15.0")
    wheels.add_uv("0.13.9", real=False)
    file = environments.pyz(wheels.lock(tmp_path), tmp_path / "trainer.pyz")
    (tmp_path / "packed" / ".fetched-999999999-killed").mkdir(parents=True)
    with environments.served(wheels.pages(tmp_path / "index")) as address:
        bench = Bench(tmp_path, file, address)
        packed = bench.env("pack", str(tmp_path / "packed"), "--python", "3.12", "--machine", other)
    assert (packed["python"], packed["machine"], len(packed["files"])) == ("3.12", other, 2)
    files = {path.name for path in (tmp_path / "packed").iterdir()}
    assert files == {"manifest.json", *(each["name"] for each in packed["files"])}
    what, _ = refusal(bench.run("env", "create", "--from", str(tmp_path / "packed")))
    assert "the lock does not cover Python" in what
    what, _ = refusal(bench.run("env", "pack", str(tmp_path / "packed"), "--python", "three"))
    assert "is not a Python version" in what


def test_the_trials_of_the_proof(place: trials.Place, address: str) -> None:
    """A slice of `tools/prove_environments.py`."""
    moments = trials.killed(place, address, 2, 7)["moments"]
    assert len(moments) == 2
    assert trials.together(place, address, 2)["made"] == 1
    assert trials.without_uv(place, address)["forged"]
    assert trials.interrupted(place, address) == {"SIGINT": 130, "SIGTERM": 143}


def test_made_without_a_network(place: trials.Place, address: str) -> None:
    if subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no namespaces here")
    found = trials.without_network(place, address)
    assert found["files"] == 4
    assert trials.another_user(place, address)


@pytest.mark.parametrize("name", ["nearly-full", "read-only"])
def test_stores_that_are_full_or_read_only(place: trials.Place, address: str, name: str) -> None:
    if subprocess.run([*trials.NAMESPACE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no namespaces here")
    assert trials.apart(name, place.folder, address)
