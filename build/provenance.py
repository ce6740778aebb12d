"""What the file says about where it comes from: facts that are the same for the same commit, wherever it is built."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from build.compile import CodeSection
from build.errors import BuildError
from build.tree import Tree

SHIPPED = ("src", "build", "pyproject.toml", "uv.lock", "README.md", "LICENSE")
"""What decides the content of the file (README.md is in its metadata); other changes do not make a build dirty."""

# A hook of git's that runs the build sets these; they name a repository, which may be another one.
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")


def facts(
    root: Path,
    name: str,
    version: str,
    tree: Tree,
    sections: Sequence[CodeSection],
    options: Mapping[str, object],
) -> dict[str, object]:
    """Return name, version, commit, lock, Pythons, passes and the build's options, as JSON values.

    `commit` is None outside of a git repository only. BuildError where there is a repository and git does not answer:
    the same commit would give another file.
    """
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
    """Return the commit, and whether what is shipped differs from it."""
    if not (root / ".git").exists():
        return None, None
    if shutil.which("git") is None:
        raise BuildError(
            f"{root} is a git repository, but there is no git to tell which commit it is",
            "Install git, or build from a copy of the sources without .git: that file names no commit.",
        )
    head = _ask(root, "rev-parse", "HEAD")
    status = _ask(root, "--no-optional-locks", "status", "--porcelain", "--", *SHIPPED)
    return head.strip(), bool(status.strip())


def _ask(root: Path, *words: str) -> str:
    """Return what git prints.

    In a container the checkout often belongs to another user, where git refuses to answer unless the folder is named
    as safe. Whoever builds runs the checkout's code anyway.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    safe = ["-c", f"safe.directory={root.resolve()}", "-c", "core.fsmonitor=false"]
    done = subprocess.run(
        ["git", *safe, *words], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if line.startswith("fatal: ")), done.stderr.strip())
        raise BuildError(
            f"git does not tell which commit {root} is: {reason.removeprefix('fatal: ')}",
            "Repair the repository so that `git status` works there as this user. For a checkout of another user, run "
            f"`git config --global --add safe.directory {root.resolve()}`.",
        )
    return done.stdout
