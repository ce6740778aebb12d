"""Ranks started on this machine: how they end, how they are stopped, what is told, what is left behind."""

import json
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.launch.launching import Launch, is_alive, last_error, wait_until
from trainer.errors import UserError
from trainer.launch.local import run_ranks
from trainer.launch.starting import Spawner

Start = Callable[..., Launch]


def test_all_ranks_done_is_status_0(start: Start) -> None:
    assert start({}).end() == (0, "")


def test_ranks_know_their_place(start: Start, tmp_path: Path) -> None:
    left_over = {"MASTER_ADDR": "10.0.0.1", "TORCHELASTIC_RUN_ID": "old", "OMP_NUM_THREADS": ""}
    left_over["NCCL_SOCKET_IFNAME"] = "eth7"
    cores = len(os.sched_getaffinity(0))
    launch = start({"0": "environment", "1": "environment"}, environ=left_over)
    assert launch.end() == (0, "")
    for rank in (0, 1):
        environ = json.loads((tmp_path / f"environment-{rank}").read_text())
        assert environ["RANK"] == environ["LOCAL_RANK"] == str(rank)
        assert environ["WORLD_SIZE"] == environ["LOCAL_WORLD_SIZE"] == "2"
        assert environ["TRAINER_RESTARTS"] == "0"
        assert environ["TRAINER_LAUNCH_PARENT"] == str(launch.process.pid)
        assert 1 <= int(environ["OMP_NUM_THREADS"]) <= max(1, cores // 2)
        assert environ["GLOO_SOCKET_IFNAME"] == "lo"
        assert environ["NCCL_SOCKET_IFNAME"] == "eth7"
        assert "MASTER_ADDR" not in environ and "TORCHELASTIC_RUN_ID" not in environ
        assert (tmp_path / f"stdin-{rank}").read_text() == ""


def test_threads_chosen_by_the_user_stay(start: Start, tmp_path: Path) -> None:
    assert start({"0": "environment"}, nproc=1, environ={"OMP_NUM_THREADS": "7"}).end()[0] == 0
    assert json.loads((tmp_path / "environment-0").read_text())["OMP_NUM_THREADS"] == "7"


def test_launch_folder_is_private(start: Start, tmp_path: Path) -> None:
    launch = start({"0": "until-stopped"}, nproc=1)
    launch.wait_for("pid-0-0")
    attempt = Path((tmp_path / "launch-folder").read_text())
    for folder in (attempt, attempt.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    launch.process.terminate()
    assert launch.end()[0] == 75


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("raise", "error: rank 1: RuntimeError: planned fault of rank 1"),
        ("exit:0", "error: rank 1: exited with status 0 before the end of the run, without an error"),
        ("exit:9", "error: rank 1: exited with status 9 before the end of the run, without an error"),
        ("kill:SIGKILL", "error: rank 1: killed by SIGKILL"),
        ("kill:SIGSEGV", "error: rank 1: killed by SIGSEGV"),
        ("sys-exit", "error: rank 1: SystemExit: sys.exit(0) was called inside the run"),
    ],
)
def test_one_failing_rank_ends_the_run(start: Start, fault: str, told: str) -> None:
    launch = start({"0": "peer-lost", "1": fault, "2": "stuck"}, nproc=3)
    status, output = launch.end()
    assert time.monotonic() - launch.started < 10
    assert status == 1
    assert last_error(output) == told


def test_message_and_traceback_are_shown_once(start: Start) -> None:
    _, output = start({"0": "peer-lost", "1": "raise", "2": "peer-lost"}, nproc=3).end()
    assert output.count("planned fault of rank 1") == 1
    assert output.count("Traceback") == 1
    assert output.startswith("rank 1, Traceback")
    assert "Connection closed" not in output


def test_earliest_of_several_failures_is_told(start: Start) -> None:
    _, output = start({"0": "raise:0.15", "1": "raise"}).end()
    assert last_error(output) == "error: rank 1: RuntimeError: planned fault of rank 1"


def test_rank_that_waits_in_vain_names_those_it_waited_for(start: Start) -> None:
    status, output = start({"0": "peer-lost", "1": "stuck"}).end()
    assert status == 1
    assert "rank 0: RuntimeError" in last_error(output)
    assert "fix: Rank 1 was busy or stuck" in output


def test_leaving_without_the_done_mark_is_a_failure(start: Start) -> None:
    status, output = start({"1": "silent"}).end()
    assert status == 1
    assert last_error(output).startswith("error: rank 1: exited with status 0")


def test_failure_before_the_rank_could_report(start: Start) -> None:
    status, output = start({"0": "fail-early"}).end()
    assert status == 1
    assert output.startswith("cannot even begin\n")
    assert last_error(output).startswith("error: rank 0: exited with status 1")


@pytest.mark.parametrize("status", [1, 2, 3])
def test_user_error_gives_its_status_without_traceback(start: Start, status: int) -> None:
    got, output = start({"1": f"user-error:{status}"}).end()
    assert got == status
    assert output == "error: rank 1: the run file is wrong\nfix: mend it\n"


def test_traceback_of_a_user_error_on_request(start: Start) -> None:
    _, output = start({"1": "user-error:2"}, environ={"TRAINER_TRACEBACK": "1"}).end()
    assert output.startswith("rank 1, Traceback")
    assert last_error(output) == "error: rank 1: the run file is wrong"


def test_restart_starts_all_ranks_again(start: Start, tmp_path: Path) -> None:
    status, output = start({"1": "fail-once"}, max_restarts=3).end()
    assert status == 0
    assert output == "restart 1 of 3 after: rank 1: RuntimeError: only the first time\n"
    assert {file.name for file in tmp_path.glob("pid-*")} >= {"pid-0-1", "pid-1-1"}


def test_restarts_are_counted(start: Start) -> None:
    status, output = start({"1": "exit:9"}, max_restarts=2).end()
    assert status == 1
    assert [line[:14] for line in output.splitlines()[:2]] == ["restart 1 of 2", "restart 2 of 2"]
    assert last_error(output).startswith("error: rank 1: exited with status 9")


@pytest.mark.parametrize("status", [2, 3])
def test_wrong_usage_is_not_tried_again(start: Start, status: int) -> None:
    got, output = start({"1": f"user-error:{status}"}, max_restarts=3).end()
    assert got == status
    assert "restart" not in output


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1", "SIGHUP"])
def test_stop_request_reaches_every_rank_as_sigterm(start: Start, tmp_path: Path, name: str) -> None:
    launch = start({"0": "until-stopped", "1": "until-stopped"})
    launch.wait_for("pid-0-0", "pid-1-0")
    launch.process.send_signal(signal.Signals[name])
    assert launch.end() == (75, "stopping after this update; press Ctrl-C again to leave at once\n")
    assert [(tmp_path / f"saved-{rank}").read_text() for rank in (0, 1)] == ["SIGTERM", "SIGTERM"]


def test_further_stop_requests_change_nothing(start: Start) -> None:
    launch = start({"0": "until-stopped:0.5", "1": "until-stopped:0.5"})
    launch.wait_for("pid-0-0", "pid-1-0")
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        launch.process.send_signal(number)
    status, output = launch.end()
    assert status == 75
    assert output.count("stopping after this update") == 1


def test_stop_request_while_the_ranks_start_is_kept_for_them(start: Start, tmp_path: Path) -> None:
    launch = start({"0": "slow-start", "1": "slow-start"})
    launch.wait_for("starting-0", "starting-1")
    launch.process.terminate()
    assert launch.end()[0] == 75
    assert (tmp_path / "saved-0").exists() and (tmp_path / "saved-1").exists()


def test_second_interrupt_leaves_at_once(start: Start) -> None:
    launch = start({"0": "until-stopped:1000", "1": "worker"})
    launch.wait_for("pid-0-0", "worker-1")
    launch.process.send_signal(signal.SIGINT)
    assert launch.process.stdout is not None
    assert launch.process.stdout.readline().startswith("stopping after this update")
    launch.process.send_signal(signal.SIGINT)
    assert launch.end() == (130, "left at once: what came after the last checkpoint is lost\n")


def test_rank_that_is_done_is_left_alone_by_a_stop_request(start: Start) -> None:
    launch = start({"0": "until-stopped"})  # rank 1 is done and gone
    launch.wait_for("pid-0-0", "pid-1-0")
    launch.process.terminate()
    assert launch.end()[0] == 75


def test_failure_while_stopping_is_told_and_not_restarted(start: Start) -> None:
    launch = start({"0": "until-stopped", "1": "raise-on-stop"}, max_restarts=3)
    launch.wait_for("pid-0-0", "pid-1-0")
    launch.process.terminate()
    status, output = launch.end()
    assert status == 1
    assert "restart" not in output
    assert last_error(output) == "error: rank 1: RuntimeError: the disk is full"


def test_ranks_of_a_killed_parent_save_and_end(start: Start, tmp_path: Path) -> None:
    launch = start({"0": "until-stopped:0.2", "1": "until-stopped"})
    launch.wait_for("pid-0-0", "pid-1-0")
    launch.process.kill()
    assert launch.end()[0] == -signal.SIGKILL
    assert (tmp_path / "saved-0").exists() and (tmp_path / "saved-1").exists()


def test_ranks_that_were_starting_when_their_parent_was_killed_end(start: Start, tmp_path: Path) -> None:
    launch = start({"0": "slow-start", "1": "slow-start"})
    launch.wait_for("starting-0", "starting-1")
    launch.process.kill()
    assert launch.end()[0] == -signal.SIGKILL
    assert not list(tmp_path.glob("pid-*"))


def test_loader_workers_of_killed_ranks_are_killed(start: Start) -> None:
    launch = start({"0": "worker", "1": "worker", "2": "raise:0.5"}, nproc=3)
    launch.wait_for("worker-0", "worker-1")
    assert launch.end()[0] == 1


def test_loader_workers_of_a_vanished_rank_are_killed(start: Start, tmp_path: Path) -> None:
    launch = start({"0": "worker"}, nproc=1)
    launch.wait_for("worker-0", "pid-0-0")
    worker = int((tmp_path / "worker-0").read_text())
    os.kill(int((tmp_path / "pid-0-0").read_text()), signal.SIGKILL)
    assert launch.end()[0] == 1
    assert not is_alive(worker)


def test_nohup_stays_nohup(start: Start) -> None:
    launch = start({"0": "until-stopped"}, nproc=1, prefix=("sh", "-c", 'trap "" HUP; exec "$@"', "sh"))
    launch.wait_for("pid-0-0")
    launch.process.send_signal(signal.SIGHUP)
    with pytest.raises(AssertionError, match="in vain"):
        wait_until(lambda: launch.process.poll() is not None, 0.3)
    launch.process.terminate()
    assert launch.end()[0] == 75


def test_closed_standard_streams(start: Start) -> None:
    closing = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
    assert start({}, prefix=closing).end() == (0, "")
    assert start({"1": "raise"}, prefix=closing).end() == (1, "")


def test_command_that_cannot_be_started(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot start a rank with .*nowhere: No such file"):
        run_ranks(Spawner([str(tmp_path / "nowhere")]), 2, max_restarts=0)


def test_signal_handlers_are_given_back(tmp_path: Path) -> None:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP, signal.SIGCHLD)
    before = [signal.getsignal(number) for number in numbers]
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    assert run_ranks(Spawner([sys.executable, "-c", "raise SystemExit(1)"]), 1, max_restarts=0) == 1
    assert [signal.getsignal(number) for number in numbers] == before
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
