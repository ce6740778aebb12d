"""Which modules of the file a module may bring to life: what it imports, spells, or puts together."""

import ast
import re
from collections.abc import Container
from dataclasses import dataclass, field

from build.minify.passes.type_checking import TypeChecking
from build.minify.readers import docstrings
from build.minify.transform import decode, parse, transform_text
from build.tree import File

# Functions that import, run or list modules whose names they are given.
IMPORTERS = frozenset(
    {
        "__import__", "import_module", "find_spec", "find_loader", "get_loader", "get_importer", "resolve_name",
        "run_module", "run_path", "iter_modules", "walk_packages", "spec_from_file_location", "SourceFileLoader",
        "FileFinder", "exec_module",
        "load_module", "extend_path",
    }
)  # fmt: skip
LISTERS = frozenset({"iter_modules", "walk_packages", "extend_path", "exec_module", "load_module"})
"""Those whose arguments do not say what is imported."""

_DOTTED = re.compile(r"\.*[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_BEGUN = re.compile(r"(\.*(?:[A-Za-z_]\w*\.)+)(?:$|[%{])")


@dataclass
class References:
    """What one module may bring to life."""

    names: set[str] = field(default_factory=set)
    """Modules of the tree."""
    below: set[str] = field(default_factory=set)
    """Packages of the tree, any module of which may be meant."""
    computed: str | None = None
    """Where it imports by a name that is not in the text ("line 3: import_module"); None where it does not."""


def references(file: File, modules: Container[str]) -> References:
    """What this module, of which `original` is read, may bring to life; `modules`: all that there are.

    Counted are import statements anywhere in it (not in branches that only type checkers take), every text outside of
    docstrings that spells a module's name, absolute or as seen from its package, and every text that begins such a
    name and leaves the rest to be filled in. A single word names a neighbour only in a package's `__init__.py` (as
    `__all__` and tables of lazy names do) and beside an importer: elsewhere "version" is a word.
    """
    found = References()
    try:
        text = decode(file.original or b"")
        tree = transform_text(text, (TypeChecking.name,))[0] if "TYPE_CHECKING" in text else parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        found.computed = f"does not parse: {error}"
        return found
    package = file.module or ""
    if not file.is_package:
        package = package.rpartition(".")[0]
    names = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(tree)}
    reader = _Reader(package, modules, found, file.is_package or bool(names & IMPORTERS))
    prose = docstrings(tree)
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if id(node) not in prose:
            reader.read(node, called.get(id(node)))
    return found


class _Reader:
    def __init__(self, package: str, modules: Container[str], found: References, words: bool) -> None:
        self.package = package
        self.modules = modules
        self.found = found
        self.words = words

    def read(self, node: ast.AST, call: ast.Call | None) -> None:
        """One node; `call`: where it is what is called."""
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    self.name(alias.name)
            case ast.ImportFrom(module=module, names=aliases, level=level):
                base = self.absolute("." * level + (module or ""))
                self.name(base)
                for alias in aliases:
                    self.name(f"{base}.{alias.name}" if base else alias.name)
                    if alias.asname is not None:  # else its uses will tell
                        self.computes(node, alias.name, None)
            case ast.Constant(value=str(text)):
                self.text(text)
                self.computes(node, text, None)
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name, ctx=ast.Load()):
                self.computes(node, name, call)

    def name(self, name: str) -> None:
        """A module, or a name in one; unknown ones are others' business."""
        if name in self.modules:
            self.found.names.add(name)

    def text(self, text: str) -> None:
        """Names that a text spells (`"package.module:function"`, `-c` programs), or begins (`f"package.{name}"`)."""
        for match in _DOTTED.finditer(text):
            name = match.group()
            # of a longer text only what can't be an ordinary word
            alone = match.span() == (0, len(text)) or text[match.end() : match.end() + 1] == ":"
            if "." in name or alone:
                self.name(self.absolute(name))
            if "." in name.strip(".") or (alone and self.words):
                self.name(self.absolute(f".{name.lstrip('.')}"))
        if text.endswith(".py"):
            place = text[: -len(".py")].replace("/", ".").lstrip(".")
            self.name(place)
            self.name(self.absolute(f".{place}"))
        begun = _BEGUN.match(text)
        if begun:
            meant = self.absolute(begun.group(1)).rstrip(".")
            if meant in self.modules:
                self.found.below.add(meant)

    def computes(self, node: ast.AST, name: str, call: ast.Call | None) -> None:
        """Notes the use of an importer unless its first argument says what it imports."""
        if name not in IMPORTERS or self.found.computed is not None:
            return
        first = call.args[0] if call is not None and call.args else None
        if name in LISTERS or not _is_told(first):
            self.found.computed = f"line {getattr(node, 'lineno', 1)}: {name} of a computed name"

    def absolute(self, name: str) -> str:
        """A relative name as seen from this package; an absolute one as it is."""
        level = len(name) - len(name.lstrip("."))
        if not level:
            return name
        parts = self.package.split(".")
        base = parts[: len(parts) - level + 1]
        return ".".join([*base, *([rest] if (rest := name[level:]) else [])])


def _is_told(first: ast.expr | None) -> bool:
    """True for a text, and for one whose beginning says the package: `_BEGUN` has seen it."""
    match first:
        case ast.Constant(value=str()):
            return True
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return _BEGUN.match(text) is not None
    return False
