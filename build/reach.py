"""Leaves out the modules that nothing in the file can reach from where it may be entered.

Nobody can show that of all programs, so the question is asked widely: see `references.py` for what counts as reaching.
Entered is a file at its entry, at the `__main__` of our packages, at everything that a distribution's entry points
name, and at what `[tool.trainer-build]` says to keep. A distribution that imports by names it computes stays whole.
"""

import configparser
import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from build.cache import Cache, key_of
from build.errors import BuildError
from build.references import References, references
from build.tree import File, Tree


@dataclass(frozen=True, slots=True)
class Reach:
    """What was found."""

    left_out: tuple[File, ...] = ()
    """By path."""
    whole: dict[str, str] = field(default_factory=dict)
    """Distribution -> why all of its modules stay ("tqdm/std.py, line 3: imports by a computed name")."""

    def names(self) -> dict[str, list[str]]:
        """Distribution -> its modules that were left out, sorted; for the report and for the file."""
        found: dict[str, list[str]] = {}
        for file in self.left_out:
            found.setdefault(file.package, []).append(file.module or "")
        return {package: sorted(names) for package, names in sorted(found.items())}

    def table(self) -> str:
        """For a terminal: a line for each distribution that lost some."""
        lines = [
            f"left out of {package}: {', '.join(names)} ({sum(len(file.data) for file in self._of(package)):,} bytes)"
            for package, names in self.names().items()
        ]
        return "\n".join(lines)

    def _of(self, package: str) -> Iterator[File]:
        return (file for file in self.left_out if file.package == package)


def reach(tree: Tree, entries: tuple[str, ...], keep: frozenset[str], cache: Path) -> tuple[Tree, Reach]:
    """The tree without the modules that can't be reached, and what they are.

    `entries`: dotted names of modules. `keep`: names of distributions, or dotted ones of modules, with all below them.
    Data files stay; each RECORD forgets what is gone. `cache` is a folder, made if absent, that lets an unchanged tree
    be looked up. BuildError for a name to keep that is not there.
    """
    store = Cache(cache)
    key = key_of("reach", _tools(), tree.digest(), *entries, "keep", *sorted(keep))
    known = store.get(key)
    if known is None:
        known = json.dumps(_search(tree, entries, keep)).encode()
        store.put(key, known)
    names, whole = json.loads(known)
    left_out = tuple(file for file in tree.modules() if file.module in set(names))
    dropped = {file.path for file in left_out}
    kept = (_recorded(file, dropped) for file in tree if file.path not in dropped)
    return Tree.of(kept), Reach(left_out, whole)


def _search(tree: Tree, entries: tuple[str, ...], keep: frozenset[str]) -> tuple[list[str], dict[str, str]]:
    """The names that are not reached, and why distributions stay whole."""
    modules = {file.module: file for file in tree.modules() if file.module}
    wanted = _Wanted(modules)
    wanted.add_all((*entries, *_entry_points(tree)))
    for name in sorted(keep):
        _keep(wanted, tree, name)
    while wanted.waiting:
        file = modules[wanted.waiting.pop()]
        found = references(file, modules)
        if found.computed and file.package not in wanted.whole:
            wanted.whole[file.package] = f"{file.path}, {found.computed}"
            wanted.add_all(other.module for other in tree.modules() if other.package == file.package)
        wanted.follow(found)
    return sorted(set(modules) - wanted.seen), wanted.whole


def _tools() -> str:
    """The sources that the answer depends on besides the tree, and the Python whose grammar reads it."""
    here = Path(__file__).parent
    sources = [Path(__file__), here / "references.py", *sorted((here / "minify").rglob("*.py"))]
    return key_of(sys.version, *(source.read_bytes() for source in sources))


class _Wanted:
    """The modules that are reached so far, and those of them that were not read yet."""

    def __init__(self, modules: dict[str, File]) -> None:
        self.modules = modules
        self.seen: set[str] = set()
        self.waiting: list[str] = []
        self.whole: dict[str, str] = {}

    def add(self, name: str) -> bool:
        """A module, the packages around it, and a package's `__main__`; False where there is none of that name."""
        if name not in self.modules:
            return False
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            part = ".".join(parts[:depth])
            if part in self.modules and part not in self.seen:
                self.seen.add(part)
                self.waiting.append(part)
        if f"{name}.__main__" in self.modules:
            self.add(f"{name}.__main__")
        return True

    def add_all(self, names: Iterable[str | None]) -> None:
        for name in names:
            self.add(name or "")

    def follow(self, found: References) -> None:
        self.add_all(found.names)
        for package in found.below:
            self.add_all([name for name in self.modules if name.startswith(f"{package}.")])


def _recorded(file: File, dropped: set[str]) -> File:
    if not dropped or not file.path.endswith(".dist-info/RECORD"):
        return file
    rows = [row for row in csv.reader(io.StringIO(file.data.decode())) if row[0] not in dropped]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return replace(file, data=text.getvalue().encode())


def _keep(wanted: _Wanted, tree: Tree, name: str) -> None:
    kept = [
        file.module
        for file in tree.modules()
        if file.package == name or file.module == name or (file.module or "").startswith(f"{name}.")
    ]
    if not kept:
        raise BuildError(
            f"`keep` in [tool.trainer-build] of pyproject.toml names {name!r}, which is not in the file",
            "name a bundled distribution or a module in one; `python -m build` without it lists what it leaves out",
        )
    wanted.add_all(kept)


def _entry_points(tree: Tree) -> Iterator[str]:
    """The modules that entry points of any group name: importlib.metadata offers them to everybody."""
    for file in tree:
        if file.path.endswith(".dist-info/entry_points.txt"):
            parser = configparser.ConfigParser(delimiters=("=",), strict=False, interpolation=None)
            parser.optionxform = str  # type: ignore[assignment,method-assign]  # how configparser wants it told
            parser.read_string(file.data.decode())
            for group in parser.sections():
                for value in parser[group].values():
                    yield value.partition(":")[0].partition("[")[0].strip()
