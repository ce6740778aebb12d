#!/usr/bin/env python3
# -*- coding: latin-1 -*-
"""Stored as latin-1: café."""
from __future__ import annotations

import os
import sys

if sys.platform == "nowhere": pass


class Later:
    """only a docstring"""


class Problem(Exception):
    """only a docstring"""


class Several:
    """a docstring"""
    "another string, which must not become one"
    pass


def stub():
    """only a docstring"""


def dots(): ...


class Forward:
    def method(self) -> NotThere:
        """the annotation names nothing"""

    async def wait(self):
        """a coroutine"""


def generator():
    """nothing is yielded"""
    return
    yield


def blocks(count):
    for _ in range(count):
        """a string as a body"""
    else:
        pass
    while False: "never"
    with open(os.devnull): """body"""
    try: "tried"
    except Exception: "caught"
    finally: "done"
    if count: 1
    elif count > 5: "five"
    else: "else"
    match count:
        case 1: "one"
        case _: ...
    return None


async def stream():
    "text"
    if False: yield

NAME = "café"
if __name__ == "__main__":
    import asyncio
    import inspect

    print(stub(), dots(), list(generator()), blocks(2), Forward.method.__annotations__)
    print(inspect.iscoroutinefunction(Forward().wait), inspect.isasyncgenfunction(stream), asyncio.run(Forward().wait()))
    print(ascii(NAME), isinstance(Problem("x"), Exception), Later.__name__, vars(Several)["__doc__"] in (None, "a " + "docstring"))
