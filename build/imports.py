"""What modules say about other modules and about their own files, read from their syntax trees."""

import ast
import warnings
from collections.abc import Iterator

from build.tree import Tree


def mentions(path: str, source: bytes, dotted: str) -> bool:
    """True where the module at this path imports `dotted` or something in it, or holds its name as a text."""
    module = _parse(source)
    if module is None:
        return False
    package = path.split("/")[:-1]
    for node in ast.walk(module):
        for name in _names(node, package):
            if name == dotted or name.startswith(f"{dotted}."):
                return True
    return False


def paths_from_file(tree: Tree, own: str) -> list[str]:
    """Places in bundled packages (all but the distribution `own`) that use `__file__`.

    Such a path leads into the archive: opening it fails, where importlib.resources would have worked. One line each.
    """
    found = []
    for file in tree.modules():
        if file.package == own or file.original is None or b"__file__" not in file.original:
            continue
        module = _parse(file.original)
        lines = sorted(
            {
                node.lineno
                for node in ast.walk(module or ast.Module([], []))
                if isinstance(node, ast.Name) and node.id == "__file__" and isinstance(node.ctx, ast.Load)
            }
        )
        found += [f"{file.package}: {file.module}, line {line}, makes a path from __file__" for line in lines]
    return found


def _parse(source: bytes) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _names(node: ast.AST, package: list[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        start = package[: len(package) - node.level + 1] if node.level else []
        base = ".".join([*start, *([node.module] if node.module else [])])
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
