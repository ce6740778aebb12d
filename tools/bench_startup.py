"""Start-up of the file: time to the first update against hand-written scripts, time to an answer against bare Python.

Every contender is run in turn, round after round; the figures are medians over the rounds, with quartiles, as ratios to
what was measured in the same rounds: a script in tools/plain/ with nothing of ours in it, or `python -c pass`. Needs a
built dist/trainer.pyz.

    uv run python -m tools.bench_startup                      all flows, a table
    uv run python -m tools.bench_startup --flows one,ddp      first updates only
    uv run python -m tools.bench_startup --flows version --rounds 30
    uv run python -m tools.bench_startup --json docs/proofs/startup.json --picture docs/startup.svg
    uv run python -m tools.bench_startup --strace             system calls too (needs strace)

Flows: one (one process), ddp (two ranks, gloo), version, help, wrong (a misspelt key in the run file).
Contenders for first updates: the script; for two ranks also the script by torchrun; the file without layers of the fast
start, with gc, with gc and overlays, and as it is. For answers: the file; the same sources as a plain zipapp (no
bytecode inside, as `python -m zipapp` makes it); the same with compiled .pyc members; the installed package.
"""

import argparse
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tools import startup_answers, startup_calls, startup_steps
from tools.proof import PYZ, need_pyz
from tools.startup_picture import picture

FLOWS = [*startup_steps.FLOWS, *startup_answers.FLOWS]
STEP_ROUNDS, ANSWER_ROUNDS = 7, 30


def system_calls(pyz: Path, flows: list[str]) -> dict[str, dict[str, int]]:
    """Counts by what was run."""
    found = {}
    if "version" in flows:
        for name, command in {
            "python -c pass": ["-c", "pass"],
            "trainer.pyz --version": [str(pyz), "--version"],
        }.items():
            found[name] = startup_calls.count([sys.executable, *command], pyz.parent)
    if "one" in flows:
        found |= {f"one process, {name}": counts for name, counts in startup_steps.calls(pyz).items()}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pyz", type=Path, default=PYZ, metavar="FILE")
    parser.add_argument("--flows", default=",".join(FLOWS), help="comma-separated (default: %(default)s)")
    parser.add_argument("--rounds", type=int, help=f"default: {STEP_ROUNDS} for updates, {ANSWER_ROUNDS} for answers")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--picture", type=Path, metavar="FILE.svg")
    parser.add_argument("--strace", action="store_true", help="count system calls too")
    arguments = parser.parse_args()
    flows = arguments.flows.split(",")
    unknown = [flow for flow in flows if flow not in FLOWS]
    if unknown or not flows:
        parser.error(f"unknown flows: {', '.join(unknown)}; there are {', '.join(FLOWS)}")
    if arguments.rounds is not None and arguments.rounds < 2:
        parser.error("--rounds: at least 2, or there is no spread")
    if arguments.strace:
        startup_calls.need_strace()
    pyz = need_pyz(arguments.pyz)
    result: dict[str, Any] = {"python": platform.python_version(), "torch": version("torch"), "first_update": {}}
    for flow in (flow for flow in startup_steps.FLOWS if flow in flows):
        rounds = arguments.rounds or STEP_ROUNDS
        result["first_update"]["rounds"] = rounds
        found = result["first_update"][startup_steps.FLOWS[flow][0]] = startup_steps.measure(pyz, flow, rounds)
        print("\n".join(startup_steps.lines(flow, found)), flush=True)
    answers = [flow for flow in startup_answers.FLOWS if flow in flows]
    if answers:
        result["answers"] = startup_answers.measure(pyz, answers, arguments.rounds or ANSWER_ROUNDS)
        print("\n".join(startup_answers.lines(result["answers"])), flush=True)
    if arguments.strace:
        result["system_calls"] = system_calls(pyz, flows)
        for name, counts in result["system_calls"].items():
            print(startup_calls.line(name, counts))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    if arguments.picture:
        arguments.picture.write_text(picture(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
