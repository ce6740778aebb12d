"""Which passes run, and what they leave alone."""

import re
from dataclasses import dataclass
from pathlib import Path

from build.minify.passes import PASSES
from build.settings import read_settings
from build.tree import File


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
    strip_annotations: frozenset[str] = frozenset()
    """Without the annotations of parameters and results: say so only of code that you know."""


def read_policy(pyproject: Path) -> Policy:
    """The policy of `[tool.trainer-build]`: its lists of names but `keep`.

    The default where there is no such table. BuildError for a key or a value that is not understood.
    """
    table = read_settings(pyproject)
    return Policy(
        exclude=table["minify-exclude"],
        keep_docstrings=table["keep-docstrings"],
        strip_docstrings=table["strip-docstrings"],
        strip_annotations=table["strip-annotations"],
    )


def covers(names: frozenset[str], file: File) -> bool:
    """True where the file's distribution, its module or a package that it is in is among the names."""
    module = file.module or ""
    # as packaging.utils.canonicalize_name, which the interpreters that only make bytecode do not have
    if file.package in {re.sub(r"[-_.]+", "-", name).lower() for name in names}:
        return True
    return any(module == name or module.startswith(f"{name}.") for name in names)
