"""Entry points from the snapshot: the same as from the files, which are read no more."""

from pathlib import Path
from typing import Any

import pytest

from tests.boot import test_snapshot as bed
from tests.boot.test_snapshot import Environment, told, why
from trainer_boot import snapshot_entry_points

environment, made = bed.environment, bed.made

ASK = """
    import io, json, sys
    from trainer_boot import snapshot
    if sys.argv[1] == "served":
        snapshot.serve()
    import importlib.metadata
    opened = []
    plain = io.open
    def watched(path, *arguments, **options):
        opened.append(str(path))
        return plain(path, *arguments, **options)
    io.open = watched
    found = importlib.metadata.entry_points(group="console_scripts")
    points = sorted([point.group, point.name, point.value, point.dist.name] for point in found)
    scripts = sorted(point.name for point in importlib.metadata.distribution("numpy").entry_points)
    texts = importlib.metadata.distribution("numpy").read_text("METADATA")[:8], importlib.metadata.version("numpy")
    made = snapshot.record_if_missing(100)["made"]
    read = [path for path in opened if path.endswith("entry_points.txt")]
    print(json.dumps([[points, scripts, texts], len(read), made]))
    """


def ask(cache: Path, way: str) -> list[Any]:
    found: list[Any] = told(ASK, way, cache)
    return found


def test_they_are_the_same_without_a_look_at_the_files(tmp_path: Path) -> None:
    plain, read, _ = ask(tmp_path, "plain")
    assert read > 10
    first, read, made = ask(tmp_path, "served")
    assert (first, made) == (plain, True)
    assert read > 10
    again, read, _ = ask(tmp_path, "served")
    assert (again, read) == (plain, 0)


def test_what_is_recorded(environment: Environment) -> None:
    environment.write("one-1.dist-info/entry_points.txt", "[console_scripts]\nähm = snaptwo:main\n")
    environment.write("two-1.dist-info/RECORD", "")
    (environment.site / "three-1.dist-info/entry_points.txt").mkdir(parents=True)
    assert snapshot_entry_points.record([str(environment.site)]) == {
        f"{environment.site}/one-1.dist-info": "[console_scripts]\nähm = snaptwo:main\n",
        f"{environment.site}/two-1.dist-info": None,
    }


@pytest.mark.parametrize("text", ["[a]\nb = c\n", ""])
def test_the_full_check_sees_edited_ones(made: Environment, text: str) -> None:
    assert made.serve("full")["state"] == "on"
    made.write("one-1.dist-info/entry_points.txt", text)
    assert "entry points" in why(made.serve("full"))
