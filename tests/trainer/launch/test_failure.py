"""What is told of a failed rank, and which failure is the cause."""

import signal
from pathlib import Path

import pytest

from trainer.errors import UserError
from trainer.launch import failure
from trainer.launch.failure import Failure, from_error, from_status


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """The error with a traceback."""
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def test_travels_through_a_file(tmp_path: Path) -> None:
    told = from_error(3, raised(UserError("größer als \ud800", "kleiner", 2)))
    told.write(tmp_path / "failure-3.json")
    back = failure.read(tmp_path / "failure-3.json")
    assert back is not None and back.__dict__ == told.__dict__
    assert [path.name for path in tmp_path.iterdir()] == ["failure-3.json"]
    assert failure.read(tmp_path / "failure-4.json") is None


def test_cause_is_the_earliest_that_is_no_consequence() -> None:
    lost = Failure(0, "RuntimeError", "Connection closed by peer", secondary=True, time_ns=1)
    cause = Failure(1, "", "killed by SIGKILL", time_ns=5)
    later = Failure(2, "ValueError", "x", time_ns=9)
    assert failure.first([lost, later, cause]) is cause
    assert failure.first([lost]) is lost


@pytest.mark.parametrize(
    ("error", "secondary"),
    [
        (RuntimeError("[pair.cc:547] Connection closed by peer [127.0.0.1]:21465"), True),
        (RuntimeError("[buffer.cc:78] Timed out waiting 3000ms for recv operation to complete"), True),
        (RuntimeError("NCCL error: remote process exited or there was a network error"), True),
        (RuntimeError("planned fault"), False),
        (ConnectionResetError(104, "Connection reset by peer"), False),
        (BrokenPipeError(32, "Broken pipe"), False),
    ],
)
def test_losing_a_peer_is_a_consequence(error: Exception, secondary: bool) -> None:
    assert from_error(0, error).secondary is secondary
    assert from_error(0, raised(UserError("the ranks did not come together"), error)).secondary is secondary


def test_error_line_and_traceback_share_nothing() -> None:
    told = from_error(1, raised(ValueError("planned")))
    assert told.line() == "rank 1: ValueError: planned"
    assert told.traceback.startswith("Traceback") and "planned" not in told.traceback.splitlines()[-1]
    lines = failure.show(told, [])
    assert lines[0].startswith("rank 1, Traceback")
    assert lines[-1] == "error: rank 1: ValueError: planned"


def test_long_messages_keep_their_rest_in_the_traceback() -> None:
    told = from_error(0, raised(RuntimeError("\nCUDA error: out of memory\nset CUDA_LAUNCH_BLOCKING=1")))
    assert told.what == "CUDA error: out of memory"
    assert "CUDA_LAUNCH_BLOCKING" in told.traceback
    assert len(from_error(0, RuntimeError("x" * 5000)).what) < 600


def test_syntax_error_keeps_its_place() -> None:
    try:
        compile("a = (", "model.py", "exec")
    except SyntaxError as error:
        told = from_error(0, error)
    assert 'File "model.py", line 1' in told.traceback
    assert told.line().startswith("rank 0: SyntaxError:")


def test_chained_errors_are_all_shown() -> None:
    told = from_error(0, raised(RuntimeError("outer"), KeyError("inner")))
    assert "KeyError: 'inner'" in told.traceback and "direct cause" in told.traceback


@pytest.mark.parametrize("code", [None, 0, 3, "words"])
def test_exit_inside_the_run(code: object) -> None:
    told = from_error(0, SystemExit(code))
    shown = "" if code is None else repr(code)
    assert told.line() == f"rank 0: SystemExit: sys.exit({shown}) was called inside the run"


def test_messages_that_are_missing_or_broken() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise KeyError("no")

    assert from_error(0, AssertionError()).line() == "rank 0: AssertionError: (no message)"
    assert from_error(0, Broken()).line() == "rank 0: Broken: (its message cannot be shown: KeyError)"


def test_error_of_a_loader_worker_is_told_by_its_own_message() -> None:
    wrapper = pytest.importorskip("torch._utils").ExceptionWrapper
    try:
        try:
            raise RuntimeError("planned fault at item 3")
        except RuntimeError:
            wrapper(where="in DataLoader worker process 0").reraise()
    except RuntimeError as error:
        told = from_error(1, error)
    assert told.line() == "rank 1: RuntimeError: planned fault at item 3 (in DataLoader worker process 0)"
    assert "Original Traceback" in told.traceback


def test_ends_without_a_word() -> None:
    killed = from_status(1, -signal.SIGKILL, 7)
    assert killed.line() == "rank 1: killed by SIGKILL" and "out-of-memory" in killed.fix
    assert (killed.status, killed.time_ns) == (1, 7)
    assert "PYTHONFAULTHANDLER" in from_status(1, -signal.SIGSEGV, 7).fix
    assert from_status(1, -40, 7).line() == "rank 1: killed by signal 40"
    assert from_status(1, 9, 7).line().startswith("rank 1: exited with status 9")
    assert [from_status(1, status, 7).status for status in (0, 1, 2, 3, 9)] == [1, 1, 2, 3, 1]


def test_user_error_shows_its_traceback_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    told = from_error(0, raised(UserError("wrong", "right", 2)))
    assert failure.show(told, []) == ["error: rank 0: wrong", "fix: right"]
    monkeypatch.setenv("TRAINER_TRACEBACK", "1")
    lines = failure.show(told, [])
    assert lines[0].startswith("rank 0, Traceback") and lines[1:] == ["error: rank 0: wrong", "fix: right"]


def test_only_consequences_point_to_the_ranks_that_did_not_answer() -> None:
    lost = Failure(0, "", "timed out", secondary=True)
    assert failure.show(lost, [1, 2])[-1].startswith("fix: Ranks 1, 2 were busy or stuck")
    assert failure.show(Failure(0, "", "own fault"), [1, 2]) == ["error: rank 0: own fault"]
