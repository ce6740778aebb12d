"""Runs the selected tests of the interpreter that runs this; prints what became of each as JSON.

    python -m tools.importlib_suite {code|minified|source|plain} [PATTERN]

`plain` runs them as they are, for comparison.
"""

import io
import json
import os
import shutil
import sys
import tempfile
import traceback
import unittest
from pathlib import Path
from typing import Any

from tools.importlib_suite import bundles, selection


class Result(unittest.TestResult):
    """Keeps one row for each test: id, outcome, reason, and whether an archive of ours was asked in it."""

    def __init__(self, maker: bundles.Maker) -> None:
        super().__init__()
        self.maker = maker
        self.rows: list[tuple[str, str, str, bool]] = []
        self._before = 0
        self._subtests: dict[str, str] = {}

    def startTest(self, test: unittest.TestCase) -> None:
        self._before = self.maker.touches
        super().startTest(test)

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", "")).startswith(bundles.temporary()):
                del sys.modules[name]  # left by a test

    def _row(self, test: Any, outcome: str, reason: str = "") -> None:
        self.rows.append((test.id(), outcome, reason, self.maker.touches > self._before))

    def addSuccess(self, test: Any) -> None:
        self._row(test, "passed")

    def addExpectedFailure(self, test: Any, error: Any) -> None:
        self._row(test, "passed", "fails, as the suite expects")

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._row(test, "better", "passes, where the suite expects a failure")

    def addSkip(self, test: Any, reason: str) -> None:
        self._row(test, "skipped", reason)

    def addFailure(self, test: Any, error: Any) -> None:
        self._row(test, "failed", "".join(traceback.format_exception(*error)))

    def addError(self, test: Any, error: Any) -> None:
        self.addFailure(test, error)

    def addSubTest(self, test: Any, subtest: Any, error: Any) -> None:
        if error is not None:
            self.addFailure(subtest, error)


def main() -> None:
    """All of it."""
    kind = sys.argv[1]
    pattern = sys.argv[2] if len(sys.argv) > 2 else ""
    output = sys.stdout
    with tempfile.TemporaryDirectory(prefix="bundles-") as folder:
        maker = bundles.Maker(kind, Path(folder))
        adapter = None
        if kind != "plain":
            adapter = bundles.Bundles(maker, [bundles.temporary(), *selection.fixture_folders()])
            selection.pretend(adapter)
            adapter.install()
        place = Path(folder).parent / f"work-{os.getpid()}"
        place.mkdir()
        os.chdir(place)
        result = Result(maker)
        captured = io.StringIO()
        sys.stdout, errors, sys.stderr = captured, sys.stderr, captured
        try:
            chosen = []
            for test in selection.tests(adapter):
                if pattern in test.id():
                    reason = selection.left_out(test.id())
                    if reason:
                        result.rows.append((test.id(), "left out", reason, False))
                    else:
                        chosen.append(test)
            unittest.TestSuite(chosen).run(result)
        finally:
            sys.stdout, sys.stderr = output, errors
            os.chdir("/")
            shutil.rmtree(place, ignore_errors=True)
    json.dump(result.rows, output)


if __name__ == "__main__":
    main()
