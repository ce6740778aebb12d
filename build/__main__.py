"""`python -m build`: the stages in order, each a value in and a value out."""

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from build.cache import Cache
from build.carried import environment_json
from build.collect import collect
from build.compile import compile_code
from build.errors import BuildError
from build.file_paths import uses_of_file
from build.freshness import require_fresh
from build.interpreters import find_interpreters
from build.lock import read_lock
from build.minify import minify, read_policy
from build.provenance import facts
from build.reach import Reach, reach
from build.report import report, table
from build.resolve import resolve
from build.sbom import bill_of_materials, version_of
from build.settings import read_settings
from build.verify import verify
from build.write import ENTRY, Draft, write

ROOT = Path(__file__).parent.parent
ENTRIES = (ENTRY.partition(":")[0], "trainer", "trainer_boot.__main__")
"""Where the file may be entered besides its distributions' entry points."""
EXAMPLES = """\
examples:
  python -m build                                    dist/trainer.pyz with code for the running Python
  python -m build --python all                       for all that are supported, as for a release
  python -m build --python 3.13 --python 3.11        for two; the first one starts fastest
  python -m build --python ~/python3.12/bin/python3
  python -m build --no-minify --output /tmp/t.pyz    to compare with

What an earlier build made lies in .cache/build and may be deleted.
"""


def main() -> int:
    """Builds; 0, or 1 after an `error:` and a `fix:` line, 130 or 143 where a signal ended it."""
    options = _parser().parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stop)
    try:
        build(options)
    except BuildError as error:
        print(f"error: {error.what}\nfix: {error.fix}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; nothing was replaced", file=sys.stderr)
        return 130
    return 0


def build(options: argparse.Namespace) -> None:
    """lock -> resolve -> collect -> reach -> minify -> compile -> write -> verify. BuildError."""
    say = _silent if options.quiet else _say
    folder = ROOT / ".cache" / "build"
    originals: bool = options.sources
    settings = read_settings(ROOT / "pyproject.toml")
    interpreters = find_interpreters(options.python)
    with _stage("lock", say):
        lock = read_lock(ROOT / "uv.lock")
        require_fresh(ROOT, lock, folder / "fresh")
    with _stage("resolve", say):
        resolution = resolve(lock)
    with _stage("collect", say):
        tree = collect(resolution, ROOT, folder, lock)
    reached = Reach()
    if options.reach:
        with _stage("reach", say):
            tree, reached = reach(tree, ENTRIES, settings["keep"], folder / "reach")
        if reached.left_out:
            say(reached.table())
    for use in uses_of_file(tree):
        say(f"note: {use}")
    if options.minify:
        with _stage("minify", say):
            tree, minified = minify(tree, read_policy(ROOT / "pyproject.toml"), folder / "minified")
        say(minified.table())
    with _stage("compile", say):
        sections = compile_code(tree, interpreters, Cache(folder / "code"), settings["allow-syntax-errors"])
    for section in sections:
        for path, fault in section.unreadable:
            say(f"note: {path} does not compile under Python {section.interpreter.version}: {fault}")
    with Draft(options.output.absolute()) as draft:
        with _stage("write", say):
            name = resolution.root.name
            chosen = {"minify": options.minify, "originals": originals}
            known = facts(ROOT, name, version_of(tree, name), tree, sections, chosen)
            known["left_out"] = reached.names()
            if known["commit"] is None:
                say("note: this is no git repository, so that the file names no commit")
            data = write(
                tree,
                sections,
                known,
                lock=(ROOT / "uv.lock").read_bytes(),
                requirements=resolution.requirements_json().encode(),
                bill=bill_of_materials(tree, lock, resolution, known, settings["allow-no-license"]),
                environment=environment_json(lock),
                originals=originals,
            )
            draft.fill(data)
        with _stage("verify", say):
            verify(draft.path, tree, sections, originals=originals)
        draft.publish()
    if options.report is not None:
        found = report(tree, sections, reached, data)
        options.report.write_text(json.dumps(found, indent=1) + "\n")
        say(table(found))
    say(f"{options.output}: {len(data):,} bytes, code for Python {', '.join(each.version for each in interpreters)}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m build",
        description="Builds trainer.pyz: the trainer and its pure-Python dependencies, as locked, in one file.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--output", type=Path, default=ROOT / "dist" / "trainer.pyz", help="the file (dist/trainer.pyz)"
    )
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="VERSION",
        help="version or path of a Python to make code for, or all (default: the running one, which is always there)",
    )
    parser.add_argument(
        "--no-sources",
        dest="sources",
        action="store_false",
        help="leave the authors' text of minified modules out: tracebacks show line numbers only",
    )
    parser.add_argument(
        "--whole", dest="reach", action="store_false", help="ship bundled modules that the trainer can't reach too"
    )
    parser.add_argument("--no-minify", dest="minify", action="store_false", help="ship modules as they were written")
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write there, as JSON, where the bytes are, and print it as a table"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors only")
    return parser


@contextmanager
def _stage(name: str, say: Callable[[str], None]) -> Iterator[None]:
    start = time.perf_counter()
    yield
    say(f"{name:<8} {time.perf_counter() - start:6.2f} s")


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _silent(line: str) -> None:
    pass


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
