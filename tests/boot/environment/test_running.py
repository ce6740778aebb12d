"""Installers that are run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainer_boot.environment import running
from trainer_boot.environment.wheels import told

SOURCE = str(Path(__file__).resolve().parents[3] / "src")


def test_lines_status_and_what_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    beats: list[str] = []
    monkeypatch.setattr(running, "BEAT_SECONDS", 0.1)
    command = ["sh", "-c", "pwd; echo $VIRTUAL_ENV$MORE; printf '\\033[1mbold\\033[0m\\n' >&2; sleep 0.3; exit 4"]
    monkeypatch.setenv("VIRTUAL_ENV", "elsewhere")
    status, text = running.run(command, str(tmp_path), running.environment(MORE="more"), lines.append, beats.append)
    assert (status, lines) == (4, [str(tmp_path), "more", "\x1b[1mbold\x1b[0m"])
    assert text.endswith("bold\n")
    assert beats
    assert beats[0].startswith("still at it")


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    script = f"""
import sys
sys.path.insert(0, {SOURCE!r})
from trainer_boot.environment import running
running.run(["sh", "-c", "echo $$ > number.new; mv number.new number; exec sleep 60"], {str(tmp_path)!r}, dict())
"""
    process = subprocess.Popen([sys.executable, "-c", script])
    number = tmp_path / "number"
    while not number.exists():
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    child = f"/proc/{number.read_text().strip()}/stat"
    end = time.monotonic() + 20
    while time.monotonic() < end and Path(child).exists() and ") Z " not in Path(child).read_text():
        time.sleep(0.01)
    assert not Path(child).exists() or ") Z " in Path(child).read_text()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("error: failed to copy: No space left on device (os error 28)", "no space is left"),
        ("× Failed to download\n╰─▶ Hash mismatch for `torch==2`", "Hash mismatch for `torch==2`"),
        ("error: Failed to fetch: `x`\n  Caused by: dns error: no address", "can't reach the package index"),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM", "not what was locked"),
        ("error: failed to open: Permission denied (os error 13)", "may not write"),
        ("error: failed: Read-only file system (os error 30)", "may not write"),
        ("ERROR: No matching distribution found for uv==1", "not available"),
        ("boom\nerror: something else", "uv failed: error: something else"),
        ("", "uv failed: it said nothing"),
    ],
)
def test_what_an_installer_meant(text: str, what: str) -> None:
    refused = told(text, "uv", "/store")
    assert what in refused.what
    assert refused.fix
    assert "\n" not in refused.what + refused.fix
