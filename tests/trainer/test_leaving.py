"""The fast end of a process: whatever the interpreter's own end would have kept is kept."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import atexit, ctypes, gc, sys, threading, time
from trainer.leaving import leave_tidily

class Late:
    def __del__(self):
        print("taken apart")

kept = Late()
text = open(sys.argv[1] + "/text", "w")
text.write("one line")
data = open(sys.argv[1] + "/data", "wb")
data.write(b"bytes")
gc.freeze()
atexit.register(lambda: print("registered"))

def slow():
    time.sleep(0.3)
    print("thread is done")

threading.Thread(target=slow).start()
ctypes.CDLL(None).puts(b"from C")
print("no newline", end="")
leave_tidily(7)
"""


def run(program: str, folder: Path, **options: int) -> "subprocess.CompletedProcess[bytes]":
    """The program as a process of its own."""
    output: dict[str, int] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run([sys.executable, "-E", "-c", program, str(folder)], check=False, timeout=100, **output)  # type: ignore[call-overload, no-any-return]  # streams by name


def test_threads_end_files_are_flushed_and_nothing_is_taken_apart(tmp_path: Path) -> None:
    done = run(PROGRAM, tmp_path)
    assert (done.returncode, done.stderr) == (7, b"")
    assert (tmp_path / "text").read_text() == "one line"
    assert (tmp_path / "data").read_bytes() == b"bytes"
    printed = done.stdout.decode()
    assert all(part in printed for part in ("no newline", "thread is done", "registered", "from C"))
    assert printed.index("thread is done") < printed.index("registered")
    assert "taken apart" not in printed


def test_standard_output_that_cannot_be_written_shows_in_the_status(tmp_path: Path) -> None:
    program = "from trainer.leaving import leave_tidily\nprint('x' * 10)\nleave_tidily(0)"
    with open("/dev/full", "wb") as full:
        assert run(program, tmp_path, stdout=full.fileno()).returncode == 120
        assert run(program.replace("(0)", "(3)"), tmp_path, stdout=full.fileno()).returncode == 3


def test_closed_streams_are_no_error(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom trainer.leaving import leave_tidily\nsys.stdout.close()\nsys.stderr = None\nleave_tidily(0)"
    )
    assert run(program, tmp_path).returncode == 0


def test_errors_at_the_end_are_printed_and_do_not_change_the_status(tmp_path: Path) -> None:
    program = (
        "import atexit\nfrom trainer.leaving import leave_tidily\n"
        "atexit.register(lambda: print('still run'))\natexit.register(lambda: 1 / 0)\nleave_tidily(0)"
    )
    done = run(program, tmp_path)
    assert (done.returncode, done.stdout) == (0, b"still run\n")
    assert b"ZeroDivisionError" in done.stderr


def test_answers_leave_at_once_but_not_under_a_profiler(tmp_path: Path) -> None:
    registered = (
        "import atexit; atexit.register(print, 'last'); import trainer.cli as c, sys; sys.argv[1:] = ['--version']"
    )
    done = run(f"{registered}; c.program(); print('came back')", tmp_path)
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, [b"last"])
    done = run(f"{registered}; sys.setprofile(lambda *_: None); c.program(); print('came back')", tmp_path)
    assert done.stdout.splitlines()[1:] == [b"came back", b"last"]
