"""Puts the bundled packages, our own packages and all metadata into one tree."""

import ast
import csv
import io
import keyword
from collections.abc import Iterable, Iterator
from pathlib import Path

from build.errors import BuildError
from build.fetch import discard, unpacked
from build.imports import mentions
from build.lock import Lock
from build.metadata import metadata_files
from build.resolve import Resolution
from build.settings import leave_in_environment, read_settings
from build.tree import File, Tree
from build.wheel_files import Damaged, record_hash, wheel_files

OWN = ("trainer", "trainer_boot")
"""Our import packages, under `src`."""

Sources = Iterable[tuple[str, bytes, str]]
"""Path in the archive, bytes, distribution."""


def collect(resolution: Resolution, source_root: Path, cache: Path, lock: Lock | None = None) -> Tree:
    """Return the tree of `src` under `source_root`, the bundled packages, and the `.dist-info` of each.

    The packages come from the folder `cache` where an earlier build left them, else through uv, checked against the
    lock's hashes. `lock`: the build backend has to be the one in it. BuildError where uv, the network or the backend is
    missing, or where a package turns out to be one that an archive cannot stand for.
    """
    name = resolution.root.name
    own = [*_own(source_root, name), *metadata_files(source_root, resolution.root, lock)]
    sources, listed = _merged([*own, *_bundled(resolution, source_root, cache)])
    modules = _modules(sources)
    try:
        tree = Tree.of(_file(source, modules) for source in sources)
    except ValueError as error:
        raise BuildError(str(error), "Rename the file, or leave its package in the environment.") from None
    return Tree.of([*tree, *_records(tree, listed)])


def _file(source: tuple[str, bytes, str], modules: dict[str, str]) -> File:
    path, data, package = source
    module = modules.get(path)
    if module is None:
        return File(path, data, package)
    return File(path, data, package, module, path.endswith("/__init__.py"), data)


def _own(source_root: Path, distribution: str) -> Iterator[tuple[str, bytes, str]]:
    folder = source_root / "src"
    for package in OWN:
        for path in sorted((folder / package).rglob("*")):
            parts = path.relative_to(folder).parts
            hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
            if path.is_file() and not hidden and path.suffix != ".pyc" and not path.name.endswith("~"):
                yield "/".join(parts), path.read_bytes(), distribution


def _bundled(resolution: Resolution, source_root: Path, cache: Path) -> list[tuple[str, bytes, str]]:
    """Return the files of the bundled packages; a damaged copy in the cache is fetched again, once."""
    ignore_pth = read_settings(source_root / "pyproject.toml")["ignore-pth"]
    packages = {package.name: package for package in resolution.bundled}
    found: list[tuple[str, bytes, str]] = []
    damaged = []
    for name, folder in unpacked(packages.values(), cache, source_root).items():
        try:
            found += wheel_files(packages[name], folder, ignore_pth)
        except Damaged:
            discard(folder)
            damaged.append(packages[name])
    for name, folder in unpacked(damaged, cache, source_root).items():
        try:
            found += wheel_files(packages[name], folder, ignore_pth)
        except Damaged:
            discard(folder)
            raise
    return found


def _merged(sources: Sources) -> tuple[list[tuple[str, bytes, str]], dict[str, list[str]]]:
    """Return the sources with each path once, and the paths of every distribution.

    Distributions may share a file: packages of one namespace have the same `__init__.py`, and some put their licence
    beside their code. BuildError where two files of one path differ: installers would keep whichever came last.
    """
    kept: dict[str, tuple[str, bytes, str]] = {}
    listed: dict[str, list[str]] = {}
    for path, data, package in sorted(sources, key=lambda source: (source[0], source[2])):
        if path not in listed.setdefault(package, []):
            listed[package].append(path)
        _, before, owner = kept.setdefault(path, (path, data, package))
        if before != data and not (path.endswith(".py") and _is_namespace(before) and _is_namespace(data)):
            raise BuildError(f"{owner} and {package} both have {path}, and not the same", leave_in_environment(package))
    return list(kept.values()), listed


def _is_namespace(source: bytes) -> bool:
    """Return whether a package's `__init__.py` does nothing but declare a namespace, in the way of old."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return False
    calls = {getattr(node, "attr", getattr(node, "id", "")) for each in body for node in ast.walk(each)}
    plain = all(isinstance(each, ast.Expr | ast.Assign | ast.Import | ast.ImportFrom | ast.Try) for each in body)
    return plain and bool(calls & {"extend_path", "declare_namespace"})


def _records(tree: Tree, listed: dict[str, list[str]]) -> Iterator[File]:
    """Yield a RECORD for each distribution: every path, without the hashes of modules, which the minifier changes."""
    files = {file.path: file for file in tree}
    for package, paths in listed.items():
        folder = next(path.split("/")[0] for path in paths if path.split("/")[0].endswith(".dist-info"))
        rows = [
            (path, "", "") if files[path].module else (path, record_hash(files[path].data), len(files[path].data))
            for path in paths
        ]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*rows, (f"{folder}/RECORD", "", "")])
        yield File(f"{folder}/RECORD", text.getvalue().encode(), package)


def _modules(sources: Sources) -> dict[str, str]:
    """Path -> dotted name, of what Python can import.

    A folder without `__init__.py` inside a package is a folder of data, `.py` files included, unless something imports
    it by its name: templates are not modules.
    """
    sources = list(sources)
    packages = {path.rpartition("/")[0] for path, _, _ in sources if path.endswith("/__init__.py")}
    found: dict[str, str] = {}
    for path, _, _ in sources:
        if not path.endswith(".py") or ".dist-info/" in path:
            continue
        parts = path[: -len(".py")].split("/")
        names = parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts
        if not all(name.isidentifier() and not keyword.iskeyword(name) for name in names):
            continue
        if path[: -len(".py")] in packages:  # a package of that name hides it
            continue
        bare = _bare_folder(parts[:-1], packages)
        if bare is None or _imported(bare, sources):
            found[path] = ".".join(names)
    return found


def _bare_folder(parents: list[str], packages: set[str]) -> str | None:
    """The first folder on the way that lies in a package and is none."""
    inside = False
    for depth in range(1, len(parents) + 1):
        folder = "/".join(parents[:depth])
        if folder in packages:
            inside = True
        elif inside:
            return folder
    return None


def _imported(folder: str, sources: list[tuple[str, bytes, str]]) -> bool:
    """True where a module imports what is in the folder or spells its dotted name."""
    dotted = folder.replace("/", ".")
    last = dotted.rpartition(".")[2].encode()
    return any(path.endswith(".py") and last in data and mentions(path, data, dotted) for path, data, _ in sources)
