"""`return None`."""

import ast
from typing import Any, ClassVar

from build.minify.passes.base import Pass, blocks


class Returns(Pass):
    """`return None` -> `return`: the same bytecode."""

    name: ClassVar[str] = "returns"

    def apply(self, module: ast.Module) -> None:
        for _, _, block in blocks(module):
            for statement in block:
                if isinstance(statement, ast.Return) and _is_none(statement.value):
                    statement.value = None

    def excused(self, owner: ast.AST, field: str, before: Any, after: Any) -> bool:
        return isinstance(owner, ast.Return) and field == "value" and after is None and _is_none(before)


def _is_none(value: Any) -> bool:
    return isinstance(value, ast.Constant) and value.value is None
