"""How large is the file beside the same modules in other packages?

The same content for all: the modules that are in trainer.pyz, as their authors wrote them, with their data files and
metadata; what dead-module elimination leaves out counts for nobody. With and without bytecode of one Python: a zipapp
(`python -m zipapp -c`), shiv, pex, and a folder as an installer leaves it, with `__pycache__`. Ours as it is built by
default, without the authors' texts, without bytecode, and with bytecode for several Pythons.

    uv run --group bench python -m tools.bench_size                       writes docs/proofs/size.json
    uv run --group bench python -m tools.bench_size --python 3.11 --python 3.12 --python 3.13
"""

import argparse
import compileall
import json
import shutil
import subprocess
import sys
import tempfile
import zipapp
from pathlib import Path
from typing import Any

from build.__main__ import ENTRIES
from build.collect import collect
from build.interpreters import find_interpreters
from build.lock import read_lock
from build.reach import reach
from build.resolve import resolve
from build.settings import read_settings
from tools.proof import ROOT, write

CACHE = ROOT / ".cache" / "build"
MEMBERS_LIMIT, WHOLE_LIMIT = 0.75, 0.7
MAIN = "import sys\nfrom trainer.cli import main\nsys.exit(main())\n"


def content(folder: Path) -> int:
    """Writes what goes into all packages; the bytes of its modules."""
    whole = collect(resolve(read_lock(ROOT / "uv.lock")), ROOT, CACHE)
    tree, _ = reach(whole, ENTRIES, read_settings(ROOT / "pyproject.toml")["keep"], CACHE / "reach")
    for file in tree:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data if file.original is None else file.original)
    return sum(len(file.original or b"") for file in tree)


def ours(folder: Path, *options: str) -> dict[str, Any]:
    """The report of a build of ours."""
    found = folder / "report.json"
    words = [sys.executable, "-m", "build", "-q", "--output", str(folder / "ours.pyz"), "--report", str(found)]
    subprocess.run([*words, *options], cwd=ROOT, check=True)
    report: dict[str, Any] = json.loads(found.read_text())
    return report


def others(plain: Path, folder: Path) -> dict[str, int | str]:
    """Bytes of the other packages, or why there is none."""
    found: dict[str, int | str] = {}
    sources, compiled = folder / "sources", folder / "compiled"
    for target in (sources, compiled):
        shutil.copytree(plain, target)
        (target / "__main__.py").write_text(MAIN)
    # beside the text: in a zip Python looks nowhere else
    compileall.compile_dir(str(compiled), quiet=1, legacy=True, optimize=0)
    for name, source in (("zipapp", sources), ("zipapp with bytecode", compiled)):
        target = folder / f"{name}.pyz"
        zipapp.create_archive(source, target, compressed=True)
        found[name] = target.stat().st_size
    tools = Path(sys.executable).parent
    target = folder / "shiv.pyz"
    words = ["--site-packages", str(plain), "--entry-point", "trainer.cli:main", "--output-file", str(target)]
    found["shiv"] = _made([str(tools / "shiv"), *words], target)
    found["shiv with bytecode"] = "there is none: it compiles when it unpacks itself at the first start"
    for name, option in (("pex", "--no-compile"), ("pex with bytecode", "--compile")):
        target = folder / f"{name}.pex"
        words = ["--sources-directory", str(plain), "--entry-point", "trainer.cli:main", "--output-file", str(target)]
        found[name] = _made([str(tools / "pex"), *words, "--no-pypi", option], target)
    return found


def installed(plain: Path, folder: Path) -> dict[str, int]:
    """Bytes of the files as an installer leaves them: modules, their bytecode, all files."""
    target = folder / "installed"
    shutil.copytree(plain, target)
    compileall.compile_dir(str(target), quiet=1, optimize=0)
    sizes = {path: path.stat().st_size for path in target.rglob("*") if path.is_file()}
    return {
        "modules": sum(size for path, size in sizes.items() if path.suffix == ".py"),
        "bytecode": sum(size for path, size in sizes.items() if path.suffix == ".pyc"),
        "all files": sum(sizes.values()),
    }


def _made(words: list[str], target: Path) -> int | str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"not here: {error.strerror} (uv run --group bench ...)"
    return target.stat().st_size if done.returncode == 0 else done.stderr.strip()[-200:]


def measured(folder: Path, pythons: list[str]) -> dict[str, Any]:
    """The JSON of the proof, without the verdict."""
    plain = folder / "plain"
    text = content(plain)
    usual = ours(folder)
    result: dict[str, Any] = {
        "modules": sum(row["modules"] for row in usual["packages"].values()),
        "text": text,
        "ours": {
            "one Python": usual["bytes"],
            "one Python, without the authors' texts": ours(folder, "--no-sources")["bytes"],
        },
        "one Python, parts": usual["parts"],
        "packages": usual["packages"],
        "left out, in no figure": usual["left_out"],
        "others": others(plain, folder),
        "installed": installed(plain, folder),
    }
    code = sum(size for part, size in usual["parts"].items() if part.startswith("_trainer/code-"))
    result["ours"]["no bytecode"] = usual["bytes"] - code
    if pythons:
        words = [word for python in pythons for word in ("--python", python)]
        versions = ", ".join(each.version for each in find_interpreters(pythons))
        result["ours"][f"Pythons {versions}"] = ours(folder, *words)["bytes"]
    return result


def verdict(result: dict[str, Any]) -> dict[str, Any]:
    """The two ratios that are promised, and their limits."""
    place = result["installed"]
    whole = result["ours"]["one Python"]
    shiv = result["others"]["shiv"]
    return {
        "minified members / shiv's file": _ratio(result["one Python, parts"]["minified modules"], shiv),
        "limit of that": MEMBERS_LIMIT,
        "one Python / the modules installed with __pycache__": _ratio(whole, place["modules"] + place["bytecode"]),
        "limit of this": WHOLE_LIMIT,
        "the same without the authors' texts": _ratio(
            result["ours"]["one Python, without the authors' texts"], place["modules"] + place["bytecode"]
        ),
    }


def _ratio(part: int, whole: int | str) -> float | None:
    return round(part / whole, 4) if isinstance(whole, int) else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", default=[], metavar="VERSION", help="one more with these")
    parser.add_argument("--no-json", action="store_true", help="print only, leave docs/proofs as it is")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        result = measured(Path(name), arguments.python)
    result = {**verdict(result), **result}
    for group in ("ours", "others", "installed"):
        for name, size in result[group].items():
            print(f"{group:<10} {name:<42} {size if isinstance(size, str) else f'{size:,}':>12}")
    for name, value in result.items():
        if isinstance(value, float):
            print(f"{name:<60} {value}")
    write("size", result, arguments)
    members, whole = (result[name] for name in result if " / " in name)
    return 0 if members is not None and members <= MEMBERS_LIMIT and whole <= WHOLE_LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
