"""What a command needs of the environment, asked before anything of it is imported."""

import os
import sys
from importlib.util import find_spec

from trainer import startup
from trainer.errors import UserError
from trainer.processor import prepare_torch


def need(*packages: str) -> None:
    """Goes on where this interpreter has all of `packages`; else starts this command again in the stored environment
    that fits the file. UserError (status 3) that names the first that is missing, and the command that brings it."""
    for package in packages:
        if package not in sys.modules and find_spec(package) is None:
            try:
                startup.enter_environment(package)
            except Exception as error:  # with what, fix and status, or a bug
                if not hasattr(error, "fix"):
                    raise
                raise UserError(str(getattr(error, "what", error)), error.fix, 3) from None
            bundled = startup.bundle_path() is not None
            raise UserError(
                f"this interpreter, {sys.executable}, has no {package}",
                f"Run `{startup.shown_command('env', 'create')}`, then the same command again."
                if bundled
                else "Use the interpreter of the locked environment: run `uv sync`, then `.venv/bin/python ...`.",
                3,
            )
    if "torch" in packages and "torch" not in sys.modules:
        prepare_torch(os.environ)
