"""Small archives with packages of a test's own, and processes that run them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from textwrap import dedent

from build.cache import Cache
from build.compile import CodeSection, compile_code
from build.interpreters import Interpreter, find_interpreters
from build.minify.passes import PASSES
from build.minify.stage import shorten
from build.tree import File, Tree
from build.write import write

ROOT = Path(__file__).parent.parent.parent
CODE = Path()  # set by the session

Files = Mapping[str, str | bytes]


def bytes_of(content: str | bytes) -> bytes:
    """A file's content; text is dedented."""
    return content if isinstance(content, bytes) else dedent(content).encode()


def tree_of(files: Files, *, data: Sequence[str] = (), minify: bool = False) -> Tree:
    """These files and trainer_boot; every .py is a module but those named as data."""
    contents = {path: bytes_of(content) for path, content in files.items()}
    for path in sorted((ROOT / "src" / "trainer_boot").glob("*.py")):
        contents[f"trainer_boot/{path.name}"] = path.read_bytes()
    return Tree.of(_file(path, content, path in data, minify) for path, content in contents.items())


def _file(path: str, content: bytes, is_data: bool, minify: bool) -> File:
    if not path.endswith(".py") or is_data:
        return File(path, content, "test")
    is_package = path.endswith("/__init__.py")
    module = path.removesuffix("/__init__.py" if is_package else ".py").replace("/", ".")
    if not minify:
        return File(path, content, "test", module, is_package, content)
    outcome = shorten(content, tuple(PASSES))
    return File(path, outcome.data, "test", module, is_package, content, outcome.passes)


@cache
def running() -> tuple[Interpreter, ...]:
    """The interpreter that runs the tests."""
    return find_interpreters([])


@cache
def other_python() -> str | None:
    """A Python of another minor version that the trainer supports, if this machine has one."""
    for minor in (12, 13, 14, 11):
        if minor != sys.version_info[1]:
            found = python(f"3.{minor}")
            if found is not None:
                return found
    return None


@cache
def python(version: str) -> str | None:
    """The path of a Python of that version, if there is one."""
    places = [Path.home() / ".pyenv" / "versions", Path.home() / ".local" / "share" / "uv" / "python"]
    candidates = [shutil.which(f"python{version}")]
    candidates += [str(found) for place in places for found in sorted(place.glob(f"*{version}.*/bin/python3"))]
    for candidate in candidates:
        if candidate is not None:
            probe = [candidate, "-c", "import sys, zlib; print('%d.%d' % sys.version_info[:2])"]
            if subprocess.run(probe, capture_output=True, text=True, check=False).stdout.strip() == version:
                return candidate
    return None


def code_of(tree: Tree, interpreters: Sequence[Interpreter] = ()) -> tuple[CodeSection, ...]:
    """Its code sections; what an earlier test compiled is not compiled again."""
    return compile_code(tree, interpreters or running(), Cache(CODE))


def archive(
    place: Path,
    files: Files,
    entry: str = "app",
    *,
    data: Sequence[str] = (),
    minify: bool = False,
    originals: bool = True,
    interpreters: Sequence[Interpreter] = (),
) -> Path:
    """Builds one at `place`."""
    tree = tree_of(files, data=data, minify=minify)
    content = write(tree, code_of(tree, interpreters), {}, entry=entry, originals=originals)
    place.write_bytes(content)
    place.chmod(0o755)
    return place


def run(
    place: Path | Sequence[str | Path],
    *arguments: str,
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    timeout: float = 120,
) -> "subprocess.CompletedProcess[str]":
    """Runs it to its end, away from the checkout (`folder`, or the archive's own), isolated from site-packages."""
    words = [place] if isinstance(place, Path) else list(place)
    variables = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    return subprocess.run(
        [python, "-s", *map(str, words), *arguments],
        capture_output=True,
        text=True,
        env={**variables, **(environment or {})},
        cwd=folder or Path(words[-1]).parent,
        timeout=timeout,
        check=False,
    )


def lines(done: "subprocess.CompletedProcess[str]") -> list[str]:
    """What it printed; it must have gone well."""
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
