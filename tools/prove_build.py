"""The same commit gives the same bytes anywhere, whoever builds it, and an unchanged rebuild is quick.

Four clones. One is built by this user; one by another user (nobody, or else another number in a namespace), in a folder
with another name, with umask 077, another zone, locale, hash seed, home and clock (faketime, where it is installed);
one without a network, from uv's cache; and one with hardly a variable and SOURCE_DATE_EPOCH. The files, the bills of
materials in them, and a rebuild in the first clone are compared. What this machine can't do is said in the result.

    uv run python -m tools.prove_build          writes docs/proofs/build.json
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from functools import cache as once
from pathlib import Path
from typing import Any

import trainer_boot.layout as layout
from build.errors import BuildError
from build.interpreters import find_interpreters
from tools.proof import ROOT, write
from tools.proof import parser as proof_parser

NOBODY = 65534
OTHER = {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "1", "LC_ALL": "C"}
OTHER_CLOCK = "2001-02-03 04:05:06"
LIMIT = 0.2


class Builder:
    """One who builds: where, as whom, and in which environment."""

    def __init__(self, name: str, place: Path, says: dict[str, str]) -> None:
        self.name = name
        self.place = place
        self.says = says
        self.prefix: list[str] = []
        self.environment = dict(os.environ)
        self.umask = -1

    def build(self, *words: str) -> float:
        """Seconds."""
        start = time.perf_counter()
        command = [*self.prefix, sys.executable, "-m", "build", "-q", *words]
        done = subprocess.run(
            command, cwd=self.place, env=self.environment, umask=self.umask, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"error: {self.name} cannot build\nfix: {done.stderr.strip()}")
        return time.perf_counter() - start

    def digests(self) -> tuple[str, str]:
        """SHA-256 of the file and of the bill of materials in it."""
        content = (self.place / "dist" / "trainer.pyz").read_bytes()
        with zipfile.ZipFile(self.place / "dist" / "trainer.pyz") as archive:
            bill = archive.read(layout.BILL)
        return hashlib.sha256(content).hexdigest(), hashlib.sha256(bill).hexdigest()


@once
def commit() -> str:
    """The commit that all build, whatever is committed meanwhile."""
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def clone(folder: Path) -> Path:
    """That state in a folder of its own."""
    subprocess.run(["git", "clone", "--quiet", "--no-local", "--no-checkout", str(ROOT), str(folder)], check=True)
    subprocess.run(["git", "checkout", "--quiet", "--detach", commit()], cwd=folder, check=True)
    return folder


def works(*command: str) -> bool:
    """Whether this machine can do that."""
    return bool(shutil.which(command[0])) and subprocess.run(command, capture_output=True, check=False).returncode == 0


def another(folder: Path, cache: Path) -> Builder:
    """Everything that must not matter is otherwise."""
    place = clone(folder / "another place" / "second, with a longer name")
    home = folder / "home of another"
    home.mkdir()
    says = {"folder": "another", "umask": "077", "zone": "Asia/Tokyo", "locale": "C", "hash seed": "1"}
    builder = Builder("another one", place, says)
    builder.umask = 0o077
    builder.environment |= {**OTHER, "HOME": str(home), "UV_CACHE_DIR": str(home / "cache"), "UV_OFFLINE": "1"}
    builder.environment.setdefault("PYENV_ROOT", str(Path.home() / ".pyenv"))
    shutil.copytree(cache, home / "cache", symlinks=True)
    as_nobody = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    # the interpreter may lie in the home of this user
    as_nobody += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    as_number = ["unshare", "-U", "--map-user=12345", "--map-group=12345"]
    if os.geteuid() == 0 and works(*as_nobody, "env", sys.executable, "-c", "import json"):
        folder.chmod(0o755)
        for path in (home, place.parent):
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(path)], check=True)
        builder.prefix, builder.says["user"] = as_nobody, "nobody, who may read all files"
    elif works(*as_number, sys.executable, "-c", ""):
        builder.prefix, builder.says["user"] = as_number, "12345, in a namespace"
    else:
        builder.says["user"] = "the same: neither setpriv nor unshare works here"
    if works("faketime", OTHER_CLOCK, "true"):
        builder.prefix, builder.says["clock"] = [*builder.prefix, "faketime", OTHER_CLOCK], OTHER_CLOCK
    else:
        builder.says["clock"] = "the same: no faketime here"
    return builder


def without_network(folder: Path, cache: Path) -> Builder:
    """Nothing but the loopback interface, which is down; packages come from uv's cache."""
    builder = Builder("one without a network", clone(folder / "third"), {"packages": "from uv's cache"})
    builder.environment |= {"UV_OFFLINE": "1", "UV_CACHE_DIR": str(cache)}
    inside = ["unshare", "-r", "-n"]
    reach = "import socket; socket.create_connection(('192.0.2.1', 80), 3)"
    if works(*inside, sys.executable, "-c", ""):
        assert not works(*inside, sys.executable, "-c", reach)
        builder.prefix, builder.says["network"] = inside, "none: a namespace of its own"
    else:
        builder.says["network"] = "there: unshare -n does not work here; uv was told to be offline"
    return builder


def bare(folder: Path, cache: Path) -> Builder:
    """SOURCE_DATE_EPOCH, and hardly a variable besides."""
    builder = Builder("one with hardly a variable", clone(folder / "fourth"), {"SOURCE_DATE_EPOCH": "77"})
    builder.environment = {name: os.environ[name] for name in ("PATH", "HOME", "UV") if name in os.environ}
    builder.environment |= {"UV_OFFLINE": "1", "UV_CACHE_DIR": str(cache), "SOURCE_DATE_EPOCH": "77"}
    return builder


def pythons() -> list[str]:
    """The words that ask for code for all supported Pythons, where they are here."""
    try:
        find_interpreters(["all"])
    except BuildError:
        return []
    return ["--python", "all"]


def warmed(folder: Path) -> Path:
    """A cache of uv's own making with what a build fetches."""
    cache = folder / "uv cache"
    first = Builder("the one who fills uv's cache", clone(folder / "zeroth"), {})
    first.environment |= {"UV_CACHE_DIR": str(cache)}
    first.build()
    return cache


def main() -> int:
    arguments = proof_parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cache = warmed(folder)
        first = Builder("this user", clone(folder / "first"), {})
        cold = first.build()
        plain = first.digests()
        warm = first.build()
        again = first.digests()
        size = (first.place / "dist" / "trainer.pyz").stat().st_size
        makers: list[Callable[[Path, Path], Builder]] = [another, without_network, bare]
        builders = [first, *(make(folder, cache) for make in makers)]
        found: list[dict[str, Any]] = []
        for builder in builders:
            builder.build(*pythons())
            digest, bill = builder.digests()
            found.append({"builder": builder.name, "what": builder.says, "sha256": digest, "sbom_sha256": bill})
            print(f"{digest[:16]} sbom {bill[:16]} {builder.name}: {builder.says}")
        largest = (first.place / "dist" / "trainer.pyz").stat().st_size
    same = plain == again and len({(row["sha256"], row["sbom_sha256"]) for row in found}) == 1
    print(
        f"{'identical' if same else 'DIFFERENT'}: {size:,} bytes for one Python, {largest:,} for {pythons() or 'one'}"
    )
    print(f"first build {cold:.2f} s, unchanged rebuild {warm:.2f} s: ratio {warm / cold:.3f} (limit {LIMIT})")
    write(
        "build",
        {
            "identical": same,
            "bytes": size,
            "pythons": " ".join(pythons()[1:]) or "one",
            "bytes_of_that": largest,
            "builders": found,
            "first_s": round(cold, 2),
            "rebuild_s": round(warm, 2),
            "ratio": round(warm / cold, 4),
            "limit": LIMIT,
        },
        arguments,
    )
    return 0 if same and warm <= LIMIT * cold else 1


if __name__ == "__main__":
    sys.exit(main())
