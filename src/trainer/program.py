"""A program of the user's own: what it imports first, and running it as Python itself would."""

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from trainer import startup
from trainer.errors import UserError

# packages that may be imported before ranks are forked: they start no thread and touch no device
SHARED = ("torch", "numpy")


class Program:
    """`words`: a path, or -m and the name of a module, and the program's own arguments. UserError (status 2) where
    there is no such program."""

    def __init__(self, words: list[str]) -> None:
        self.as_module = words[0] == "-m"
        rest = words[self.as_module :]
        if not rest:
            raise UserError("-m needs the name of a module", "Write trainer exec -m MODULE.", 2)
        self.place, *self.arguments = rest
        self.path = self._find()

    def import_first(self) -> None:
        """Imports of `SHARED` what its first lines will import. What fails here will fail there, with its traceback."""
        try:
            tree = ast.parse(self.path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            return
        for name, members in _imports(tree):
            try:
                import_module(name)
                if members:  # some may be modules
                    __import__(name, fromlist=members)
            except Exception:  # told by the program itself, a moment later
                continue

    def run(self) -> None:
        """Runs it as `__main__`, to its end; whatever it raises."""
        sys.argv[:] = [str(self.path) if self.as_module else self.place, *self.arguments]
        if self.as_module:
            import runpy

            if startup.script_folder_counts():
                sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(self.place, run_name="__main__", alter_sys=True)
            return
        from importlib.machinery import SourceFileLoader

        if startup.script_folder_counts():
            sys.path.insert(0, str(self.path.parent))
        place = str(self.path)  # Python makes it absolute too
        code = compile(self.path.read_bytes(), place, "exec")
        main = ModuleType("__main__")
        main.__file__ = place
        main.__loader__ = SourceFileLoader("__main__", place)
        main.__dict__["__builtins__"] = __builtins__
        sys.modules["__main__"] = main
        exec(code, main.__dict__)

    def _find(self) -> Path:
        """Where its source lies."""
        if not self.as_module:
            path = Path(self.place)
            if path.is_dir() or not path.exists():
                what = "is a directory" if path.is_dir() else "does not exist"
                raise UserError(
                    f"{self.place} {what}", "Give the path of a Python program, or -m and the name of a module.", 2
                )
            return path.absolute()
        before = list(sys.path)
        if startup.script_folder_counts():
            sys.path.insert(0, str(Path.cwd()))
        try:
            spec = find_spec(self.place)
            if spec is not None and spec.submodule_search_locations is not None:
                spec = find_spec(f"{self.place}.__main__")
        except (ImportError, ValueError) as error:
            raise UserError(
                f"-m {self.place}: {error}", "Give the full name of a module that can be imported.", 2
            ) from None
        finally:
            sys.path[:] = before
        if spec is None or not spec.origin:
            raise UserError(f"-m {self.place}: there is no such module", _where_modules_come_from(), 2)
        return Path(spec.origin)


def _where_modules_come_from() -> str:
    if startup.script_folder_counts():
        return "Correct the name, or put the module's folder on PYTHONPATH."
    return "Give the program's path instead: under -P and -I modules of the current folder are not found."


def _imports(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """(module, names from it) of the imports at the top level of a program."""
    found: list[tuple[str, list[str]]]
    for node in tree.body:
        if isinstance(node, ast.Import):
            found = [(alias.name, []) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found = [(node.module, [alias.name for alias in node.names if alias.name != "*"])]
        else:
            continue
        yield from ((name, members) for name, members in found if name.partition(".")[0] in SHARED)
