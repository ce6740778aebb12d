"""What a distribution says of its licence, in the words of a bill of materials, and where the texts are."""

import re
from collections.abc import Iterator
from urllib.parse import quote

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.metadata import RawMetadata, parse_email

from build.errors import BuildError
from build.tree import Tree

Json = dict[str, object]

_TEXT = re.compile(r"(licen[cs]e|copying|notice|unlicense)", re.IGNORECASE)
# What stands in the field `License` where its author had nothing to say.
_NOTHING = frozenset(
    {"", "unknown", "none", "n/a", "na", "tbd", "todo", "other", "license", "osi approved", "dual license"}
)
_PROSE = re.compile(
    r"copyright|\(c\)|©|all rights reserved|permission is hereby|see |https?:|\.(txt|md|rst)\b", re.IGNORECASE
)
_LONGEST = 60
"""Characters of a name; what is longer is a text."""
# Classifiers that mean one licence only. "Apache Software License" and "BSD License" mean several.
_CLASSIFIERS = {
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "Python Software Foundation License": "PSF-2.0",
    "zlib/libpng License": "Zlib",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
    "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
}


def licences(metadata: RawMetadata) -> Iterator[Json]:
    """Yield one expression, or else each licence that the package names; nothing where it names none.

    A name is short and says which licence it is: "UNKNOWN", a line of copyright or a text is none.
    """
    said = (metadata.get("license_expression") or metadata.get("license") or "").strip()
    expression = _expression(said)
    if expression is not None:
        yield {"expression": expression}
        return
    lines = [each.split(" :: ") for each in metadata.get("classifiers", []) if each.startswith("License ::")]
    named = sorted({parts[-1].strip() for parts in lines if _is_name(parts[-1])})
    if len(named) == 1 and named[0] in _CLASSIFIERS:
        yield {"expression": _CLASSIFIERS[named[0]]}
    elif named:
        for name in named:
            known = _CLASSIFIERS.get(name)
            yield {"license": {"id": known} if known else {"name": name}}
    elif _is_name(title := said.partition("\n")[0].strip()):  # a whole text begins with its name
        yield {"license": {"name": title}}


def licence_files(tree: Tree, package: str) -> tuple[str, ...]:
    """Return where the texts of a bundled package's licences lie in the file."""
    inside = [
        file.path for file in tree if file.package == package and file.path.partition("/")[0].endswith(".dist-info")
    ]
    named = set(metadata_of(tree, package).get("license_files", []))
    return tuple(
        path
        for path in inside
        if path.partition("/")[2].removeprefix("licenses/") in named
        or "/licenses/" in path
        or is_text(path.rpartition("/")[2])
    )


def is_text(name: str) -> bool:
    """Return whether a file of this name holds a licence."""
    return _TEXT.match(name) is not None


def metadata_of(tree: Tree, package: str) -> RawMetadata:
    """Return the metadata of a distribution in the tree. BuildError where it has none."""
    for file in tree:
        if file.package == package and re.fullmatch(r"[^/]+\.dist-info/METADATA", file.path):
            return parse_email(file.data)[0]
    raise BuildError(f"{package} has no METADATA", "Delete .cache/build, then build again.")


def purl(name: str, version: str | None, **qualifiers: str) -> str:
    """Return a package URL of a package for Python."""
    found = f"pkg:pypi/{name}" + (f"@{quote(version, safe='')}" if version else "")
    words = [f"{key}={quote(value, safe='')}" for key, value in sorted(qualifiers.items())]
    return found + ("?" + "&".join(words) if words else "")


def _expression(said: str) -> str | None:
    try:
        return str(canonicalize_license_expression(said)) if said else None
    except InvalidLicenseExpression:
        return None


def _is_name(text: str) -> bool:
    text = text.strip()
    return text.lower() not in _NOTHING and len(text) <= _LONGEST and _PROSE.search(text) is None
