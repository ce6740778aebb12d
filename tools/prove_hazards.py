"""Does everything that torch can do still work after a fast start? Real calls, each in a process of its own.

    uv run python tools/prove_hazards.py                 all calls, plain and fast, results compared (an hour)
    uv run python tools/prove_hazards.py CALL ...        these only
    uv run python tools/prove_hazards.py --policy fast   with one policy

Each process trains two steps first (AdamW), so that a fast one has its overlays in use; then comes the call. The
results must be the same, and a fast process must have begun the call without torch._dynamo, and under the policy "fast"
with modules that wait. Policies are those of start.policy: safe (no module waits), fast (some do).
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools import hazards, proof

POLICIES = {
    "safe": "gc,snapshot,prefetch,libraries,overlays",
    "fast": "gc,snapshot,prefetch,libraries,lazy,overlays",
}
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


def compared(layers: str, *names: str, plain: dict[str, Any] | None = None) -> dict[str, Any]:
    """Both ways; `same`: equal results, `proves`: only the plain process had imported the compiler by then, and modules
    waited if they should. `plain`: what an earlier plain process gave."""
    plain = plain or one("", *names)
    fast = one(layers, *names)
    same = "error" not in plain and plain.get("result") == fast.get("result")
    proves = plain.get("compiler_before") is True and fast.get("compiler_before") is False
    if "lazy" in layers.split(","):
        proves = proves and fast.get("waiting_before", 0) > 0
    return {"same": same, "proves": proves, "plain": plain, "fast": fast}


def main() -> None:
    """Makes the calls and writes what came of them."""
    parser = proof.parser(__doc__)
    parser.add_argument("--policy", choices=list(POLICIES), help="default: each")
    parser.add_argument("calls", nargs="*", metavar="CALL", help=f"of: {' '.join(hazards.CALLS)}")
    arguments = parser.parse_args()
    policies = {name: layers for name, layers in POLICIES.items() if arguments.policy in (None, name)}
    rows: dict[str, dict[str, str]] = {policy: {} for policy in policies}
    for name in arguments.calls or list(hazards.CALLS):
        plain = one("", name)
        for policy, layers in policies.items():
            row = compared(layers, name, plain=plain)
            good = row["same"] and row["proves"]
            rows[policy][name] = "same" if good else "different"
            verdict = "same" if row["same"] else "DIFFERENT"
            print(f"{name:26} {policy:5} {verdict}{'' if row['proves'] else ' (proves nothing)'}", flush=True)
            if not row["same"]:
                print(f"  plain {row['plain']}\n  fast  {row['fast']}", flush=True)
    counts = {policy: list(calls.values()).count("same") for policy, calls in rows.items()}
    for policy, calls in rows.items():
        print(f"{counts[policy]} of {len(calls)} calls the same after a start with the policy {policy}")
    if not arguments.calls and arguments.policy is None:
        found = {
            policy: {"layers": POLICIES[policy], "same": counts[policy], "of": len(calls), "calls": calls}
            for policy, calls in rows.items()
        }
        proof.write("hazards", {"policies": found}, arguments)
    sys.exit(0 if all(counts[policy] == len(calls) for policy, calls in rows.items()) else 1)


if __name__ == "__main__":
    main()
