"""The snapshot serves before the configuration is read, unless a variable or a flag says otherwise."""

import os
import sys
from collections.abc import Iterator

import pytest

from trainer import startup
from trainer_boot import layers, snapshot
from trainer_boot.layers import Note


class Calls:
    """What was asked of the snapshot."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.served: list[dict[str, str]] = []
        self.note: Note | None = None
        monkeypatch.setattr(snapshot, "serve", self.serve)
        monkeypatch.setattr(snapshot, "going_on", lambda node_local: self.note)

    def serve(self, check: str = "fast", **options: str) -> Note:
        self.served.append({"check": check, **options})
        return {"layer": "snapshot", "state": "on", "why": ""}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    yield Calls(monkeypatch)
    snapshot.withdraw()


@pytest.mark.parametrize(
    ("words", "environ", "times"),
    [
        (["run.toml", "--run.steps", "2"], {"TRAINER_RUN_STEPS": "2"}, 1),
        (["run.toml", "--start.layers=[]"], {}, 0),
        (["run.toml", "--start.check", "full"], {}, 0),
        (["run.toml"], {"TRAINER_START_LAYERS": "gc"}, 0),
        (["run.toml"], {"TRAINER_START_NODE_LOCAL": "off"}, 0),
    ],
)
def test_what_comes_before_the_run_file_decides(
    calls: Calls, words: list[str], environ: dict[str, str], times: int
) -> None:
    startup.serve_early(words, environ)
    assert len(calls.served) == times


def test_what_serves_already_goes_on(calls: Calls) -> None:
    calls.note = {"layer": "snapshot", "state": "on", "why": "", "modules": 3}
    assert calls.note in layers.put_on(["snapshot"])
    assert calls.served == []


def test_a_full_check_is_made_even_so(calls: Calls) -> None:
    calls.note = {"layer": "snapshot", "state": "on", "why": "", "modules": 3}
    layers.put_on(["snapshot"], "full", "off")
    assert calls.served == [{"check": "full", "node_local": "off"}]


def test_a_run_file_without_the_layer_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []
    monkeypatch.setattr(snapshot, "pause", lambda: ended.append(True))
    notes = layers.put_on([])
    assert ended == [True]
    assert {note["state"] for note in notes} == {"off"}


def test_it_serves_this_process_only_for_what_it_was_asked(tmp_path: os.PathLike[str]) -> None:
    snapshot.serve(cache=str(tmp_path), node_local="off")
    assert snapshot.going_on("off") is None  # there is none
    assert not any(type(finder).__name__ == "SnapshotFinder" for finder in sys.meta_path)
    snapshot.withdraw()
