"""Markers as the build writes them, without packaging: to import that costs half of `env check`.

They are comparisons joined by `and`, these by `or`, without parentheses. What is not as simple as that (prereleases,
`in`, unknown variables) packaging decides.
"""

from __future__ import annotations

import operator
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
VERSIONS = ("python_version", "python_full_version")


def holds(marker: str | None, values: dict[str, str]) -> bool:
    """Whether it holds where variables have these values; None always does."""
    if marker is None:
        return True
    verdicts = [[_comparison(part, values) for part in clause.split(" and ")] for clause in marker.split(" or ")]
    if any(verdict is None for clause in verdicts for verdict in clause):
        from packaging.markers import Marker

        return Marker(marker).evaluate(values)
    return any(all(clause) for clause in verdicts)


def allows(specifiers: str, version: str) -> bool:
    """Whether a version of Python is among those of `requires-python`."""
    verdicts = []
    for part in filter(None, specifiers.replace(" ", "").split(",")):
        sign = next((sign for sign in ("<=", ">=", "==", "!=", "<", ">") if part.startswith(sign)), "")
        wanted, found = _release(part.removeprefix(sign)), _release(version)
        if not sign or wanted is None or found is None:
            from packaging.specifiers import SpecifierSet

            return SpecifierSet(specifiers).contains(version, prereleases=True)
        verdicts.append(COMPARE[sign](found, wanted))
    return all(verdicts)


def values_here() -> dict[str, str]:
    """The variables of this interpreter: those that packaging knows, by the same names."""
    system = os.uname()
    version = sys.version_info
    if version.releaselevel != "final" or sys.implementation.name != "cpython":
        from packaging.markers import default_environment

        return {key: str(value) for key, value in default_environment().items()}
    full = f"{version.major}.{version.minor}.{version.micro}"
    return {
        "implementation_name": "cpython",
        "implementation_version": full,
        "os_name": os.name,
        "platform_machine": system.machine,
        "platform_python_implementation": "CPython",
        "platform_release": system.release,
        "platform_system": system.sysname,
        "platform_version": system.version,
        "python_full_version": full,
        "python_version": f"{version.major}.{version.minor}",
        "sys_platform": sys.platform,
    }


def _comparison(text: str, values: dict[str, str]) -> bool | None:
    """None: not for us."""
    parts = text.split(" ")
    if len(parts) != 3 or parts[1] not in COMPARE:
        return None
    left, sign, right = parts
    if left[0] in "'\"":
        left, sign, right = right, MIRRORED[sign], left
    if left not in values or right[0] not in "'\"" or right[0] != right[-1]:
        return None
    wanted = right[1:-1]
    if left in VERSIONS:
        numbers = _release(values[left]), _release(wanted)
        return None if None in numbers else COMPARE[sign](*numbers)
    if sign not in ("==", "!=") or wanted[:1].isdigit():
        return None
    return COMPARE[sign](values[left], wanted)


def _release(text: str) -> tuple[int, ...] | None:
    """The numbers of a plain version, without zeros at its end."""
    parts = text.split(".")
    if not all(part.isascii() and part.isdigit() for part in parts):
        return None
    numbers = [int(part) for part in parts]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
