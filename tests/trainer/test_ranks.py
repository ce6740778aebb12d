"""Runs over several real processes: the same numbers, one failure ends all, signals reach all."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.beds.runs import (
    assert_same_weights,
    command,
    environ,
    flags,
    losses,
    metrics,
    train_here,
    trainer,
    warm_trainer,
)


def start(folder: Path, *arguments: str, **changes: str) -> list[str]:
    """Arguments of `trainer train` over an empty run file."""
    (folder / "run.toml").touch()
    return ["train", "run.toml", *flags(**{"run__folder": "run", **changes}), *arguments]


def ranks_of(pid: int, count: int, seconds: float = 60) -> list[int]:
    """The ranks' process ids, in the order of their ranks, once all are there."""
    found: dict[int, int] = {}
    end = time.monotonic() + seconds
    while time.monotonic() < end and len(found) < count:
        listed = subprocess.run(
            ["ps", "-o", "pid=,comm=", "--ppid", str(pid)], capture_output=True, text=True, check=False
        )
        for child, rank in re.findall(r"(\d+) rank (\d+)", listed.stdout):
            found[int(rank)] = int(child)
        time.sleep(0.02)
    return [found[rank] for rank in range(count)]


def wait_for_updates(run: Path, least: int, process: "subprocess.Popen[str]", seconds: float = 90) -> None:
    """Until the metrics show that `least` updates are done."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()
        if (run / "metrics.jsonl").exists() and len(metrics(run)) >= least:
            return
        time.sleep(0.05)
    raise AssertionError("the run makes no progress")


def test_two_ranks_and_torchrun_train_like_one(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    assert train_here(tmp_path, run__folder=str(tmp_path / "one" / "run"), batch__micro="1", optim__clip="0.2") == 0
    same = {"batch__micro": "1", "optim__clip": "0.2"}
    done = trainer(*start(tmp_path, "--nproc", "2", **same), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("trained: 6 updates") == 1
    expected = losses(tmp_path / "one" / "run")
    assert losses(tmp_path / "run") == pytest.approx(expected, rel=1e-12)
    torchrun = subprocess.run(
        [
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d",
            "--rdzv-endpoint", "127.0.0.1:0", "-m", "trainer", *start(tmp_path, run__folder="torchrun", **same),
        ],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100,
        env=environ(TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1", OMP_NUM_THREADS="1"),
    )  # fmt: skip
    assert torchrun.returncode == 0, torchrun.stderr
    assert losses(tmp_path / "torchrun") == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("fault", "told"), [("raise", "planned fault at item 3"), ("kill", "SIGKILL")])
def test_a_failing_rank_ends_the_run_and_is_named_last(tmp_path: Path, fault: str, told: str) -> None:
    arguments = start(tmp_path, "--nproc", "2", data__dataset="tests.trainer.toy_data:Faulty", checkpoint__every="1")
    before = time.monotonic()
    done = warm_trainer(*arguments, cwd=tmp_path, FAULT=fault)
    assert time.monotonic() - before < 60
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert "rank 1" in errors[0]
    assert told in errors[0]
    assert not list((tmp_path / "run" / "checkpoints").glob("step-*[3-9]"))


def test_a_rank_that_fails_in_a_loader_worker_is_named_too(tmp_path: Path) -> None:
    arguments = start(tmp_path, "--nproc", "2", data__dataset="tests.trainer.toy_data:Faulty", data__workers="1")
    done = warm_trainer(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert "rank 1" in errors[0]


def test_a_restart_goes_on_from_the_last_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    assert train_here(tmp_path, run__folder=str(tmp_path / "one" / "run")) == 0
    done = warm_trainer(
        *start(tmp_path, "--nproc", "2", data__dataset="tests.trainer.toy_data:Faulty", checkpoint__every="1",
               fault__max_restarts="1"),
        cwd=tmp_path, ONCE=str(tmp_path / "mark"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "resumed from" in done.stderr
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "one" / "run"), rel=1e-12)


@pytest.mark.parametrize("whom", ["rank 1", "parent twice"])
def test_a_signal_stops_all_ranks_after_the_same_update(tmp_path: Path, whom: str) -> None:
    slow = {"data__options.pause": "0.04", "data__options.count": "96"}
    if whom == "rank 1":
        assert train_here(tmp_path, run__folder=str(tmp_path / "whole"), **{"data__options.count": "96"}) == 0
    process = subprocess.Popen(
        command(*start(tmp_path, "--nproc", "2", **slow)), cwd=tmp_path, env=environ(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        wait_for_updates(tmp_path / "run", 3, process)
        if whom == "rank 1":
            os.kill(ranks_of(process.pid, 2)[1], signal.SIGTERM)
        else:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
            process.send_signal(signal.SIGTERM)
        printed, told = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 75, told
    assert printed.count("stopped at step") == 1
    rows = metrics(tmp_path / "run")
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    assert newest.name == f"step-{rows[-1]['step']:08}"
    assert len(rows) < 24
    if whom == "rank 1":
        again = warm_trainer(*start(tmp_path, "--nproc", "2", **{"data__options.count": "96"}), cwd=tmp_path)
        assert again.returncode == 0, again.stderr
        assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "whole"), rel=1e-12)


def test_a_rank_that_is_asked_to_stop_leaves_the_last_checkpoint_to_rank_0(tmp_path: Path) -> None:
    slow = {"data__dataset": "tests.trainer.toy_endings:Sequences", "fault__max_restarts": "1"}
    process = subprocess.Popen(
        command(*start(tmp_path, "--nproc", "2", **slow)), cwd=tmp_path, env=environ(), text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        end = time.monotonic() + 60
        while not (tmp_path / "run" / "committing").exists() and time.monotonic() < end:
            time.sleep(0.02)
        os.kill(ranks_of(process.pid, 2)[1], signal.SIGTERM)
        _, told = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 75, told
    assert "the trained model is saved in run" in told and "restart" not in told
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000006"]


def test_a_batch_that_two_ranks_do_not_share_is_refused_before_any_process_starts(tmp_path: Path) -> None:
    done = trainer(*start(tmp_path, "--nproc", "2", batch__size="7"), cwd=tmp_path)
    assert done.returncode == 2
    assert "7 samples is not a multiple of 2 data-parallel ranks" in done.stderr
    assert not (tmp_path / "run").exists()


def test_resuming_on_another_number_of_ranks_keeps_losses(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    assert train_here(tmp_path, run__folder=str(tmp_path / "one"), optim__momentum="0.9") == 0
    assert train_here(tmp_path, optim__momentum="0.9", **{"data__options.stop_at": "10"}) == 75
    done = warm_trainer(*start(tmp_path, "--nproc", "2", optim__momentum="0.9"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "saved by 1 ranks, resumed by 2" in done.stderr
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "one"), rel=1e-12)


def test_the_same_weights_come_from_any_start(tmp_path: Path) -> None:
    """The seed alone decides the weights; the learning rate is too small to move them."""
    assert train_here(tmp_path, run__folder=str(tmp_path / "one"), optim__lr="1e-300", run__steps="1") == 0
    done = warm_trainer(*start(tmp_path, "--nproc", "2", optim__lr="1e-300", run__steps="1"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert_same_weights(tmp_path / "one", tmp_path / "run")
