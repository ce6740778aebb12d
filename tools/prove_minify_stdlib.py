"""CPython's own regression tests over a standard library that went through our minifier.

For each Python: copies of it, one with its library as it is ("plain"), one minified by the policy, which keeps the
docstrings of a distribution that reads some ("kept"), one with docstrings stripped on request ("stripped"); the tests
themselves stay as they are. Every test module runs in a process of its own, without optional resources. A module is in
where it passes in the plain copy within the limit. What fails in the stripped copy runs in the kept one, and in the
plain one under -OO: which failures are a matter of missing docstrings is for CPython's own switch to say. What fails in
the kept copy, whose lines are not those that some tests look for in tracebacks and sources, runs once more as our file
serves it ("shipped": the code of the minified tree with the original's lines, beside the original text): there nothing
may fail.

    uv run python -m tools.prove_minify_stdlib --python 3.11            writes docs/proofs/minify-stdlib-3.11.json
    uv run python -m tools.prove_minify_stdlib --python 3.13 --minutes 7    stops then; the same command goes on
    uv run python -m tools.prove_minify_stdlib --only test_json,test_textwrap --no-json
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from build.interpreters import find_interpreters
from tools.proof import ROOT, write
from tools.stdlib_copies import KEPT, PLAIN, SHIPPED, STRIPPED
from tools.stdlib_tests import Outcome, run

LIMIT = 60.0
"""Seconds that a module may take in the plain copy."""
LATER = 4 * LIMIT
"""Seconds in the others: they are judged on what they do, also on a busy machine."""
OO = "plain-OO"
OPTIONS: dict[str, tuple[str, ...]] = {OO: ("-OO",)}


class Place:
    """The folder of one Python: its copies, and one file of results for each module and variant."""

    def __init__(self, folder: Path, executable: str) -> None:
        self.folder = folder
        self.executable = executable

    def prepare(self) -> dict[str, Any]:
        """Makes the copies unless they are there; what is known of them."""
        facts = self.folder / "copies.json"
        if not facts.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            printer = distribution("python-minifier").locate_file("")
            maker = [self.executable, str(ROOT / "tools" / "stdlib_copies.py"), str(self.folder), str(printer)]
            subprocess.run(maker, check=True)
        known: dict[str, Any] = json.loads(facts.read_text())
        return known

    def modules(self) -> list[str]:
        """The names of the test modules."""
        python = next((self.folder / PLAIN / "bin").glob("python3.*"))
        asked = [str(python), "-m", "test", "--list-tests"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()

    def outcome(self, module: str, variant: str, again: int = 0) -> Outcome:
        """What became of a module, looked up where it ran before."""
        kept = self.folder / "results" / f"{module}.{variant}{f'.{again}' if again else ''}.json"
        if kept.exists():
            return Outcome(**json.loads(kept.read_text()))
        copy = PLAIN if variant == OO else variant
        limit = LIMIT if variant == PLAIN and not again else LATER
        # a short path: many tests make sockets below it
        scratch = Path(tempfile.gettempdir(), f"m{os.getpid()}")
        made = run(self.folder / copy, module, scratch, limit, OPTIONS.get(variant, ()))
        kept.parent.mkdir(exist_ok=True)
        beside = kept.with_suffix(".new")
        beside.write_text(json.dumps(made.as_json()))
        beside.replace(kept)
        return made

    def fails(self, module: str, variant: str) -> Outcome | None:
        """The outcome where a module that is in does not pass: twice, and not in the plain copy the second time."""
        first = self.outcome(module, variant)
        if first.status == "passed" or self.outcome(module, variant, 1).status == "passed":
            return None
        second = self.outcome(module, variant, 1)
        if self.outcome(module, PLAIN, 1).status != "passed":
            return None  # it has its moods
        always = {*first.bad} & {*second.bad}
        second.bad = sorted(always or second.bad)
        return second


def judge(place: Place, module: str, every: bool) -> dict[str, Any]:
    """One module's row."""
    plain = place.outcome(module, PLAIN)
    if plain.status != "passed":
        return {"module": module, "out": f"{plain.status}: {plain.said}"}
    row: dict[str, Any] = {"module": module, "tests": plain.passed}
    stripped = place.fails(module, STRIPPED)
    if stripped is None and not every:
        return row
    kept = place.fails(module, KEPT)
    if kept is not None:
        shipped = place.fails(module, SHIPPED)
        row["kept"] = {"status": kept.status, "bad": kept.bad, "said": kept.said, "shipped": "passed"}
        if shipped is not None:
            row["kept"]["shipped"] = {"status": shipped.status, "bad": shipped.bad, "said": shipped.said}
    if stripped is not None:
        bare = place.outcome(module, OO)
        # a test that is not run under -OO may be missing there, not only skipped: what counts is that it passes
        excused = set(kept.bad if kept is not None else ())
        beyond = [name for name in stripped.bad if name in bare.good and name not in excused]
        row["stripped"] = {"status": stripped.status, "bad": len(stripped.bad), "beyond_OO_and_kept": beyond}
        if stripped.status == "late" or not stripped.bad:
            row["stripped"]["said"] = stripped.said
    return row


def total(rows: list[dict[str, Any]], facts: dict[str, Any], left: int, every: bool) -> dict[str, Any]:
    """The proof's JSON."""
    inside = [row for row in rows if "out" not in row]
    outside = [row for row in rows if "out" in row]
    stripped = [row for row in inside if "stripped" in row]
    return {
        "library": facts,
        "test_modules": len(rows) + left,
        "not_reached": left,
        "in": len(inside),
        "tests_in": sum(row["tests"] for row in inside),
        "excluded": {row["module"]: row["out"] for row in outside},
        "excluded_by": dict(Counter(row["out"].split(":")[0] for row in outside)),
        "kept_run_for": "all that are in" if every else "those that fail stripped",
        "kept_failures": {row["module"]: row["kept"] for row in inside if "kept" in row},
        "stripped_passing": len(inside) - len(stripped),
        "stripped_failures": {row["module"]: row["stripped"] for row in stripped},
        "stripped_tests_failing": sum(row["stripped"]["bad"] for row in stripped),
        "stripped_tests_beyond_OO_and_kept": sum(len(row["stripped"]["beyond_OO_and_kept"]) for row in stripped),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default="3.11", metavar="VERSION", help="a version, or the path of an interpreter")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir(), "prove-minify-stdlib"))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop then and go on another time")
    parser.add_argument("--only", default="", metavar="MODULES", help="these test modules, joined by commas")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="every Nth module from the Kth: several at once")
    parser.add_argument("--every", action="store_true", help="run the kept copy for all modules")
    parser.add_argument("--no-json", action="store_true", help="print only, leave docs/proofs as it is")
    arguments = parser.parse_args()
    (interpreter,) = find_interpreters([arguments.python])
    end = time.monotonic() + 60 * arguments.minutes
    place = Place(arguments.work / interpreter.version, interpreter.executable)
    facts = place.prepare()
    names = arguments.only.split(",") if arguments.only else place.modules()
    part, parts = map(int, arguments.part.split("/"))
    names = names[part - 1 :: parts]
    rows = []
    for name in names:
        if time.monotonic() > end:
            break
        rows.append(judge(place, name, arguments.every))
        if {"out", "kept", "stripped"} & {*rows[-1]}:
            print(json.dumps(rows[-1])[:400], flush=True)
    result = total(rows, facts, len(names) - len(rows), arguments.every)
    beyond = result["stripped_tests_beyond_OO_and_kept"]
    wrong = {name: row for name, row in result["kept_failures"].items() if row["shipped"] != "passed"}
    print(
        f"Python {interpreter.version}: {result['in']} of {len(rows)} test modules in ({result['tests_in']} tests), "
        f"{len(result['kept_failures'])} fail minified and "
        f"{len(wrong)} of them as shipped; without docstrings {len(result['stripped_failures'])} modules fail, "
        f"{beyond} tests of them neither under -OO nor with docstrings; {result['not_reached']} not reached"
    )
    if not arguments.only and parts == 1:
        told = json.loads(json.dumps(result).replace(str(place.folder), "..."))
        write(f"minify-stdlib-{interpreter.version}", {"target": interpreter.identity, **told}, arguments)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
