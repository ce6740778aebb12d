"""`if TYPE_CHECKING:` where that name can only be typing's, or is False in so many words."""

import ast
from collections.abc import Iterator
from typing import ClassVar, TypeGuard

from build.minify.passes.base import BLOCKS, Pairs, Pass, filler, moves_up

FLAG = "TYPE_CHECKING"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# What makes a name local, a function a generator, or a scope another one; gone from a function's dead branch, the rest
# of the function would mean something else.
SHAPING = (
    ast.Import,
    ast.ImportFrom,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.ExceptHandler,
    ast.Global,
    ast.Nonlocal,
    ast.Yield,
    ast.YieldFrom,
    ast.Await,
    ast.MatchAs,
    ast.MatchStar,
    ast.MatchMapping,
)


class TypeChecking(Pass):
    """`if TYPE_CHECKING: import x` -> nothing; with an `else`, its statements take the place.

    Only where the module takes the name (or the module `typing`) from the standard library with a plain import at its
    top, or says `TYPE_CHECKING = False` there, above the use, and nothing else in the file gives that name a value. In
    a function a branch that binds a name stays, as does one with bare annotations in a module or class: it makes
    `__annotations__`.
    """

    name: ClassVar[str] = "type_checking"

    def apply(self, module: ast.Module) -> None:
        flags = _flags(module)
        if not flags:
            return
        waiting: list[tuple[ast.AST, bool]] = [(module, False)]
        while waiting:
            owner, in_function = waiting.pop()
            in_function = in_function or isinstance(owner, FUNCTIONS)
            for field in BLOCKS:
                block = getattr(owner, field, None)
                if isinstance(block, list):
                    _prune(owner, field, block, flags, in_function)
                    waiting.extend((statement, in_function) for statement in block)
            waiting.extend((child, in_function) for child in getattr(owner, "handlers", ()))
            waiting.extend((child, in_function) for child in getattr(owner, "cases", ()))

    def align(self, owner: ast.AST, field: str, before: list[ast.stmt], after: list[ast.stmt]) -> Pairs | None:
        pairs: Pairs = []
        waiting = before[::-1]
        place = 0
        while waiting:
            statement = waiting.pop()
            if place < len(after) and _same_place(statement, after[place]) and type(statement) is type(after[place]):
                pairs.append((statement, after[place]))
                place += 1
            elif isinstance(statement, ast.If) and _tests_flag(statement.test):
                waiting.extend((statement.body if _negated(statement.test) else statement.orelse)[::-1])
            else:
                return None
        leftover = after[place:]
        if not pairs and len(leftover) == 1 and isinstance(leftover[0], ast.Pass) and before:
            return []
        return pairs if not leftover else None


def _prune(owner: ast.AST, field: str, block: list[ast.stmt], flags: dict[str, int], in_function: bool) -> None:
    kept: list[ast.stmt] = []
    waiting = block[::-1]
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, ast.If) and _is_dead(statement, flags, in_function):
            waiting.extend((statement.body if _negated(statement.test) else statement.orelse)[::-1])
        else:
            kept.append(statement)
    if kept and moves_up(owner, field, block, kept):
        return
    if not kept and block and field != "orelse" and not isinstance(owner, ast.Module):
        kept = [filler(block[0])]
    block[:] = kept


def _is_dead(statement: ast.If, flags: dict[str, int], in_function: bool) -> bool:
    name = _flag_name(statement.test)
    if name not in flags or (statement.lineno <= flags[name] and not in_function):
        return False
    dead = statement.orelse if _negated(statement.test) else statement.body
    if in_function:
        return not any(
            isinstance(node, SHAPING) or (isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load))
            for root in dead
            for node in ast.walk(root)
        )
    return not any(isinstance(node, ast.AnnAssign | ast.Global | ast.Nonlocal) for node in _own_scope(dead))


def _own_scope(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """These statements and those inside them, without the bodies of functions and classes."""
    waiting: list[ast.AST] = list(statements)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            for field in (*BLOCKS, "handlers", "cases"):
                waiting.extend(getattr(node, field, ()))


def _flags(module: ast.Module) -> dict[str, int]:
    """Spellings of the flag that can be trusted ("TYPE_CHECKING", "typing.TYPE_CHECKING") -> line of their import."""
    trusted: dict[str, int] = {}
    constants: set[int] = set()
    for statement in module.body:
        if isinstance(statement, ast.ImportFrom) and statement.module == "typing" and not statement.level:
            for alias in statement.names:
                if alias.name == FLAG and alias.asname in (None, FLAG):
                    trusted.setdefault(FLAG, statement.lineno)
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                if alias.name == "typing":
                    trusted.setdefault(f"{alias.asname or 'typing'}.{FLAG}", statement.lineno)
        elif _is_constant(statement) and FLAG not in trusted:
            trusted[FLAG] = statement.lineno
            constants.add(id(statement.targets[0]))
    if not trusted:
        return {}
    spoiled: set[str] = set()
    for node in ast.walk(module):
        if id(node) in constants:
            continue
        names = _bound_names(node)
        if "*" in names:
            return {}
        spoiled |= names
    return {spelling: line for spelling, line in trusted.items() if spelling.split(".")[0] not in spoiled}


def _is_constant(statement: ast.stmt) -> TypeGuard[ast.Assign]:
    """`TYPE_CHECKING = False`: the flag for those who do without typing at the start; checkers believe it is true."""
    match statement:
        case ast.Assign(targets=[ast.Name(id="TYPE_CHECKING")], value=ast.Constant(value=False)):
            return True
    return False


def _bound_names(node: ast.AST) -> set[str]:
    """Names that this node may bind to something that is not typing's; "*" for any name."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return {name}
        case ast.Attribute(attr="TYPE_CHECKING", ctx=ast.Store() | ast.Del()) | ast.Constant(value="TYPE_CHECKING"):
            return {"*"}
        case ast.ImportFrom(names=aliases, module=module, level=level):
            if module == "typing" and not level:
                aliases = [alias for alias in aliases if not (alias.name == FLAG and alias.asname in (None, FLAG))]
            return {alias.asname or alias.name for alias in aliases}
        case ast.Import(names=aliases):
            return {alias.asname or alias.name.split(".")[0] for alias in aliases if alias.name != "typing"}
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
            return {name}
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return {name}
        case ast.MatchMapping(rest=str(name)):
            return {name}
        case ast.Global(names=names) | ast.Nonlocal(names=names):
            return set(names)
    # the parameters of a generic class or function are nodes that the oldest target does not have
    return {getattr(node, "name", "")} if type(node).__name__ in ("TypeVar", "ParamSpec", "TypeVarTuple") else set()


def _flag_name(test: ast.expr) -> str:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    if isinstance(test, ast.Name):
        return test.id
    if isinstance(test, ast.Attribute) and isinstance(test.value, ast.Name):
        return f"{test.value.id}.{test.attr}"
    return ""


def _tests_flag(test: ast.expr) -> bool:
    return _flag_name(test).split(".")[-1] == FLAG


def _negated(test: ast.expr) -> bool:
    return isinstance(test, ast.UnaryOp)


def _same_place(before: ast.stmt, after: ast.stmt) -> bool:
    return (before.lineno, before.col_offset) == (after.lineno, after.col_offset)
