"""Names the modules that make paths out of `__file__`: in the archive such a path is one that `open` does not find."""

import ast
from dataclasses import dataclass

from build.tree import Tree

AT_HOME = "trainer_boot"
"""Knows that it is in an archive."""


@dataclass(frozen=True)
class Use:
    """A line that has `__file__` in it."""

    path: str
    line: int
    package: str

    def __str__(self) -> str:
        return (
            f"{self.path}:{self.line} of {self.package} uses __file__: it gets a path inside the file, which only "
            "importlib.resources and the loader's get_data can read"
        )


def uses_of_file(tree: Tree) -> tuple[Use, ...]:
    """The first use in each module, by path. A module that does not parse is the compiler's to report."""
    found = []
    for file in tree.modules():
        original = file.original or b""
        if b"__file__" not in original or (file.module or "").partition(".")[0] == AT_HOME:
            continue
        try:
            nodes = list(ast.walk(ast.parse(original)))
        except (SyntaxError, ValueError):
            continue
        lines = [
            node.lineno
            for node in nodes
            if (isinstance(node, ast.Name) and node.id == "__file__")
            or (isinstance(node, ast.Attribute) and node.attr == "__file__")
        ]
        if lines:
            found.append(Use(file.path, min(lines), file.package))
    return tuple(found)
