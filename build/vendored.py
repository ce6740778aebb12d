"""Finds what a package has copied into itself from others: `_vendor/` and its kind.

Read are the `.dist-info` that lie there, a `vendor.txt` (pip's) that lists versions, and the modules themselves.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.metadata import RawMetadata, parse_email
from packaging.utils import canonicalize_name

from build.licences import is_text
from build.tree import File, Tree

FOLDERS = frozenset({"_vendor", "_vendored", "vendor", "vendored", "_vendored_packages", "third_party", "_third_party"})
_LISTED = re.compile(r"^\s*([A-Za-z0-9][\w.-]*)\s*==\s*([^\s;#]+)", re.MULTILINE)
_VERSION = re.compile(rb"""^__version__\s*=\s*["']([^"'\n]+)["']""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Vendored:
    """One of them."""

    name: str
    version: str | None
    place: str
    """Where it lies in the file."""
    metadata: RawMetadata
    """Empty where it came without."""
    texts: tuple[str, ...]
    """Where the texts of its licence lie."""


def vendored(tree: Tree, package: str) -> list[Vendored]:
    """Return what lies in folders for copies in a distribution, by place."""
    files = [file for file in tree if file.package == package]
    folders = {folder for file in files for folder in _folders(file.path)}
    return [each for folder in sorted(folders) for each in _in(folder, files)]


def _folders(path: str) -> Iterator[str]:
    """Yield the outermost of its folders that is one for copies."""
    parts = path.split("/")[:-1]
    for depth, part in enumerate(parts):
        if part in FOLDERS and depth:
            yield "/".join(parts[: depth + 1])
            return


def _in(folder: str, files: list[File]) -> Iterator[Vendored]:
    inside = {file.path.removeprefix(f"{folder}/"): file for file in files if file.path.startswith(f"{folder}/")}
    known = _versions(inside)
    described: dict[str, tuple[RawMetadata, tuple[str, ...]]] = {}
    for path, file in inside.items():
        top, _, rest = path.partition("/")
        if top.endswith(".dist-info") and rest == "METADATA":
            metadata = parse_email(file.data)[0]
            texts = tuple(
                other.path
                for each, other in inside.items()
                if each.startswith(f"{top}/") and is_text(each.rpartition("/")[2])
            )
            described[canonicalize_name(metadata.get("name", top.partition("-")[0]))] = (metadata, texts)
    seen = set()
    for top in sorted({path.partition("/")[0] for path in inside}):
        module = top.removesuffix(".py")
        is_code = top.endswith(".py") or any(path.startswith(f"{top}/") and path.endswith(".py") for path in inside)
        if not is_code or module == "__init__" or not module.isidentifier():
            continue
        name = canonicalize_name(module)
        metadata, texts = described.get(name, ({}, ()))
        texts = texts or tuple(
            file.path
            for path, file in inside.items()
            if path.startswith(f"{top}/") and is_text(path.rpartition("/")[2])
        )
        version = metadata.get("version") or known.get(name) or _own_version(inside, top)
        seen.add(name)
        yield Vendored(name, version, f"{folder}/{top}", metadata, texts)
    for other in sorted(described.keys() - seen):  # its modules have other names
        metadata, texts = described[other]
        yield Vendored(other, metadata.get("version"), folder, metadata, texts)


def _versions(inside: dict[str, File]) -> dict[str, str]:
    """Return the versions that a list of copies states."""
    lists = [
        file.data.decode(errors="replace")
        for path, file in inside.items()
        if path in ("vendor.txt", "requirements.txt")
    ]
    return {canonicalize_name(name): version for text in lists for name, version in _LISTED.findall(text)}


def _own_version(inside: dict[str, File], top: str) -> str | None:
    """Return what a module says of itself."""
    for path in (top, f"{top}/__init__.py", f"{top}/__about__.py", f"{top}/_version.py", f"{top}/version.py"):
        file = inside.get(path)
        match = _VERSION.search(file.original or file.data) if file is not None else None
        if match:
            return match.group(1).decode(errors="replace")
    return None
