"""Calls a build backend (PEP 517) for a project's metadata. Runs in a process of its own, in the project's folder.

The table [build-system] comes on standard input as JSON; the argument is the folder to write into. The name of the
`.dist-info` there is the last line on standard output. Standard library only.
"""

import contextlib
import json
import sys
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any


def main() -> None:
    """Write the metadata; whatever the backend raises ends this process."""
    system: dict[str, Any] = json.load(sys.stdin)
    sys.path[:0] = [str(Path(place).resolve()) for place in system.get("backend-path", [])]
    module, _, attributes = str(system["build-backend"]).partition(":")
    backend: Any = import_module(module)
    for attribute in filter(None, attributes.split(".")):
        backend = getattr(backend, attribute)
    target = Path(sys.argv[1])
    with contextlib.redirect_stdout(sys.stderr):  # some backends say what they do
        name = _prepared(backend, target)
    print(name)


def _prepared(backend: Any, target: Path) -> str:
    """Return the name of the folder that holds the metadata."""
    if hasattr(backend, "prepare_metadata_for_build_wheel"):
        return str(backend.prepare_metadata_for_build_wheel(str(target)))
    # the hook is optional: the wheel has them too
    with zipfile.ZipFile(target / backend.build_wheel(str(target))) as wheel:
        members = [name for name in wheel.namelist() if ".dist-info/" in name]
        wheel.extractall(target, members)
    return members[0].partition("/")[0]


if __name__ == "__main__":
    main()
