"""`pass` beside other statements."""

import ast
from typing import ClassVar

from build.minify.passes.base import Pairs, Pass, blocks, moves_up


class Fillers(Pass):
    """`class A: x = 1; pass` -> `class A: x = 1`. Never where a string would move up into a docstring's place."""

    name: ClassVar[str] = "fillers"

    def apply(self, module: ast.Module) -> None:
        for owner, field, block in blocks(module):
            kept = [statement for statement in block if not isinstance(statement, ast.Pass)]
            if len(kept) == len(block) or moves_up(owner, field, block, kept):
                continue
            if kept:
                block[:] = kept
            else:
                block[:] = [] if isinstance(owner, ast.Module) else block[:1]

    def align(self, owner: ast.AST, field: str, before: list[ast.stmt], after: list[ast.stmt]) -> Pairs | None:
        if len(before) == len(after):
            return list(zip(before, after, strict=True))
        busy = [statement for statement in before if not isinstance(statement, ast.Pass)]
        if not busy and len(after) == 1 and isinstance(after[0], ast.Pass):
            return []
        return list(zip(busy, after, strict=True)) if len(busy) == len(after) else None
