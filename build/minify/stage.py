"""The stage: a tree of original modules -> the same tree with shorter ones."""

import ast
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from build.cache import Cache
from build.minify.cache import Outcome, load, outcome_key, save
from build.minify.passes.docstrings import Docstrings
from build.minify.passes.signatures import Signatures
from build.minify.policy import Policy, covers
from build.minify.readers import reads_docstrings
from build.minify.report import Refusal, Report, Row
from build.minify.transform import PRINT, BrokenPromise, decode, transform_text
from build.tree import File, Tree

DEEPEST = 900
"""Levels of a syntax tree that Python 3.11 and 3.12 still compile; a text may nest three times as deep, so that what is
deeper is shipped, and compiled, as it was written."""

Plan = dict[str, tuple[str, ...] | None]
"""Path of a module -> the passes it may go through; None: it is not to be touched."""


def minify(tree: Tree, policy: Policy, cache: Path) -> tuple[Tree, Report]:
    """Every module shortened as far as the policy goes and can be shown to be safe; data files untouched.

    A module that does not survive is shipped as it was written and named in the report. `cache` is a folder, made if
    absent, that lets a file that did not change be looked up instead of minified.
    """
    store = Cache(cache)
    readers = _docstring_readers(tree, policy)
    plan = {file.path: _passes_for(file, policy, readers) for file in tree.modules()}
    outcomes = {file.path: _outcome(file, plan[file.path], store) for file in tree.modules()}
    minified = tree.map(lambda file: _with(file, outcomes.get(file.path)))
    return minified, _report(tree, plan, outcomes, readers)


def shorten(original: bytes, passes: tuple[str, ...]) -> Outcome:
    """One module through these passes and the printer, or as it was, with the reason.

    On a stack of its own: whether something nests too deep must not depend on how deep the caller is.
    """
    with ThreadPoolExecutor(1) as fresh:
        return fresh.submit(_shorten, original, passes).result()


def _shorten(original: bytes, passes: tuple[str, ...]) -> Outcome:
    try:
        # here, so that other interpreters, which do not have the printer, can import this package
        from build.minify.printing import Unprintable, render
    except ImportError as error:
        raise RuntimeError("the minifier needs python-minifier: run `uv sync`") from error
    data, effective, refused = original, (), None  # type: bytes, tuple[str, ...], str | None
    try:
        text = decode(original)
        module, effective = transform_text(text, passes)
        if _is_too_deep(module):
            raise RecursionError
        data, effective = render(module, text).encode(), (*effective, PRINT)
    except (RecursionError, MemoryError):
        refused = "nests too deep"
    except (SyntaxError, ValueError) as error:
        refused = f"does not parse: {error}"
    except (BrokenPromise, Unprintable) as error:
        refused = str(error)
    if refused is not None or len(data) >= len(original):
        data, effective = original, ()
    return Outcome(data, effective, refused, (_packed(original), _packed(data)))


def _is_too_deep(module: ast.Module) -> bool:
    level: list[ast.AST] = [module]
    for _ in range(DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return False
    return True


def _outcome(file: File, passes: tuple[str, ...] | None, store: Cache) -> Outcome:
    assert file.original is not None
    if passes is None:
        size = _packed(file.original)
        return Outcome(file.original, (), None, (size, size))
    key = outcome_key(file.original, passes)
    outcome = load(store, key)
    if outcome is None:
        outcome = shorten(file.original, passes)
        save(store, key, outcome)
    return outcome


def _passes_for(file: File, policy: Policy, readers: dict[str, str]) -> tuple[str, ...] | None:
    """The names of the passes that this file may go through; None where it is not to be touched."""
    if covers(policy.exclude, file):
        return None
    read = file.package in readers and not covers(policy.strip_docstrings, file)
    keep = read or covers(policy.keep_docstrings, file)
    passes = tuple(name for name in policy.passes if not (keep and name == Docstrings.name))
    return (*passes, Signatures.name) if covers(policy.strip_annotations, file) else passes


def _docstring_readers(tree: Tree, policy: Policy) -> dict[str, str]:
    """Distributions that read their docstrings -> where this was seen first."""
    if Docstrings.name not in policy.passes:
        return {}
    readers: dict[str, str] = {}
    for file in tree.modules():
        if file.package not in readers and file.original is not None:
            reason = reads_docstrings(file.original)
            if reason is not None:
                readers[file.package] = f"{file.path}, {reason}"
    return readers


def _with(file: File, outcome: Outcome | None) -> File:
    return file if outcome is None else replace(file, data=outcome.data, passes=outcome.passes)


def _report(tree: Tree, plan: Plan, outcomes: dict[str, Outcome], readers: dict[str, str]) -> Report:
    packages: dict[str, list[File]] = {}
    for file in tree.modules():
        packages.setdefault(file.package, []).append(file)
    rows = [
        Row(
            package,
            len(files),
            (sum(len(file.original or b"") for file in files), sum(len(outcomes[file.path].data) for file in files)),
            (_total(files, outcomes, 0), _total(files, outcomes, 1)),
            _docstrings(files, plan, readers),
        )
        for package, files in sorted(packages.items())
    ]
    refused = [Refusal(path, outcome.refused) for path, outcome in outcomes.items() if outcome.refused is not None]
    return Report(tuple(rows), tuple(sorted(refused, key=lambda refusal: refusal.path)))


def _docstrings(files: list[File], plan: Plan, readers: dict[str, str]) -> str:
    """What became of a distribution's docstrings, in a few words."""
    kept = [file for file in files if Docstrings.name not in (plan[file.path] or ())]
    if not kept:
        return "removed"
    if len(kept) < len(files):
        return f"removed, kept in {len(kept)} modules"
    if all(plan[file.path] is None for file in files):
        return "kept: excluded"
    return f"kept: {readers.get(files[0].package, 'asked for')}"


def _total(files: Iterable[File], outcomes: dict[str, Outcome], side: int) -> int:
    return sum(outcomes[file.path].packed[side] for file in files)


def _packed(data: bytes) -> int:
    return len(zlib.compress(data, 9))
