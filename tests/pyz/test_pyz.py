"""The built trainer: a zip, a trainer, and small at its start."""

import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.boot import bed
from trainer.version import VERSION

ROOT = bed.ROOT


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == VERSION


def test_it_says_its_version_and_help(pyz: Path) -> None:
    assert bed.lines(bed.run(pyz, "--version")) == [f"trainer {VERSION}"]
    assert bed.lines(bed.run(pyz, "--help"))[0].startswith("usage: ")


def test_another_python_runs_it_from_source(pyz: Path) -> None:
    other = bed.other_python()
    if other is None:
        pytest.skip("only one Python here")
    assert bed.lines(bed.run(pyz, "--version", python=other)) == [f"trainer {VERSION}"]


def test_zip_tools_and_plain_zipimport_read_it(pyz: Path) -> None:
    listed = bed.lines(bed.run(["-m", "zipfile", "-l", pyz]))
    assert any(line.startswith("trainer/__init__.py ") for line in listed)
    command = ["-c", "import trainer; print(trainer.__file__)"]
    done = bed.run(command, environment={"PYTHONPATH": str(pyz)}, folder=pyz.parent)
    assert bed.lines(done) == [f"{pyz}/trainer/__init__.py"]


def test_it_carries_the_lock_and_what_it_was_built_from(pyz: Path) -> None:
    with zipfile.ZipFile(pyz) as archive:
        names = archive.namelist()
        information = json.loads(archive.read("_trainer/build.json"))
        requirements = {each["name"]: each["kind"] for each in json.loads(archive.read("_trainer/requirements.json"))}
    assert information["version"] == VERSION
    assert information["entry"] == "trainer.cli:program"
    assert (requirements["torch"], requirements["packaging"]) == ("environment", "bundled")
    assert "packaging/version.py" in names
    assert not any(name.startswith(("torch/", "numpy/")) for name in names)


def script(pyz: Path, text: str) -> "subprocess.CompletedProcess[str]":
    """Runs Python text in a process that the archive was started in, without handing over."""
    start = f"import runpy, sys; runpy.run_path({str(pyz)!r}, run_name='started')\n"
    return bed.run(["-c", start + text], folder=pyz.parent)


def test_the_trainer_knows_what_it_was_started_from(pyz: Path) -> None:
    text = """
from trainer import startup
print(startup.bundle_path(), startup.build_info()["version"], startup.entry_command()[1:])
print(startup.bundle_file().damage())
print(len(startup.requirements()) > 10, "trainer.cli" in startup.modules(), "packaging.version" in startup.modules())
"""
    assert bed.lines(script(pyz, text)) == [f"{pyz} {VERSION} ['-s', '{pyz}']", "[]", "True True True"]


def test_bundled_metadata_is_found(pyz: Path) -> None:
    text = """
import importlib.metadata as metadata
print(metadata.version("trainer-pyz"), metadata.distribution("trainer-pyz").__class__.__name__)
print([point.value for point in metadata.entry_points(group="console_scripts") if point.name == "trainer"])
"""
    found = bed.lines(script(pyz, text))
    assert found[0] == f"{VERSION} BundleDistribution"
    assert "trainer.cli:program" in found[1]


def test_a_checkout_was_started_from_nothing() -> None:
    from trainer import startup

    assert startup.bundle_path() is None
    assert startup.build_info() is None
    assert startup.requirements() is None
    assert startup.check_environment() is None
    assert startup.modules() == []
    assert startup.bundle_file() is None
    assert startup.identity() == ("", "")
    assert startup.entry_command()[0] == sys.executable
    assert startup.entry_command()[-2:] == ["-m", "trainer"]


def test_the_checkout_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "trainer", "--version"], capture_output=True, text=True, check=False)
    assert bed.lines(done) == [f"trainer {VERSION}"]


def test_the_build_tool_explains_itself() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "build", "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "--no-sources" in done.stdout
    assert "examples:" in done.stdout
    wrong = [sys.executable, "-m", "build", "--python", "/no/such/python", "--quiet"]
    done = subprocess.run(wrong, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "error: /no/such/python does not start: No such file or directory"
    assert done.stderr.splitlines()[1].startswith("fix: ")


def test_the_report_tells_interpreter_bundle_and_configuration_apart(pyz: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("")
    words = ["exec", "--start.layers", "", "--start.report", "true", "program.py"]
    done = subprocess.run([sys.executable, str(pyz), *words], cwd=tmp_path, capture_output=True, text=True, check=True)
    names = [line.split()[0] for line in done.stderr.splitlines()[1:6]]
    assert names == ["interpreter", "bundle", "config", "layers", "imports"]
