"""What a start took, phase by phase: a file a rank in <run folder>/start, a table, and a timeline."""

import contextlib
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from trainer import startup
from trainer.launch import comm
from trainer.launch.detect import World
from trainer.schema import Start

FOLDER = "start"
TIMELINE = "timeline.svg"
SHOWN = {"aside": "skipped"}  # states of layers, for people
SHOWN_RANKS = 64  # of more the slowest are drawn

Report = dict[str, Any]


class Reporter:
    """Called once, after the first update. Where the report is to be shown or calls are counted, collective: rank 0
    prints the table and draws the timeline."""

    def __init__(self, world: World, folder: Path, notes: list[dict[str, object]], start: Start) -> None:
        self.world = world
        self.folder = folder / FOLDER
        self.notes = notes
        self.start = start

    def __call__(self) -> None:
        startup.mark("first update")
        for note in self.notes:
            if note["layer"] == "snapshot" and note["state"] == "on":
                note.update(startup.served())
        report = make(self.world, startup.phases(), self.notes)
        if self.start.calls:
            report["calls"] = self._calls()
        try:
            write(self.folder, report)
        except OSError as error:  # the run itself writes elsewhere and says so where that fails
            print(f"no start report: {error}", file=sys.stderr)
        if not (self.start.report or self.start.calls):
            return
        comm.barrier()  # the other ranks' files
        if self.world.rank == 0:
            reports = read(self.folder)
            print("\n".join(table(reports)), file=sys.stderr, flush=True)
            with contextlib.suppress(OSError):
                (self.folder / TIMELINE).write_text(timeline(reports), encoding="utf-8")

    def _calls(self) -> dict[str, int]:
        """By kind; then nobody is traced any more."""
        from trainer import start_calls

        comm.barrier()  # one tracer may have all ranks
        start_calls.stop()
        forked = any(note["layer"] == "fork" and note["state"] == "on" for note in self.notes)
        found = start_calls.counted(parent=forked)
        comm.barrier()
        if self.world.local_rank == 0:
            start_calls.clear()
        return found


def make(world: World, phases: list[tuple[str, int, int]], notes: list[dict[str, object]]) -> Report:
    """The report of this rank. Times in seconds since its process was started, which `started` (seconds since 1970) and
    `started_ns` (time.monotonic_ns, the same for all processes of a machine) place; all known to 10 ms, a clock tick.

    Keys: rank, world_size, host, process, started, started_ns, seconds, phases (name, begin, end, shared_objects: how
    many seconds of it went into opening such), layers (as the boot package notes them), modules (imported ones: all,
    torch); calls (system calls of the process so far, by kind), where they were asked for.
    """
    origin = phases[0][1]
    return {
        "rank": world.rank,
        "world_size": world.world_size,
        "host": socket.gethostname(),
        "process": os.getpid(),
        "started": round(time.time() - (time.monotonic_ns() - origin) / 1e9, 4),
        "started_ns": origin,
        "seconds": round((phases[-1][2] - origin) / 1e9, 6),
        "phases": [
            {
                "name": name,
                "begin": round((begin - origin) / 1e9, 6),
                "end": round((end - origin) / 1e9, 6),
                "shared_objects": round(startup.opening(begin, end) / 1e9, 6),
            }
            for name, begin, end in phases
        ],
        "layers": notes,
        "modules": {"all": len(sys.modules), "torch": sum(name.partition(".")[0] == "torch" for name in sys.modules)},
    }


def write(folder: Path, report: Report) -> None:
    """Puts a rank's report in its place: whole, or not at all. OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"rank-{report['rank']:05d}.json"
    temporary = target.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(report, indent=1, default=str) + "\n", encoding="utf-8")
    temporary.replace(target)


def read(folder: Path) -> list[Report]:
    """The reports of the last start, by rank. A rank whose file is missing or unreadable is left out."""
    reports: list[Report] = []
    count, rank = 1, 0
    while rank < count:
        with contextlib.suppress(OSError, ValueError):
            report = json.loads((folder / f"rank-{rank:05d}.json").read_text(encoding="utf-8"))
            count = max(count, int(report["world_size"]) if rank == 0 else count)
            reports.append(report)
        rank += 1
    return reports


def slowest(reports: list[Report]) -> Report:
    """The rank whose first update was done last, by the machines' clocks."""
    return max(reports, key=lambda report: report["started"] + report["seconds"])


def table(reports: list[Report], end: str = "the end of the first update") -> list[str]:
    """Lines for people: the phases of the slowest rank to `end`, then its layers."""
    if not reports:
        return ["start: no rank left a report"]
    last = slowest(reports)
    count = reports[0]["world_size"]
    whose = f"; rank {last['rank']} of {count} on {last['host']} was last" if count > 1 else ""
    lines = [f"start: {last['seconds']:.2f} s to {end}{whose}"]
    if len(reports) < count:
        there = {report["rank"] for report in reports}
        missing = [str(rank) for rank in range(count) if rank not in there]
        lines.append(f"  without reports: rank {', '.join(missing[:8])}{', ...' if len(missing) > 8 else ''}")
    for phase in last["phases"]:
        seconds = phase["end"] - phase["begin"]
        lines.append(_line(phase["name"], seconds, last["seconds"]))
        if phase.get("shared_objects", 0) >= 0.0005:
            lines.append(_line("  of it shared objects", phase["shared_objects"], last["seconds"]))
    if "calls" in last:
        lines.append("  system calls: " + ", ".join(f"{kind} {count}" for kind, count in last["calls"].items()))
    for note in last["layers"]:
        told = "; ".join(part for part in (str(note.get("why", "")), _facts(note)) if part)
        lines.append(
            f"  layer {note['layer']}: {SHOWN.get(str(note['state']), note['state'])}" + (f" ({told})" if told else "")
        )
    return lines


def _line(name: str, seconds: float, whole: float) -> str:
    return f"  {name:<28} {seconds:8.3f} s  {100 * seconds / (whole or 1):5.1f} %"


def _facts(note: dict[str, Any]) -> str:
    """What a layer has noted besides its state; of lists of notes how many are in which state."""
    facts = []
    for name, value in note.items():
        if isinstance(value, list) and value and all(isinstance(each, dict) and "state" in each for each in value):
            states = [each["state"] for each in value]
            facts += [f"{states.count(state)} {name} {SHOWN.get(state, state)}" for state in dict.fromkeys(states)]
        elif isinstance(value, int | float) and not isinstance(value, bool):
            facts.append(f"{name} {value}")
    return ", ".join(facts)


def timeline(reports: list[Report]) -> str:
    """A bar a rank, a colour a phase, as a self-contained SVG; at most 64 ranks, the slowest. Ranks of several machines
    are placed by their clocks."""
    from html import escape

    if not reports:
        return '<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"/>\n'
    zero = min(report["started"] for report in reports)
    drawn = sorted(reports, key=lambda report: -report["started"] - report["seconds"])[:SHOWN_RANKS]
    drawn.sort(key=lambda report: int(report["rank"]))
    span = max(report["started"] + report["seconds"] for report in reports) - zero
    scale = 760 / (span or 1)
    names = list(dict.fromkeys(phase["name"] for report in drawn for phase in report["phases"]))
    colors = {name: f"hsl({at * 360 // len(names)}, 60%, {45 + 15 * (at % 2)}%)" for at, name in enumerate(names)}
    parts: list[str] = []
    top = 44
    for report in drawn:
        parts.append(f'<text x="16" y="{top + 12}">rank {report["rank"]}</text>')
        for phase in report["phases"]:
            left = 90 + (report["started"] - zero + phase["begin"]) * scale
            width = (phase["end"] - phase["begin"]) * scale
            told = f"rank {report['rank']} on {report['host']}: {phase['name']}, {phase['end'] - phase['begin']:.3f} s"
            opening = phase.get("shared_objects", 0) * scale
            if opening:
                told += f", {phase['shared_objects']:.3f} s of it shared objects (the dark part)"
            parts.append(
                f'<g><title>{escape(told)}</title><rect x="{left:.2f}" y="{top}" width="{width:.2f}" height="16" '
                f'fill="{colors[phase["name"]]}"/><rect x="{left:.2f}" y="{top + 11}" width="{opening:.2f}" '
                f'height="5" fill-opacity="0.45"/></g>'
            )
        top += 20
    parts += _axis(span, scale, top)
    top += 40
    for at, name in enumerate(names):
        left, line = 90 + at % 4 * 195, top + at // 4 * 18
        parts.append(f'<rect x="{left}" y="{line}" width="11" height="11" fill="{colors[name]}"/>')
        parts.append(f'<text x="{left + 16}" y="{line + 10}">{escape(name)}</text>')
    height = top + (len(names) + 3) // 4 * 18 + 12
    which = "" if len(drawn) == len(reports) else f", the {len(drawn)} slowest of {len(reports)} ranks"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="880" height="{height}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
        f'<text x="16" y="24" font-size="14">From the start of the processes to the first update, {span:.2f} s'
        f"{which}</text>"
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _axis(span: float, scale: float, top: int) -> list[str]:
    """Ticks at 1, 2 or 5 times a power of ten seconds, at most ten."""
    unit = 0.001
    steps = (2.0, 2.5, 2.0)
    at = 0
    while span / unit > 10:
        unit *= steps[at % 3]
        at += 1
    parts = []
    for number in range(int(span / unit) + 1):
        left = 90 + number * unit * scale
        parts.append(f'<line x1="{left:.1f}" y1="{top}" x2="{left:.1f}" y2="{top + 5}" stroke="black"/>')
        parts.append(f'<text x="{left:.1f}" y="{top + 18}" text-anchor="middle">{number * unit:g} s</text>')
    return parts
