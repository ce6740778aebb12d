"""Which passes run, and what they leave alone."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from build.errors import BuildError
from build.minify.passes import PASSES

TABLE = "trainer-build"


@dataclass(frozen=True, slots=True)
class Policy:
    """What the minifier may do. Names are dotted module names; each stands for the module and all below it."""

    passes: tuple[str, ...] = tuple(PASSES)
    """Passes to run, in order; all of them are safe by construction or refused."""
    exclude: frozenset[str] = frozenset()
    """Shipped as they are, byte for byte."""
    keep_docstrings: frozenset[str] = frozenset()
    """Minified, but with their docstrings, whether or not anything is seen to read them."""


def read_policy(pyproject: Path) -> Policy:
    """The policy of `[tool.trainer-build]`: `minify-exclude` and `keep-docstrings`, lists of module names.

    The default where there is no such table. BuildError for a key or a value that is not understood.
    """
    with open(pyproject, "rb") as file:
        table: dict[str, Any] = tomllib.load(file).get("tool", {}).get(TABLE, {})
    return Policy(exclude=_names(table, "minify-exclude"), keep_docstrings=_names(table, "keep-docstrings"))


def covers(names: Iterable[str], module: str) -> bool:
    """True where `module`, or a package that it is in, is among the names."""
    return any(module == name or module.startswith(f"{name}.") for name in names)


def _names(table: dict[str, Any], key: str) -> frozenset[str]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise BuildError(
            f"`{key}` in [tool.{TABLE}] of pyproject.toml is {value!r}, not a list of module names",
            f'write it as {key} = ["package", "package.module"]',
        )
    return frozenset(value)
