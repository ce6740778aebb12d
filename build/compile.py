"""Tree -> code sections: the bytecode of every module for each interpreter, with the original text's line numbers."""

import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from build.cache import Cache, key_of
from build.errors import BuildError
from build.interpreters import WORKER, Interpreter, run_clean
from build.minify.policy import covers
from build.settings import TABLE
from build.tree import File, Tree
from build.worker import Answer, Job


@dataclass(frozen=True)
class CodeSection:
    """The code of all modules for one minor version of Python."""

    interpreter: Interpreter
    codes: tuple[tuple[str, bytes], ...]
    """Module -> marshalled code, by the path of the module. File names in it are paths in the archive."""
    unreadable: tuple[tuple[str, str], ...] = ()
    """(path, why) of the modules that this version does not compile; their code raises that SyntaxError."""


def compile_code(
    tree: Tree, interpreters: Sequence[Interpreter], cache: Cache, allowed: frozenset[str] = frozenset()
) -> tuple[CodeSection, ...]:
    """Return a section for each interpreter, in their order.

    `allowed`: distributions, or dotted names of modules, of which some may not compile: importing those raises the
    SyntaxError that it would raise in an environment. BuildError for any other module that does not compile.

    Each compiles the tree that the minifier printed, made anew from the original text: so lines and columns are the
    original's, and the instructions are those of the shipped text.
    """
    tools = _tools()
    with ThreadPoolExecutor(max_workers=len(interpreters)) as pool:
        sections = pool.map(
            lambda interpreter: _section(tree.modules(), interpreter, cache, tools, allowed), interpreters
        )
        return tuple(sections)


def _section(
    modules: tuple[File, ...], interpreter: Interpreter, cache: Cache, tools: str, allowed: frozenset[str]
) -> CodeSection:
    keys = {
        file.path: key_of(tools, interpreter.identity, file.path, ",".join(file.passes), file.original or b"")
        for file in modules
    }
    codes = {path: cache.get(key) for path, key in keys.items()}
    missing = [file for file in modules if codes[file.path] is None]
    faults: list[tuple[File, str]] = []
    for file, (code, fault) in zip(missing, _compile(missing, interpreter), strict=True):
        if not fault:
            cache.put(keys[file.path], code)
            codes[file.path] = code
        elif covers(allowed, file):
            faults.append((file, fault))
        else:
            raise BuildError(
                f"Python {interpreter.version} does not compile {file.path} of {file.package}: {fault}",
                "Correct the module, or build for other versions (--python). If nothing needs it, add "
                f'"{file.module}" to `allow-syntax-errors` in [tool.{TABLE}] of pyproject.toml.',
            )
    raising = [replace(file, original=_raises(file.path, fault), passes=()) for file, fault in faults]
    for file, (code, fault) in zip(raising, _compile(raising, interpreter), strict=True):
        assert not fault, fault
        codes[file.path] = code
    unreadable = tuple((file.path, fault) for file, fault in faults)
    return CodeSection(interpreter, tuple((file.module or "", codes[file.path] or b"") for file in modules), unreadable)


def _raises(path: str, fault: str) -> bytes:
    """Return the text of a module that raises what compiling the real one does."""
    return f"raise SyntaxError({fault.partition(': ')[2] or fault!r}, ({path!r}, None, None, None))\n".encode()


def _compile(files: list[File], interpreter: Interpreter) -> list[Answer]:
    if not files:
        return []
    jobs: list[Job] = [(file.module or "", file.path, file.original or b"", file.passes) for file in files]
    answer = run_clean(interpreter.executable, str(WORKER), data=pickle.dumps(jobs, protocol=4))
    if answer.returncode:
        last = answer.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise BuildError(
            f"the compiler in {interpreter.executable} (Python {interpreter.version}) failed: {last}",
            "Check that this interpreter has its standard library.",
        )
    answers: list[Answer] = pickle.loads(answer.stdout)
    return answers


def _tools() -> str:
    """A digest of the sources that code depends on besides the module's."""
    folder = Path(__file__).parent
    sources = [WORKER, folder / "canonical.py", *sorted((folder / "minify").rglob("*.py"))]
    return key_of(*(source.read_bytes() for source in sources))
