"""Each pass by example: what it changes, what it leaves, and that its promise is held against it."""

import ast

import pytest

from build.minify.compare import difference
from build.minify.passes import PASSES
from build.minify.transform import BrokenPromise, decode, transform


def after(name: str, text: str) -> str:
    return ast.unparse(transform(text.encode(), (name,)))


def same(text: str) -> str:
    return ast.unparse(ast.parse(text))


FROM_TYPING = "from typing import TYPE_CHECKING\n"
CHANGES = [
    ("docstrings", "'doc'\nx = 1", "x = 1"),
    ("docstrings", "'doc'", ""),
    ("docstrings", "def f():\n 'doc'", "def f(): pass"),
    ("docstrings", "async def f():\n 'doc'\n return 1", "async def f(): return 1"),
    ("docstrings", "class A:\n 'doc'\n x: int", "class A:\n x: int"),
    ("docstrings", "def f():\n 'doc'\n 'would be the next'\n return 1", "def f(): return 1"),
    ("docstrings", "'doc'\nfrom __future__ import annotations", "from __future__ import annotations"),
    ("docstrings", "class A:\n @property\n def f(self):\n  'doc'", "class A:\n @property\n def f(self): pass"),
    (
        "docstrings",
        "import functools\n@functools.lru_cache(1)\ndef f():\n 'doc'",
        "import functools\n@functools.lru_cache(1)\ndef f(): pass",
    ),
    ("literals", "x = 1\n'what x is'\n...\n3\n", "x = 1"),
    ("literals", "for _ in y:\n 'body'", "for _ in y: pass"),
    ("literals", "def f():\n 'doc'\n 'more'", "def f():\n 'doc'"),
    ("literals", "def f():\n 1\n 'no docstring'\n return 2", "def f(): return 2"),
    ("literals", "try: 'a'\nfinally: 'b'", "try: pass\nfinally: pass"),
    ("returns", "def f(): return None", "def f(): return"),
    ("fillers", "class A:\n x = 1\n pass", "class A:\n x = 1"),
    ("fillers", "def f():\n pass\n pass", "def f(): pass"),
    ("fillers", "pass", ""),
    (
        "type_checking",
        FROM_TYPING + "if TYPE_CHECKING: import a",
        FROM_TYPING,
    ),
    ("type_checking", "import typing as t\nif t.TYPE_CHECKING: import a\nelse: a = 1", "import typing as t\na = 1"),
    ("type_checking", "import typing\nif not typing.TYPE_CHECKING: a = 1\nelse: import a", "import typing\na = 1"),
    (
        "type_checking",
        FROM_TYPING + "if x: y\nelif TYPE_CHECKING: import a\nelse: z",
        FROM_TYPING + "if x: y\nelse: z",
    ),
    (
        "type_checking",
        FROM_TYPING + "if x: y\nelif TYPE_CHECKING: import a",
        FROM_TYPING + "if x: y",
    ),
    (
        "type_checking",
        FROM_TYPING + "try: y\nfinally:\n if TYPE_CHECKING: import a",
        FROM_TYPING + "try: y\nfinally: pass",
    ),
    (
        "type_checking",
        FROM_TYPING + "class A:\n if TYPE_CHECKING:\n  def f(self) -> int: ...",
        FROM_TYPING + "class A: pass",
    ),
    (
        "type_checking",
        FROM_TYPING + "def f():\n if TYPE_CHECKING: g()\n return 1",
        FROM_TYPING + "def f(): return 1",
    ),
    (
        "type_checking",
        FROM_TYPING + "if TYPE_CHECKING:\n if TYPE_CHECKING: a\nelse:\n if TYPE_CHECKING: b\n else: c",
        FROM_TYPING + "c",
    ),
    ("type_checking", "TYPE_CHECKING = False\nif TYPE_CHECKING: import a", "TYPE_CHECKING = False"),
]
CHANGES += [
    ("signatures", "def f(a: int, /, b: 'x' = 1, *c: d, e: f, **g: h) -> i: j", "def f(a, /, b=1, *c, e, **g): j"),
    ("signatures", "async def f(a: int) -> 'x':\n def g(b: int): ...", "async def f(a):\n def g(b): ..."),
    (
        "signatures",
        "class A:\n x: int\n @property\n def f(self) -> int: y: int",
        "class A:\n x: int\n @property\n def f(self): y: int",
    ),
]


@pytest.mark.parametrize(("name", "text", "expected"), CHANGES)
def test_a_pass_changes(name: str, text: str, expected: str) -> None:
    assert after(name, text) == same(expected)


KEPT = [
    ("docstrings", "def f():\n f'no {doc}'"),
    ("docstrings", "def f():\n b'no doc'"),
    ("docstrings", "class A:\n 'no {doc}'.format(doc=1)"),
    ("docstrings", "@command\ndef f():\n 'a help text, perhaps'"),
    ("docstrings", "@dataclass\nclass A:\n 'spares a signature'\n x: int"),
    ("docstrings", "class A(metaclass=M):\n 'doc'"),
    ("docstrings", "for _ in x:\n 'no docstring'"),
    ("literals", "def f(): ..."),
    ("literals", "def f():\n 'doc'"),
    ("literals", "f'{effect()}'"),
    ("literals", "x\n-1"),
    ("returns", "def f(): return 0"),
    ("fillers", "class A:\n pass\n 'must not become a docstring'"),
    ("type_checking", "if TYPE_CHECKING: import a"),
    ("type_checking", "TYPE_CHECKING = 0\nif TYPE_CHECKING: import a"),
    ("type_checking", "TYPE_CHECKING = False\nTYPE_CHECKING = True\nif TYPE_CHECKING: import a"),
    ("type_checking", "def f():\n TYPE_CHECKING = False\n if TYPE_CHECKING: a"),
    ("type_checking", "TYPE_CHECKING = False\ndef f():\n global TYPE_CHECKING\nif TYPE_CHECKING: import a"),
    ("type_checking", "if TYPE_CHECKING: import a\n" + FROM_TYPING),
    ("type_checking", "from settings import TYPE_CHECKING\nif TYPE_CHECKING: import a"),
    ("type_checking", "from .typing import TYPE_CHECKING\nif TYPE_CHECKING: import a"),
    ("type_checking", "try:\n from typing import TYPE_CHECKING\nexcept ImportError: pass\nif TYPE_CHECKING: import a"),
    ("type_checking", FROM_TYPING + "TYPE_CHECKING = True\nif TYPE_CHECKING: import a"),
    ("type_checking", FROM_TYPING + "from x import *\nif TYPE_CHECKING: import a"),
    ("type_checking", FROM_TYPING + "globals()['TYPE_CHECKING'] = 1\nif TYPE_CHECKING: import a"),
    ("type_checking", FROM_TYPING + "def f(TYPE_CHECKING):\n if TYPE_CHECKING: a"),
    ("type_checking", FROM_TYPING + "def f():\n if TYPE_CHECKING: import a\n return a"),
    ("type_checking", FROM_TYPING + "def f():\n if TYPE_CHECKING: yield\n return 1"),
    ("type_checking", FROM_TYPING + "class A:\n if TYPE_CHECKING: x: int"),
    ("type_checking", FROM_TYPING + "class A:\n if TYPE_CHECKING: a\n 'must not become a docstring'"),
    ("type_checking", FROM_TYPING + "if TYPE_CHECKING or x: import a"),
    ("type_checking", "import typing\ntyping.TYPE_CHECKING = 1\nif typing.TYPE_CHECKING: import a"),
    ("type_checking", "import typing\nfrom x import typing\nif typing.TYPE_CHECKING: import a"),
]
KEPT += [
    ("signatures", "x: int = 1\nclass A:\n y: int"),
    ("signatures", "@register\ndef f(a: int) -> int: ..."),
    ("signatures", "def f(a: (b := int)) -> int: ..."),
    ("signatures", "def f(a) -> (yield): ..."),
]


@pytest.mark.parametrize(("name", "text"), KEPT)
def test_a_pass_leaves(name: str, text: str) -> None:
    assert after(name, text) == same(text)


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_is_held_to_its_promise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the pass, a statement with an effect must not go, and none may come or change."""
    text = "class A:\n 'doc'\n def f(self):\n  'doc'\n  effect()\n  return 1\n"

    def removes(module: ast.Module) -> None:
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef):
                del node.body[1]

    def adds(module: ast.Module) -> None:
        module.body.append(ast.parse("more()").body[0])

    def changes(module: ast.Module) -> None:
        for node in ast.walk(module):
            if isinstance(node, ast.Return):
                node.value = ast.Constant(2)

    for broken in (removes, adds, changes):
        monkeypatch.setattr(PASSES[name], "apply", broken, raising=False)
        with pytest.raises(BrokenPromise, match=name):
            transform(text.encode(), (name,))


@pytest.mark.parametrize(
    ("name", "before", "wrong"),
    [
        ("docstrings", "x = 1\n'no docstring'", "x = 1"),
        ("docstrings", "def f():\n 'doc'\n x", "def f():\n x\n pass"),
        ("docstrings", "def f():\n x\n 'text'", "def f():\n 'text'"),
        ("literals", "def f():\n 'doc'\n x", "def f():\n x"),
        ("fillers", "def f():\n pass\n 'text'", "def f():\n 'text'"),
        ("type_checking", "if CHECKED: a\nelse: b", "b"),
        ("type_checking", "if TYPE_CHECKING: a\nelse: b", "a"),
        ("returns", "def f(): return 0", "def f(): return"),
    ],
)
def test_near_misses_break_the_promise(name: str, before: str, wrong: str) -> None:
    assert difference(ast.parse(before), ast.parse(wrong), PASSES[name]) is not None


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("x = 0.0", "x = -0.0"),
        ("x = 1", "x = True"),
        ("x = 1", "x = 1.0"),
        ("x = 'a'", "x = b'a'"),
        ("f(a)", "f(a, b)"),
    ],
)
def test_values_that_only_look_equal_differ(left: str, right: str) -> None:
    assert difference(ast.parse(left), ast.parse(right)) is not None


def test_values_that_are_equal_do_not_differ() -> None:
    assert difference(ast.parse("x = u'a', 1e999, 1e999 - 1e999"), ast.parse("x=('a',2e999,3e999-1e999)")) is None


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (b"# coding: latin-1\nx = '\xe9'", "# coding: latin-1\nx = 'é'"),
        (b"\xef\xbb\xbfx\r\ny\rz", "x\ny\nz"),
        ("x = 'é'".encode(), "x = 'é'"),
    ],
)
def test_sources_are_decoded_as_python_does(source: bytes, text: str) -> None:
    assert decode(source) == text
