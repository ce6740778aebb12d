"""Versions against requirements; which distributions there are."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainer_boot.environment.checking import check, needed
from trainer_boot.environment.installed import installed
from trainer_boot.environment.problems import Problem

LINUX = {"sys_platform": "linux", "python_full_version": "3.11.7"}


def requirement(
    name: str, version: str | None, *, marker: str | None = None, kind: str = "environment", index: str | None = None
) -> dict[str, object]:
    entry: dict[str, object] = {"name": name, "version": version, "marker": marker, "kind": kind, "hashes": []}
    return entry if index is None else {**entry, "index": index}


def distribution(folder: Path, entry: str, metadata: str | None = None) -> None:
    (folder / entry).mkdir(parents=True)
    if metadata is not None:
        (folder / entry / "METADATA").write_text(metadata)


def difference(locked: str, found: str) -> Problem | None:
    problems = check([requirement("torch", locked)], [("torch", found)])
    assert len(problems) <= 1
    return problems[0] if problems else None


@pytest.mark.parametrize(
    ("locked", "found"),
    [
        ("2.15.0", "2.15.0"),
        ("2.15.0", "2.15"),
        ("1.0", "1.0.0"),
        ("1.0.post1", "1.0.post1"),
        ("2.15.0+CU.132", "2.15.0+cu-132"),
        ("1.0rc1", "1.0-rc.1"),
    ],
)
def test_the_same_version_in_another_spelling_fits(locked: str, found: str) -> None:
    assert difference(locked, found) is None


@pytest.mark.parametrize(
    ("locked", "found", "another_build"),
    [
        ("2.15.0", "2.15.1", False),
        ("2.15.0", "2.15.1+cu132", False),
        ("1.0rc1", "1.0", False),
        ("1.0", "1.0.post1", False),
        ("2.15.0", "no version", False),
        ("2.15.0+cpu", "2.15.0+cu132", True),
        ("2.15.0+cu128", "2.15.0", True),
    ],
)
def test_another_version_or_build_is_refused_with_both_named(locked: str, found: str, another_build: bool) -> None:
    problem = difference(locked, found)
    assert problem is not None
    assert problem.fatal
    assert locked in problem.what
    assert found in problem.what
    assert ("another build" in problem.what) == another_build
    assert f"torch=={locked}" in problem.fix
    assert "pip install" in problem.fix


def test_a_lock_that_leaves_the_build_open_takes_any_with_a_note() -> None:
    problem = difference("2.15.0", "2.15.0+cu132")
    assert problem is not None
    assert not problem.fatal
    assert "2.15.0+cu132" in problem.what
    assert "2.15.0," in problem.what


def test_what_is_missing_is_named() -> None:
    (problem,) = check([requirement("numpy", "2.4.6"), requirement("torch", "2.15.0")], [("torch", "2.15.0")])
    assert problem.fatal
    assert (problem.name, problem.locked, problem.installed) == ("numpy", "2.4.6", None)
    assert "numpy 2.4.6" in problem.what


def test_a_name_installed_twice_in_one_folder_is_refused() -> None:
    (problem,) = check([requirement("numpy", "2.4.6")], [("numpy", "2.4.5"), ("numpy", "2.4.6")])
    assert problem.fatal
    assert "2.4.5, 2.4.6" in problem.what
    assert "reinstall" in problem.fix


def test_markers_decide_what_is_looked_for() -> None:
    requirements = [
        requirement("split", "1.9", marker="python_full_version < '3.12'"),
        requirement("split", "2.4", marker="python_full_version >= '3.12'"),
        requirement("windows-only", "0.4", marker="sys_platform == 'win32'"),
    ]
    newer = {**LINUX, "python_full_version": "3.12.1"}
    assert needed(requirements, LINUX) == {"split": "1.9"}
    assert needed(requirements, newer) == {"split": "2.4"}
    assert check(requirements, [("split", "1.9")], marker_environment=LINUX) == []
    (problem,) = check(requirements, [("split", "2.4")], marker_environment=LINUX)
    assert "2.4" in problem.what
    assert "1.9" in problem.what
    assert check(requirements, [("split", "1.9")], marker_environment=newer)[0].fatal


def test_two_versions_needed_at_once_are_an_error() -> None:
    with pytest.raises(ValueError, match="1 and 2 at once"):
        needed([requirement("a", "1"), requirement("a", "2")])


def test_bundled_packages_are_there_when_the_file_runs() -> None:
    requirements = [requirement("tqdm", "4.70", kind="bundled"), requirement("torch", "2.15.0")]
    assert check(requirements, [("torch", "2.15.0")], bundled=True) == []
    assert check(requirements, [("torch", "2.15.0"), ("tqdm", "1.0")], bundled=True) == []
    assert [problem.name for problem in check(requirements, [("torch", "2.15.0")])] == ["tqdm"]


def test_the_command_uses_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [requirement("torch", "2.15.0+cpu", index="https://index.example/cpu")]
    monkeypatch.setenv("PATH", str(tmp_path))
    (problem,) = check(asked, [])
    assert problem.fix.startswith(f"run {sys.executable} -m pip install")
    assert "--extra-index-url https://index.example/cpu" in problem.fix
    uv = tmp_path / "uv"
    uv.write_text("")
    uv.chmod(0o755)
    (problem,) = check(asked, [])
    assert problem.fix.startswith(f"run uv pip install --python {sys.executable}")


def test_distributions_are_found_by_their_folders(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    distribution(first, "torch-2.15.0+cu132.dist-info", "Name: torch\nVersion: 2.15.0+cu132\n")
    distribution(first, "typing_extensions-4.16.0.dist-info")
    distribution(
        first, "Acme.Tool-kit-1.4.dist-info", "Metadata-Version: 2.1\nName: Acme.Tool-kit\nVersion: 1.4\n\nbody: no\n"
    )
    distribution(first, "~orch-2.14.0.dist-info")
    (first / "old_style-1.0-py3.11.egg-info").write_text("Name: Old.Style\nVersion: 1.0\n")
    distribution(second, "torch-2.14.0.dist-info")
    distribution(second, "numpy-2.4.6.dist-info")
    (tmp_path / "archive.zip").write_bytes(b"PK")
    path = [str(first), str(tmp_path / "absent"), str(tmp_path / "archive.zip"), str(second)]
    assert sorted(installed(path)) == [
        ("acme-tool-kit", "1.4"),
        ("numpy", "2.4.6"),
        ("old-style", "1.0"),
        ("torch", "2.15.0+cu132"),
        ("typing-extensions", "4.16.0"),
    ]


def test_the_running_environment_is_read_as_the_standard_library_reads_it() -> None:
    import re
    from importlib.metadata import distributions

    found = dict(installed())
    for each in distributions():
        assert found[re.sub(r"[-_.]+", "-", each.name).lower()] == each.version


def test_a_start_that_checks_nothing_imports_nothing() -> None:
    script = "import sys, trainer.needs as n; n.need('torch'); print([n for n in sys.modules if 'trainer_boot.' in n])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
