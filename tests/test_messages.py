"""Every error that a user is shown looks alike; see "How errors look" in docs/DESIGN.md."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# exceptions that carry (what, fix)
ERRORS = {"UserError", "Refused", "BundleError"}
# names of fixes that are written once for several errors
FIXES = {"FIX", "_FIX", "RESTART", "_REBUILD", "LATE", "OTHER_PORT", "SMALLER", "fix"}


def text(node: ast.expr) -> str | None:
    """The text that an expression gives, with `{}` for what is filled in; None where it is not written there."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text(node.left), text(node.right)
        return (left or "{}") + (right or "{}") if left or right else None
    return None


def branches(node: ast.expr) -> Iterator[ast.expr]:
    """An expression, or both of `a if x else b`."""
    if isinstance(node, ast.IfExp):
        yield from branches(node.body)
        yield from branches(node.orelse)
    else:
        yield node


def errors() -> Iterator[tuple[str, str, str]]:
    """(file and line, "what" or "fix", text) of every error that is written down."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            given: dict[str, ast.expr] = {}
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
                given = dict(zip(("what", "fix"), node.args, strict=False))
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in FIXES:
                given = {"fix": node.value}
            for kind, value in given.items():
                for each in branches(value):
                    found = text(each)
                    if found:
                        yield f"{path.relative_to(ROOT)}:{each.lineno}", kind, found


def test_a_fix_is_a_sentence() -> None:
    """Imperative, so it begins with a capital (or a command in backquotes) and ends as a sentence does."""
    wrong = [
        f"{where}: {fix}"
        for where, kind, fix in errors()
        if kind == "fix" and not ((fix[0].isupper() or fix[0] in "`{") and fix.endswith((".", "?", "{}")))
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_what_is_wrong_has_no_full_stop() -> None:
    """It follows `error:`, as in other command line tools."""
    wrong = [
        f"{where}: {what}"
        for where, kind, what in errors()
        if kind == "what" and what.endswith((".", "!")) and not what.endswith("..")
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_words_are_those_of_the_field() -> None:
    """Phrases that nobody would type, of which there were many."""
    odd = ("mend", "take away", "for ever", "truth value", "is no whole", "leave it out", " aside", "dearest")
    wrong = [f"{where}: {found}" for where, _, found in errors() if any(phrase in found for phrase in odd)]
    assert not wrong, "\n" + "\n".join(wrong)
