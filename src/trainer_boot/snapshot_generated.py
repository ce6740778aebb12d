"""What Python makes of text while modules are imported is in the snapshot too.

dataclasses writes the text of each method, namedtuple that of its constructor, and has it compiled; patterns are
compiled by the re module. An import of torch compiles 700 texts (75 ms) and 110 patterns (16 ms). What comes of a text
depends on the text and on this Python alone, so it is looked up by the text itself; what is not there is compiled as
ever, and noted for the next snapshot. Each use is given code objects of its own, as compiling would: torch.compile and
debuggers keep notes on them.

No `from __future__` here: text that is executed takes them over.
"""

import builtins
import marshal
import sys
from importlib import import_module
from types import CodeType, FunctionType, ModuleType

from trainer_boot.layout import check, pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    # by text: marshalled code
    Codes = Mapping[str, bytes]
    # what _sre.compile is given after the pattern; the code is marshalled
    Pattern = tuple[int, bytes, int, dict[str, int], tuple[str | None, ...]]
    Patterns = Mapping[tuple[str, int], Pattern]
    # small, and needed by most commands: what is evaluated, and patterns
    Early = tuple[Codes, Patterns]
    # offset, size, check in the snapshot's file; size 0: there is none
    Part = tuple[int, int, bytes]
    Read = Callable[[Part], bytes]

MODULES = ("collections", "re._compiler", "dataclasses")
NOTHING: "Part" = (0, 0, b"")
MOST = 8192  # texts; a process may go on making them for ever
LONGEST = 1000  # characters; tokenize joins its pattern from sets, in another order in each process
# what the parser warns of, each time that it compiles such a pattern, and what depends on more than the pattern
WARNED = ("[[", "--", "&&", "~~", "||", "(?(")
UNUSUAL_FLAGS = 1 | 4 | 128  # TEMPLATE, LOCALE, DEBUG


class Generated:
    """Of one process: what the snapshot has, read when a module that makes such things is imported; what it lacks."""

    def __init__(self) -> None:
        self.fresh: dict[str, dict[str, CodeType]] = {"exec": {}, "eval": {}}
        self.fresh_patterns: dict[tuple[str, int], None] = {}
        self._codes: dict[str, Codes] = {"exec": {}, "eval": {}}
        self._patterns: Patterns = {}
        self._hooks: list[tuple[ModuleType, str, object, Any]] = []

    def serve_texts(self, module: ModuleType, kind: str, codes: "Codes") -> None:
        """What the module calls exec or eval for."""
        self._codes[kind] = codes
        self._hook(module, kind, self._running(getattr(builtins, kind), kind))

    def serve_patterns(self, module: ModuleType, patterns: "Patterns") -> None:
        """In re._compiler."""
        self._patterns = patterns
        self._hook(module, "compile", self._compiling(module))

    def withdraw(self) -> None:
        """All is as Python has it."""
        while self._hooks:
            module, name, ours, before = self._hooks.pop()
            if vars(module).get(name) is ours:
                if before is None:
                    delattr(module, name)
                else:
                    setattr(module, name, before)

    def _hook(self, module: ModuleType, name: str, ours: object) -> None:
        if any((place, own) == (module, name) for place, own, *_ in self._hooks):
            return
        self._hooks.append((module, name, ours, vars(module).get(name)))
        setattr(module, name, ours)

    def _running(self, run: "Callable[..., Any]", kind: str) -> "Callable[..., Any]":
        fresh = self.fresh[kind]

        def run_text(source: "Any", globals: "Any" = None, locals: "Any" = None, /, **options: "Any") -> "Any":
            if globals is None:  # the caller's
                frame = sys._getframe(1)
                globals, locals = frame.f_globals, frame.f_locals if locals is None else locals
            if locals is None:
                locals = globals
            if type(source) is str and not options:
                blob = self._codes[kind].get(source)
                if blob is not None:
                    return run(marshal.loads(blob), globals, locals)
                if len(fresh) < MOST:
                    code = fresh[source] = compile(source, "<string>", kind, dont_inherit=True)
                    return run(code, globals, locals)
            return run(source, globals, locals, **options)

        return run_text

    def _compiling(self, module: ModuleType) -> "Callable[..., Any]":
        plain, make = module.compile, module._sre.compile

        def compile(p: "Any", flags: "Any" = 0) -> "Any":  # as it is called there
            if type(p) is str:
                found = self._patterns.get((p, flags))
                if found is not None:
                    whole, code, groups, names, numbers = found
                    return make(p, whole, marshal.loads(code), groups, dict(names), numbers)
                if len(self.fresh_patterns) < MOST and not flags & UNUSUAL_FLAGS:
                    self.fresh_patterns[p, int(flags)] = None
            return plain(p, flags)

        return compile


_here = Generated()


def executed(module: ModuleType, read: "Read", parts: "tuple[Part, Part]") -> None:
    """One of the modules that make things of text has run its body: it is served from the snapshot."""
    if module.__name__ == "dataclasses":
        _here.serve_texts(module, "exec", _late(read, parts[0]))
    elif module.__name__ == "collections":
        _here.serve_texts(module, "eval", _early(read, parts[1])[0])
    else:
        _here.serve_patterns(module, _early(read, parts[1])[1])


def note_all() -> None:
    """Without a snapshot, before much is imported: notes what the first one is to have."""
    for name in MODULES:
        executed(import_module(name), lambda _: b"", (NOTHING, NOTHING))


def withdraw() -> None:
    """Ends serving and noting; what was noted stays."""
    _here.withdraw()


def lacking() -> int:
    """How many texts and patterns of this process the snapshot did not have."""
    return sum(map(len, _here.fresh.values())) + len(_here.fresh_patterns)


def packed(read: "Read", parts: "tuple[Part, Part]") -> tuple[bytes, bytes]:
    """What the next snapshot has: what the one that serves has, and what it lacked. Each may be empty."""
    late, (early, patterns) = dict(_late(read, parts[0])), _early(read, parts[1])
    early, patterns = dict(early), dict(patterns)
    for codes, kind in ((late, "exec"), (early, "eval")):
        codes.update((text, marshal.dumps(code)) for text, code in list(_here.fresh[kind].items()))
    for key in list(_here.fresh_patterns):
        made = _pattern(*key)
        if made is not None:
            patterns[key] = made
    return pack(late) if late else b"", pack((early, patterns)) if early or patterns else b""


def part(offset: int, data: bytes) -> "Part":
    """Where it lies in the file."""
    return (offset, len(data), check(data)) if data else NOTHING


# nothing where it was damaged: all is compiled as ever then
def _late(read: "Read", place: "Part") -> "Codes":
    data = read(place) if place[1] else b""
    codes: Codes = marshal.loads(data) if data else {}
    return codes


def _early(read: "Read", place: "Part") -> "Early":
    data = read(place) if place[1] else b""
    early: Early = marshal.loads(data) if data else ({}, {})
    return early


def _pattern(text: str, flags: int) -> "Pattern | None":
    """What the compiler of patterns makes of it; None for what is to be compiled each time."""
    if len(text) > LONGEST or any(each in text for each in WARNED):
        return None
    module: Any = sys.modules["re._compiler"]
    given: list[Any] = []

    class Capturing:
        """_sre, but for the last step."""

        compile = staticmethod(lambda *arguments: given.extend(arguments))

        def __getattr__(self, name: str) -> "Any":
            return getattr(module._sre, name)

    plain = next((before for _, name, ours, before in _here._hooks if ours is module.compile), module.compile)
    FunctionType(plain.__code__, {**vars(module), "_sre": Capturing()}, "compile")(text, flags)
    _, whole, code, groups, names, numbers = given
    return int(whole), marshal.dumps(list(map(int, code))), groups, dict(names), tuple(numbers)
