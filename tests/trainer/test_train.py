"""Whole runs in one process: resume, schedule, failures, what is left in the run folder."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.beds.runs import assert_same_weights, flags, losses, metrics, train_here, warm_trainer
from tests.trainer import toy_losses
from trainer.errors import UserError


@pytest.fixture(autouse=True)
def fresh_counts() -> None:
    toy_losses.reset()


def test_a_run_leaves_its_settings_metrics_and_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train_here(tmp_path, run__epochs="2", log__progress="lines") == 0
    rows = metrics(tmp_path / "run")
    assert len(rows) == 12
    assert rows[-1]["epoch"] == 1
    assert all(row["samples_per_second"] > 0 and abs(row["time"] - time.time()) < 100 for row in rows)
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert (tmp_path / "run" / "resolved.toml").is_file()
    assert [p.name for p in sorted((tmp_path / "run" / "checkpoints").iterdir())] == ["step-00000012"]
    printed, told = capsys.readouterr()
    header = [line.split(":")[0] for line in told.splitlines() if line.startswith(("model:", "data:", "run:"))]
    assert header == ["model", "data", "run"]
    assert f"run:   12 steps on 1 rank in {tmp_path / 'run'}" in told
    assert "trained: 12 updates" in printed
    assert "validation: loss" in printed
    assert str(tmp_path / "run") in printed


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_stopped_twice_equals_one_never_stopped(tmp_path: Path, workers: str) -> None:
    same = {"run__epochs": "3", "model__options.dropout": "0.3", "data__workers": workers}
    assert train_here(tmp_path, run__folder=str(tmp_path / "whole"), **same) == 0
    if workers == "0":
        # asks itself to stop in the middle of the third and, resumed, of the sixth update
        for _ in range(2):
            assert train_here(tmp_path, **same, **{"data__options.stop_at": "10"}) == 75
    else:
        assert train_here(tmp_path, **{**same, "run__steps": "18"}, checkpoint__every="7") == 0
        for late in ("step-00000014", "step-00000018"):
            remove(tmp_path / "run" / "checkpoints" / late)
    assert train_here(tmp_path, **same) == 0
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    assert_same_weights(tmp_path / "run", tmp_path / "whole")


def remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def test_a_finished_run_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train_here(tmp_path) == 0
    before = contents(tmp_path / "run")
    capsys.readouterr()
    assert train_here(tmp_path, log__progress="none") == 0  # a setting that changes no number
    assert contents(tmp_path / "run") == before
    told = capsys.readouterr()
    assert f"{tmp_path / 'run'} holds a finished run of 6 updates with these settings: nothing is left" in told.out
    assert "To train longer, set run.epochs to more than 1." in told.out
    assert told.err == ""


def contents(folder: Path) -> dict[Path, tuple[bytes, int]]:
    return {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


def test_a_finished_run_goes_on_when_more_updates_are_asked_for(tmp_path: Path) -> None:
    assert train_here(tmp_path) == 0
    assert train_here(tmp_path, run__epochs="2") == 0
    assert len(metrics(tmp_path / "run")) == 12


def test_resume_never_refuses_a_folder_that_holds_a_run(tmp_path: Path) -> None:
    assert train_here(tmp_path) == 0
    with pytest.raises(UserError, match="already holds a run"):
        train_here(tmp_path, run__resume="never")


def test_resume_must_refuses_a_new_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no checkpoint"):
        train_here(tmp_path, run__resume="must")


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    assert train_here(tmp_path) == 0
    with pytest.raises(UserError) as caught:
        train_here(tmp_path, **{"model__options.layers": "3"})
    assert caught.value.status == 2
    assert "blocks.2" in caught.value.what


def test_a_damaged_newest_checkpoint_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train_here(tmp_path, run__folder=str(tmp_path / "whole")) == 0
    assert train_here(tmp_path, checkpoint__every="2") == 0
    victim = tmp_path / "run" / "checkpoints" / "step-00000006" / "model.pt"
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 0xFF
    victim.write_bytes(data)
    assert train_here(tmp_path, checkpoint__every="2") == 0
    told = capsys.readouterr().err
    assert "passed over" in told
    assert "step-00000006" in told
    assert "resumed from" in told
    assert "step-00000004" in told
    assert_same_weights(tmp_path / "run", tmp_path / "whole")
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


def test_the_schedule_counts_applied_updates(tmp_path: Path) -> None:
    status = train_here(
        tmp_path,
        model__loss="tests.trainer.toy_losses:infinite_in_third_update",
        precision__compute="fp16",
        precision__loss_scale="1024",
        optim__lr="0.4",
        optim__warmup="4",
        batch__size="10",
        batch__micro="1",
        run__steps="8",
        **{"data__options.count": "80"},
    )
    assert status == 0
    rows = metrics(tmp_path / "run")
    rates = [None if row.get("skipped") else round(row["lr"], 6) for row in rows]
    assert rates == [0.1, 0.2, None, 0.3, 0.4, 0.4, 0.4, 0.4]
    assert [row["loss_scale"] for row in rows[:4]] == [1024.0, 1024.0, 512.0, 512.0]


def test_a_loss_that_is_not_a_number_ends_the_run_and_stays_visible(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"step 2: loss nan"):
        train_here(tmp_path, model__loss="tests.trainer.toy_losses:nan_in_second_update")
    rows = metrics(tmp_path / "run")
    assert rows[1]["loss"] is None
    assert "loss" in rows[1]["nonfinite"]


def test_or_is_skipped_on_request(tmp_path: Path) -> None:
    assert train_here(tmp_path, model__loss="tests.trainer.toy_losses:nan_in_second_update", fault__nan="skip") == 0
    found = losses(tmp_path / "run")
    assert math.isnan(found[1])
    assert not any(math.isnan(value) for value in found[2:])


def test_a_run_goes_on_with_the_tokens_it_began_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = {"data__dataset": "", "model__build": "", "model__loss": "", "data__sequence": "16", "model__layers": "1",
            "model__width": "16", "model__heads": "2", "data__holdout": "0", "run__steps": "2"}  # fmt: skip
    (tmp_path / "a.txt").write_text("some text to train on, " * 40)
    assert train_here(tmp_path, **text, data__text=str(tmp_path / "a.txt")) == 0
    (tmp_path / "a.txt").write_text("another text to train on, " * 40)
    text["run__steps"] = "4"
    assert train_here(tmp_path, **text, data__text=str(tmp_path / "a.txt")) == 0
    assert "goes on with the tokens prepared at its start" in capsys.readouterr().err
    assert len(losses(tmp_path / "run")) == 4


def test_another_data_set_is_not_entered_with_an_old_cursor(tmp_path: Path) -> None:
    assert train_here(tmp_path) == 0
    with pytest.raises(UserError, match="not what this run was started with"):
        train_here(tmp_path, **{"data__options.count": "32"})


def test_two_trainers_do_not_share_a_run_folder(tmp_path: Path) -> None:
    from trainer.folder import make

    make(tmp_path / "run", "auto")
    hold = """
import pathlib, sys, trainer.folder
with trainer.folder.locked(pathlib.Path(sys.argv[1])):
    print(1, flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(tmp_path / "run")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "1\n"
        with pytest.raises(UserError, match="another trainer"):
            train_here(tmp_path)
        holder.communicate("\n")


def test_labels_are_shifted_once(tmp_path: Path) -> None:
    """A model that predicts the id before plus one has no loss on a ramp."""
    assert (
        train_here(
            tmp_path,
            model__build="tests.trainer.toy_models:PlusOne",
            data__dataset="tests.trainer.toy_data:Ramp",
            run__steps="1",
        )
        == 0
    )
    assert losses(tmp_path / "run")[0] == pytest.approx(0.0, abs=1e-6)


def test_events_for_tensorboard_hold_every_update_once(tmp_path: Path) -> None:
    assert train_here(tmp_path, log__tensorboard="true") == 0
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3, 4, 5, 6]


def test_a_run_file_in_the_run_folder_stays_as_it_is(tmp_path: Path) -> None:
    assert train_here(tmp_path, run__folder=str(tmp_path)) == 0
    assert (tmp_path / "run.toml").read_text() == ""
    assert (tmp_path / "resolved.toml").is_file()


def test_a_stop_before_training_leaves_nothing_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import trainer.data.prepare

    def interrupted(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal comes first")

    monkeypatch.setattr(trainer.data.prepare, "_publish", interrupted)
    (tmp_path / "a.txt").write_text("some text to train on, " * 40)
    with pytest.raises(UserError, match="before training began") as caught:
        train_here(tmp_path, data__dataset="", model__build="", model__loss="", data__text=str(tmp_path / "a.txt"))
    assert caught.value.status == 75
    assert not list((tmp_path / "run").rglob("*.bin"))


def asking_to_stop(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGHUP)
    raise AssertionError("the signal comes first")


def test_a_stop_while_the_model_is_built_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.session.make_model", asking_to_stop)
    with pytest.raises(UserError, match="stopped before training began") as caught:
        train_here(tmp_path)
    assert caught.value.status == 75


def test_a_stop_in_the_final_evaluation_keeps_the_model_and_evaluates_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("trainer.evaluation.Evaluation.__call__", asking_to_stop)
        with pytest.raises(UserError, match="the trained model is saved in") as caught:
            train_here(tmp_path)
    assert caught.value.status == 75 and "trainer eval" in caught.value.fix
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000006"]
    assert train_here(tmp_path) == 0
    assert "validation: loss" in capsys.readouterr().out
    assert len(metrics(tmp_path / "run")) == 6


def test_a_stop_in_the_last_update_is_a_normal_end_where_nothing_is_left_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("tests.trainer.toy_data.Sequences.validation")
    assert train_here(tmp_path, **{"data__options.stop_at": "24"}) == 0
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-00000006"]


def test_a_stop_in_the_last_update_does_not_lose_an_evaluation_without_a_final_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train_here(tmp_path, checkpoint__final="false", **{"data__options.stop_at": "24"}) == 0
    assert "validation: loss" in capsys.readouterr().out


def test_checkpoints_are_due_by_time(tmp_path: Path) -> None:
    often = {"checkpoint__every_minutes": "1e-9", "checkpoint__keep": "9"}
    assert train_here(tmp_path, **often) == 0
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 6
    never = {"checkpoint__every_minutes": "0", "run__folder": str(tmp_path / "never")}
    assert train_here(tmp_path, **never) == 0
    assert len(list((tmp_path / "never" / "checkpoints").iterdir())) == 1


def test_one_rank_whose_clock_says_so_makes_all_save(tmp_path: Path) -> None:
    (tmp_path / "run.toml").touch()
    often = flags(run__folder="run", checkpoint__every_minutes="1e-9", checkpoint__keep="9")
    done = warm_trainer("train", "run.toml", *often, "--nproc", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 6
