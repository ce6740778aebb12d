"""The same trainer in other packages than its file, made of the sources that are in the file."""

import compileall
import os
import subprocess
import sys
import sysconfig
import zipapp
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

GROUP = "uv run --group bench ..."
MAIN = "import sys\nfrom trainer.cli import main\nsys.exit(main())\n"
# name -> words of `pex` beside the common ones, whether it is run by itself instead of by a Python
PEX: dict[str, tuple[list[str], bool]] = {
    "pex": ([], False),
    "pex, venv": (["--venv"], False),
    "pex, sh-boot": (["--sh-boot"], True),
    "pex, venv, sh-boot": (["--venv", "--sh-boot"], True),
}


class Package(NamedTuple):
    """`command` takes the trainer's arguments; `lacks`: why there is none, or ""."""

    command: list[str]
    environ: tuple[tuple[str, str], ...] = ()
    lacks: str = ""


def packages(pyz: Path, folder: Path) -> dict[str, Package]:
    """Makes them all in `folder`: a plain zipapp (no bytecode inside, as `python -m zipapp` makes it), the same with
    compiled members, shiv, pex in its modes, and the installed package that this Python has."""
    folder = folder / "packages"
    folder.mkdir()
    library, sources = folder / "library", folder / "sources"
    for target in (library, sources):
        with zipfile.ZipFile(pyz) as archive:
            names = [name for name in archive.namelist() if not name.startswith(("__main__", "_trainer"))]
            archive.extractall(target, names)
    (sources / "__main__.py").write_text(MAIN)
    zipapp.create_archive(sources, folder / "zipapp.pyz", compressed=True)
    compileall.compile_dir(str(sources), quiet=1, legacy=True, optimize=0)
    zipapp.create_archive(sources, folder / "zipapp_pyc.pyz", compressed=True)
    python = sys.executable
    found = {
        "zipapp": Package([python, str(folder / "zipapp.pyz")]),
        "zipapp with .pyc": Package([python, str(folder / "zipapp_pyc.pyz")]),
        "shiv": _shiv(library, folder),
    }
    found |= {name: _pex(library, folder, name) for name in PEX}
    return found | {"installed": Package([python, "-m", "trainer"])}


def _shiv(library: Path, folder: Path) -> Package:
    target = folder / "shiv.pyz"
    words = ["shiv", "--site-packages", str(library), "--entry-point", "trainer.cli:main", "--output-file", str(target)]
    lacks = _made(words, folder)
    return Package([sys.executable, str(target)], (("SHIV_ROOT", str(folder / "shiv-root")),), lacks)


def _pex(library: Path, folder: Path, name: str) -> Package:
    options, itself = PEX[name]
    target = folder / f"{name.replace(', ', '-')}.pex"
    root = str(folder / f"{target.stem}-root")
    words = [
        "pex",
        "--sources-directory",
        str(library),
        "--entry-point",
        "trainer.cli:main",
        "--python",
        sys.executable,
    ]
    lacks = _made([*words, "--inherit-path=fallback", "--output-file", str(target), *options], folder, PEX_ROOT=root)
    # the trainer's own children are started by the interpreter that runs it
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
    command = [str(target)] if itself else [sys.executable, str(target)]
    # a venv that pex makes stands on the base interpreter and knows nothing of ours, which has torch
    site = sysconfig.get_paths()["purelib"]
    return Package(command, (("PEX_ROOT", root), ("PATH", path), ("PEX_EXTRA_SYS_PATH", site)), lacks)


def _made(words: list[str], folder: Path, **environ: str) -> str:
    """Runs a packager of the bench group; why it has made nothing, or ""."""
    if find_spec(words[0]) is None:
        return f"{words[0]} is not installed: {GROUP}"
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=folder, env=os.environ | environ, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"{words[0]} failed: {(done.stderr.strip() or 'no word').splitlines()[-1]}"
    return ""
