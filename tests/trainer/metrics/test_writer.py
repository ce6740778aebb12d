"""The metrics file: strict JSON, each step once and in order, whatever was killed before."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.checkpoint.helpers import mounted
from trainer.errors import UserError
from trainer.metrics.writer import Metrics, MetricsWriter, NullWriter

NAN, INFINITY = float("nan"), float("inf")


def refuse(constant: str) -> None:
    raise AssertionError(f"not JSON: {constant}")


def read(path: Path) -> list[dict[str, Any]]:
    """A reader as strict as RFC 8259, which also wants every line whole."""
    text = path.read_bytes().decode()
    assert text == "" or text.endswith("\n")
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def steps(path: Path) -> list[int]:
    return [record["step"] for record in read(path) if "event" not in record]


def fill(path: Path, first: int, last: int, resume_step: int | None = None) -> None:
    writer = MetricsWriter(path, resume_step)
    for step in range(first, last + 1):
        writer.write(step=step, loss=1 / step)
        if step % 5 == 0:
            writer.event("evaluation", step=step, loss=2.0)
    writer.close()


def test_values_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    before = round(time.time(), 3)
    writer = MetricsWriter(path, None)
    writer.write(step=1, loss=0.1 + 0.2, lr=1e-3, skipped=True, note='quote " and ünïcode\n', sizes=[1, 2])
    writer.event("resumed", step=1, ranks=2)
    writer.close()
    writer.close()
    found = read(path)
    assert before <= found[0].pop("time") <= found[1].pop("time") <= round(time.time(), 3)
    assert found == [
        {"step": 1, "loss": 0.1 + 0.2, "lr": 1e-3, "skipped": True, "note": 'quote " and ünïcode\n', "sizes": [1, 2]},
        {"event": "resumed", "step": 1, "ranks": 2},
    ]


def test_what_is_not_finite_is_null_and_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    writer = MetricsWriter(path, None)
    writer.write(step=1, loss=NAN, grad_norm=INFINITY, lr=0.5, groups={"a": -INFINITY, "b": 1.0}, each=[1.0, NAN])
    writer.write(step=2, loss=1.0)
    writer.close()
    first = read(path)[0]
    del first["time"]
    assert first == {
        "step": 1,
        "loss": None,
        "grad_norm": None,
        "lr": 0.5,
        "groups": {"a": None, "b": 1.0},
        "each": [1.0, None],
        "nonfinite": ["loss", "grad_norm", "groups.a", "each.1"],
    }
    assert "nonfinite" not in read(path)[1]


def test_steps_after_the_resumed_one_are_cut_and_done_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    fill(path, 1, 13)
    fill(path, 11, 20, resume_step=10)
    assert steps(path) == list(range(1, 21))
    assert [r["step"] for r in read(path) if "event" in r] == [5, 10, 15, 20]


@pytest.mark.parametrize("block", [7, 64, 1000, 1 << 16])
@pytest.mark.parametrize("resume_step", [1, 5, 9, 10, 12, 13])
def test_cutting_does_not_depend_on_where_blocks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, resume_step: int
) -> None:
    monkeypatch.setattr("trainer.metrics.writer._BLOCK_BYTES", block)
    path = tmp_path / "metrics.jsonl"
    fill(path, 1, 13)
    with open(path, "ab") as file:
        file.write(b'{"step": 14, "lo')
    MetricsWriter(path, resume_step).close()
    assert steps(path) == list(range(1, resume_step + 1))
    assert [r["step"] for r in read(path) if "event" in r] == list(range(5, resume_step + 1, 5))


@pytest.mark.parametrize(
    "torn", [b'{"step": 4, "loss": 1', b'{"step": 4, "loss": NaN}\n{"st', b"\n", b"garbage\n", bytes(300_000), b"[4]\n"]
)
def test_a_torn_end_is_cut_away(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    fill(path, 1, 3)
    with open(path, "ab") as file:
        file.write(torn)
    fill(path, 4, 6, resume_step=3)
    assert steps(path) == [1, 2, 3, 4, 5, 6]


def test_a_hole_larger_than_any_line_needs_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.metrics.writer._LONGEST_LINE", 1 << 17)
    path = tmp_path / "metrics.jsonl"
    fill(path, 1, 3)
    with open(path, "ab") as file:
        file.truncate(file.tell() + (1 << 24))
        file.write(b"\n")
    fill(path, 4, 5, resume_step=3)
    assert steps(path) == [1, 2, 3, 4, 5]
    assert path.stat().st_size < 1000


def test_steps_that_never_reached_the_disk_are_said_to_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    fill(path, 1, 3)
    fill(path, 9, 9, resume_step=8)
    told = next(record for record in read(path) if "event" in record)
    del told["time"]
    assert told == {"event": "missing", "step": 8, "first": 4, "last": 8}


@pytest.mark.parametrize("resume_step", [None, 0])
def test_starting_anew_keeps_the_former_numbers_aside(tmp_path: Path, resume_step: int | None) -> None:
    path = tmp_path / "metrics.jsonl"
    fill(path, 1, 3)
    fill(path, 1, 2, resume_step=resume_step)
    assert steps(path) == [1, 2]
    assert steps(tmp_path / "metrics.jsonl.old") == [1, 2, 3]


def test_lines_arrive_about_every_second_and_on_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.jsonl"
    writer = MetricsWriter(path, None)
    writer.write(step=1)
    assert steps(path) == []
    writer.flush(sync=True)
    assert steps(path) == [1]
    later = time.monotonic() + 2
    monkeypatch.setattr("trainer.metrics.writer.time.monotonic", lambda: later)
    writer.write(step=2)
    assert steps(path) == [1, 2]
    writer.close()


def test_one_flush_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = os.write

    def write(file: int, data: bytes) -> int:
        calls.append(data)
        return real(file, data)

    writer = MetricsWriter(tmp_path / "metrics.jsonl", None)
    for step in range(1, 1000):
        writer.write(step=step, loss=1.0)
    monkeypatch.setattr(os, "write", write)
    writer.close()
    assert len(calls) == 1
    assert calls[0].count(b"\n") == 999


def test_a_step_out_of_order_is_our_own_mistake(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path / "metrics.jsonl", None)
    writer.write(step=1)
    with pytest.raises(AssertionError):
        writer.write(step=3)
    writer.close()


def test_writing_is_cheap(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path / "metrics.jsonl", None)
    best, step = 1.0, 0
    for _ in range(10):
        begin = time.thread_time()
        for _ in range(500):
            step += 1
            writer.write(step=step, epoch=0, loss=2.345678, grad_norm=1.23, lr=1e-3, samples=12345, seconds=0.001)
        best = min(best, (time.thread_time() - begin) / 500)
    writer.close()
    assert best < 20e-6  # 5 microseconds on an idle core


def test_other_ranks_write_nothing(tmp_path: Path) -> None:
    writer: Metrics = NullWriter()
    writer.write(step=1, loss=1.0)
    writer.event("resumed", step=0)
    writer.flush()
    writer.close()
    both: list[Metrics] = [writer, MetricsWriter(tmp_path / "metrics.jsonl", None)]
    both[1].close()


def test_a_full_disk_is_loud_and_leaves_whole_lines(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=64k") as folder:
        path = folder / "metrics.jsonl"
        writer = MetricsWriter(path, None)
        for step in range(1, 3000):
            writer.write(step=step, loss=1.0)
            if step == 100:
                writer.flush()
        with pytest.raises(UserError, match=f"cannot write metrics to {path}: No space left on device") as raised:
            writer.flush()
        assert "--run.folder" in raised.value.fix
        writer.close()
        assert steps(path) == list(range(1, 101))


def test_a_file_that_is_removed_during_the_run_is_loud(tmp_path: Path) -> None:
    writer = MetricsWriter(tmp_path / "metrics.jsonl", None)
    writer.write(step=1, loss=1.0)
    writer.flush()
    (tmp_path / "metrics.jsonl").unlink()
    writer.write(step=2, loss=1.0)
    with pytest.raises(UserError, match=r"metrics\.jsonl: it was removed during the run"):
        writer.flush()
    writer.close()


def test_a_folder_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write metrics"):
        MetricsWriter(tmp_path / "file" / "metrics.jsonl", None)
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(UserError, match="cannot write metrics"):
        MetricsWriter(tmp_path / "metrics.jsonl", 5)


# Trains without end: a checkpoint, told after the flush that belongs before it, every ten updates.
RUN = """
import sys
from pathlib import Path
from trainer.metrics.writer import MetricsWriter
path, start = Path(sys.argv[1]), int(sys.argv[2])
writer = MetricsWriter(path, start)
step = start
while True:
    step += 1
    writer.write(step=step, loss=float("nan") if step % 7 == 0 else 1.0)
    if step % 3 == 0:
        writer.flush()
    if step % 10 == 0:
        writer.flush(sync=True)
        print(step, flush=True)
"""


def test_killed_and_resumed_each_step_stands_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    saved = 0
    for round_number in range(4):
        run = subprocess.Popen([sys.executable, "-c", RUN, str(path), str(saved)], stdout=subprocess.PIPE, text=True)
        assert run.stdout is not None
        first = run.stdout.readline()
        time.sleep(0.01 * round_number)
        run.send_signal(signal.SIGKILL)
        told = (first + run.stdout.read()).split()
        run.stdout.close()
        run.wait()
        saved = int(told[-1])
        with open(path, "ab") as file:
            file.write(b'{"step": 99')  # a kill in the middle of a write is rare: made sure of
    writer = MetricsWriter(path, saved)
    writer.write(step=saved + 1, loss=1.0)
    writer.close()
    assert steps(path) == list(range(1, saved + 2))
