"""mypy over the whole code base, with an incremental cache that travels.

The cache of one run is good for another clone as long as Python, mypy, the lock and mypy's configuration are the same;
these four make its key. With --share it is taken from one file before the run, where this clone has none yet, and
written back after it, so that a fresh clone or a CI machine starts warm.

    uv run python -m tools.typecheck                    check; prints time and what was rechecked
    uv run python -m tools.typecheck --share            the same, through the shared file of this user
    uv run python -m tools.typecheck --export FILE      check, then write the cache as one file
    uv run python -m tools.typecheck --import FILE      start from such a file
    uv run python -m tools.typecheck --compare          cold, warm, and warm in another folder, side by side
"""

import argparse
import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WRITING = re.compile(r"^LOG:\s+Writing (\S+) ")
FRESH = re.compile(r"^LOG:\s+Metadata fresh for ")


class Checked:
    """One mypy run: exit status, seconds, modules rechecked, modules taken from the cache, what mypy said."""

    def __init__(self, status: int, seconds: float, rechecked: list[str], fresh: int, said: str) -> None:
        self.status = status
        self.seconds = seconds
        self.rechecked = rechecked
        self.fresh = fresh
        self.said = said


def cache_key(root: Path) -> str:
    """Names every input that makes one cache unfit for another run."""
    configuration = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["mypy"]
    parts = [
        f"python {platform.python_version()} {sys.platform} {platform.machine()}",
        f"mypy {version('mypy')}",
        hashlib.sha256((root / "uv.lock").read_bytes()).hexdigest(),
        repr(sorted(configuration.items())),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:20]


def check(root: Path, cache: Path) -> Checked:
    """Runs mypy in `root`, with its verbose log read for what it did."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--verbose", "--cache-dir", str(cache)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - start
    lines = (done.stdout + "\n" + done.stderr).splitlines()
    rechecked = [found.group(1) for line in lines if (found := WRITING.match(line))]
    fresh = sum(1 for line in lines if FRESH.match(line))
    said = "\n".join(line for line in lines if line and not line.startswith("LOG:"))
    return Checked(done.returncode, seconds, rechecked, fresh, said)


def export_cache(cache: Path, target: Path) -> None:
    """The cache folder as one file; written beside and renamed, so that a reader never sees half of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".typecheck-", delete=False) as file:
        temporary = Path(file.name)
        try:
            with tarfile.open(fileobj=file, mode="w:gz", compresslevel=3) as archive:
                for path in sorted(cache.rglob("*")):
                    if path.is_file():
                        archive.add(path, str(path.relative_to(cache)), recursive=False)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def import_cache(source: Path, cache: Path) -> None:
    """Unpacks an exported cache; the folder appears whole or not at all."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(dir=cache.parent, prefix=".import-"))
    try:
        with tarfile.open(fileobj=io.BytesIO(source.read_bytes())) as archive:
            for member in archive:  # by hand: `filter` came with 3.11.4
                target = staging / member.name
                if not member.isfile() or not target.resolve().is_relative_to(staging.resolve()):
                    raise SystemExit(f"error: {source} holds {member.name}\nfix: delete it")
                content = archive.extractfile(member)
                assert content is not None
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())
                os.utime(target, (member.mtime, member.mtime))
        shutil.rmtree(cache, ignore_errors=True)
        staging.rename(cache)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def shared_file(key: str) -> Path:
    """Where --share keeps the file: per user, outside of any clone."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "trainer-pyz" / f"typecheck-{key}.tar.gz"


def report(name: str, checked: Checked) -> None:
    """One line of what a run did."""
    ours = [
        module
        for module in checked.rechecked
        if module.split(".")[0] in ("trainer", "trainer_boot", "build", "tools", "tests")
    ]
    some = ", ".join(sorted(ours)[:6]) + (", ..." if len(ours) > 6 else "")
    print(
        f"{name}: {checked.seconds:.2f} s, rechecked {len(checked.rechecked)} modules"
        f" ({len(ours)} of ours{': ' + some if ours else ''}), {checked.fresh} from the cache",
        file=sys.stderr,
    )


def compare(root: Path) -> int:
    """Cold, warm, and warm after the cache went through a file into another folder."""
    with tempfile.TemporaryDirectory() as folder:
        first, second, packed = Path(folder) / "first", Path(folder) / "second", Path(folder) / "cache.tar.gz"
        cold = check(root, first)
        report("cold", cold)
        warm = check(root, first)
        report("warm", warm)
        export_cache(first, packed)
        start = time.perf_counter()
        import_cache(packed, second)
        print(
            f"file: {packed.stat().st_size / 1e6:.1f} MB, unpacked in {time.perf_counter() - start:.2f} s",
            file=sys.stderr,
        )
        carried = check(root, second)
        report("warm from the file", carried)
        print(
            f"ratios to cold: warm {warm.seconds / cold.seconds:.3f}, from the file "
            f"{carried.seconds / cold.seconds:.3f}"
        )
        print(cold.said)
        return cold.status


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", action="store_true", help="take the cache from, and keep it in, the user's file")
    parser.add_argument("--export", type=Path, metavar="FILE", help="write the cache as one file after the run")
    parser.add_argument("--import", type=Path, metavar="FILE", dest="source", help="start from such a file")
    parser.add_argument("--compare", action="store_true", help="measure cold, warm and imported")
    arguments = parser.parse_args()
    if arguments.compare:
        return compare(ROOT)
    key = cache_key(ROOT)
    cache = ROOT / ".cache" / "mypy" / key
    source = arguments.source
    if arguments.source and not arguments.source.is_file():
        print(f"error: no such cache file: {arguments.source}\nfix: write one with --export", file=sys.stderr)
        return 2
    if arguments.share and not cache.exists() and shared_file(key).exists():
        source = shared_file(key)
    if source:
        try:
            import_cache(source, cache)
        except (OSError, tarfile.TarError) as error:
            print(f"note: {source} is not usable ({error}); starting cold", file=sys.stderr)
    checked = check(ROOT, cache)
    report("warm" if checked.fresh else "cold", checked)
    print(checked.said)
    if checked.status in (0, 1) and cache.exists():
        if arguments.export:
            export_cache(cache, arguments.export)
        if arguments.share and (checked.rechecked or not shared_file(key).exists()):
            export_cache(cache, shared_file(key))
    return checked.status


if __name__ == "__main__":
    sys.exit(main())
