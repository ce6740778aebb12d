"""Start-up of the file: time to the first update against hand-written scripts, time to an answer against bare Python.

Every contender is run in turn, round after round, each in a session of its own; the figures are medians over the
rounds, with quartiles, and ratios to what was measured in the same rounds: a script of src/trainer/bench/plain/ or
tools/plain/ with nothing of ours in it, torchrun, or `python -c pass`. Needs a built dist/trainer.pyz.

    uv run --group bench python -m tools.bench_startup        all flows, a table each
    uv run python -m tools.bench_startup --flows one,ddp      without the bench group: other trainers and packagers are
                                                              skipped, and the table says so
    uv run python -m tools.bench_startup --flows version --rounds 30
    uv run python -m tools.bench_startup --flows one --place cold,slow,slow-warm
    uv run --group bench python -m tools.bench_startup --json docs/proofs/startup.json --picture docs/startup.svg
    uv run python -m tools.bench_startup --flows one --strace system calls by kind too (needs strace)

Flows: gpt, gpt2 (the built-in model, one process and two ranks on gloo), one, ddp (the same with a model of the user's
own), fsdp, pipeline, dcp (FSDP2 and a checkpoint), n2, n4, n8 (DDP on one node, against torchrun); restart (SIGKILL of
a rank to every rank's next update), memory (PSS of eight ranks); version, help, wrong (a misspelt key in the run file).
Places of the files of first updates: warm (page cache), cold (page cache dropped before each run: as root all of it,
else of the files concerned), slow (a millisecond a request of the file system, mounted anew before each run; root and
/dev/fuse), slow-warm (a second start on such a mount: data is cached, names have expired).
"""

import argparse
import hashlib
import json
import platform
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tools import startup_answers, startup_calls, startup_places, startup_running, startup_steps
from tools.proof import PYZ, need_pyz
from tools.startup_picture import picture
from trainer.bench.rounds import Differs

FLOWS = [*startup_steps.FLOWS, *startup_running.FLOWS, *startup_answers.FLOWS]
STEP_ROUNDS, ANSWER_ROUNDS = 7, 30


def tell(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


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


def chosen(parser: argparse.ArgumentParser, text: str, known: list[str], what: str) -> list[str]:
    """The words of a list on the command line."""
    words = text.split(",")
    unknown = [word for word in words if word not in known]
    if unknown:
        parser.error(f"unknown {what}: {', '.join(unknown)}; there are {', '.join(known)}")
    return words


def first_updates(arguments: argparse.Namespace, pyz: Path, place: str) -> dict[str, Any]:
    """{"rounds", title of a flow: rows}."""
    rounds = arguments.rounds or STEP_ROUNDS
    only = arguments.contenders.split(";") if arguments.contenders else None
    found: dict[str, Any] = {"rounds": rounds}
    for flow in (flow for flow in startup_steps.FLOWS if flow in arguments.flows):
        rows = startup_steps.run(pyz, flow, rounds, tell, startup_places.place(place, pyz), only)
        found[startup_steps.FLOWS[flow].title] = rows
        print(f"[{place}] " + "\n".join(startup_steps.lines(flow, rows)), flush=True)
    return found


def staying(arguments: argparse.Namespace, pyz: Path, flow: str) -> dict[str, Any]:
    """{"rounds", number of ranks: rows}."""
    rounds = arguments.rounds or STEP_ROUNDS
    found: dict[str, Any] = {"rounds": rounds}
    for ranks in startup_running.RANKS[flow]:
        rows = startup_running.measure(pyz, flow, ranks, rounds, tell)
        found[f"{ranks} ranks"] = rows
        print("\n".join(startup_running.lines(flow, ranks, rows)), flush=True)
    return found


def measured(arguments: argparse.Namespace, pyz: Path) -> dict[str, Any]:
    """All that was asked for, printed as it comes."""
    result: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": version("torch"),
        "file": hashlib.sha256(pyz.read_bytes()).hexdigest(),
    }
    if any(flow in startup_steps.FLOWS for flow in arguments.flows):
        for place in arguments.place:
            why = startup_places.lacks(place)
            if why:
                print(f"[{place}] skipped: {why}", flush=True)
                continue
            result["first_update" if place == "warm" else f"first_update, {place}"] = first_updates(
                arguments, pyz, place
            )
    for flow in (flow for flow in startup_running.FLOWS if flow in arguments.flows):
        result[flow] = staying(arguments, pyz, flow)
    answers = [flow for flow in startup_answers.FLOWS if flow in arguments.flows]
    if answers:
        rounds = arguments.rounds or ANSWER_ROUNDS
        rows = startup_answers.measure(pyz, answers, rounds, tell)
        result["answers"] = {"rounds": rounds, **rows}
        print("\n".join(startup_answers.lines(rows)), flush=True)
    if arguments.strace:
        result["system_calls"] = system_calls(pyz, arguments.flows)
        print("\n".join(startup_calls.table(result["system_calls"])))
    return result


def added(before: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """What was measured before of the same file, and now; what is in both, as it is now."""
    if before.get("file") != result["file"]:
        raise SystemExit("error: what is there was measured on another build\nfix: leave --add out, and measure all")
    whole = {**before, **result}
    for part, rows in before.items():
        if isinstance(rows, dict) and part in result:
            whole[part] = {**rows, **result[part]}
    return whole


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pyz", type=Path, default=PYZ, metavar="FILE")
    parser.add_argument("--flows", default=",".join(FLOWS), help="comma-separated (default: %(default)s)")
    parser.add_argument("--place", default="warm", help="comma-separated, for first updates (default: %(default)s)")
    parser.add_argument("--contenders", metavar="NAME;NAME", help="of first updates only these, and the first")
    parser.add_argument("--rounds", type=int, help=f"default: {STEP_ROUNDS} for updates, {ANSWER_ROUNDS} for answers")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--add", action="store_true", help="FILE keeps what it has of other flows and places")
    parser.add_argument("--picture", type=Path, metavar="FILE.svg")
    parser.add_argument("--strace", action="store_true", help="count system calls too")
    arguments = parser.parse_args()
    arguments.flows = chosen(parser, arguments.flows, FLOWS, "flows")
    arguments.place = chosen(parser, arguments.place, list(startup_places.NAMES), "places")
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error("--rounds: at least 1")
    if arguments.strace:
        startup_calls.need_strace()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends what it has started, as Ctrl-C does
    try:
        result = measured(arguments, need_pyz(arguments.pyz))
    except Differs as error:
        raise SystemExit(f"error: {error}") from None
    if arguments.add and arguments.json and arguments.json.is_file():
        result = added(json.loads(arguments.json.read_text()), result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    if arguments.picture:
        arguments.picture.write_text(picture(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
