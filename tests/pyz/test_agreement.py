"""Two ranks that were started from two different files stop, and say so, before they train."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def two(pyz: Path, other_pyz: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of both ranks, 0.pyz and 1.pyz: one is built without the authors' texts."""
    folder = tmp_path_factory.mktemp("two")
    shutil.copy(pyz, folder / "0.pyz")
    shutil.copy(other_pyz, folder / "1.pyz")
    (folder / "text.txt").write_text("some text to train on. " * 2000)
    return folder


WORDS = ["train", "--run.steps", "1", "--model.layers", "1", "--model.width", "32", "--data.sequence", "16"]
WORDS += ["--data.text", '["text.txt"]', "--batch.size", "2", "--log.progress", "none", "--run.device", "cpu"]


def test_ranks_started_by_hand(two: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(two / f"{rank}.pyz"), *WORDS, "--run.folder", "by-hand"],
            cwd=two,
            env={**os.environ, **place, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        output, _ = rank.communicate(timeout=100)
        told = [line for line in output.splitlines() if line.startswith(("error: ", "fix: ", "Traceback"))]
        assert [line.partition(" ")[0] for line in told] == ["error:", "fix:"]
        assert ": the ranks do not run the same build: rank 1 on " in told[0]
        assert rank.returncode == 3


@pytest.mark.parametrize("words", [[*WORDS, "--run.folder", "torchrun"], ["exec", "program.py"]])
def test_ranks_started_by_torchrun(two: Path, words: list[str]) -> None:
    (two / "program.py").write_text("import torch\nprint('ran')\n")
    script = f'exec {sys.executable} {two}/$RANK.pyz "$@"'
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python"]
    done = subprocess.run(
        [*command, "sh", "-c", script, "sh", *words], cwd=two, capture_output=True, text=True, check=False, timeout=100
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "the ranks do not run the same build: rank 1 on " in done.stderr
    assert not (two / "torchrun" / "metrics.jsonl").exists()
