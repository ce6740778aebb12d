"""Writes down the sources of the modules that may wait, as this environment's torch has them.

    uv run python -m tools.lazy_table          rewrites src/trainer_boot/lazy/sources.py
    uv run python -m tools.lazy_table --check  says whether it is right

Run it when trainer_boot/lazy/table.py has changed, or for another torch; then prove it (tools/prove_hazards.py).
"""

import hashlib
import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

from trainer_boot.lazy.table import ANSWERED, DEFERRED

TARGET = Path(__file__).resolve().parent.parent / "src" / "trainer_boot" / "lazy" / "sources.py"
HEAD = '''"""Sources of the modules that may wait: name -> size, digest. Written by tools/lazy_table.py."""

SOURCES = {
'''


def source(name: str) -> Path:
    """The file of a module, without importing it."""
    top, *parts = name.split(".")
    spec = find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"error: {top} is not installed")
    place = Path(spec.submodule_search_locations[0]).joinpath(*parts)
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def text() -> str:
    """The whole file."""
    lines = []
    for name in sorted((*DEFERRED, *ANSWERED)):
        content = source(name).read_bytes()
        lines.append(f'    "{name}": ({len(content)}, "{hashlib.sha256(content).hexdigest()[:16]}"),\n')
    return HEAD + "".join(lines) + "}\n"


def main() -> int:
    """0: it is right, or was written."""
    found = text()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(found)
        return 0
    right = TARGET.read_text() == found
    print("right" if right else f"{TARGET} is not what this environment has")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
