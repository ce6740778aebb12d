"""The process group over real ranks: text, barriers, addresses, and ranks that fail in the middle of it."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.trainer.launch.launching import HERE, last_error
from trainer.errors import UserError
from trainer.launch import comm
from trainer.launch.detect import World

RANK = str(HERE / "gloo_program.py")
PARENT = [sys.executable, str(HERE / "parent_program.py"), "2", "0", sys.executable, RANK]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", RANK]


def run(command: list[str]) -> tuple[int, str]:
    """Exit status and output."""
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("launcher", [PARENT, TORCHRUN], ids=["ours", "torchrun"])
def test_ranks_meet_on_the_loopback_only(launcher: list[str]) -> None:
    status, output = run([*launcher, "none"])
    assert status == 0, output
    said = sorted(line for line in output.splitlines() if line.startswith("rank"))
    assert said == [f"rank {rank}: grüße from rank 1; listens on ['0100007F']" for rank in (0, 1)]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("raise", "error: rank 1: RuntimeError: planned fault at item 3"),
        ("kill", "error: rank 1: killed by SIGKILL"),
    ],
)
def test_first_failure_is_told_last(fault: str, told: str) -> None:
    status, output = run([*PARENT, fault])
    assert status == 1
    assert last_error(output) == told
    assert "Connection closed" not in output


def test_rank_that_sleeps_ends_the_run_after_the_timeout() -> None:
    started = time.monotonic()
    status, output = run([*PARENT, "sleep"])
    assert time.monotonic() - started < 40
    assert status == 1
    assert "Timed out waiting 3000ms" in last_error(output)
    assert "fix: rank 1 was busy elsewhere or stuck" in output


def test_torchrun_shows_the_failed_ranks_own_error() -> None:
    status, output = run([*TORCHRUN, "raise"])
    assert status == 1
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
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "lo")
    with pytest.raises(
        UserError, match=r"the 2 ranks did not come together \(gloo, rank 0 waited up to 0.5 s\)"
    ) as caught:
        comm.init(World(0, 0, 2, 2, "local"), "cpu", "gloo", 0.5)
    assert "--fault.timeout" in caught.value.fix
