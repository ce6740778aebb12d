"""A damaged file is refused, or does what the whole one does: single bytes, truncations, swapped members.

Each damaged file is started three times: with a command; with a probe that reads and runs all that it can, and prints
a digest; and to verify itself. Silent is what ends well with another output than the whole file's, and a verification
that finds nothing. Bytes of `__main__`, which Python runs before anything can look at it, are counted apart. What is
left of a file cut off within its first 24 bytes is a comment, and a comment is a program that ends well: apart too.

    uv run python -m tools.prove_tampering                      2,000 changes, writes docs/proofs/tampering.json
    uv run python -m tools.prove_tampering --limit 300          as many new ones at most; what was done is kept
    uv run python -m tools.prove_tampering --changes 40 --no-json
"""

import hashlib
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import trainer_boot.layout as layout
from tools.proof import ROOT, need_pyz, write
from tools.proof import parser as proof_parser
from tools.tampering import Shown, Victim, change, judge, run, shows
from trainer_boot.bundle_file import BundleFile

MAIN = "__main__"


class Kept:
    """What was found, a line a change, so that a proof goes on where it stopped; of one file, for one Python."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self._path = folder / f"{name}.jsonl" if folder else None
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists():
                self.rows = {row["seed"]: row for row in map(json.loads, self._path.read_text().splitlines())}

    def add(self, row: dict[str, Any]) -> None:
        """Keeps one."""
        self.rows[row["seed"]] = row
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def damaged(victim: Victim, seed: int, whole: dict[str, Shown], folder: Path, python: str) -> dict[str, Any]:
    """One change and its judgement."""
    made = change(victim, seed)
    place = folder / f"{seed}.pyz"
    place.write_bytes(made.data)
    try:
        outcome, told = judge(shows(place, python), whole)
    finally:
        place.unlink()
    row = {"seed": seed, "kind": made.kind, "region": made.region, "what": made.what}
    return {**row, "outcome": outcome, "told": told}


def comments(victim: Victim, folder: Path) -> int:
    """Of the lengths at which nothing of ours is left, those that end well."""
    place, well = folder / "short.pyz", 0
    for length in range(len(layout.SHEBANG) + 1):
        place.write_bytes(victim.data[:length])
        well += run([str(place)], place).status == 0
    return well


def prove(victim: Victim, kept: Kept, seeds: range, limit: int, jobs: int, python: str) -> Iterator[dict[str, Any]]:
    """Does what is missing, at most `limit`; yields each row as it is found."""
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(jobs) as pool:
        folder = Path(name)
        place = folder / "whole.pyz"
        place.write_bytes(victim.data)
        whole = shows(place, python)
        wrong = [f"{kind}: {shown.error}" for kind, shown in whole.items() if shown.status]
        if wrong:
            raise SystemExit(f"error: the whole file does not run\nfix: {wrong[0]}")
        missing = [seed for seed in seeds if seed not in kept.rows][:limit]
        for row in pool.map(lambda seed: damaged(victim, seed, whole, folder, python), missing):
            kept.add(row)
            yield row


def started_by(python: str, pyz: Path) -> str:
    """The interpreter, and whether there is code for it in the file."""
    told = run(["-c", "import platform; print(platform.python_version())"], pyz, python).output.strip()
    served = BundleFile(str(pyz)).pythons
    return f"Python {told}" + ("" if told.rpartition(".")[0] in served else ", for which there is no code in the file")


def counts(rows: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Kind -> outcome -> how many."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        found.setdefault(row["kind"], Counter())[row["outcome"]] += 1
    return {kind: dict(sorted(counter.items())) for kind, counter in sorted(found.items())}


def main() -> int:
    parser = proof_parser(__doc__)
    parser.add_argument("--changes", type=int, default=2000)
    parser.add_argument("--limit", type=int, default=1 << 30, help="new ones at most")
    parser.add_argument("--jobs", type=int, default=2, help="at the same time (2)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that starts the file")
    parser.add_argument("--name", default="tampering", help="of the JSON")
    arguments = parser.parse_args()
    victim = Victim(need_pyz(arguments.pyz))
    digest = hashlib.sha256(victim.data).hexdigest()
    keep = None if arguments.no_json else ROOT / ".cache" / "proofs"
    kept = Kept(keep, f"{arguments.name}-{digest[:16]}")
    seeds = range(arguments.changes)
    for row in prove(victim, kept, seeds, arguments.limit, arguments.jobs, arguments.python):
        if row["outcome"] == "SILENT":
            print(f"SILENT {row['kind']} in {row['region']}: {row['what']}: {row['told']}")
    rows = [kept.rows[seed] for seed in seeds if seed in kept.rows]
    apart = [row for row in rows if row["region"] == MAIN]
    counted = [row for row in rows if row["region"] != MAIN]
    silent = [row for row in counted if row["outcome"] == "SILENT"]
    silent_apart = [row for row in apart if row["outcome"] == "SILENT"]
    print(f"{len(rows)} of {arguments.changes} changes; silent differences: {len(silent)}")
    for title, listed in (("", counted), ("in __main__, ", apart)):
        for kind, outcomes in counts(listed).items():
            print(f"  {title}{kind}: {', '.join(f'{count} {outcome}' for outcome, count in outcomes.items())}")
    if len(rows) == arguments.changes:
        with tempfile.TemporaryDirectory() as name:
            short = comments(victim, Path(name))
        result = {
            "file_sha256": digest,
            "file_commit": victim.commit,
            "bytes": len(victim.data),
            "started_by": started_by(arguments.python, victim.path),
            "changes": len(rows),
            "silent": len(silent),
            "outcomes": counts(counted),
            "by_region": {region: counts([row for row in counted if row["region"] == region])
                          for region in sorted({row["region"] for row in counted})},
            "in_main": {"changes": len(apart), "silent": len(silent_apart), "outcomes": counts(apart)},
            "silent_rows": silent + silent_apart,
            "lengths_up_to_24_that_end_well": short,
        }  # fmt: skip
        write(arguments.name, result, arguments)
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main())
