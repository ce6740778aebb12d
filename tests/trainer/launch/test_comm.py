"""The process group over real ranks: text, barriers, addresses, and ranks that fail in the middle of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.launch.launching import HERE, last_error
from trainer.errors import UserError
from trainer.launch import comm
from trainer.launch.detect import World

RANK = str(HERE / "gloo_program.py")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", RANK]


def ours(max_restarts: int) -> list[str]:
    """Two ranks under our own parent."""
    return [sys.executable, str(HERE / "parent_program.py"), "load", "2", str(max_restarts), sys.executable, RANK]


def run(command: list[str]) -> tuple[int, str]:
    """Exit status and output."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=100
    )
    return done.returncode, done.stdout


def check_meeting(output: str) -> None:
    """All ranks heard rank 1, and each listens on 127.0.0.1 only."""
    said = sorted(line for line in output.splitlines() if "grüße" in line)
    assert said == [f"rank {rank}: grüße from rank 1; listens on ['0100007F']" for rank in (0, 1)]


def test_ranks_meet_again_after_one_was_killed() -> None:
    status, output = run([*ours(1), "kill-once", "30"])
    assert status == 0, output
    first, told, second = output.partition("restart 1 of 1 after: rank 1: killed by SIGKILL\n")
    assert told, output
    check_meeting(first)
    check_meeting(second)
    assert "Connection closed" not in output


def test_rank_that_sleeps_ends_the_run_after_the_timeout() -> None:
    status, output = run([*ours(0), "sleep", "2"])
    assert status == 1
    assert "Timed out waiting 2000ms" in last_error(output)
    assert "fix: Rank 1 was busy or stuck" in output


def test_torchrun_shows_the_failed_ranks_own_error() -> None:
    status, output = run([*TORCHRUN, "raise", "30"])
    assert status == 1
    check_meeting(output)
    cause = output.partition("Root Cause")[2]
    assert "error: rank 1: RuntimeError: planned fault at item 3" in cause


def test_one_rank_needs_no_process_group() -> None:
    comm.init(World(0, 0, 1, 1, "none"), "cpu", "auto", 3.0)
    assert comm.broadcast_text("alone") == "alone"
    comm.barrier()
    comm.shutdown(ok=True)


def test_nccl_on_cpu_is_refused() -> None:
    with pytest.raises(UserError, match="nccl needs cuda") as caught:
        comm.init(World(0, 0, 2, 1, "env"), "cpu", "nccl", 3.0)
    assert caught.value.status == 2


def test_ranks_that_do_not_come_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINER_LAUNCH_DIR", str(tmp_path))
    monkeypatch.setenv("TRAINER_LAUNCH_BUILD", " ")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "lo")
    with pytest.raises(
        UserError, match=r"the 2 ranks did not come together \(gloo, rank 0 waited up to 0.5 s\)"
    ) as caught:
        comm.init(World(0, 0, 2, 2, "local"), "cpu", "gloo", 0.5)
    assert "--fault.timeout" in caught.value.fix
