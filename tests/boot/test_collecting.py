"""Collection is off while modules are imported, and what was made by then is never looked through again."""

import atexit
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer_boot import collecting


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """Collection as it was, and nothing frozen, whatever a test does."""
    was_on = gc.isenabled()
    yield
    collecting.resume()
    atexit.unregister(gc.unfreeze)
    gc.unfreeze()
    if was_on:
        gc.enable()
    else:
        gc.disable()


def test_off_between_the_two() -> None:
    gc.enable()
    assert collecting.pause()["state"] == "on"
    assert not gc.isenabled()
    collecting.resume()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0


def test_off_stays_off_where_it_was_off() -> None:
    gc.disable()
    note = collecting.pause()
    assert (note["layer"], note["state"]) == ("gc", "aside")
    collecting.resume()
    assert not gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_twice_and_in_any_order() -> None:
    gc.enable()
    collecting.resume()
    assert gc.isenabled()
    collecting.pause()
    assert collecting.pause()["state"] == "on"
    collecting.resume()
    collecting.resume()
    assert gc.isenabled()


def test_new_garbage_is_still_found() -> None:
    gc.enable()
    collecting.pause()
    collecting.resume()

    class Node:
        pass

    node = Node()
    node.itself = node  # type: ignore[attr-defined]  # a cycle
    del node
    assert gc.collect() > 0


def test_the_end_of_the_process_is_as_ever() -> None:
    """An object of the time of the imports, in a cycle, is finalized."""
    text = (
        "from trainer_boot import collecting\n"
        "class Late:\n    def __del__(self): print('finalized')\n"
        "collecting.pause()\nlate = Late()\nlate.itself = late\ndel late\ncollecting.resume()\nprint('ends')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ends", "finalized"]
