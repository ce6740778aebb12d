"""A Python that has imported torch, forked for each program that a test runs: a real process with real ranks, without
the import of torch, which is most of what a small one costs. Not for tests of the start itself."""

import contextlib
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent.parent
REQUEST = struct.Struct("!I")  # bytes of what follows
REPORT = struct.Struct("!i")  # a process number, then its exit status


class Program:
    """One that runs. `pid`: its process."""

    def __init__(self, words: list[str], report: int) -> None:
        self.words = words
        self._report = report
        self.pid = self._read(100.0)

    def wait(self, timeout: float) -> int:
        """Its exit status as `subprocess` has it; TimeoutExpired after it was killed."""
        try:
            return self._read(timeout)
        except TimeoutError:
            os.kill(self.pid, signal.SIGKILL)
            self._read(100.0)
            raise subprocess.TimeoutExpired(self.words, timeout) from None
        finally:
            os.close(self._report)

    def _read(self, timeout: float) -> int:
        ready, _, _ = select.select([self._report], [], [], timeout)
        if not ready:
            raise TimeoutError
        data = os.read(self._report, REPORT.size)
        assert len(data) == REPORT.size, f"the warm Python did not run {self.words}"
        return int(REPORT.unpack(data)[0])


class Warm:
    """The process that forks. `preload`: the text of what it does first; nothing of it may start a thread."""

    def __init__(self, preload: str, **environment: str) -> None:
        ours, theirs = socket.socketpair()
        self._channel = ours
        variables = {**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", **environment}
        words = [sys.executable, "-m", "tests.beds.warm", str(theirs.fileno()), preload]
        self._process = subprocess.Popen(
            words, cwd=ROOT, env=variables, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
        theirs.close()

    def start(self, words: list[str], *, cwd: Path, env: Mapping[str, str], stdout: int, stderr: int) -> Program:
        """Runs `python WORDS`, where WORDS are `-m MODULE ...` or `FILE ...`, with exactly this environment."""
        ours, theirs = os.pipe()
        try:
            request = pickle.dumps((words, str(cwd), dict(env)))
            socket.send_fds(self._channel, [REQUEST.pack(len(request))], [stdout, stderr, theirs])
            self._channel.sendall(request)
        finally:
            os.close(theirs)
        return Program(words, ours)

    def run(
        self, words: list[str], *, cwd: Path, env: Mapping[str, str], timeout: float = 100
    ) -> "subprocess.CompletedProcess[str]":
        """The same to its end, with what it and its children printed."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            program = self.start(words, cwd=cwd, env=env, stdout=output.fileno(), stderr=errors.fileno())
            status = program.wait(timeout)
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read().decode())
        return subprocess.CompletedProcess(words, status, *texts)

    def close(self) -> None:
        """Ends it; what it has forked goes on."""
        self._channel.close()
        self._process.wait()


_warm: dict[tuple[str, ...], Warm] = {}


def warm(preload: str, **environment: str) -> Warm:
    """The one that has done this; kept for all tests of a session."""
    key = (preload, *map(str, sorted(environment.items())))
    if key not in _warm:
        _warm[key] = Warm(preload, **environment)
    return _warm[key]


def close_all() -> None:
    """Ends all."""
    for each in _warm.values():
        each.close()
    _warm.clear()


def serve(channel: socket.socket) -> NoReturn:
    """Forks until the other end is closed."""
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        head, descriptors, _, _ = socket.recv_fds(channel, REQUEST.size, 3)
        if not head:
            os._exit(0)
        request = b""
        while len(request) < REQUEST.unpack(head)[0]:
            request += channel.recv(1 << 20)
        if os.fork() == 0:
            channel.close()
            watch(pickle.loads(request), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def watch(request: tuple[list[str], str, dict[str, str]], stdout: int, stderr: int, report: int) -> NoReturn:
    """Forks the program, tells its number and how it ended."""
    pid = os.fork()
    if pid == 0:
        os.close(report)
        for descriptor, number in ((stdout, 1), (stderr, 2)):
            os.dup2(descriptor, number)
            os.close(descriptor)
        become(*request)
    for descriptor in (stdout, stderr, 1, 2):
        os.close(descriptor)
    os.write(report, REPORT.pack(pid))
    _, status = os.waitpid(pid, 0)
    os.write(report, REPORT.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def become(words: list[str], cwd: str, variables: dict[str, str]) -> NoReturn:
    """From here on it is the program, to its end."""
    import random
    import runpy
    import traceback

    from trainer.leaving import exit_status, leave_tidily

    os.chdir(cwd)
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)
    added = [path for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path]
    rest = [path for path in sys.path if path not in ("", str(ROOT), *added)]
    random.seed()
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()
    status: int = 1
    try:
        if words[0] == "-m":
            sys.argv[:] = words[1:]
            sys.path[:] = [cwd, *added, *rest]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv[:] = words
            sys.path[:] = [str(Path(words[0]).parent), *added, *rest]
            runpy.run_path(words[0], run_name="__main__")
        status = 0
    except SystemExit as leaving:
        status = exit_status(leaving)
    except KeyboardInterrupt:
        status = 130
    except BaseException:
        traceback.print_exc()
    leave_tidily(status)


def main(number: str, preload: str) -> NoReturn:
    channel = socket.socket(fileno=int(number))
    channel.set_inheritable(False)
    exec(preload, {"__name__": "preload"})
    import gc

    gc.collect()
    gc.freeze()
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a process with threads can't be forked safely"
    serve(channel)


if __name__ == "__main__":
    main(*sys.argv[1:])
