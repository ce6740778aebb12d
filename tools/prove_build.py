"""The same commit gives the same bytes anywhere, and an unchanged rebuild is quick.

Builds in two clones in other folders, one of them with umask 077, TZ=Asia/Tokyo, PYTHONHASHSEED=1 and LC_ALL=C, and
compares the files; then builds once more in the first one.

    uv run python -m tools.prove_build          writes docs/proofs/build.json
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.proof import ROOT, write
from tools.proof import parser as proof_parser

OTHER = {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "1", "LC_ALL": "C"}


def clone(folder: Path) -> Path:
    """The committed state in a folder of its own."""
    subprocess.run(["git", "clone", "--quiet", "--no-local", str(ROOT), str(folder)], check=True)
    return folder


def build(place: Path, *, other: bool) -> tuple[str, float]:
    """(sha256 of the built file, seconds); `other` changes everything that must not matter."""
    environment = {**os.environ, **(OTHER if other else {})}
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "build", "-q"], cwd=place, check=True, env=environment, umask=0o077 if other else -1
    )
    taken = time.perf_counter() - start
    return hashlib.sha256((place / "dist" / "trainer.pyz").read_bytes()).hexdigest(), taken


def main() -> int:
    arguments = proof_parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as name:
        first = clone(Path(name) / "first")
        second = clone(Path(name) / "another place" / "second")
        digest, cold = build(first, other=False)
        elsewhere, _ = build(second, other=True)
        again, warm = build(first, other=False)
        size = (first / "dist" / "trainer.pyz").stat().st_size
    same = digest == elsewhere == again
    print(f"{'identical' if same else 'DIFFERENT'}: {digest[:16]} {elsewhere[:16]} {again[:16]}, {size:,} bytes")
    print(f"first build {cold:.2f} s, unchanged rebuild {warm:.2f} s: ratio {warm / cold:.3f} (limit 0.2)")
    write(
        "build",
        {
            "identical": same,
            "bytes": size,
            "first_s": round(cold, 2),
            "rebuild_s": round(warm, 2),
            "ratio": round(warm / cold, 4),
            "limit": 0.2,
        },
        arguments,
    )
    return 0 if same and warm <= 0.2 * cold else 1


if __name__ == "__main__":
    sys.exit(main())
