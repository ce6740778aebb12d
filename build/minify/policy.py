"""Which passes run, and what they leave alone."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build.errors import BuildError
from build.minify.passes import PASSES
from build.tree import File

TABLE = "trainer-build"
KEYS = ("minify-exclude", "keep-docstrings", "strip-docstrings")


@dataclass(frozen=True, slots=True)
class Policy:
    """What the minifier may do. A name is that of a distribution, or a dotted one of a module and all below it."""

    passes: tuple[str, ...] = tuple(PASSES)
    """Passes to run, in order; all of them are safe by construction or refused."""
    exclude: frozenset[str] = frozenset()
    """Shipped as they are, byte for byte."""
    keep_docstrings: frozenset[str] = frozenset()
    """Minified, but with their docstrings, whether or not anything is seen to read them."""
    strip_docstrings: frozenset[str] = frozenset()
    """Without docstrings, although something in their distribution reads some: say so only of code that you know."""


def read_policy(pyproject: Path) -> Policy:
    """The policy of `[tool.trainer-build]`: `minify-exclude`, `keep-docstrings` and `strip-docstrings`, lists of names.

    The default where there is no such table. BuildError for a key or a value that is not understood.
    """
    with open(pyproject, "rb") as file:
        table: dict[str, Any] = tomllib.load(file).get("tool", {}).get(TABLE, {})
    unknown = sorted(set(table) - set(KEYS))
    if unknown:
        raise BuildError(
            f"`{unknown[0]}` in [tool.{TABLE}] of pyproject.toml is not a key of it", f"its keys are {', '.join(KEYS)}"
        )
    exclude, keep, strip = (_names(table, key) for key in KEYS)
    return Policy(exclude=exclude, keep_docstrings=keep, strip_docstrings=strip)


def covers(names: frozenset[str], file: File) -> bool:
    """True where the file's distribution, its module or a package that it is in is among the names."""
    module = file.module or ""
    # as packaging.utils.canonicalize_name, which the interpreters that only make bytecode do not have
    if file.package in {re.sub(r"[-_.]+", "-", name).lower() for name in names}:
        return True
    return any(module == name or module.startswith(f"{name}.") for name in names)


def _names(table: dict[str, Any], key: str) -> frozenset[str]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise BuildError(
            f"`{key}` in [tool.{TABLE}] of pyproject.toml is {value!r}, not a list of names",
            f'write it as {key} = ["distribution", "package.module"]',
        )
    return frozenset(value)
