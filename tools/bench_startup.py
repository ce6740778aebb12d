"""Start-up of the file against bare Python and against other ways to ship the same code.

Every contender is run in turn, round after round; the figures are medians over the rounds, as ratios to
`python -c pass` of the same rounds. Needs a built dist/trainer.pyz.

    uv run python -m tools.bench_startup                      table
    uv run python -m tools.bench_startup --rounds 30 --json docs/proofs/startup.json --picture docs/startup.svg
    uv run python -m tools.bench_startup --strace            system calls of `trainer.pyz --version` too (needs strace)

Contenders: the pyz; the same sources as a plain zipapp (no bytecode inside, as `python -m zipapp` makes it); the same
with compiled .pyc members; the installed package (`python -m trainer`).
"""

import argparse
import compileall
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipapp
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WRONG = "[optim]\nlearning_rat = 0.1\n"
FLOWS = {"--version": ["--version"], "--help": ["--help"], "wrong run file": ["check", "WRONG"]}


def contenders(pyz: Path, folder: Path) -> dict[str, list[str]]:
    """Name -> command that takes the trainer's arguments."""
    sources = folder / "sources"
    with zipfile.ZipFile(pyz) as archive:
        members = [name for name in archive.namelist() if not name.startswith(("__main__", "_trainer", "trainer_boot"))]
        archive.extractall(sources, members)
    (sources / "__main__.py").write_text("import sys\nfrom trainer.cli import main\nsys.exit(main())\n")
    zipapp.create_archive(sources, folder / "zipapp.pyz", compressed=True)
    compileall.compile_dir(str(sources), quiet=1, legacy=True, optimize=0)
    zipapp.create_archive(sources, folder / "zipapp_pyc.pyz", compressed=True)
    python = sys.executable
    return {
        "trainer.pyz": [python, str(pyz)],
        "zipapp": [python, str(folder / "zipapp.pyz")],
        "zipapp with .pyc": [python, str(folder / "zipapp_pyc.pyz")],
        "installed": [python, "-m", "trainer"],
    }


def milliseconds(command: list[str], status: int) -> float:
    """One run, from spawn to exit."""
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, check=False, cwd="/")
    taken = 1000 * (time.perf_counter() - start)
    if done.returncode != status:
        raise SystemExit(f"error: {' '.join(command)} ended with {done.returncode}\n{done.stderr.decode()}")
    return taken


def measure(pyz: Path, rounds: int) -> dict[str, Any]:
    """{"pass_ms": ..., flow: {contender: {"ms", "ratio", "spread"}}}."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wrong = folder / "wrong.toml"
        wrong.write_text(WRONG)
        bare = [sys.executable, "-c", "pass"]
        commands = contenders(pyz, folder)
        jobs = {
            (flow, contender): [*command, *(str(wrong) if word == "WRONG" else word for word in words)]
            for flow, words in FLOWS.items()
            for contender, command in commands.items()
        }
        taken: dict[tuple[str, str], list[float]] = {job: [] for job in jobs}
        base: list[float] = []
        for number in range(rounds + 1):
            order = list(jobs.items())
            for job, command in order if number % 2 else order[::-1]:
                before = milliseconds(bare, 0)
                value = milliseconds(command, 2 if job[0] == "wrong run file" else 0)
                if number:  # the first round warms the page cache
                    base.append(before)
                    taken[job].append(value)
    typical = statistics.median(base)
    result: dict[str, Any] = {"rounds": rounds, "pass_ms": round(typical, 2), "python": sys.version.split()[0]}
    for (flow, contender), values in taken.items():
        low, _, high = statistics.quantiles(values, n=4)
        median = statistics.median(values)
        result.setdefault(flow, {})[contender] = {
            "ms": round(median, 2),
            "ratio": round(median / typical, 3),
            "spread_ms": [round(low, 2), round(high, 2)],
        }
    return result


def system_calls(pyz: Path) -> dict[str, dict[str, int]]:
    """Counts of `strace -f -c` for the pyz's --version and for `python -c pass`."""
    if shutil.which("strace") is None:
        raise SystemExit("error: strace is not installed\nfix: apt-get install strace, or leave --strace out")
    found = {}
    for name, command in {"python -c pass": ["-c", "pass"], "trainer.pyz --version": [str(pyz), "--version"]}.items():
        done = subprocess.run(
            ["strace", "-f", "-c", "-o", "/dev/stderr", sys.executable, *command],
            capture_output=True,
            text=True,
            check=True,
        )
        counts = {}
        for line in done.stderr.splitlines():
            parts = line.split()
            if len(parts) >= 5 and parts[0].replace(".", "").isdigit() and parts[3].isdigit():
                counts[parts[-1]] = int(parts[3])
        found[name] = counts
    return found


def picture(result: dict[str, Any]) -> str:
    """Horizontal bars, a group a flow, as a self-contained SVG; the unit is one `python -c pass`."""
    rows: list[tuple[str, str, float]] = []
    for flow in FLOWS:
        rows += [(flow, contender, values["ratio"]) for contender, values in result[flow].items()]
    widest = max(ratio for _, _, ratio in rows)
    scale = 420 / widest
    parts: list[str] = []
    top, before = 46, ""
    for flow, contender, ratio in rows:
        if flow != before:
            top += 12
            parts.append(f'<text x="16" y="{top + 4}" font-weight="bold">{flow}</text>')
            top += 14
            before = flow
        color = "#2563eb" if contender == "trainer.pyz" else "#94a3b8"
        parts.append(f'<text x="16" y="{top + 11}">{contender}</text>')
        parts.append(f'<rect x="140" y="{top}" width="{ratio * scale:.1f}" height="14" rx="2" fill="{color}"/>')
        parts.append(f'<text x="{146 + ratio * scale:.1f}" y="{top + 11}">{ratio:.2f}</text>')
        top += 20
    line = 140 + scale
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="620" height="{top + 24}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n'
        f'<text x="16" y="24" font-size="14">Time to answer, as a multiple of <tspan font-family="monospace">'
        f"python -c pass</tspan> (shorter is better)</text>\n"
        f'<line x1="{line:.1f}" y1="40" x2="{line:.1f}" y2="{top}" stroke="#dc2626" stroke-dasharray="4 3"/>\n'
        f'<text x="{line + 4:.1f}" y="48" fill="#dc2626">1.0</text>'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pyz", type=Path, default=ROOT / "dist" / "trainer.pyz")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--picture", type=Path, metavar="FILE.svg")
    parser.add_argument("--strace", action="store_true", help="count system calls too")
    arguments = parser.parse_args()
    if not arguments.pyz.is_file():
        print(f"error: {arguments.pyz} is not there\nfix: uv run python -m build", file=sys.stderr)
        return 2
    result = measure(arguments.pyz.resolve(), arguments.rounds)
    print(f"python -c pass: {result['pass_ms']} ms (median of {arguments.rounds} rounds)")
    for flow in FLOWS:
        print(flow)
        for contender, values in result[flow].items():
            print(f"  {contender:<18} {values['ms']:8.2f} ms  {values['ratio']:6.3f} of python -c pass")
    if arguments.strace:
        result["system_calls"] = system_calls(arguments.pyz.resolve())
        for name, counts in result["system_calls"].items():
            print(
                f"{name}: {counts.pop('total', sum(counts.values()))} system calls; "
                + ", ".join(f"{call} {count}" for call, count in sorted(counts.items(), key=lambda item: -item[1])[:8])
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    if arguments.picture:
        arguments.picture.write_text(picture(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
