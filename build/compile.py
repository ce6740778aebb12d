"""Tree -> code sections: the bytecode of every module for each interpreter, with the original text's line numbers."""

import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from build.cache import Cache, key_of
from build.errors import BuildError
from build.interpreters import WORKER, Interpreter, run_clean
from build.tree import File, Tree
from build.worker import Answer, Job


@dataclass(frozen=True)
class CodeSection:
    """The code of all modules for one minor version of Python."""

    interpreter: Interpreter
    codes: tuple[tuple[str, bytes], ...]
    """Module -> marshalled code, by the path of the module. File names in it are paths in the archive."""


def compile_code(tree: Tree, interpreters: Sequence[Interpreter], cache: Cache) -> tuple[CodeSection, ...]:
    """A section for each interpreter, in their order. BuildError for a module that one of them can't compile.

    Each compiles the tree that the minifier printed, made anew from the original text: so lines and columns are the
    original's, and the instructions are those of the shipped text.
    """
    tools = _tools()
    with ThreadPoolExecutor(max_workers=len(interpreters)) as pool:
        sections = pool.map(lambda interpreter: _section(tree.modules(), interpreter, cache, tools), interpreters)
        return tuple(sections)


def _section(modules: tuple[File, ...], interpreter: Interpreter, cache: Cache, tools: str) -> CodeSection:
    keys = {
        file.path: key_of(tools, interpreter.identity, file.path, ",".join(file.passes), file.original or b"")
        for file in modules
    }
    codes = {path: cache.get(key) for path, key in keys.items()}
    missing = [file for file in modules if codes[file.path] is None]
    for file, (code, fault) in zip(missing, _compile(missing, interpreter), strict=True):
        if fault:
            raise BuildError(
                f"Python {interpreter.version} does not compile {file.path} of {file.package}: {fault}",
                "mend the module, or build for other versions (--python)",
            )
        cache.put(keys[file.path], code)
        codes[file.path] = code
    return CodeSection(interpreter, tuple((file.module or "", codes[file.path] or b"") for file in modules))


def _compile(files: list[File], interpreter: Interpreter) -> list[Answer]:
    if not files:
        return []
    jobs: list[Job] = [(file.module or "", file.path, file.original or b"", file.passes) for file in files]
    answer = run_clean(interpreter.executable, str(WORKER), data=pickle.dumps(jobs, protocol=4))
    if answer.returncode:
        last = answer.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise BuildError(
            f"the compiler in {interpreter.executable} (Python {interpreter.version}) failed: {last}",
            "check that this interpreter has its standard library",
        )
    answers: list[Answer] = pickle.loads(answer.stdout)
    return answers


def _tools() -> str:
    """A digest of the sources that code depends on besides the module's."""
    folder = Path(__file__).parent
    sources = [WORKER, folder / "canonical.py", *sorted((folder / "minify").rglob("*.py"))]
    return key_of(*(source.read_bytes() for source in sources))
