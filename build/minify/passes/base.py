"""What a pass is, and the walk over statements that passes share."""

import ast
from collections.abc import Iterator
from typing import Any, ClassVar

Pairs = list[tuple[ast.stmt, ast.stmt]]

# The fields that hold lists of statements. Expressions are never descended into: a chain of ten thousand `+` is one
# statement here, and a chain of a thousand `elif` is a loop, not a recursion.
BLOCKS = ("body", "orelse", "finalbody")
HOLDERS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Pass:
    """One change of the tree, and the promise that nothing else changed.

    `apply` edits in place and leaves every position as it was in the original text, since bytecode takes its line
    numbers from there. `align` and `excused` say, apart from `apply`, what may differ; `compare.difference` holds the
    two trees against them.
    """

    name: ClassVar[str]

    def apply(self, module: ast.Module) -> None:
        """Makes the change."""
        raise NotImplementedError

    def align(self, owner: ast.AST, field: str, before: list[ast.stmt], after: list[ast.stmt]) -> Pairs | None:
        """Which statements of `owner.field` have to be equal, in pairs; None where the promise is broken."""
        return list(zip(before, after, strict=True)) if len(before) == len(after) else None

    def excused(self, owner: ast.AST, field: str, before: Any, after: Any) -> bool:
        """True where this pass may have turned the value `before` of `owner.field` into `after`."""
        return False


def blocks(root: ast.AST) -> Iterator[tuple[ast.AST, str, list[ast.stmt]]]:
    """Every list of statements under `root`, outer ones first; a list may be edited in place while it is visited."""
    waiting: list[ast.AST] = [root]
    while waiting:
        owner = waiting.pop()
        for field in BLOCKS:
            block = getattr(owner, field, None)
            if isinstance(block, list):
                yield owner, field, block
                waiting.extend(block)
        waiting.extend(getattr(owner, "handlers", ()))
        waiting.extend(getattr(owner, "cases", ()))


def is_text(statement: ast.stmt) -> bool:
    """A string that stands alone: a docstring, if it stands in the place of one."""
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def has_docstring(owner: ast.AST, field: str, block: list[ast.stmt]) -> bool:
    """True where the first statement of the block is its owner's docstring."""
    return field == "body" and isinstance(owner, HOLDERS) and bool(block) and is_text(block[0])


def moves_up(owner: ast.AST, field: str, before: list[ast.stmt], after: list[ast.stmt]) -> bool:
    """True where a string of `before` that was no docstring is one in `after`."""
    return has_docstring(owner, field, after) and not (
        has_docstring(owner, field, before)
        and (before[0].lineno, before[0].col_offset) == (after[0].lineno, after[0].col_offset)
    )


def filler(at: ast.stmt) -> ast.Pass:
    """A `pass` where `at` stood, for a body that lost its last statement."""
    return ast.copy_location(ast.Pass(), at)
