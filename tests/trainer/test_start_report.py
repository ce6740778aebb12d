"""Where the time of a start goes, and the settings of the start."""

import gc
import json
import shutil
import subprocess
import sys
import time
import timeit
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.beds.runs import flags, losses, train_here, trainer
from trainer import start_calls, start_report, startup
from trainer.config import resolve
from trainer.errors import UserError
from trainer.launch import comm
from trainer.launch.detect import World
from trainer.refuse import check_layers
from trainer_boot import report, snapshot

ALONE = World(rank=0, local_rank=0, world_size=1, local_world_size=1, launcher="none")


@pytest.fixture(autouse=True)
def fresh_marks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(report, "_marks", [])
    monkeypatch.setattr(report, "_origin", 0)
    monkeypatch.setattr(report, "_begun", False)
    monkeypatch.setenv("TRAINER_SNAPSHOT_DIR", str(tmp_path / "snapshots"))


def read(folder: Path) -> Any:
    return json.loads((folder / "start" / "rank-00000.json").read_text())


def test_phases_follow_one_another_from_the_start_of_the_process() -> None:
    report.begin()
    report.mark("one")
    report.mark("two")
    found = report.phases()
    assert [name for name, _, _ in found] == ["interpreter, config", "one", "two"]
    assert [begin for _, begin, _ in found[1:]] == [end for _, _, end in found[:-1]]
    assert all(begin <= end <= time.monotonic_ns() for _, begin, end in found)


def test_the_start_of_the_process_is_known_to_a_clock_tick() -> None:
    script = "from trainer_boot import report; print(report.process_start_ns())"
    before = time.monotonic_ns()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    # a tick is 10 ms; it may have begun before the process
    assert before - 20_000_000 < int(done.stdout) < time.monotonic_ns()


def test_earlier_marks_tell_interpreter_and_bundle_apart() -> None:
    report.mark("interpreter")
    report.mark("bundle")
    report.begin()
    assert [name for name, _, _ in report.phases()] == ["interpreter", "bundle", "config"]


def test_a_second_run_in_a_process_counts_from_its_own_beginning() -> None:
    report.begin()
    report.mark("first run")
    since = time.monotonic_ns()
    report.begin()
    found = report.phases()
    assert len(found) == 1
    assert since <= found[0][1] <= found[0][2]


def test_marks_of_the_process_that_forked_this_one_do_not_count() -> None:
    report._marks.append(("of the parent", 1))
    report.begin()
    report.mark("own")
    assert [name for name, _, _ in report.phases()] == ["config", "own"]


def test_a_mark_costs_less_than_a_microsecond() -> None:
    assert min(timeit.repeat(lambda: report.mark("x"), number=1000, repeat=20)) / 1000 < 1e-6


def test_a_run_leaves_a_report_of_its_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    since = time.monotonic_ns()
    assert train_here(tmp_path, "--start.layers", "") == 0
    found = read(tmp_path / "run")
    names = [phase["name"] for phase in found["phases"]]
    assert names[0] == "interpreter, config"
    assert names[-1] == "first update"
    order = ["data", "layers", "torch", "process group", "model", "optimizer", "first update"]
    assert [name for name in names if name in order] == order
    assert found["phases"][0]["begin"] == 0
    assert found["phases"][-1]["end"] == found["seconds"]
    assert sum(phase["end"] - phase["begin"] for phase in found["phases"]) == pytest.approx(found["seconds"])
    assert found["started_ns"] < since
    assert found["started"] + found["seconds"] == pytest.approx(time.time(), abs=60)
    assert (found["rank"], found["world_size"]) == (0, 1)
    assert found["modules"]["all"] > found["modules"]["torch"] > 100
    assert "start:" not in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / "run" / "start").iterdir()) == ["rank-00000.json"]


def test_the_report_is_shown_and_drawn_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train_here(tmp_path, "--start.layers", "", "--start.report", "true") == 0
    told = capsys.readouterr().err
    assert "s to the end of the first update" in told
    assert "  first update " in told
    assert "layer gc: off (not asked for)" in told
    root = ElementTree.parse(tmp_path / "run" / "start" / "timeline.svg").getroot()
    assert root.tag.endswith("svg")
    titles = [element.text or "" for element in root.iter() if element.tag.endswith("title")]
    assert any("rank 0" in title and "first update" in title for title in titles)


def test_a_report_that_cannot_be_written_does_not_end_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "start").touch()
    assert train_here(tmp_path, "--start.layers", "", "--start.report", "true") == 0
    told = capsys.readouterr().err
    assert "no start report: " in told
    assert "start: no rank left a report" in told


def made(rank: int, count: int, started: float, seconds: float, **more: Any) -> start_report.Report:
    phases = [
        {"name": "torch <import>", "begin": 0.0, "end": seconds / 2},
        {"name": "first update", "begin": seconds / 2, "end": seconds},
    ]
    same = {"rank": rank, "world_size": count, "host": "here", "started": started, "seconds": seconds, "layers": []}
    return {**same, "phases": phases, **more}


def test_the_rank_that_was_last_is_named(tmp_path: Path) -> None:
    for each in (made(0, 3, 100.0, 2.0), made(1, 3, 101.5, 1.0)):
        start_report.write(tmp_path, each)
    start_report.write(tmp_path, made(7, 8, 50.0, 9.0))  # of an earlier start on more ranks
    reports = start_report.read(tmp_path)
    assert [each["rank"] for each in reports] == [0, 1]
    lines = start_report.table(reports)
    assert lines[0] == "start: 1.00 s to the end of the first update; rank 1 of 3 on here was last"
    assert lines[1] == "  without reports: rank 2"
    assert lines[2].split() == ["torch", "<import>", "0.500", "s", "50.0", "%"]


def test_layers_tell_their_facts_in_one_line() -> None:
    parts = [{"name": "a", "state": "on"}, {"name": "b", "state": "aside"}, {"name": "c", "state": "on"}]
    note = {"layer": "overlays", "state": "on", "why": "so", "overlays": parts, "modules": 5, "path": "/x"}
    lines = start_report.table([made(0, 1, 0.0, 1.0, layers=[note])])
    assert lines[-1] == "  layer overlays: on (so; 2 overlays on, 1 overlays skipped, modules 5)"


def test_the_timeline_of_many_ranks_shows_the_slowest() -> None:
    reports = [made(rank, 100, 10.0, 1.0 + rank / 100) for rank in range(100)]
    drawn = start_report.timeline(reports)
    assert "the 64 slowest of 100 ranks" in drawn
    texts = [element.text for element in ElementTree.fromstring(drawn).iter() if element.tag.endswith("text")]
    assert [text for text in texts if text and text.startswith("rank ")] == [f"rank {n}" for n in range(36, 100)]
    ElementTree.fromstring(start_report.timeline([]))


def test_a_layer_that_there_is_not_is_refused_by_its_nearest(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        train_here(tmp_path, "--start.layers", "gc,snapshots")
    assert caught.value.status == 2
    assert "'snapshots'" in caught.value.what
    assert "Did you mean 'snapshot'?" in caught.value.fix
    assert not (tmp_path / "run").exists()
    check_layers(list(startup.layers()))


@pytest.mark.parametrize("text", ["", "[]"])
def test_an_empty_variable_asks_for_a_plain_start(text: str) -> None:
    assert resolve(None, [], {"TRAINER_START_LAYERS": text}).config.start.layers == []
    assert resolve(None, [("start.layers", text)], {}).config.start.layers == []


def test_a_plain_start_changes_nothing_of_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINER_START_LAYERS", "")
    finders, frozen = list(sys.meta_path), gc.get_freeze_count()
    assert train_here(tmp_path) == 0
    assert (sys.meta_path, gc.isenabled(), gc.get_freeze_count()) == (finders, True, frozen)
    assert [note["state"] for note in read(tmp_path / "run")["layers"]] == ["off"] * len(startup.layers())
    assert not (tmp_path / "snapshots").exists()


def test_collection_goes_on_whether_the_run_does_or_not(tmp_path: Path) -> None:
    try:
        assert train_here(tmp_path, "--start.layers", "gc") == 0
        assert gc.isenabled()
        assert read(tmp_path / "run")["layers"][0]["state"] == "on"
        with pytest.raises(UserError):
            train_here(tmp_path, "--start.layers", "gc", model__build="tests.trainer.toy:NoModel")
        assert gc.isenabled()
    finally:
        gc.unfreeze()


def test_the_losses_are_those_of_a_plain_start(tmp_path: Path) -> None:
    try:
        assert train_here(tmp_path, "--start.layers", "", run__folder=str(tmp_path / "plain")) == 0
        assert train_here(tmp_path, "--start.layers", "gc") == 0
    finally:
        gc.unfreeze()
    assert losses(tmp_path / "run") == losses(tmp_path / "plain")


def test_a_snapshot_that_fails_is_told_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(seconds: float) -> dict[str, object]:
        raise MemoryError("none left")

    monkeypatch.setattr(snapshot, "record_if_missing", fails)
    assert startup.record_snapshot() == {"layer": "snapshot", "state": "aside", "why": "MemoryError: none left"}


def test_a_rank_of_many_waits_for_the_others_reports_only_if_they_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[bool] = []
    monkeypatch.setattr(comm, "barrier", lambda: waited.append(True))
    for show in ("false", "true"):
        settings = resolve("here", [("start.report", show)], {}, "").config.start
        start_report.Reporter(ALONE, tmp_path, [], settings)()
    assert waited == [True]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("ranks", [1, 2])
def test_calls_are_counted_on_request(tmp_path: Path, ranks: int) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    (tmp_path / "run.toml").touch()
    words = flags(run__folder="run", run__steps="1", start__calls="true")
    done = trainer("train", "run.toml", "--nproc", str(ranks), *words, cwd=tmp_path, TMPDIR=str(folder))
    assert done.returncode == 0, done.stderr
    calls = [json.loads(path.read_text())["calls"] for path in sorted((tmp_path / "run" / "start").glob("rank-*.json"))]
    assert len(calls) == ranks
    for found in calls:
        assert found["open"] > 100
        assert found["stat"] > found["getdents"] > 0
    assert "  system calls: stat " in done.stderr
    assert list(folder.iterdir()) == []


def test_calls_need_strace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="needs strace"):
        start_calls.trace(["true"])
