"""How the trainer starts itself again: as it was started, with the interpreter's options."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from trainer import startup
# as `from trainer.cli import program` says in the installed one
print([startup.entry_command(), startup.shown_command("env", "create")])
"""


@pytest.mark.parametrize("options", [[], ["-I"], ["-P", "-W", "ignore"]])
def test_an_installed_program_is_started_as_that_program(tmp_path: Path, options: list[str]) -> None:
    """`-m` would put the current folder on `sys.path`, where the program has its own."""
    program = tmp_path / "trainer"
    program.write_text(PROGRAM)
    other = tmp_path / "other.py"
    other.write_text(PROGRAM)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for script, entry in ((program, [str(program)]), (other, ["-m", "trainer"])):
        done = subprocess.run(
            [sys.executable, *options, str(script)],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
            env=environ,
        )
        command, shown = ast.literal_eval(done.stdout)
        given = ["-P", "-Wignore"] if "-W" in options else options
        assert command[0] == sys.executable
        assert sorted(command[1 : -len(entry)]) == sorted(given)
        assert command[-len(entry) :] == entry
        assert shown.split()[-2:] == ["env", "create"]
        assert ("-I" in shown.split()) == ("-I" in options)
