"""The test suites of well-known pure-Python packages, over the packages as they are and over their minified selves.

Packages, versions and hashes are those of tools/minify_packages.txt. Each source distribution is unpacked twice; in one
copy the modules, not the tests, go through the minifier with the policy that builds have by default. Both suites run
in one environment, with the copy first on the path. Every test that passes over the one must pass over the other.

    uv run python -m tools.prove_minify_packages                   writes docs/proofs/minify-packages.json
    uv run python -m tools.prove_minify_packages --only idna,pluggy --no-json
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from build.minify import Policy, minify
from build.tree import File, Tree
from build.uv import find_uv
from tools.proof import ROOT, write

LOCK = ROOT / "tools" / "minify_packages.txt"
TESTS = frozenset({"tests", "testing", "docs", "examples", "benchmarks"})


class Suite(NamedTuple):
    """Where a source distribution has its modules and its tests."""

    path: str
    tests: str
    more: tuple[str, ...] = ()
    """More words for pytest."""


# "-o addopts=": without the options that a project has for its own work (coverage, parallel runs, benchmarks)
SUITES = {
    "attrs": Suite("src", "tests", ("-p", "no:xdist")),
    "click": Suite("src", "tests", ("-m", "not stress")),
    "idna": Suite(".", "tests"),
    "jinja2": Suite("src", "tests"),
    "markdown-it-py": Suite(".", "tests", ("--ignore=tests/test_cmark_spec",)),
    "more-itertools": Suite(".", "tests"),
    "packaging": Suite("src", "tests", ("--ignore=tests/property",)),
    "pluggy": Suite("src", "testing", ("--ignore=testing/benchmark.py",)),
    "tqdm": Suite(".", "tests", ("-k", "not perf and not notebook")),
    "typing-extensions": Suite("src", "src/test_typing_extensions.py"),
}


class Environment:
    """A virtual environment with what the suites need, and the source distributions beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "environment" / "bin" / "python"

    def prepare(self) -> None:
        """Fetches what is not there yet, by hash."""
        if not (self.folder / "done").exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            subprocess.run([sys.executable, "-m", "venv", str(self.python.parents[1])], check=True)
            words = ["pip", "install", "-q", "--python", str(self.python), "--require-hashes", "-r", str(LOCK)]
            subprocess.run([find_uv(), *words], check=True)
            wanted = self.folder / "sources.txt"
            wanted.write_text("".join(_locked(name) for name in SUITES))
            # pip: uv has no command that fetches a source distribution
            words = ["pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "--require-hashes"]
            words += ["-r", str(wanted), "-d", str(self.folder / "sources")]
            subprocess.run([str(self.python), "-m", *words], check=True, stderr=subprocess.DEVNULL)
            (self.folder / "done").touch()

    def unpack(self, name: str, target: Path) -> None:
        """The source distribution of that name."""
        start = name.replace("-", "_")
        archive = next((self.folder / "sources").glob(f"{start}-[0-9]*.tar.gz"))
        with tarfile.open(archive) as file:
            file.extractall(target.parent, filter="data")
        next(target.parent.glob(f"{start}-[0-9]*")).rename(target)


def _locked(name: str) -> str:
    """The lock's entry of a package."""
    lines = LOCK.read_text().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if line.startswith(f"{name}=="))
    last = next((number for number in range(first + 1, len(lines)) if lines[number][0] != " "), len(lines))
    return "".join(lines[first:last])


def shrink(folder: Path, suite: Suite, package: str, cache: Path) -> dict[str, Any]:
    """Minifies the modules under `folder` in place; sizes and what became of docstrings."""
    home = folder / suite.path
    paths = [
        path
        for path in sorted(home.rglob("*.py"))
        if not TESTS & {*path.relative_to(home).parts} and not path.name.startswith(("test_", "_typed_dict", "setup"))
    ]
    tree, report = minify(Tree.of(_module(path, home, package) for path in paths), Policy(), cache)
    for file in tree:
        (home / file.path).write_bytes(file.data)
    (row,) = report.rows
    assert not report.refused, report.refused
    return {"modules": row.modules, "bytes": row.raw, "deflated": row.packed, "docstrings": row.docstrings}


def _module(path: Path, home: Path, package: str) -> File:
    place = path.relative_to(home)
    name = ".".join(place.with_suffix("").parts).removesuffix(".__init__")
    data = path.read_bytes()
    return File(place.as_posix(), data, package, name, place.stem == "__init__", data)


def outcomes(environment: Environment, folder: Path, suite: Suite) -> dict[str, str]:
    """Test -> passed, failed, skipped."""
    results = folder / "results.xml"
    words = [
        "-m",
        "pytest",
        "-q",
        "-o",
        "addopts=",
        "-p",
        "no:cacheprovider",
        "--timeout=120",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
    ]
    words += ["--hypothesis-seed=0", f"--junit-xml={results}", *suite.more, suite.tests]
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
    variables |= {"PYTHONPATH": str(folder / suite.path), "PYTHONHASHSEED": "0", "COLUMNS": "80"}
    done = subprocess.run(
        [str(environment.python), *words], cwd=folder, env=variables, capture_output=True, text=True, check=False
    )
    if not results.exists():
        raise SystemExit(f"error: no results in {folder}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    found = {}
    for case in ElementTree.parse(results).iter("testcase"):
        parts = {part.tag for part in case}
        state = "failed" if parts & {"failure", "error"} else "skipped" if "skipped" in parts else "passed"
        found[f"{case.get('classname')}::{case.get('name')}"] = state
    return found


def compared(environment: Environment, name: str, folder: Path, cache: Path) -> dict[str, Any]:
    """One package's row."""
    suite = SUITES[name]
    plain, small = folder / "plain" / name, folder / "small" / name
    for place in (plain, small):
        place.parent.mkdir(exist_ok=True)
        environment.unpack(name, place)
    sizes = shrink(small, suite, name, cache)
    before, after = outcomes(environment, plain, suite), outcomes(environment, small, suite)
    passed = [test for test, state in before.items() if state == "passed"]
    return {
        **sizes,
        "version": _locked(name).split()[0].partition("==")[2],
        "passed": len(passed),
        "passed_minified": sum(after.get(test) == "passed" for test in passed),
        "new_failures": sorted(test for test in passed if after.get(test) != "passed"),
        "fail_before_too": sorted(test for test, state in before.items() if state == "failed"),
        "skipped": sum(state == "skipped" for state in before.values()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SUITES), metavar="PACKAGES", help="these, joined by commas")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir(), "prove-minify-packages"))
    parser.add_argument("--no-json", action="store_true", help="print only, leave docs/proofs as it is")
    arguments = parser.parse_args()
    environment = Environment(arguments.work.absolute())
    environment.prepare()
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.only.split(","):
            row = rows[name] = compared(environment, name, Path(folder), arguments.work / "minified")
            print(
                name, json.dumps({key: row[key] for key in ("passed", "passed_minified", "new_failures")}), flush=True
            )
    wrong = sum(len(row["new_failures"]) for row in rows.values())
    total = sum(row["passed"] for row in rows.values())
    print(f"{len(rows)} packages, {total} tests that pass as they are, {wrong} of them fail minified")
    write("minify-packages", {"tests": total, "new_failures": wrong, "packages": rows}, arguments)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
