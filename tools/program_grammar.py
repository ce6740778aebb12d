"""Small programs that nobody wrote: they run, print, and end, and are full of what minifiers stumble over.

Every choice comes from one `random.Random`, so that hypothesis can drive it and shrink what it finds.
"""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")

NAMES = ("a", "b", "total", "A", "B", "É", "_", "__x", "match", "type", "case")
HEADS = (
    "# -*- coding: utf-8 -*-",
    "'''Doc.\n\nof two lines'''",
    "from __future__ import annotations",
    "from typing import TYPE_CHECKING",
    "import typing as t",
    "\f",
)
TEXTS = (
    "'x'", '"it\'s"', "'''three\nlines\n'''", "r'\\d'", "b'\\xff\\''", "u'u'", "'one' \"two\"", "''", "'\\N{BULLET}'",
    "'\\ud800'", "rb'\\x'", "'a\\\nb'", '"""\'"""', "'\\0'", "'\\t{}'", "'{not} a field'",
)  # fmt: skip
NUMBERS = ("0", "1", "-1", "0x_ff", "1_000", "0b11", "0o17", "True", "7", "10**20")
FLOATS = ("0.0", "1e999", "-0.0", "1e-7", "2.50", "1j", "10j", "0x10.real", "1_0.5")
SPECS = ("", "!r", "!s", "!a", ":d", ":>{w}", ":{w}", ":{w}.{w}f", "=", "=:>5", "!r:^{w}", ":'x'>5", ':"x"<5')
PRELUDE = "import contextlib\nw = a = b = total = A = B = É = _ = __x = match = type = case = 3"
EPILOGUE = (
    "print(sorted((k, v) for k, v in globals().items() if isinstance(v, int)))\n"
    "print(sorted(globals().get('__annotations__', {})))\n"
)


def program(random: Random) -> str:
    """The text of one."""
    return _Writer(random).program()


class _Writer:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.made = 0

    def program(self) -> str:
        heads = [head for head in HEADS if self.chance(3)]
        body = [self.guarded() for _ in range(self.number(2, 5))]
        return "\n".join([*heads, PRELUDE, *body, EPILOGUE])

    def chance(self, one_in: int) -> bool:
        return self.random.randrange(one_in) == 0

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.random.randrange(len(choices))]

    def fresh(self) -> str:
        self.made += 1
        return f"{self.pick(('f', 'C', 'x'))}{self.made}"

    # Statements: each is lines without indentation, ending without a line end.

    def guarded(self) -> str:
        """At the top: whatever it raises is printed, and the next one runs."""
        body = self.block(3)
        return f"try:{body}\nexcept Exception as error:\n  print(error.__class__.__name__, error.args)"

    def block(self, depth: int) -> str:
        """What stands behind a colon."""
        if self.chance(6):
            return " " * self.number(0, 2) + self.pick(("pass", "...", "'text'", "print(a); pass", "a; b; 'text'"))
        indent = self.pick((" ", "  ", "    ", "\t"))
        lines: list[str] = []
        for _ in range(self.number(1, 3)):
            if self.chance(5):
                lines.append(self.pick(("# a comment", "", "# type: ignore", "\f", "'a lone text'", "...", "3")))
            lines.append(self.statement(depth))
        if not any(line.strip() and not line.startswith("#") for line in lines):
            lines.append("pass")
        return "\n" + "\n".join(_indented(line, indent) for line in lines)

    def statement(self, depth: int) -> str:
        simple = (self.assignment, self.printing, self.annotation, self.small)
        nested = (self.branch, self.loop, self.trial, self.function, self.klass, self.choice)
        if depth <= 0 or self.chance(2):
            return self.pick(simple)()
        return self.pick(nested)(depth - 1)

    def assignment(self) -> str:
        name, value = self.pick(NAMES), self.value(2)
        forms = (
            f"{name} = {value}",
            f"{name} {self.pick(('+=', '-=', '*=', '|='))} {value}",
            f"{name}, *_ = {value}, *[1, 2]",
            f"({name}) = {value}  # type: int",
            f"{name} = \\\n  {value}",
            f"{name} = ({value}\n  # inside\n  )",
            f"del {name}; {name} = {value}",
            f"for {name} in {value},: pass",
            f"with contextlib.nullcontext({value}) as {name}: pass",
        )
        return self.pick(forms)

    def printing(self) -> str:
        forms = (
            f"print({self.value(2)})",
            f"print({self.format(2)})",
            f"print(ascii({self.text()}))",
            f"print({self.pick(FLOATS)}, *[{self.value(1)}], **{{'sep': '-'}})",
        )
        return self.pick(forms)

    def annotation(self) -> str:
        name = self.pick(NAMES)
        return self.pick((f"{name}: int", f"{name}: 'text' = {self.value(1)}", f"({name}): int", f"{name}: undefined_"))

    def small(self) -> str:
        forms = (
            "pass",
            "'a lone text'",
            "b'bytes'; 1",
            f"assert {self.value(1)} or True, 'said'",
            "a; 'text'; 3",
            f"assert (a := {self.value(1)}) is not None",
            "import math as b; b = 3",
            "from math import floor as total; total = total(3.5)",
            f"lambda {self.pick(NAMES)}=1, *, z=2, **k: (yield)",
            f"f'{{a}}'; {self.value(1)}",
        )
        return self.pick(forms)

    def branch(self, depth: int) -> str:
        lines = [f"if {self.test()}:{self.block(depth)}"]
        lines += [f"elif {self.test()}:{self.block(depth)}" for _ in range(self.number(0, 2))]
        if self.chance(2):
            lines.append(f"else:{self.block(depth)}")
        return "\n".join(lines)

    def loop(self, depth: int) -> str:
        head = self.pick((f"for {self.pick(NAMES)} in range(2):", "for w in (1, 2):"))
        last = f"\nelse:{self.block(depth)}" if self.chance(3) else ""
        return head + self.block(depth) + last

    def trial(self, depth: int) -> str:
        kind = self.pick(("except", "except*"))
        text = f"try:{self.block(depth)}\n{kind} (ValueError, TypeError) as error:{self.block(depth)}"
        text += f"\nelse:{self.block(depth)}" if self.chance(3) else ""
        return text + (f"\nfinally:{self.block(depth)}" if self.chance(3) else "")

    def function(self, depth: int) -> str:
        name = self.fresh()
        head = self.pick(("", "'''doc'''", '"doc"; "second"', "f'{1}'", "b'no doc'", "'doc' 'joined'", "...", "pass"))
        scope = self.pick(("", "", f"global {self.pick(NAMES)}", "a: int"))
        last = self.pick(("return None", "return", f"return {self.value(1)}", "yield 1", "return (yield)", "'end'"))
        kind = self.pick(("def", "def", "async def"))
        if kind == "async def":
            last = self.pick(("return None", "'end'", "yield 1", "return"))
        body = [line for line in (head, scope, self.statement(depth), self.statement(depth), last) if line]
        arguments = self.pick(("", "p=1, /, q=2, *, r=3", "p: int = 1, *more: 'text', **k", "p=lambda: 0"))
        made = f"@(lambda f: f)\n{kind} {name}({arguments}){self.pick(('', ' -> int', ' -> str'))}:\n"
        made += "\n".join(_indented(line, "  ") for line in body)
        # not all of co_varnames: code that never runs has a say in the order of local names
        code = f"{name}.__code__"
        seen = f"{name}.__annotations__, {code}.co_varnames[:{code}.co_argcount], {code}.co_flags, {code}.co_freevars"
        return f"{made}\nprint({seen})\nprint({name}().__class__.__name__)"

    def klass(self, depth: int) -> str:
        name = self.fresh()
        head = self.pick(
            ("'''doc'''", "pass", "__slots__ = ()", "x: int", "x: int = 3", "'a' 'b'", "...", "'d'; 'more'")
        )
        more = self.pick(("pass", "'lone'", "y: 'text'", "__z = 1", "def m(self): 'doc'", "def m(self): return None"))
        body = "\n".join(_indented(line, "\t") for line in (head, more, self.statement(depth - 1)))
        seen = f"sorted(set(vars({name})) - {{'__doc__', '__firstlineno__', '__static_attributes__'}})"
        return f"class {name}{self.pick(('', '()', '(object)'))}:\n{body}\nprint({seen}, {name}.__name__)"

    def choice(self, depth: int) -> str:
        patterns = (
            "0 | 1",
            "[x_, *rest_]",
            "(3, _)",
            "{'a': y_, **others_}",
            "str() | int(real=9)",
            "-1",
            "x_ if x_ == 3",
            "'text'",
            "None",
            "[1, [2, z_]] as whole_",
        )
        lines = [f"case {self.pick(patterns)}:{self.block(depth)}" for _ in range(self.number(1, 3))]
        subject = self.pick((self.value(1), "(3, 4)", "{'a': 1, 'b': 2}", "'text'", "[1, [2, 3]]"))
        return f"match {subject}:\n" + "\n".join(_indented(line, "  ") for line in lines)

    # Expressions.

    def test(self) -> str:
        forms = (
            self.value(2),
            f"not {self.value(1)}",
            f"{self.value(1)} < {self.value(1)} <= {self.value(0)}",
            self.pick(("TYPE_CHECKING", "not TYPE_CHECKING", "t.TYPE_CHECKING", "False")),
            f"{self.value(0)} in ({self.value(0)},)",
            f"(a is b) == {self.value(0)}",
            "a if b else not _",
        )
        return self.pick(forms)

    def value(self, depth: int) -> str:
        """An expression that is a whole number, or raises."""
        if depth <= 0:
            return self.pick((self.pick(NAMES), self.pick(NUMBERS)))
        left, right = self.value(depth - 1), self.value(depth - 1)
        name = self.pick(NAMES)
        forms = (
            f"{left} + {right}",
            f"({left} - {right}) * {left}",
            f"-({left}) % 7 ** 2",
            f"({left})//({right} or 1)",
            f"(({name} := {left}) + {name})",
            f"({left} if {right} else {name})",
            f"[{left}, {right}][-1]",
            f"(lambda {name}, *, k={left}: {name} + k)({right})",
            f"sum({name} for {name} in [{left}] if {name})",
            f"len({{**{{'a': {left}}}}})",
            f"~({left}) & {right} | {left} ^ 1",
            f"({left}, {right})[0:2][0]",
            f"len({self.text()})",
            f"len({self.format(depth - 1)})",
            f"max(*[{left}], *({right},))",
            f"(not {left}) - ({left} < {right})",
            f"[*range(3)][::2][({left}) % 2]",
            f"int({left} == {right})",
            f"({left} or {right} and {left})",
            left,
        )
        return self.pick(forms)

    def text(self) -> str:
        return self.pick(TEXTS)

    def format(self, depth: int) -> str:
        """An f-string that every Python from 3.11 on reads: no quote of its own kind and no backslash inside braces."""
        quote = self.pick(("'", '"', "'''", '"""'))
        other = "'" if quote[0] == '"' else '"'
        parts = [self.pick(("", "text", "{{", "}}", "\\n", "\\N{EM DASH}", f"it{other}s", "\\\\"))]
        for _ in range(self.number(1, 3)):
            spec = self.pick([each for each in SPECS if quote[0] not in each])
            inner = self.pick(
                (" a", "b", "(a)", "a if b else 3", " {1: 2}[1]", "w+1", "(lambda: 7)()", f"{other}x{other}")
            )
            parts.append("{" + inner + spec + "}")
            parts.append(self.pick(("", " ", "-", "{{}}", "é")))
        more = self.pick(("", "", "", " 'x'", ' "it\'s"'))
        return f"f{quote}{''.join(parts)}{quote}{more}"


def _indented(text: str, indent: str) -> str:
    """Its lines further in; lines inside of texts too, alike in all copies of the program."""
    return "\n".join(indent + line for line in text.split("\n"))
