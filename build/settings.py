"""What `[tool.trainer-build]` in pyproject.toml says."""

import tomllib
from pathlib import Path
from typing import Any

from build.errors import BuildError

TABLE = "trainer-build"
KEYS = ("minify-exclude", "keep-docstrings", "strip-docstrings", "strip-annotations", "keep")


def read_settings(pyproject: Path) -> dict[str, frozenset[str]]:
    """The names under each of KEYS, of distributions or dotted ones of modules; none where a key or all is absent.

    BuildError for a key or a value that is not understood.
    """
    with open(pyproject, "rb") as file:
        table: dict[str, Any] = tomllib.load(file).get("tool", {}).get(TABLE, {})
    unknown = sorted(set(table) - set(KEYS))
    if unknown:
        raise BuildError(
            f"`{unknown[0]}` in [tool.{TABLE}] of pyproject.toml is not a key of it", f"its keys are {', '.join(KEYS)}"
        )
    return {key: _names(table, key) for key in KEYS}


def _names(table: dict[str, Any], key: str) -> frozenset[str]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise BuildError(
            f"`{key}` in [tool.{TABLE}] of pyproject.toml is {value!r}, not a list of names",
            f'write it as {key} = ["distribution", "package.module"]',
        )
    return frozenset(value)
