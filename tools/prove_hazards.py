"""Does everything that torch can do still work after a fast start? Real calls, each in a process of its own.

    uv run python tools/prove_hazards.py                 all calls, plain and fast, results compared (minutes)
    uv run python tools/prove_hazards.py CALL ...        these only

Both processes train two steps first (AdamW), so that the fast one has its overlays in use; then comes the call. The
results must be the same, and the fast process must have begun the call without torch._dynamo.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import hazards, proof

LAYERS = "gc,snapshot,overlays"
MARK = "RESULT "


def one(layers: str, *names: str) -> dict[str, Any]:
    """In a new process: what the calls gave, or the last line of the error."""
    words = [sys.executable, "-m", "tools.hazards", layers, *names]
    paths = os.pathsep.join([str(proof.ROOT / "src"), str(proof.ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        words, cwd=proof.ROOT, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode or not lines:
        return {"error": done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]}
    return dict(json.loads(lines[-1].removeprefix(MARK)))


def compared(layers: str, *names: str) -> dict[str, Any]:
    """Both ways; `same`: equal results, `proves`: only the plain process had imported the compiler by then."""
    plain, fast = one("", *names), one(layers, *names)
    same = "error" not in plain and plain.get("result") == fast.get("result")
    proves = plain.get("compiler_before") is True and fast.get("compiler_before") is False
    return {"same": same, "proves": proves, "plain": plain, "fast": fast}


def main() -> None:
    """Makes the calls and writes what came of them."""
    parser = proof.parser(__doc__)
    parser.add_argument("--layers", default=LAYERS, help=f"layers of the fast start (default: {LAYERS})")
    parser.add_argument("calls", nargs="*", metavar="CALL", help=f"of: {' '.join(hazards.CALLS)}")
    arguments = parser.parse_args()
    rows = {}
    for name in arguments.calls or list(hazards.CALLS):
        row = rows[name] = compared(arguments.layers, name)
        verdict = "same" if row["same"] else "DIFFERENT"
        print(f"{name:24} {verdict}{'' if row['proves'] else ' (proves nothing)'}", flush=True)
        if not row["same"]:
            print(f"  plain {row['plain']}\n  fast  {row['fast']}", flush=True)
    good = [name for name, row in rows.items() if row["same"] and row["proves"]]
    print(f"{len(good)} of {len(rows)} calls the same after a fast start")
    if not arguments.calls:
        kept = {name: "same" if name in good else "different" for name in rows}
        proof.write(
            "hazards", {"layers": arguments.layers, "same": len(good), "of": len(rows), "calls": kept}, arguments
        )
    sys.exit(0 if len(good) == len(rows) else 1)


if __name__ == "__main__":
    main()
