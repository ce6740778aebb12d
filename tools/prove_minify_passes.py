"""What each pass of the minifier gains, in bytes as they are and deflated, and what those would that are not taken.

Over the modules in our file and over the running Python's standard library. A pass's gain is the difference that
leaving it out makes. The candidates are python-minifier's other transformations, each alone, on top of our text; the
deflated sizes are sums over single files, as they lie in the zip.

    uv run python -m tools.prove_minify_passes               writes docs/proofs/minify-passes.json
    uv run python -m tools.prove_minify_passes --every 20 --no-json
"""

import argparse
import sys
import sysconfig
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import python_minifier

from build.__main__ import ENTRIES
from build.collect import collect
from build.lock import read_lock
from build.minify.passes import ON_REQUEST, PASSES
from build.minify.printing import Unprintable, render
from build.minify.transform import decode, transform_text
from build.reach import reach
from build.resolve import resolve
from build.settings import read_settings
from tools.proof import ROOT, write

CACHE = ROOT / ".cache" / "build"
ALL = tuple(PASSES)
# option of python-minifier -> why it is off
CANDIDATES = {
    "hoist_literals": "grows the file after compression; adds globals",
    "rename_locals": "breaks locals(), eval, debuggers and tracebacks' local names",
    "rename_globals": "breaks every importer and names that are looked up by text",
    "remove_annotations": "annotations are read at run time",
    "remove_asserts": "asserts guard input and hold assignment expressions",
    "remove_debug": "__debug__ is the user's switch",
    "combine_imports": "next to nothing",
    "remove_object_base": "next to nothing",
    "convert_posargs_to_args": "changes signatures",
    "remove_builtin_exception_brackets": "the class is raised instead of an instance until the interpreter makes one",
    "constant_folding": "next to nothing; the compiler folds itself",
}
TESTS = frozenset({"test", "tests", "idle_test", "site-packages"})
Sizes = dict[str, list[int]]


def bundled() -> Iterator[bytes]:
    """The modules of our file."""
    whole = collect(resolve(read_lock(ROOT / "uv.lock")), ROOT, CACHE)
    tree, _ = reach(whole, ENTRIES, read_settings(ROOT / "pyproject.toml")["keep"], CACHE / "reach")
    for file in tree.modules():
        yield file.original or b""


def library() -> Iterator[bytes]:
    """The standard library's, without tests."""
    home = Path(sysconfig.get_path("stdlib"))
    for path in sorted(home.rglob("*.py")):
        if not TESTS & {*path.relative_to(home).parts}:
            yield path.read_bytes()


def measured(sources: list[bytes], candidates: bool) -> dict[str, Any]:
    """Sizes and gains, (bytes, deflated bytes)."""
    sizes: Sizes = {}
    losing: dict[str, int] = {}
    for source in sources:
        text = decode(source)
        try:
            made = {name: _made(text, tuple(each for each in ALL if each != name)) for name in ("", *ALL)}
            more = {name: _made(text, (*ALL, name)) for name in ON_REQUEST}
        except (SyntaxError, Unprintable):
            continue
        _add(sizes, "original", source)
        _add(sizes, "printed", _made(text, ()))
        _add(sizes, "minified", made[""])
        for name in ALL:
            _add(sizes, f"without {name}", made[name])
            losing[name] = losing.get(name, 0) + (_packed(made[""]) > _packed(made[name]))
        for name, data in more.items():
            _add(sizes, f"with {name}", data)
            losing[name] = losing.get(name, 0) + (_packed(data) > _packed(made[""]))
        for name in CANDIDATES if candidates else ():
            base, other = (_by_printer(made[""].decode(), name, on) for on in (False, True))
            _add(sizes, f"base of {name}", base)
            _add(sizes, f"with {name}", other)
    gains = {
        name: {"gain": _less(sizes[f"without {name}"], sizes["minified"]), "modules_that_grow": losing[name]}
        for name in ALL
    }
    return {
        "modules": len(sources),
        "original": sizes["original"],
        "minified": sizes["minified"],
        "printing": {"gain": _less(sizes["original"], sizes["printed"])},
        "passes": gains,
        "on_request": {
            name: {"gain": _less(sizes["minified"], sizes[f"with {name}"]), "modules_that_grow": losing[name]}
            for name in ON_REQUEST
        },
        "not_taken": {
            name: {"gain": _less(sizes[f"base of {name}"], sizes[f"with {name}"]), "why": why}
            for name, why in (CANDIDATES.items() if candidates else ())
        },
    }


def _made(text: str, passes: tuple[str, ...]) -> bytes:
    return render(transform_text(text, passes)[0], text).encode()


def _by_printer(text: str, option: str, on: bool) -> bytes:
    """python-minifier's output with everything off but one option."""
    options: dict[str, Any] = dict.fromkeys(CANDIDATES, False)
    options |= {"remove_explicit_return_none": False, "remove_literal_statements": False, "remove_pass": False}
    made: str = python_minifier.minify(text, **{**options, option: on})
    return made.encode()


def _add(sizes: Sizes, name: str, data: bytes) -> None:
    total = sizes.setdefault(name, [0, 0])
    total[0] += len(data)
    total[1] += _packed(data)


def _packed(data: bytes) -> int:
    return len(zlib.compress(data, 9))


def _less(before: list[int], after: list[int]) -> list[int]:
    return [before[0] - after[0], before[1] - after[1]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="only each so many-th module")
    parser.add_argument("--no-json", action="store_true", help="print only, leave docs/proofs as it is")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    ours = list(bundled())[:: arguments.every]
    result = {"bundled": measured(ours, True), "library": measured(list(library())[:: arguments.every], False)}
    lost = 0
    for place, found in result.items():
        rows = {"printing": found["printing"], **found["passes"], **found["on_request"], **found["not_taken"]}
        for name, row in rows.items():
            print(f"{place:<8} {name:<34} {row['gain'][0]:>10,} {row['gain'][1]:>10,}  {row.get('why', '')}")
        lost += sum(row["gain"][1] < 0 for row in found["passes"].values())
    print(f"{lost} passes lose after compression")
    write("minify-passes", result, arguments)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
