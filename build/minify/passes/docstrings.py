"""Docstrings that nothing reads. Whether anything does is decided per package, in `readers.py`, before this runs."""

import ast
from typing import ClassVar

from build.minify.passes.base import HOLDERS, Pairs, Pass, blocks, filler, is_text

# Decorators of the language and of the standard library that pass a docstring on and do not look at it. Any other may
# read it (a command's help, an operator's schema), so what it decorates keeps its docstring. `dataclass` is not here:
# where a docstring is missing it writes one, from inspect.signature, at every start.
_INDIFFERENT = """
    property staticmethod classmethod setter getter deleter cached_property abstractmethod overload override final
    runtime_checkable no_type_check wraps cache lru_cache contextmanager asynccontextmanager
"""
INDIFFERENT = frozenset(_INDIFFERENT.split())


class Docstrings(Pass):
    """`def f(): "text"; return 1` -> `def f(): return 1`.

    A body that was only a docstring becomes `pass`. Further strings right behind it go too: the first of them would
    become the docstring.
    """

    name: ClassVar[str] = "docstrings"

    def apply(self, module: ast.Module) -> None:
        for owner, field, block in blocks(module):
            if field == "body" and isinstance(owner, HOLDERS) and not watched(owner):
                texts = _leading_texts(block)
                if texts:
                    rest = block[texts:]
                    block[:] = rest or ([] if isinstance(owner, ast.Module) else [filler(block[0])])

    def align(self, owner: ast.AST, field: str, before: list[ast.stmt], after: list[ast.stmt]) -> Pairs | None:
        if field == "body" and isinstance(owner, HOLDERS):
            rest = before[_leading_texts(before) :]
            if not rest and len(after) == 1 and isinstance(after[0], ast.Pass):
                return []
            if len(rest) == len(after):
                return list(zip(rest, after, strict=True))
        return super().align(owner, field, before, after)


def _leading_texts(block: list[ast.stmt]) -> int:
    for place, statement in enumerate(block):
        if not is_text(statement):
            return place
    return len(block)


def watched(owner: ast.AST) -> bool:
    """True where somebody else's code sees the object, with its docstring, at once: decorators and metaclasses."""
    if isinstance(owner, ast.ClassDef) and owner.keywords:
        return True
    return any(_last_name(decorator) not in INDIFFERENT for decorator in getattr(owner, "decorator_list", ()))


def _last_name(decorator: ast.expr) -> str:
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    if isinstance(decorator, ast.Attribute):
        return decorator.attr
    return decorator.id if isinstance(decorator, ast.Name) else ""
