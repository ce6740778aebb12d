"""What the file says about where it comes from: facts that are the same for the same commit, wherever it is built."""

import hashlib
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from build.compile import CodeSection
from build.tree import Tree

SHIPPED = ("src", "build", "pyproject.toml", "uv.lock")
"""What decides the file's content; changes elsewhere do not make a build dirty."""


def facts(
    root: Path,
    name: str,
    version: str,
    tree: Tree,
    sections: Sequence[CodeSection],
    options: Mapping[str, object],
) -> dict[str, object]:
    """Name, version, commit (None outside of git), lock, Pythons, passes and the build's options, as JSON values."""
    commit, dirty = _git(root)
    return {
        "name": name,
        "version": version,
        "commit": commit,
        "dirty": dirty,
        "lock_sha256": hashlib.sha256((root / "uv.lock").read_bytes()).hexdigest(),
        "python": {section.interpreter.version: section.interpreter.magic.hex() for section in sections},
        "passes": sorted({name for file in tree for name in file.passes}),
        "options": dict(options),
    }


def _git(root: Path) -> tuple[str | None, bool | None]:
    """The commit, and whether what is shipped differs from it."""
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        return None, None
    head = subprocess.run([git, "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    status = subprocess.run(
        [git, "--no-optional-locks", "status", "--porcelain", "--", *SHIPPED],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    if head.returncode or status.returncode:
        return None, None
    return head.stdout.strip(), bool(status.stdout.strip())
