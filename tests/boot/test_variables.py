"""Variables that name code do not count where Python ignores its own."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trainer_boot import variables

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = f"""
import sys
sys.path.insert(0, {str(ROOT / "src")!r})
from trainer_boot import node_local, snapshot_place
from trainer_boot.environment import store, trusted
print(store.default_place() == "/given/a", "/given/b" in snapshot_place.folders(), "/given/c" in node_local.folders())
print(store.default_place() == "/given/a", len(trusted.owners()))
"""
GIVEN = {
    "TRAINER_ENV_STORE": "/given/a",
    "TRAINER_SNAPSHOT_DIR": "/given/b",
    "TRAINER_NODE_DIR": "/given/c",
    "TRAINER_ENV_OWNERS": "12345",
}


@pytest.mark.parametrize("option", ["-B", "-E", "-I", "-P", "-s"])
def test_what_names_code_is_ignored_as_python_ignores_its_own(option: str) -> None:
    done = subprocess.run(
        [sys.executable, option, "-c", PROGRAM],
        env={**os.environ, **GIVEN},
        capture_output=True,
        text=True,
        check=True,
    )
    owners = len({os.geteuid(), 0})
    if option in ("-E", "-I"):
        assert done.stdout.split() == ["False", "False", "False", "False", str(owners)]
        told = [line.split()[1] for line in done.stderr.splitlines()]
        assert sorted(told) == sorted(GIVEN)  # each once
        assert f"Python was started with {option}" in done.stderr
    else:
        assert done.stdout.split() == ["True", "True", "True", "True", str(owners + 1)]
        assert done.stderr == ""


def test_no_variable_that_names_code_is_read_elsewhere() -> None:
    """They are read through `variables.value`; a new variable is in the table, or in the list of those that are not."""
    found = set()
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            value = node.value if isinstance(node, ast.Constant) else None
            if isinstance(value, str) and re.fullmatch(r"TRAINER_[A-Z_]*[A-Z]", value):
                found.add(value)
    settings = {"TRAINER_START_POLICY", "TRAINER_START_REPORT", "TRAINER_START_LAYERS"}
    assert found - settings == set(variables.NAMES_CODE) | set(variables.OTHERS)


def test_settings_that_name_code(tmp_path: Path) -> None:
    program = """
import os, sys
from trainer.config import resolve
found = resolve("x", [], os.environ, "").config
print([found.model.build, found.model.loss, found.data.dataset, found.optim.build, found.optim.lr])
"""
    given = {"MODEL_BUILD": "a.py:b", "MODEL_LOSS": "a.py:b", "DATA_DATASET": "a.py:b", "OPTIM_BUILD": "a.py:b"}
    environ = {**os.environ, **{f"TRAINER_{name}": value for name, value in given.items()}, "TRAINER_OPTIM_LR": "0.25"}
    for option, names in (("-I", ""), ("-B", "a.py:b")):
        done = subprocess.run(
            [sys.executable, option, "-c", program], env=environ, capture_output=True, text=True, check=True
        )
        assert ast.literal_eval(done.stdout) == [names] * 4 + [0.25]
        assert done.stderr.count("is ignored: Python was started with -I") == (4 if option == "-I" else 0)
