"""What a command needs of the environment, asked before anything of it is imported."""

import sys
from importlib.util import find_spec
from pathlib import Path

from trainer import startup
from trainer.errors import UserError


def need(*packages: str) -> None:
    """UserError (status 3) that names the first of `packages` that this interpreter does not have, and the fix."""
    for package in packages:
        if package not in sys.modules and find_spec(package) is None:
            bundle = startup.bundle_path()
            name = Path(bundle).name if bundle else "trainer"
            raise UserError(
                f"this interpreter, {sys.executable}, has no {package}",
                f"run it with the interpreter of the locked environment: `uv sync`, then `.venv/bin/python {name} ...`",
                3,
            )
