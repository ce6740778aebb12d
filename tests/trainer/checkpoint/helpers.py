"""Checkpoints made of plain files, and file systems that refuse."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainer.checkpoint.store import Store


def content(step: int, size: int = 5000) -> bytes:
    """Bytes that tell which step they are of."""
    return (f"weights of step {step} ".encode() * (size // 16 + 1))[:size]


def save(store: Store, step: int) -> Path:
    """A checkpoint of three files, one of them in a folder."""
    temporary = store.begin(step)
    (temporary / "model.pt").write_bytes(content(step))
    (temporary / "rank-00000.pt").write_bytes(content(step, 700))
    (temporary / "parts").mkdir()
    (temporary / "parts" / "one.pt").write_bytes(content(step, 90))
    return store.commit(temporary, step, {"step": step, "cursor": step * 32})


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A file system in memory on `folder`; skips the test where this user may not mount."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this user may not mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def hidden(folder: Path) -> list[str]:
    """Names of work in progress."""
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))
