"""What travels, what stays, and when each is needed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from build.errors import BuildError
from build.lock import read_lock
from build.resolve import Resolution, resolve
from tests.build_tool.lock_bed import NATIVE, PURE, REGISTRY, lock, package, project
from trainer_boot.environment.checking import needed

ROOT = Path(__file__).resolve().parents[2]


def kinds(resolution: Resolution) -> dict[str, str]:
    return {each.package.label: each.kind for each in resolution.requirements}


def markers(resolution: Resolution) -> dict[str, str | None]:
    return {each.package.label: each.marker for each in resolution.requirements}


def test_pure_packages_travel_up_to_the_first_native_one(tmp_path: Path) -> None:
    found = lock(
        tmp_path,
        project('{ name = "pure" }', '{ name = "native" }'),
        package("pure", "1", PURE, '{ name = "pure-below" }'),
        package("pure-below", "1", PURE, '{ name = "native" }', '{ name = "pure" }'),
        package("native", "1", NATIVE, '{ name = "only-native-needs" }', '{ name = "shared" }'),
        package("only-native-needs", "1"),
        package("shared", "1"),
        package("unreached", "1"),
    )
    assert kinds(resolve(found)) == {
        "native 1": "environment",
        "only-native-needs 1": "environment",
        "pure 1": "bundled",
        "pure-below 1": "bundled",
        "shared 1": "environment",
    }
    shared = lock(
        tmp_path,
        project('{ name = "native" }', '{ name = "shared" }'),
        package("native", "1", NATIVE, '{ name = "shared" }'),
        package("shared", "1"),
    )
    assert kinds(resolve(shared))["shared 1"] == "bundled"


@pytest.mark.parametrize("wheels", [f"{PURE}\n{NATIVE}", "", PURE.replace("py3-none-any", "cp311-none-any")])
def test_what_is_not_surely_pure_stays(wheels: str, tmp_path: Path) -> None:
    found = lock(tmp_path, project('{ name = "a" }'), package("a", "1", wheels))
    assert kinds(resolve(found)) == {"a 1": "environment"}


def test_a_name_with_two_versions_stays(tmp_path: Path) -> None:
    edges = (
        '{ name = "a", version = "1", marker = "python_full_version < \'3.12\'" }',
        '{ name = "a", version = "2", marker = "python_full_version >= \'3.12\'" }',
    )
    resolution = resolve(lock(tmp_path, project(*edges), package("a", "1"), package("a", "2")))
    assert kinds(resolution) == {"a 1": "environment", "a 2": "environment"}
    assert markers(resolution) == {"a 1": "python_full_version < '3.12'", "a 2": "python_full_version >= '3.12'"}


def test_a_marker_is_the_disjunction_of_its_paths(tmp_path: Path) -> None:
    linux, windows, old = "sys_platform == 'linux'", "sys_platform == 'win32'", "python_full_version < '3.12'"
    found = lock(
        tmp_path,
        project(f'{{ name = "a", marker = "{linux}" }}', f'{{ name = "b", marker = "{windows}" }}'),
        package("a", "1", PURE, '{ name = "c" }', '{ name = "d", extra = ["x"] }'),
        package("b", "1", PURE, f'{{ name = "c", marker = "{old}" }}', f'{{ name = "d", marker = "{linux}" }}'),
        package("c", "1", PURE, '{ name = "a" }'),
        package("d", "1", more='[package.optional-dependencies]\nx = [{ name = "e" }]'),
        package("e", "1"),
    )
    both_ways = f"{old} and {windows} or {linux}"
    assert markers(resolve(found)) == {
        "a 1": both_ways,  # c asks for it too, on Windows with an old Python
        "b 1": windows,
        "c 1": both_ways,
        "d 1": both_ways,
        "e 1": both_ways,
    }


FORKED = """version = 1
revision = 3
requires-python = ">=3.11"
resolution-markers = ["python_full_version >= '3.12'", "python_full_version < '3.12'"]
[[package]]
name = "app"
version = "0.1.0"
source = { virtual = "." }
dependencies = [
    { name = "split", version = "1.9", marker = "python_full_version < '3.12'" },
    { name = "split", version = "2.4", marker = "python_full_version >= '3.12'" },
    { name = "windows-only", marker = "sys_platform == 'win32'" },
    { name = "old-spelling", marker = "platform_system == 'Linux' and platform_machine == 'x86_64'" },
    { name = "with-extra", extra = ["fast"] },
]
[package.optional-dependencies]
plots = [{ name = "plot-only" }]
[package.dev-dependencies]
dev = [{ name = "dev-only" }]
""" + "".join(
    f'[[package]]\nname = "{name}"\nversion = "{version}"\n{REGISTRY}\n{more}'
    for name, version, more in [
        ("dev-only", "9.0", ""),
        ("split", "1.9", "resolution-markers = [\"python_full_version < '3.12'\"]\n"),
        ("split", "2.4", "resolution-markers = [\"python_full_version >= '3.12'\"]\n"),
        ("old-spelling", "1.0", ""),
        ("plot-only", "3.0", ""),
        ("speedup", "0.7", ""),
        ("windows-only", "0.4", ""),
        ("with-extra", "5.1", '[package.optional-dependencies]\nfast = [{ name = "speedup" }]\n'),
    ]
)


def forked(tmp_path: Path) -> Path:
    path = tmp_path / "uv.lock"
    path.write_text(FORKED)
    return path


@pytest.mark.parametrize(("python", "version"), [("3.11.7", "1.9"), ("3.12.1", "2.4")])
def test_only_what_the_environment_asks_for_is_needed(python: str, version: str, tmp_path: Path) -> None:
    requirements = json.loads(resolve(read_lock(forked(tmp_path))).requirements_json())
    environment = {
        "python_full_version": python,
        "python_version": python[:4],
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
    }
    assert needed(requirements, environment) == {
        "split": version,
        "old-spelling": "1.0",
        "with-extra": "5.1",
        "speedup": "0.7",
    }
    # markers compare text: this machine is another one
    assert "old-spelling" not in needed(requirements, {**environment, "platform_machine": "X86_64"})


def test_extras_and_groups_count_where_asked_for(tmp_path: Path) -> None:
    found = read_lock(forked(tmp_path))
    assert {"plot-only 3.0", "dev-only 9.0"}.isdisjoint(kinds(resolve(found)))
    assert {"plot-only 3.0", "dev-only 9.0"} <= set(kinds(resolve(found, extras=["Plots"], groups=["dev"])))
    with pytest.raises(BuildError, match="no extra 'plot'"):
        resolve(found, extras=["plot"])
    with pytest.raises(BuildError, match="no group 'test'"):
        resolve(found, groups=["test"])


def test_conflicting_extras_are_told_apart_by_what_was_asked_for(tmp_path: Path) -> None:
    edges = (
        '{ name = "a", version = "1", marker = "extra == \'extra-3-app-cpu\'" }',
        '{ name = "a", version = "2", marker = "extra == \'extra-3-app-cuda\'" }',
    )
    extras = "[package.optional-dependencies]\ncpu = []\ncuda = []"
    found = lock(tmp_path, project(*edges, more=extras), package("a", "1"), package("a", "2"))
    assert kinds(resolve(found)) == {}
    assert list(kinds(resolve(found, extras=["cpu"]))) == ["a 1"]


def test_the_requirements_are_the_same_text_every_time(tmp_path: Path) -> None:
    found = lock(tmp_path, project('{ name = "b" }', '{ name = "a" }'), package("a", "1"), package("b", "2", NATIVE))
    assert json.loads(resolve(found).requirements_json()) == [
        {"hashes": ["sha256:aa"], "kind": "bundled", "marker": None, "name": "a", "version": "1"},
        {"hashes": ["sha256:bb"], "kind": "environment", "marker": None, "name": "b", "version": "2"},
    ]
    script = (
        "from pathlib import Path; from build.lock import read_lock; from build.resolve import resolve;"
        "print(resolve(read_lock(Path('uv.lock'))).requirements_json())"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def test_another_index_than_the_usual_is_recorded(tmp_path: Path) -> None:
    special = package("c", "1+cpu", NATIVE).replace("https://index.example/simple", "https://other.example/cpu")
    edges = ('{ name = "a" }', '{ name = "b" }', '{ name = "c" }')
    found = lock(tmp_path, project(*edges), package("a", "1"), package("b", "1"), special)
    indexes = {entry["name"]: entry.get("index") for entry in json.loads(resolve(found).requirements_json())}
    assert indexes == {"a": None, "b": None, "c": "https://other.example/cpu"}


def test_the_project_s_own_split() -> None:
    found = kinds(resolve(read_lock(ROOT / "uv.lock")))
    names = {label.split()[0]: kind for label, kind in found.items()}
    assert {names[name] for name in ("packaging", "tqdm")} == {"bundled"}
    assert {names[name] for name in ("torch", "numpy", "sympy", "typing-extensions")} == {"environment"}
    assert "pytest" not in names
