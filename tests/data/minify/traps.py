#!/usr/bin/env python3
# vim: set fileencoding=utf-8 :
"""Names and statements whose removal or renaming would be noticed."""
from __future__ import annotations

import asyncio
import functools
import sys
import traceback
from typing import TYPE_CHECKING, NamedTuple, get_type_hints

if TYPE_CHECKING:
    from nowhere import Nothing
elif sys.version_info < (3,):
    raise SystemExit
else:
    Nothing = "taken from the other branch"

print(Nothing)

counter = 10


def scope_by_bare_annotation():
    counter: int
    try:
        return counter
    except UnboundLocalError:
        return "local, without a value"


def scope_in_a_dead_branch():
    if TYPE_CHECKING:
        import counter
    try:
        return counter
    except UnboundLocalError:
        return "local, by an import that never runs"


def generator_by_dead_yield():
    return
    yield


class ByBareAnnotation:
    first: int
    second: "Undefined" = 2
    (third): int
    "about second"


print(scope_by_bare_annotation(), scope_in_a_dead_branch(), list(generator_by_dead_yield()))
print(ByBareAnnotation.__annotations__, get_type_hints(scope_by_bare_annotation))


# Names that are looked up by text.
def by_text(argument, other=2):
    local = argument + other
    return sorted(locals()), eval("local * argument"), f"{local=}"


def by_format(first, second):
    return "{first}-{second}".format(**locals()), "%(first)s" % vars()


class Dispatch:
    def visit_Name(self):
        return "by getattr"

    def visit(self, node):
        return getattr(self, "visit_" + node)()

    __private = 1

    def mangled(self):
        return self.__private, getattr(self, "_Dispatch__private"), sorted(name for name in vars(Dispatch) if "__p" in name)


print(by_text(1), by_format("a", "b"), Dispatch().visit("Name"), Dispatch().mangled())
print(globals()["counter"], by_text(argument=5, other=1), by_text.__code__.co_varnames, by_text.__name__)

# Short names that a generator of names would pick.
A = B = a = b = _ = __ = 1


def collide(A, *, B=2):
    def a(b):
        nonlocal A
        A += b
        return [A for A in [A, b]] + [B]

    return a(3), A


print(collide(1), A, B, a, b)


# Assignment expressions, stars, chains.
print([last := value for value in range(3)], last, (first := 1, first + 1), [*range(2), *"ab"], {**{"a": 1}, "b": 2})
head, *middle, tail = range(5)
print(head, middle, tail, 1 < 2 < 3 != 4, not -1 ** 2, (-1) ** 2, 2 ** -1, ~-1, not (1 and 0 or 2))
print((lambda *a, k=1, **m: (a, k, m))(1, k=2, z=3), (lambda: (yield))().__class__.__name__)
x = y = (1,)
x += 2,
print(x, y, x[0], {1}, {}, (), [[]], (1 if x else 2), x[:1, ] if False else x[::-1])
for value in 1, 2, *x: pass
else: print("else", value)
print(0xFF, 1_000, 0o17, 0b11, 1e3, 1e-05, 1E100, 5j, -0.0, 1e999, -1e999, 10 ** 20, 0xFFFFFFFFFFFFFFFFF, 1.0, .5, 5.)
print(1 .real, 1.0.real, (1).bit_length(), 1if 1else 2, [0x1for _ in (1,)])


# Decorators, defaults, positional-only, annotations of every place.
def keep(*names):
    def wrap(function):
        function.names = names
        return function

    return wrap


@keep("a", (b := "walrus"))
@functools.wraps(keep)
def decorated(a: int, /, b: "text" = 1, *args: *tuple[int], c: list[int] = [], **kwargs: dict) -> Undefined: ...


print(decorated.names, decorated.__annotations__, decorated.__defaults__, decorated.__kwdefaults__, decorated.__name__)


class Row(NamedTuple):
    """doc"""
    first: int
    second: str = "s"


print(Row(1), Row._fields, Row.__annotations__)


# match
def matched(subject):
    match subject:
        case {"kind": "a" | "b" as kind, **rest} if rest:
            return kind, rest
        case [int(first), _, *others] | (first, others):
            return first, others
        case Row(first=1, second=name):
            return name
        case -1 | 1j | "text" | None | True:
            return "literal"
        case float() | str(_):
            "only a string"
        case match:
            return "anything", match


for subject in ({"kind": "a", "x": 1}, [1, 2, 3], (4, 5), Row(1, "n"), -1, None, True, 1.5, object):
    print(matched(subject))


# except*, finally, else, with of several
def groups():
    try:
        raise ExceptionGroup("many", [ValueError(1), TypeError(2)])
    except* ValueError as caught:
        return_value = [caught.exceptions]
    except* TypeError:
        "ignored"
    finally:
        "nothing"
    return return_value


print(groups())


class Manager:
    def __enter__(self): return self
    def __exit__(self, *error): "swallows nothing"


with Manager() as one, Manager() as two: print(one is not two)
with (
    Manager() as one,
    Manager(),
): pass


# async
async def main():
    async def numbers():
        "an async generator"
        for number in range(3): yield number

    async with AsyncManager() as manager:
        return [number async for number in numbers() if await manager(number)]


class AsyncManager:
    async def __aenter__(self):
        return lambda number: asyncio.sleep(0, number % 2 == 0)

    async def __aexit__(self, *error): ...


print(asyncio.run(main()))

# Line joining, form feeds, type comments, semicolons, odd indentation.
joined = 1 + \
    2; text = 'a\
b'; "alone"; 3

if joined:
	tabbed = """tab
	inside""" ; numbers = [  # type: ignore
		1,

		2,
	]
print(joined, repr(text), repr(tabbed), numbers)
typed = []  # type: list[int]
for value in typed:  # type: int
    pass
while joined: joined -= 1; continue
else: print("while", joined)

print("a" "b" 'c' f"{joined}" r"\d" "\N{BULLET}", b"a" b"\x00", "\ud800".encode("utf-8", "surrogatepass"), "\x00\x1f\x7f\r")
assert (side := "effect"), "asserts stay"
print(side, __debug__)


def fails():
    """doc"""

    return missing_name


try:
    fails()
except NameError:
    print(traceback.format_exc().splitlines()[-1])
del counter
global_name = 1


def deletes():
    global global_name
    del global_name


deletes()
print("global_name" in globals(), "counter" in globals())
