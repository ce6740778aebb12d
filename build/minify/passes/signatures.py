"""Annotations of parameters and results; on request only, since any caller may read them at run time."""

import ast
from typing import Any, ClassVar

from build.minify.passes.base import Pass
from build.minify.passes.docstrings import watched

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# An annotation with one of these does something when it is evaluated.
DOING = (ast.NamedExpr, ast.Yield, ast.YieldFrom, ast.Await)


class Signatures(Pass):
    """`def f(a: int) -> str: ...` -> `def f(a): ...`; never those of variables, which make fields and scopes.

    A function whose decorator may look at it keeps its own, and so does one whose annotations have an effect.
    """

    name: ClassVar[str] = "signatures"

    def apply(self, module: ast.Module) -> None:
        for node in ast.walk(module):
            if isinstance(node, FUNCTIONS) and not watched(node):
                annotated = [argument for argument in _arguments(node) if argument.annotation is not None]
                parts = [node.returns, *(argument.annotation for argument in annotated)]
                if any(isinstance(each, DOING) for part in parts if part is not None for each in ast.walk(part)):
                    continue
                node.returns = None
                for argument in annotated:
                    argument.annotation = None

    def excused(self, owner: ast.AST, field: str, before: Any, after: Any) -> bool:
        if (
            after is not None
            or not isinstance(before, ast.expr)
            or any(isinstance(each, DOING) for each in ast.walk(before))
        ):
            return False
        if isinstance(owner, FUNCTIONS):
            return field == "returns" and not watched(owner)
        return isinstance(owner, ast.arg) and field == "annotation"


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return named + [each for each in (node.args.vararg, node.args.kwarg) if each is not None]
