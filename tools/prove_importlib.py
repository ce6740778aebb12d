"""CPython's own tests of importers, run against the BundleFinder, its loaders and readers.

The tests of this Python's `test.test_importlib` (finders, loaders, resources, metadata, namespace packages), and of
pkgutil, runpy, inspect, packages and zip imports, with their fixtures packed into archives of ours (tools/
importlib_suite): as code, as minified code, and as text for a Python that the archive has no code for. A test counts
where an archive was asked in it; each that is skipped is listed with its reason.

    uv run python -m tools.prove_importlib                          writes docs/proofs/importlib.json
    uv run python -m tools.prove_importlib --python 3.11 --kinds code --pattern namespace --no-json
"""

import collections
import json
import os
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tools.proof import ROOT, interpreters, write
from tools.proof import parser as proof_parser

KINDS = ("code", "minified", "source")
VERSIONS = ("3.11", "3.12", "3.13")
Row = tuple[str, str, str, bool]  # test, outcome, reason, was one of ours asked


def run(python: str, kind: str, pattern: str) -> list[Row]:
    """The rows of one Python and kind of archive."""
    minifier = find_spec("python_minifier")
    assert minifier is not None
    assert minifier.origin is not None
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as fixtures:
        Path(folder, "python_minifier").symlink_to(Path(minifier.origin).parent)
        variables = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
        variables["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "src", folder)))
        variables["TMPDIR"] = fixtures  # what lies there is served from archives: not the project, wherever it lies
        # no compiled files: what tests do with them, they do beside our importer
        command = [python, "-B", "-W", "ignore", "-m", "tools.importlib_suite", kind, pattern]
        done = subprocess.run(command, capture_output=True, text=True, env=variables, cwd="/", check=False, timeout=900)
    if done.returncode:
        raise SystemExit(f"{python} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    rows: list[Row] = [tuple(row) for row in json.loads(done.stdout)]
    return rows


def judge(rows: list[Row], plain: list[Row]) -> dict[str, Any]:
    """Counts, and what is left out by reason."""
    known = {row[0] for row in plain if row[1] == "failed"}
    skipped: dict[str, list[str]] = collections.defaultdict(list)
    failed, passed, aside = [], 0, 0
    for test, outcome, reason, asked in rows:
        if outcome == "failed" and test in known:
            skipped["fails in this Python without us too"].append(test)
        elif outcome == "failed":
            failed.append(f"{test}: {reason[-500:]}")
        elif outcome in ("skipped", "left out"):
            skipped[reason].append(test)
        elif asked:
            passed += 1
        else:
            aside += 1
    return {
        "run": passed + len(failed),
        "passed": passed,
        "failed": failed,
        "skipped": sum(map(len, skipped.values())),
        "passed, but no archive was asked": aside,
        "skipped, by reason": {reason: sorted(set(tests)) for reason, tests in sorted(skipped.items())},
    }


def main() -> None:
    """Command line."""
    parser = proof_parser(__doc__)
    parser.add_argument("--python", action="append", metavar="VERSION", help="these only (3.11, 3.12, 3.13)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of archives (code,minified,source)")
    parser.add_argument("--pattern", default="", help="tests with this in their names only")
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    wrong = 0
    for _, python in interpreters(arguments.python or VERSIONS):
        plain = run(python, "plain", arguments.pattern)
        full = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
        for kind in arguments.kinds.split(","):
            result = judge(run(python, kind, arguments.pattern), plain)
            found.setdefault(full, {})[kind] = result
            wrong += len(result["failed"])
            counts = {name: value for name, value in result.items() if isinstance(value, int)}
            print(f"{full} {kind}: {counts}, {len(result['failed'])} failed", flush=True)
            for line in result["failed"]:
                print(f"  {line}")
    place = ROOT / "docs" / "proofs" / "importlib.json"
    if arguments.python and place.exists():  # of the others, what an earlier call has found
        found = {**json.loads(place.read_text())["pythons"], **found}
    write("importlib", {"pythons": dict(sorted(found.items()))}, arguments)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
