"""The fast start on each supported Python, with the locked torch.

For each an environment is made from the lock, the file is built with that Python, and run: the first updates of the
built-in model and of one of the user's own, on one rank and two, must have the losses of the hand-written scripts, bit
for bit, with every layer on or aside for the reason that is told; and a choice of real calls must give the same after a
start with either policy (prove_hazards; all of them with --all-calls).

    uv run python -m tools.prove_pythons                        3.11, 3.12 and 3.13, writes docs/proofs/pythons.json
    uv run python -m tools.prove_pythons --pythons 3.13 --no-json

The interpreters are those that uv finds; PYTHONS_FOLDER, if set, is where environments are made (else a temporary one).
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.proof import ROOT, write
from tools.proof import parser as proof_parser

PYTHONS = ("3.11", "3.12", "3.13")
FLOWS = "gpt,gpt2,one,ddp,fsdp"
CONTENDERS = "trainer;trainer, policy fast;trainer exec"
CALLS = (
    "compile_eager", "export", "sharded_training", "pipelines", "raw_meta_sum", "default_device_meta", "operator_names",
    "trees_of_sizes", "names_of_modules", "walks", "module_objects",
)  # fmt: skip


def uv() -> list[str]:
    """The words that start uv: the one that runs this, or the repository's own."""
    return [os.environ["UV"]] if os.environ.get("UV") else ["sh", str(ROOT / "tools" / "uv")]


def run(words: list[str], **environment: str) -> str:
    """What it printed; SystemExit with the end of its errors where it fails."""
    environ = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONHOME")}
    done = subprocess.run(
        words, cwd=ROOT, env=environ | environment, capture_output=True, text=True, check=False, timeout=3000
    )
    if done.returncode:
        raise SystemExit(
            f"error: {' '.join(words)}: status {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-3000:]}"
        )
    return done.stdout


def shown(version: str, folder: Path, every_call: bool) -> dict[str, Any]:
    """What one Python shows."""
    place = folder / f"python-{version}"
    tell(version, "environment")
    run([*uv(), "sync", "--locked", "--python", version], UV_PROJECT_ENVIRONMENT=str(place))
    python = str(place / "bin" / "python")
    pyz, found = folder / f"trainer-{version}.pyz", folder / f"found-{version}.json"
    tell(version, "build")
    run([python, "-m", "build", "--quiet", "--output", str(pyz)])
    tell(version, "first updates")
    words = ["-m", "tools.bench_startup", "--flows", FLOWS, "--rounds", "1", "--contenders", CONTENDERS]
    run([python, *words, "--pyz", str(pyz), "--json", str(found)])
    flows = json.loads(found.read_text())["first_update"]
    tell(version, "calls")
    printed = run([python, "tools/prove_hazards.py", "--no-json", *(() if every_call else CALLS)])
    return {
        "python": run([python, "-c", "import platform; print(platform.python_version())"]).strip(),
        "torch": run([python, "-c", "import torch; print(torch.__version__)"]).strip(),
        "first_updates": {title: summary(rows) for title, rows in flows.items() if title != "rounds"},
        "calls": [line for line in printed.splitlines() if " calls the same " in line],
    }


def summary(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Ratio to plain in the one round, and the layers, of each contender. A skipped one is an error."""
    wrong = {name: row["skipped"] for name, row in rows.items() if "skipped" in row}
    if wrong:
        raise SystemExit(f"error: {wrong}")
    return {
        name: {"ratio": row["ratio"], "losses": row["losses"], "layers": [told(note) for note in row["layers"]]}
        for name, row in rows.items()
    }


def told(note: dict[str, Any]) -> str:
    """A layer in a line; of the overlays also how many are aside."""
    parts = [f"{part['name']} {part['why']}" for part in note.get("overlays", []) if part["state"] == "aside"]
    return f"{note['layer']} {note['state']}" + (f": {'; '.join(parts) or note['why']}" if parts or note["why"] else "")


def tell(version: str, what: str) -> None:
    """Progress, on standard error."""
    print(f"Python {version}: {what}", file=sys.stderr, flush=True)


def main() -> int:
    parser = proof_parser(__doc__)
    parser.add_argument("--pythons", default=",".join(PYTHONS), help="comma-separated (default: %(default)s)")
    parser.add_argument("--all-calls", action="store_true", help="all calls of prove_hazards: an hour for each Python")
    arguments = parser.parse_args()
    result = {}
    with tempfile.TemporaryDirectory(prefix="pythons-") as name:
        folder = Path(os.environ.get("PYTHONS_FOLDER") or name)
        for version in arguments.pythons.split(","):
            result[version] = shown(version, folder, arguments.all_calls)
            print(json.dumps({version: result[version]}, indent=1), flush=True)
    write("pythons", {"pythons": result}, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
