"""One module of CPython's regression tests in a process of its own, and what became of each test in it."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from xml.etree import ElementTree

NO_TEST_RAN = 4
"""An exit status of the test runner."""


@dataclass
class Outcome:
    """What a run showed."""

    status: str
    """passed, failed, skipped (as a whole, or no test ran), late."""
    seconds: float
    passed: int = 0
    good: list[str] = field(default_factory=list)
    """The tests that passed."""
    bad: list[str] = field(default_factory=list)
    """Tests that failed or ended in an error."""
    skipped: list[str] = field(default_factory=list)
    said: str = ""
    """Why, in a line, where it did not pass."""

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def run(prefix: Path, module: str, scratch: Path, limit: float, options: tuple[str, ...] = ()) -> Outcome:
    """Runs `module` under the Python in `prefix` for at most `limit` seconds; nothing of it is left running."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    results = scratch / "results.xml"
    python = next((prefix / "bin").glob("python3.*"))
    # no resource (-u): no network, no display, nothing large
    command = [str(python), *options, "-X", "frozen_modules=off", "-m", "test", f"--junit-xml={results}", module]
    environment = {
        "PATH": f"{prefix / 'bin'}:{os.environ['PATH']}",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
    }
    start = time.monotonic()
    with open(scratch / "output", "wb") as output:
        process = subprocess.Popen(
            command,
            cwd=scratch,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_hear_interrupts,
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    outcome = _judge(code, results, (scratch / "output").read_text(errors="replace").splitlines())
    outcome.seconds = round(time.monotonic() - start, 2)
    shutil.rmtree(scratch, ignore_errors=True)
    return outcome


def _hear_interrupts() -> None:
    """A shell's background jobs ignore SIGINT, and pass that on; several tests send it to themselves."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends the session that was started for the module."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _judge(code: int | None, results: Path, said: list[str]) -> Outcome:
    outcome = Outcome("failed", 0.0)
    if results.exists():
        for case in ElementTree.parse(results).iter("testcase"):
            name, parts = case.get("name", ""), {part.tag for part in case}
            if parts & {"failure", "error"}:
                outcome.bad.append(name)
            elif "skipped" in parts or case.get("result") == "skipped":
                outcome.skipped.append(name)
            else:
                outcome.passed += 1
                outcome.good.append(name)
    if code is None:
        outcome.status, outcome.said = "late", "longer than the limit"
    elif code in (0, NO_TEST_RAN) and not outcome.bad:
        outcome.status = "passed" if outcome.passed else "skipped"
        if not outcome.passed:
            outcome.said = next((line for line in said if " skipped" in line or " denied" in line), "no test ran")
    else:
        outcome.said = _reason(code, said)
    return outcome


def _reason(code: int, said: list[str]) -> str:
    words = ("Error", "error:", "error while", "FAIL:", "ERROR:", "Warning", "no tests")
    telling = [line.strip() for line in said if any(word in line for word in words)]
    return f"status {code}: {(telling or said or [''])[0]}"[:300]
