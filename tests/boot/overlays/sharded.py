"""Run as a program: `sharded.py SCRIPT FOLDER`; a rank of one of tools/plain in a process that `begin` has begun.

At its end FOLDER/start-RANK.json says which modules there are and what the overlays' states are.
"""

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any, NoReturn

NOTES: list[dict[str, Any]] = []


def begin(layers: str) -> None:
    """Puts the layers on and imports torch, as a rank does first."""
    from trainer_boot.layers import put_on

    NOTES.extend(put_on(layers.split(",")))
    import torch  # noqa: F401  # for those that are forked


def main(script: str, folder: str) -> None:
    from tests.boot.overlays.sharded import NOTES as notes

    leave = os._exit

    def told(status: int) -> NoReturn:
        overlays: list[dict[str, str]] = next((note["overlays"] for note in notes if "overlays" in note), [])
        states = {each["name"]: each["state"] for each in overlays}
        text = json.dumps({"modules": list(sys.modules), "overlays": states})
        Path(folder, f"start-{os.environ['RANK']}.json").write_text(text)
        leave(status)

    os._exit = told
    sys.argv = [script, folder]
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
