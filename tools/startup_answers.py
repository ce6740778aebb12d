"""Time to an answer that needs no torch: the file against other ways to ship the same code, in units of bare Python."""

import compileall
import statistics
import subprocess
import sys
import tempfile
import time
import zipapp
import zipfile
from pathlib import Path
from typing import Any

WRONG = "[optim]\nlearning_rat = 0.1\n"
# name -> (title, arguments, exit status)
FLOWS: dict[str, tuple[str, list[str], int]] = {
    "version": ("--version", ["--version"], 0),
    "help": ("--help", ["--help"], 0),
    "wrong": ("wrong run file", ["check", "WRONG"], 2),
}


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


def measure(pyz: Path, flows: list[str], rounds: int) -> dict[str, Any]:
    """{"rounds", "pass_ms", title of a flow: {contender: {"ms", "ratio", "spread_ms"}}}."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wrong = folder / "wrong.toml"
        wrong.write_text(WRONG)
        bare = [sys.executable, "-c", "pass"]
        commands = contenders(pyz, folder)
        jobs = {
            (flow, contender): [*command, *(str(wrong) if word == "WRONG" else word for word in FLOWS[flow][1])]
            for flow in flows
            for contender, command in commands.items()
        }
        taken: dict[tuple[str, str], list[float]] = {job: [] for job in jobs}
        base: list[float] = []
        for number in range(rounds + 1):
            order = list(jobs.items())
            for job, command in order if number % 2 else order[::-1]:
                before = milliseconds(bare, 0)
                value = milliseconds(command, FLOWS[job[0]][2])
                if number:  # the first round warms the page cache
                    base.append(before)
                    taken[job].append(value)
    typical = statistics.median(base)
    result: dict[str, Any] = {"rounds": rounds, "pass_ms": round(typical, 2)}
    for (flow, contender), values in taken.items():
        low, _, high = statistics.quantiles(values, n=4)
        median = statistics.median(values)
        result.setdefault(FLOWS[flow][0], {})[contender] = {
            "ms": round(median, 2),
            "ratio": round(median / typical, 3),
            "spread_ms": [round(low, 2), round(high, 2)],
        }
    return result


def lines(result: dict[str, Any]) -> list[str]:
    """The table."""
    told = [f"python -c pass: {result['pass_ms']} ms (median of {result['rounds']} rounds)"]
    for title, _, _ in FLOWS.values():
        if title in result:
            told.append(title)
            told += [
                f"  {contender:<18} {values['ms']:8.2f} ms  {values['ratio']:6.3f} of python -c pass"
                for contender, values in result[title].items()
            ]
    return told
