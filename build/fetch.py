"""Fetches wheels from where the lock says that they are, checked against its hashes, into a cache of unpacked ones.

uv does it, so that its cache, proxies, certificates and credentials count: it is given a lock file of the standard
format (pylock.toml, PEP 751) with the one wheel in it.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from build.cache import key_of
from build.errors import BuildError
from build.lock import RELOCK, Artifact, Package
from build.resolve import portable_wheel
from build.uv import find_uv

MIRRORS = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_FIND_LINKS")
"""Variables by which a user names another place for what a registry has."""
AT_ONCE = 4


def unpacked(packages: Iterable[Package], cache: Path, source_root: Path) -> dict[str, Path]:
    """Return, by name, the folder that holds the unpacked wheel of each package; fetches those that are not there.

    BuildError where one has no hash, or where uv, the network or the locked file is missing.
    """
    folders = {package.name: cache / "wheels" / key_of("3", *_locked(package)) for package in packages}
    absent = [package for package in packages if not folders[package.name].is_dir()]
    if absent:
        uv = find_uv()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda package: _fetch(uv, package, folders[package.name], source_root), absent))
    return folders


def discard(folder: Path) -> None:
    """Remove a damaged copy."""
    shutil.rmtree(folder)


def _wheel(package: Package) -> Artifact:
    wheel = portable_wheel(package)
    assert wheel is not None, f"{package.label} is not bundled"
    return wheel


def _locked(package: Package) -> tuple[str, str]:
    """Return name and hash of a package's wheel."""
    wheel = _wheel(package)
    if wheel.hash is None or package.version is None:
        flat = wheel.url is not None and wheel.url.startswith("file:")
        raise BuildError(
            f"uv.lock has no hash for {package.label}",
            "A flat folder of wheels tells uv no hashes. Name the wheel as a `path` source in [tool.uv.sources], or "
            f"serve the folder as a simple index. {RELOCK}"
            if flat
            else RELOCK,
        )
    return wheel.filename, wheel.hash


def _fetch(uv: str, package: Package, folder: Path, source_root: Path) -> None:
    """Unpack the wheel into `folder`, which appears whole or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".new-") as temporary:
        target = Path(temporary, "target")
        ways = [_by_address(package, Path(temporary, "pylock.toml"))]
        if package.source.kind == "registry":
            by_name = _by_name(package, Path(temporary, "requirements.txt"))
            # who names a mirror wants it to be asked; the hash decides in any case
            ways = [by_name, *ways] if any(os.environ.get(name) for name in MIRRORS) else [*ways, by_name]
        said = []
        for words in ways:
            command = [uv, "pip", "install", "--target", str(target), "--no-deps", "--only-binary", ":all:"]
            command += ["--python", sys.executable, "--link-mode", "copy", "--no-progress", *words]
            done = subprocess.run(command, cwd=source_root, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
            said.append(" ".join(done.stderr.partition("error:")[2].split()) or f"exit status {done.returncode}")
        else:
            raise _failure(package, next((text for text in said if "hash" in text.lower()), said[0]))
        try:
            target.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another build was faster
                raise


def _by_address(package: Package, place: Path) -> list[str]:
    """Return the words that install it from the lock's own address; uv looks in its cache first, as `uv sync` does."""
    filename, locked_hash = _locked(package)
    kind, _, digest = locked_hash.partition(":")
    address, hashes = _wheel(package).url or "", f"{{ {kind} = {_text(digest)} }}"
    file = f"{{ name = {_text(filename)}, url = {_text(address)}, hashes = {hashes} }}"
    lines = ['lock-version = "1.0"', 'created-by = "trainer-build"', "[[packages]]"]
    lines += [f"name = {_text(package.name)}", f"version = {_text(package.version or '')}"]
    if package.source.kind == "registry":
        index = package.source.location
        lines += [
            f"index = {_text(index if '://' in index else Path(index).absolute().as_uri())}",
            f"wheels = [{file}]",
        ]
    else:
        lines.append(f"archive = {file}")
    place.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ["-r", str(place)]


def _by_name(package: Package, place: Path) -> list[str]:
    """Return the words that install the wheel from the indexes that uv is told to use, and from the lock's."""
    place.write_text(f"{package.name}=={package.version} --hash={_locked(package)[1]}\n", encoding="utf-8")
    index = package.source.location
    return ["--require-hashes", "-r", str(place), *(["--index", index] if Path(index).is_dir() else [])]


def _failure(package: Package, said: str) -> BuildError:
    what = f"uv could not fetch {package.label}, which is bundled: {said}"
    if "hash" in said.lower():
        return BuildError(
            what,
            "The file there is not the one that was locked. Find out why before you trust it; `uv lock "
            f"--upgrade-package {package.name}` locks the new one.",
        )
    if package.source.kind in ("path", "url"):
        return BuildError(what, f"Check that {package.source.location} is there. What is fetched once is kept.")
    return BuildError(
        what, "Check the network and the index settings of uv, then build again. What is fetched once is kept."
    )


def _text(value: str) -> str:
    return json.dumps(value)  # a basic string of TOML
