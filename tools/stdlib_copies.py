"""Copies of an interpreter with its standard library as it is, minified in two ways, and as our file serves it.

Started as a file, by the interpreter that is copied: the minifier parses and prints with that Python's grammar. A copy
of the executable with its library beside it is a prefix of its own, also for children that ignore the environment.

    python tools/stdlib_copies.py FOLDER PRINTER        PRINTER: where python-minifier is installed
"""

import importlib.util
import json
import marshal
import os
import shutil
import sys
import sysconfig
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
    sys.path.append(sys.argv[2])

from build.minify import Policy, minify
from build.minify.transform import transform
from build.tree import File, Tree

PLAIN, KEPT, STRIPPED, SHIPPED = "plain", "kept", "stripped", "shipped"
DISTRIBUTION = "python"
POLICIES = {
    # what the policy does with a distribution that reads docstrings, as the standard library does
    KEPT: Policy(),
    STRIPPED: Policy(strip_docstrings=frozenset({DISTRIBUTION})),
}
# the judges stay as they are, and what is no part of the library
TESTS = frozenset({"test", "tests", "idle_test"})
OTHERS = frozenset({"site-packages", "__pycache__"})
NOTHING = Tree.of(())


def main() -> None:
    """Makes the copies that are not there yet, and `copies.json` with their sizes when all of them are."""
    folder, cache = Path(sys.argv[1]), Path(sys.argv[1], "minified")
    library = Path(sysconfig.get_path("stdlib"))
    files = sorted(_files(library))
    tree = Tree.of(_module(path, library) for path in files if _is_judged(path, library))
    trees, refused = {PLAIN: tree}, [("", "")]
    for name, policy in POLICIES.items():
        trees[name], report = minify(tree, policy, cache)
        refused = [(refusal.path, refusal.reason) for refusal in report.refused]
    for name, made in trees.items():
        _copy(library, files, {file.path: file.data for file in made}, folder / name)
    _copy(library, files, {}, folder / SHIPPED, trees[KEPT])
    sizes = {name: sum(len(file.data) for file in made) for name, made in trees.items()}
    facts = {"modules": len(tree), "bytes": sizes, "kept_as_they_are": refused}
    (folder / "copies.json").write_text(json.dumps(facts))


def _files(library: Path) -> list[Path]:
    found = []
    for place, folders, names in os.walk(library):
        folders[:] = [name for name in folders if name not in OTHERS]
        found += [Path(place, name) for name in names]
    return found


def _is_judged(path: Path, library: Path) -> bool:
    return path.suffix == ".py" and not TESTS & {*path.relative_to(library).parts[:-1]}


def _module(path: Path, library: Path) -> File:
    place = path.relative_to(library)
    name = ".".join(place.with_suffix("").parts)
    data = path.read_bytes()
    return File(place.as_posix(), data, DISTRIBUTION, name.removesuffix(".__init__"), place.stem == "__init__", data)


def _copy(library: Path, files: list[Path], changed: dict[str, bytes], prefix: Path, code: Tree = NOTHING) -> None:
    if prefix.exists():
        return
    beside = prefix.with_suffix(".new")
    shutil.rmtree(beside, ignore_errors=True)
    home = beside / "lib" / library.name
    for path in files:
        place = path.relative_to(library)
        target = home / place
        target.parent.mkdir(parents=True, exist_ok=True)
        data = changed.get(place.as_posix())
        if data is None or data == path.read_bytes():
            shutil.copy2(path, target)
        else:
            target.write_bytes(data)
    for file in code:
        _place_code(home, prefix / "lib" / library.name, file)
    (home / "site-packages").mkdir()
    (beside / "include").symlink_to(Path(sys.prefix, "include"))
    (beside / "bin").mkdir()
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    shutil.copy2(os.path.realpath(sys.executable), beside / "bin" / name)
    for other in ("python3", "python"):
        (beside / "bin" / other).symlink_to(name)
    beside.rename(prefix)


def _place_code(home: Path, later: Path, file: File) -> None:
    """Bytecode of the minified tree with the lines of the original, which stays beside it as the text."""
    tree = transform(file.original or b"", file.passes)
    code = compile(tree, str(later / file.path), "exec", dont_inherit=True, optimize=0)
    target = Path(importlib.util.cache_from_source(str(home / file.path)))
    target.parent.mkdir(exist_ok=True)
    unchecked = (1).to_bytes(4, "little")  # PEP 552
    target.write_bytes(importlib.util.MAGIC_NUMBER + unchecked + bytes(8) + marshal.dumps(code))


if __name__ == "__main__":
    main()
