"""Signals as a request to stop."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from trainer.launch.stop import NOTICE, StopRequest


@pytest.fixture
def stop() -> Iterator[StopRequest]:
    request = StopRequest()
    request.install()
    yield request
    request.uninstall()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_first_signal_is_noted(stop: StopRequest, name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert (stop.requested, stop.signal) == (False, "")
    signal.raise_signal(signal.Signals[name])
    assert (stop.requested, stop.signal) == (True, name)
    assert capfd.readouterr() == ("", NOTICE)


def test_more_signals_change_nothing(stop: StopRequest, capfd: pytest.CaptureFixture[str]) -> None:
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
        signal.raise_signal(number)
    assert stop.signal == "SIGUSR1"
    assert capfd.readouterr().err == NOTICE


def test_quiet_on_other_ranks(capfd: pytest.CaptureFixture[str]) -> None:
    request = StopRequest(quiet=True)
    request.install()
    signal.raise_signal(signal.SIGTERM)
    request.uninstall()
    assert request.requested
    assert capfd.readouterr().err == ""


def test_handlers_and_mask_are_given_back() -> None:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
    before = [signal.getsignal(number) for number in numbers]
    request = StopRequest()
    for _ in range(2):
        request.install()
        assert signal.getsignal(signal.SIGTERM) not in before
        request.uninstall()
        assert [signal.getsignal(number) for number in numbers] == before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


def test_signal_held_back_before_is_not_lost(capfd: pytest.CaptureFixture[str]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        signal.raise_signal(signal.SIGTERM)  # to this thread: others of this process do not hold it back
        request = StopRequest()
        request.install()
        assert request.signal == "SIGTERM"
        request.uninstall()
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == {signal.SIGTERM}
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def test_second_interrupt_leaves_at_once() -> None:
    code = (
        "import signal, sys; from trainer.launch.stop import StopRequest; StopRequest().install()\n"
        "try:\n"
        "    signal.raise_signal(signal.SIGINT); print('saving', flush=True); signal.raise_signal(signal.SIGINT)\n"
        "finally:\n"
        "    print('never said')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (130, "saving\n", NOTICE)


def test_forked_worker_leaves_the_request_to_its_rank() -> None:
    code = (
        "import os, signal; from trainer.launch.stop import StopRequest; stop = StopRequest(); stop.install()\n"
        "worker = os.fork()\n"
        "if worker == 0:\n"
        "    signal.raise_signal(signal.SIGINT); signal.raise_signal(signal.SIGINT); os._exit(int(stop.requested))\n"
        "print(os.waitpid(worker, 0)[1])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_notice_is_no_error_without_stderr() -> None:
    code = (
        "import os, signal; from trainer.launch.stop import StopRequest; stop = StopRequest(); stop.install()\n"
        "os.close(2); signal.raise_signal(signal.SIGTERM); print(stop.signal)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (0, "SIGTERM\n")


def test_under_nohup_a_closed_terminal_is_no_request() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        request = StopRequest()
        request.install()
        signal.raise_signal(signal.SIGHUP)
        request.uninstall()
        assert not request.requested
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
