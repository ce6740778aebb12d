"""Generated programs do the same minified, under each Python.

Every program of tools/program_grammar.py is minified by that Python with all passes, docstrings included. Its text and
the bytecode that a build would make of it must print what the program prints, the text must be the tree that the
passes promise, and minified once more it must not change.

    uv run python -m tools.prove_minify_programs               writes docs/proofs/minify-programs.json
    uv run python -m tools.prove_minify_programs --count 100 --python 3.12 --no-json
"""

import argparse
import json
import subprocess
import sys
from importlib.metadata import distribution
from typing import Any

from build.interpreters import find_interpreters
from tools.proof import ROOT, write

PYTHONS = ["3.11", "3.12", "3.13"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="programs for each Python")
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--python", action="append", default=[], metavar="VERSION", help="3.11, 3.12 and 3.13")
    parser.add_argument("--no-json", action="store_true", help="print only, leave docs/proofs as it is")
    arguments = parser.parse_args()
    printer = str(distribution("python-minifier").locate_file(""))
    rows: dict[str, Any] = {}
    for interpreter in find_interpreters(arguments.python or PYTHONS):
        words = [interpreter.executable, str(ROOT / "tools" / "minified_programs.py")]
        words += [str(arguments.count), str(arguments.first), printer]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        rows[interpreter.version] = json.loads(done.stdout)
        print(interpreter.version, done.stdout.strip()[:500], flush=True)
    faults = sum(len(row["faults"]) for row in rows.values())
    programs = sum(row["programs"] for row in rows.values())
    print(f"{programs} programs, {faults} faults")
    write("minify-programs", {"programs": programs, "faults": faults, "pythons": rows}, arguments)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
