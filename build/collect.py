"""Fetches the bundled packages and puts them, our own packages and all metadata into one tree."""

import csv
import hashlib
import io
import keyword
import shutil
import subprocess
import sys
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.utils import canonicalize_name

from build.cache import key_of
from build.errors import BuildError
from build.imports import mentions
from build.lock import Package
from build.metadata import metadata_files
from build.resolve import BUNDLED, Resolution
from build.tree import File, Tree
from build.uv import find_uv

OWN = ("trainer", "trainer_boot")
"""Our import packages, under `src`."""

# Written by installers about one installation; they differ from one machine to the next.
INSTALLERS_OWN = frozenset({"INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "RECORD"})
# What a wheel puts beside the packages of an environment; in an archive nobody finds it.
BESIDE = frozenset({"bin", "Scripts", "share", "etc", "include"})
NATIVE = (".so", ".pyd", ".dylib", ".dll")

Sources = Iterable[tuple[str, bytes, str]]
"""Path in the archive, bytes, distribution."""


def collect(resolution: Resolution, source_root: Path, cache: Path) -> Tree:
    """The tree of `src` under `source_root`, the bundled packages, and the `.dist-info` of each.

    The packages come from the folder `cache` where an earlier build left them, else through uv, checked against the
    lock's hashes. BuildError where uv or the network is missing, or where a package turns out to hold native code.
    """
    sources = [
        *_own(source_root, resolution.root.name),
        *metadata_files(source_root / "pyproject.toml", resolution.root.version, OWN),
        *_bundled(resolution, source_root, cache),
    ]
    modules = _modules(sources)
    tree = Tree.of(_file(source, modules) for source in sources)
    return Tree.of([*tree, *_records(tree)])


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
    """The files of the bundled packages; a damaged copy in the cache is fetched again, once."""
    packages = resolution.bundled
    if not packages:
        return []
    lines = sorted(_requirement(package) for package in packages)
    folder = cache / "wheels" / key_of("2", *lines)
    if folder.is_dir():
        try:
            return list(_installed(folder, packages))
        except BuildError:
            shutil.rmtree(folder)
    indexes = {each.index for each in resolution.requirements if each.kind == BUNDLED and each.index}
    _fetch(lines, sorted(indexes), folder, source_root)
    return list(_installed(folder, packages))


def _requirement(package: Package) -> str:
    hashes = sorted(wheel.hash for wheel in package.wheels if wheel.hash)
    if not hashes or package.version is None:
        raise BuildError(f"uv.lock has no hash for {package.label}", "run `uv lock`, then build again")
    return " ".join([f"{package.name}=={package.version}", *(f"--hash={value}" for value in hashes)])


def _fetch(lines: list[str], indexes: list[str], folder: Path, source_root: Path) -> None:
    """Installs exactly these wheels into `folder`, which appears whole or not at all; `indexes`: besides the usual."""
    uv = find_uv()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as temporary:
        target, wanted = Path(temporary, "target"), Path(temporary, "requirements.txt")
        wanted.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [uv, "pip", "install", "--target", str(target), "--no-deps", "--require-hashes"]
        command += ["--only-binary", ":all:", "--python", sys.executable, "--link-mode", "copy", "--no-progress"]
        command += [word for index in indexes for word in ("--index", index)]
        done = subprocess.run([*command, "-r", str(wanted)], cwd=source_root, capture_output=True, text=True)
        if done.returncode:
            said = " ".join(done.stderr.partition("error:")[2].split())
            raise BuildError(
                f"uv could not fetch the bundled packages: {said or f'exit status {done.returncode}'}",
                "check the network and the index settings of uv, then build again: what is fetched once is kept",
            )
        try:
            target.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another build was faster
                raise


def _installed(folder: Path, packages: tuple[Package, ...]) -> Iterator[tuple[str, bytes, str]]:
    """What each package's RECORD lists, checked against it, without installers' traces and what lies beside."""
    names = {package.name for package in packages}
    for information in sorted(folder.glob("*.dist-info")):
        name = canonicalize_name(information.name.partition("-")[0])
        names.discard(name)
        try:
            rows = list(csv.reader(io.StringIO((information / "RECORD").read_text(encoding="utf-8"))))
        except OSError:
            raise BuildError(f"{information} has no RECORD", f"delete {folder}, then build again") from None
        for path, digest, _ in sorted(rows):
            if _left_out(path, information.name, folder):
                continue
            if path.endswith(NATIVE) or ".so." in path:
                raise BuildError(
                    f"{name} is locked as a pure-Python package but holds native code: {path}",
                    f"report it to the authors of {name}; until then, depend on it through a package that is native",
                )
            yield path, _checked(folder / path, digest, folder), name
    if names:
        raise BuildError(f"uv did not install {', '.join(sorted(names))}", f"delete {folder}, then build again")


def _left_out(path: str, information: str, folder: Path) -> bool:
    parts = path.split("/")
    if parts[0] == information and "/".join(parts[1:]) in INSTALLERS_OWN:
        return True
    if parts[0] in BESIDE and not (folder / parts[0] / "__init__.py").exists():
        return True
    if ".." in parts or path.startswith("/") or "__pycache__" in parts or path.endswith((".pyc", ".pyo")):
        return True
    # a .pth file's lines run at the start of an environment; this archive is none
    return len(parts) == 1 and path.endswith(".pth")


def _checked(path: Path, digest: str, folder: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BuildError(f"cannot read {path}: {error.strerror}", f"delete {folder}, then build again") from None
    if digest.startswith("sha256=") and digest != _record_hash(data):
        raise BuildError(f"{path} is not what was installed", f"delete {folder}, then build again")
    return data


def _records(tree: Tree) -> Iterator[File]:
    """A RECORD for each distribution: every path, without the hashes of modules, which the minifier changes."""
    files: dict[str, list[File]] = {}
    for file in tree:
        files.setdefault(file.package, []).append(file)
    for package, listed in files.items():
        folder = next(file.path.split("/")[0] for file in listed if file.path.split("/")[0].endswith(".dist-info"))
        rows = [
            (each.path, "", "") if each.module else (each.path, _record_hash(each.data), len(each.data))
            for each in listed
        ]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*rows, (f"{folder}/RECORD", "", "")])
        yield File(f"{folder}/RECORD", text.getvalue().encode(), package)


def _record_hash(data: bytes) -> str:
    return "sha256=" + urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


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
