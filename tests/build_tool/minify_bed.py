"""Programs run twice: as they were written, and minified."""

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from build.minify import Policy, Report, minify
from build.tree import File, Tree

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data" / "minify"


@cache
def interpreters() -> tuple[str, ...]:
    """The running Python and those of the other minor versions from 3.11 on that can be found and started."""
    found = {sys.version_info[:2]: sys.executable}
    installed = sorted(Path.home().glob(".pyenv/versions/*/bin/python3.1[0-9]"))
    candidates = [str(path) for path in installed]
    candidates += [path for minor in range(11, 16) if (path := shutil.which(f"python3.{minor}"))]
    for candidate in candidates:
        asked = [candidate, "-I", "-c", "import sys; print(*sys.version_info[:2])"]
        done = subprocess.run(asked, capture_output=True, text=True)
        if done.returncode == 0:
            major, minor = map(int, done.stdout.split())
            if minor >= 11:
                found.setdefault((major, minor), candidate)
    return tuple(found.values())


def module(path: str, text: str | bytes, package: str = "example") -> File:
    """A module of a tree; `path` is its place."""
    data = text if isinstance(text, bytes) else text.encode()
    name = path.removesuffix(".py").replace("/", ".")
    return File(path, data, package, name.removesuffix(".__init__"), name.endswith(".__init__"), data)


def minified(files: list[File], cache_folder: Path, policy: Policy | None = None) -> tuple[dict[str, File], Report]:
    """The files by path after the minifier, and its report."""
    tree, report = minify(Tree.of(files), policy or Policy(), cache_folder)
    return {file.path: file for file in tree}, report


def output(python: str, folder: Path, script: str) -> str:
    """What a program prints; fails where it fails."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8"}
    command = [python, "-W", "ignore", str(folder / script)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout
