"""System calls of a command, counted by strace, in kinds."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from trainer.start_calls import KINDS

NAMES = ("stat", "open", "getdents", "readlink")
TRACED = [call for kind in (*NAMES, "read", "mmap") for call in KINDS[kind]]
_SHARED_FILE = re.compile(r"^(?!/(?:proc|sys|dev|run|tmp)/)/")
_CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+|0x[0-9a-f]+)")
_DESCRIBED = re.compile(r"(?:AT_FDCWD|\d+)?<([^>]*)>")


def need_strace() -> None:
    """Ends with a word where there is no strace."""
    if shutil.which("strace") is None:
        raise SystemExit("error: strace is not installed\nfix: apt-get install strace, or leave --strace out")


def count(command: list[str], folder: Path, environ: dict[str, str] | None = None) -> dict[str, int]:
    """Calls by name, of the command and its children, most frequent first; "total" is all of them."""
    counts = {}
    for line in _strace(["-c"], command, folder, environ):
        parts = line.split()
        if len(parts) >= 5 and parts[0].replace(".", "").isdigit() and parts[3].isdigit():
            counts[parts[-1]] = int(parts[3])
    total = counts.pop("total", sum(counts.values()))
    return dict(sorted(counts.items(), key=lambda item: -item[1])) | {"total": total}


def _strace(options: list[str], command: list[str], folder: Path, environ: dict[str, str] | None) -> list[str]:
    with tempfile.NamedTemporaryFile("r", errors="replace") as table:
        words = ["strace", "-f", *options, "-o", table.name, *command]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, env=environ)
        if done.returncode:
            raise SystemExit(f"error: {' '.join(words)} ended with {done.returncode}\n{done.stderr}")
        return table.read().splitlines()


def kinds(counts: dict[str, int]) -> dict[str, int]:
    """The counts of one command by kind, the rest as "other"."""
    found = {kind: sum(counts.get(call, 0) for call in calls) for kind, calls in KINDS.items()}
    return found | {"other": counts["total"] - sum(found.values()), "total": counts["total"]}


def table(all_of: dict[str, dict[str, int]]) -> list[str]:
    """A line a command: its calls by kind."""
    width = max(map(len, all_of))
    heads = [*KINDS, "other", "total"]
    lines = [f"{'system calls':<{width}} " + "".join(f"{head:>9}" for head in heads)]
    for name, counts in all_of.items():
        found = kinds(counts)
        lines.append(f"{name:<{width}} " + "".join(f"{found[head]:>9}" for head in heads))
    return lines


def demand(command: list[str], folder: Path, environ: dict[str, str] | None = None) -> dict[str, int]:
    """What one start asks of the file system that Python and its packages lie on.

    `opens`: of files that are there. `names`: how many different ones are asked for, there or not, and folders listed;
    the kernel asks for each once. `bytes`: what is read, and of each mapped file as many bytes as the largest mapping
    ends at, as if every page of it were touched: an upper bound. /proc, /sys, /dev, /run and /tmp are local and left
    out.
    """
    options = ["-y", "-e", f"trace={','.join(TRACED)}", "-e", "signal=none"]
    return counted(_strace(options, command, folder, environ))


def counted(log: Iterable[str]) -> dict[str, int]:
    """The demand that a log of strace -f -y has."""
    kind_of = {call: kind for kind, calls in KINDS.items() for call in calls}
    found = {"opens": 0, "names": 0, "bytes": 0}
    names: set[str] = set()
    listed = 0
    mapped: dict[str, int] = {}
    for line in log:
        match = _CALL.match(line)
        kind = kind_of.get(match[1]) if match else None
        if match is None or kind is None:
            continue
        words, value = match[2], match[3]
        if kind in ("stat", "open", "readlink"):
            quoted = re.search(r'"([^"]*)"', words)
            path = os.path.normpath(Path(_file(words) or "/") / (quoted[1] if quoted else ""))
            if _SHARED_FILE.match(path):
                names.add(path)
                found["opens"] += kind == "open" and not value.startswith("-")
            continue
        file = _file(words)
        if file is None or not _SHARED_FILE.match(file):
            continue
        if kind == "getdents":
            listed += 1
        elif kind == "read" and value.isdigit():
            found["bytes"] += int(value)
        elif kind == "mmap":
            parts = words.split(", ")
            mapped[file] = max(mapped.get(file, 0), int(parts[-1], 0) + int(parts[1], 0))
    found["names"] = len(names) + listed
    found["bytes"] += sum(mapped.values())
    return found


def _file(words: str) -> str | None:
    match = _DESCRIBED.search(words)
    return match[1] if match and match[1].startswith("/") else None
