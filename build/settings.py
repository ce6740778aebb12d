"""What `[tool.trainer-build]` in pyproject.toml says."""

import tomllib
from pathlib import Path
from typing import Any

from build.errors import BuildError

TABLE = "trainer-build"
KEYS = (
    "minify-exclude",
    "keep-docstrings",
    "strip-docstrings",
    "strip-annotations",
    "keep",
    "environment",
    "allow-no-license",
    "allow-syntax-errors",
    "ignore-pth",
)


def leave_in_environment(name: str) -> str:
    """Return the sentence that tells how to keep a distribution out of the file."""
    return f'To leave it in the environment, add "{name}" to `environment` in [tool.{TABLE}] of pyproject.toml.'


def read_pyproject(path: Path) -> dict[str, Any]:
    """Return the whole of a pyproject.toml. BuildError where it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BuildError(f"cannot read {path}: {error.strerror}", "Build from a complete checkout.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BuildError(f"{path} is not TOML: {error}", "Correct it there.") from None


def read_settings(pyproject: Path) -> dict[str, frozenset[str]]:
    """Return the names under each of KEYS: of distributions, or dotted ones of modules; none where a key is absent.

    BuildError for a key or a value that is not understood.
    """
    table: dict[str, Any] = read_pyproject(pyproject).get("tool", {}).get(TABLE, {})
    unknown = sorted(set(table) - set(KEYS))
    if unknown:
        raise BuildError(
            f"`{unknown[0]}` is not a key of [tool.{TABLE}] in pyproject.toml", f"Use one of {', '.join(KEYS)}."
        )
    return {key: _names(table, key) for key in KEYS}


def _names(table: dict[str, Any], key: str) -> frozenset[str]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise BuildError(
            f"`{key}` in [tool.{TABLE}] of pyproject.toml is {value!r}, not a list of names",
            f'Write it as {key} = ["distribution", "package.module"].',
        )
    return frozenset(value)
