"""Are two trees equal, but for what a pass may have changed? Positions and `u` prefixes do not count."""

import ast
from typing import Any

from build.minify.passes.base import BLOCKS, Pass, moves_up

IGNORED = frozenset({"kind", "type_comment", "type_ignores"})


def difference(before: ast.AST, after: ast.AST, change: Pass | None = None) -> str | None:
    """Where the trees first differ in a way that `change` does not promise (None: in no way allowed); None if nowhere.

    A loop, not a recursion: expressions nest as deep as their authors like.
    """
    waiting: list[tuple[Any, Any]] = [(before, after)]
    while waiting:
        left, right = waiting.pop()
        if type(left) is not type(right):
            return f"line {_line(left)}: {type(left).__name__} became {type(right).__name__}"
        if not isinstance(left, ast.AST):
            if not _same_value(left, right):
                return f"{left!r:.80} became {right!r:.80}"
            continue
        for field in left._fields:
            if field in IGNORED:
                continue
            mine, yours = getattr(left, field, None), getattr(right, field, None)
            if not isinstance(mine, list) or not isinstance(yours, list):
                if change is None or not change.excused(left, field, mine, yours):
                    waiting.append((mine, yours))
                continue
            pairs: list[tuple[Any, Any]] | None = None
            if change is not None and field in BLOCKS:
                if not moves_up(left, field, mine, yours):
                    pairs = [*aligned] if (aligned := change.align(left, field, mine, yours)) is not None else None
            elif len(mine) == len(yours):
                pairs = list(zip(mine, yours, strict=True))
            if pairs is None:
                return f"line {_line(left)}: {field} of {type(left).__name__} has lost or gained something"
            waiting.extend(pairs)
    return None


def _same_value(left: Any, right: Any) -> bool:
    # repr tells 0.0 from -0.0 and finds two NaN equal
    return repr(left) == repr(right) if isinstance(left, float | complex) else bool(left == right)


def _line(node: Any) -> int:
    return getattr(node, "lineno", 0)
