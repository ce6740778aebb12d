"""Constants that stand alone as statements, docstrings apart: they compile to nothing."""

import ast
from typing import ClassVar

from build.minify.passes.base import Pairs, Pass, blocks, filler, has_docstring


class Literals(Pass):
    """`x = 1; "what x is for"` -> `x = 1`; a body of nothing else becomes `pass`, one of `...` alone stays."""

    name: ClassVar[str] = "literals"

    def apply(self, module: ast.Module) -> None:
        for owner, field, block in blocks(module):
            first = 1 if has_docstring(owner, field, block) else 0
            kept = block[:first] + [statement for statement in block[first:] if not _is_literal(statement)]
            if len(kept) == len(block) or (len(block) == 1 and _is_dots(block[0])):
                continue
            block[:] = kept or ([] if isinstance(owner, ast.Module) else [filler(block[0])])

    def align(self, owner: ast.AST, field: str, before: list[ast.stmt], after: list[ast.stmt]) -> Pairs | None:
        place = 0
        pairs: Pairs = []
        for index, statement in enumerate(before):
            docstring = index == 0 and has_docstring(owner, field, before)
            if docstring or not _is_literal(statement):
                if place >= len(after):
                    return None
                pairs.append((statement, after[place]))
                place += 1
        if pairs or not before or isinstance(owner, ast.Module):
            return pairs if place == len(after) else None
        if len(after) == 1 and isinstance(after[0], ast.Pass):
            return []
        return list(zip(before, after, strict=True)) if len(before) == len(after) == 1 else None


def _is_literal(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_dots(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and statement.value.value is ...
    )
