"""Markers of edges put together along paths: `and` along a path, `or` over paths.

A condition is a set of clauses of which one has to hold; a clause is a set of comparisons that all have to hold, as
text ("sys_platform == 'linux'"). packaging evaluates markers but offers no algebra of them.
"""

import re
from collections.abc import Iterator
from itertools import product

Clause = frozenset[str]
Condition = frozenset[Clause]

ALWAYS: Condition = frozenset({frozenset()})
NEVER: Condition = frozenset()

_TOKEN = re.compile(r"""\s*(\(|\)|"[^"]*"|'[^']*'|<=|>=|===|==|!=|~=|<|>|not\s+in\b|[\w.]+)""")
_OPPOSITE = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "==", "in": "not in", "not in": "in"}


def parse(marker: str | None, extras: frozenset[str] = frozenset()) -> Condition:
    """The condition of a marker, which packaging has already found valid; None is `ALWAYS`.

    Comparisons with `extra` are decided here, by what is in `extras`.
    """
    if marker is None:
        return ALWAYS
    tokens = [re.sub(r"\s+", " ", token) for token in _TOKEN.findall(marker)]
    condition, rest = _either(tokens, extras)
    assert not rest, f"{marker}: {rest} left over"
    return condition


def both(left: Condition, right: Condition) -> Condition:
    """`left and right`."""
    return _simple(a | b for a, b in product(left, right))


def either(left: Condition, right: Condition) -> Condition:
    """`left or right`."""
    return _simple(left | right)


def text(condition: Condition) -> str | None:
    """The condition as a marker, always the same for the same condition; None for `ALWAYS`."""
    if condition == ALWAYS:
        return None
    assert condition, "a condition that never holds has no marker"
    return " or ".join(sorted(" and ".join(sorted(clause)) for clause in condition))


def _either(tokens: list[str], extras: frozenset[str]) -> tuple[Condition, list[str]]:
    condition, tokens = _both(tokens, extras)
    while tokens[:1] == ["or"]:
        more, tokens = _both(tokens[1:], extras)
        condition = either(condition, more)
    return condition, tokens


def _both(tokens: list[str], extras: frozenset[str]) -> tuple[Condition, list[str]]:
    condition, tokens = _one(tokens, extras)
    while tokens[:1] == ["and"]:
        more, tokens = _one(tokens[1:], extras)
        condition = both(condition, more)
    return condition, tokens


def _one(tokens: list[str], extras: frozenset[str]) -> tuple[Condition, list[str]]:
    if tokens[0] == "(":
        condition, tokens = _either(tokens[1:], extras)
        assert tokens[0] == ")"
        return condition, tokens[1:]
    left, operator, right = tokens[:3]
    if "extra" in (left, right):
        asked = (right if left == "extra" else left).strip("'\"") in extras
        return (ALWAYS if asked == (operator == "==") else NEVER), tokens[3:]
    return frozenset({frozenset({f"{_quoted(left)} {operator} {_quoted(right)}"})}), tokens[3:]


def _quoted(operand: str) -> str:
    return f"'{operand[1:-1]}'" if operand[0] == '"' and "'" not in operand else operand


def _simple(clauses: "frozenset[Clause] | Iterator[Clause]") -> Condition:
    """Without clauses that contradict themselves, that another one covers, or that differ in one opposite only."""
    kept = {clause for clause in clauses if not any(_negated(comparison) in clause for comparison in clause)}
    while True:
        merged = {
            clause - {comparison}
            for clause in kept
            for comparison in clause
            if (clause - {comparison}) | {_negated(comparison)} in kept
        }
        if merged <= kept:
            break
        kept |= merged
    return frozenset(clause for clause in kept if not any(other < clause for other in kept))


def _negated(comparison: str) -> str:
    left, operator, right = re.split(r" (not in|in|<=|>=|===|==|!=|~=|<|>) ", comparison, maxsplit=1)
    return f"{left} {_OPPOSITE.get(operator, '?')} {right}"
