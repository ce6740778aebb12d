"""Run as a process: `python sharded.py SCRIPT FOLDER LAYERS`; a rank of one of tools/plain with layers on.

At its end FOLDER/start-RANK.json says which modules there are and what the overlays' states are.
"""

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any, NoReturn


def main(script: str, folder: str, layers: str) -> None:
    from trainer_boot.layers import put_on

    notes: list[dict[str, Any]] = put_on(layers.split(","))
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
