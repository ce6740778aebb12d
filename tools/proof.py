"""What the prove_* tools share: where results go, the file under proof, and running it."""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PYZ = ROOT / "dist" / "trainer.pyz"


def parser(text: str | None) -> argparse.ArgumentParser:
    """What every proof takes: the file under proof, and whether the result is kept."""
    made = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--pyz", type=Path, default=PYZ, metavar="FILE", help="the built file (default: dist/trainer.pyz)"
    )
    made.add_argument("--no-json", action="store_true", help="print only, leave docs/proofs as it is")
    return made


def interpreters(versions: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Minor version and executable of each that is here, outside of any virtual environment; tells of those that are
    not."""
    from tests.boot.bed import python as find_python

    for version in versions:
        running = f"{sys.version_info[0]}.{sys.version_info[1]}" == version
        python = str(Path(sys.base_prefix, "bin", "python3")) if running else find_python(version)
        if python is None:
            print(f"{version}: not here")
        else:
            yield version, python


def need_pyz(path: Path) -> Path:
    """The built file; says how to make it where there is none."""
    if not path.is_file():
        raise SystemExit(f"error: {path} is not there\nfix: uv run python -m build")
    return path.resolve()


def train(pyz: Path, folder: Path, *arguments: str, **more: Any) -> "subprocess.CompletedProcess[str]":
    """Runs `trainer.pyz train` to its end in `folder`."""
    return subprocess.run(
        [sys.executable, str(pyz), "train", *arguments], cwd=folder, capture_output=True, text=True, check=False, **more
    )


def losses(run_folder: Path) -> list[float]:
    """The loss of every update of a run."""
    rows = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "event" not in row]


def weights_sha256(run_folder: Path) -> str:
    """Digest of the newest checkpoint's weights file; equal bytes for equal weights."""
    newest = sorted((run_folder / "checkpoints").glob("step-*"))[-1]
    return f"{newest.name}:{hashlib.sha256((newest / 'model.pt').read_bytes()).hexdigest()}"


def small_text(folder: Path, size: int = 300_000) -> Path:
    """A text file of the standard library's own sources."""
    parts: list[bytes] = []
    total = 0
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        data = path.read_bytes()
        parts.append(data)
        total += len(data)
        if total >= size:
            break
    target = folder / "text.txt"
    target.write_bytes(b"".join(parts)[:size])
    return target


def write(name: str, result: dict[str, Any], arguments: argparse.Namespace) -> None:
    """docs/proofs/NAME.json: the result, with the commit and the machine it was found on."""
    if arguments.no_json:
        return
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    changed = subprocess.run(
        ["git", "status", "--porcelain", "-uno", "--", ":!docs"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    from importlib.metadata import version

    result = {
        "commit": commit.stdout.strip() + (" with changes" if changed.stdout.strip() else ""),
        "python": platform.python_version(),
        "torch": version("torch"),
        "cores": len(os.sched_getaffinity(0)),
        **result,
    }
    target = ROOT / "docs" / "proofs" / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {target.relative_to(ROOT)}", file=sys.stderr)
