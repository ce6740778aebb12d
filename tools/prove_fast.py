"""Does the project's own test suite hold with lazy modules everywhere? Runs it under start.policy = fast.

    uv run python tools/prove_fast.py                  the whole suite (long), writes docs/proofs/fast.json
    uv run python tools/prove_fast.py tests/trainer    a part of it, printed only

Every process that the tests start for a run of the trainer gets the policy by its environment. Inside of the test
process itself torch is imported before any run, so there the layer steps aside: tests that start processes are the ones
that prove something.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import proof

POLICY = {"TRAINER_START_POLICY": "fast"}


def run(parts: list[str]) -> tuple[dict[str, int], list[str]]:
    """Counts by outcome, and the names of the tests that failed."""
    with tempfile.TemporaryDirectory(prefix="fast-") as folder:
        report = Path(folder) / "report.xml"
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}", *parts]
        done = subprocess.run(words, cwd=proof.ROOT, env={**os.environ, **POLICY}, check=False)
        if not report.is_file():
            raise SystemExit(f"error: pytest ended with {done.returncode} and left no report")
        return counted(report)


def counted(report: Path) -> tuple[dict[str, int], list[str]]:
    """What a JUnit report says: {passed, failed, skipped}, and the failed ones' names."""
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    failed = []
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            counts["failed"] += 1
            failed.append(f"{case.get('classname')}::{case.get('name')}")
        else:
            counts["skipped" if "skipped" in kinds else "passed"] += 1
    return counts, failed


def main() -> None:
    """Runs the tests and writes what came of them."""
    parser = proof.parser(__doc__)
    parser.add_argument("parts", nargs="*", metavar="TESTS", help="paths or names for pytest (default: all)")
    arguments = parser.parse_args()
    counts, failed = run(arguments.parts)
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()), "under start.policy = fast")
    print("\n".join(failed))
    if not arguments.parts:
        proof.write("fast", {"policy": "fast", **counts, "failures": failed}, arguments)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
