"""System calls of a command, counted by strace."""

import shutil
import subprocess
import tempfile
from pathlib import Path

# what asks the file system about names: a metadata server's work
FILES = ("newfstatat", "stat", "lstat", "statx", "openat", "open", "getdents64", "readlink", "access")


def need_strace() -> None:
    """Ends with a word where there is no strace."""
    if shutil.which("strace") is None:
        raise SystemExit("error: strace is not installed\nfix: apt-get install strace, or leave --strace out")


def count(command: list[str], folder: Path, environ: dict[str, str] | None = None) -> dict[str, int]:
    """Calls by name, of the command and its children, most frequent first; "total" is all of them."""
    with tempfile.NamedTemporaryFile("r") as table:
        words = ["strace", "-f", "-c", "-o", table.name, *command]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder, env=environ)
        if done.returncode:
            raise SystemExit(f"error: {' '.join(words)} ended with {done.returncode}\n{done.stderr}")
        counts = {}
        for line in table.read().splitlines():
            parts = line.split()
            if len(parts) >= 5 and parts[0].replace(".", "").isdigit() and parts[3].isdigit():
                counts[parts[-1]] = int(parts[3])
    total = counts.pop("total", sum(counts.values()))
    return dict(sorted(counts.items(), key=lambda item: -item[1])) | {"total": total}


def line(name: str, counts: dict[str, int]) -> str:
    """One line: all, those about files, and the most frequent."""
    about = sum(counts.get(call, 0) for call in FILES)
    frequent = ", ".join(f"{call} {number}" for call, number in list(counts.items())[:8] if call != "total")
    return f"{name}: {counts['total']} system calls, {about} about file names; {frequent}"
