"""Which runs start with lazy modules."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer import start_policy
from trainer.config import resolve
from trainer_boot import accelerators

TEXT = ("--data.text", "python:stdlib")
SMALL = (
    *("--data.sequence", "16", "--batch.size", "4", "--run.steps", "2", "--run.threads", "1", "--run.device", "cpu"),
    *("--model.layers", "1", "--model.width", "16", "--model.heads", "2", "--precision.compute", "fp32"),
    *("--checkpoint.every", "1", "--log.progress", "none", "--eval.samples", "4"),
)


def doubt(**settings: str) -> str:
    flags = [(name.replace("__", "."), value) for name, value in settings.items()]
    return start_policy.doubt(resolve(None, flags, {}).config)


def test_the_proven_flow_is_lazy_by_itself() -> None:
    assert doubt(run__device="cpu") == ""


@pytest.mark.parametrize("setting", ["model__build", "model__loss", "data__dataset", "optim__build"])
def test_code_of_ones_own_is_not_unless_asked_for(setting: str) -> None:
    assert setting.replace("__", ".") in doubt(**{setting: "mine.py:Name"})
    assert doubt(**{setting: "mine.py:Name", "start__policy": "fast"}) == ""


def test_safe_is_safe() -> None:
    assert doubt(run__device="cpu", start__policy="safe") == "start.policy is safe"


@pytest.mark.parametrize(("device", "doubted"), [("auto", True), ("cuda", True), ("cpu", False)])
def test_accelerators_are_not_proven(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: str, doubted: bool
) -> None:
    monkeypatch.setattr(accelerators, "DEVICE_FILES", (str(tmp_path),))
    assert ("accelerator" in doubt(run__device=device)) is doubted


def trained(folder: Path, **variables: str) -> tuple[list[float], dict[str, Any], int]:
    """Losses, the lazy layer's note, and how many modules of torch rank 0 had imported by the first update."""
    (folder / "text.txt").write_text("to be or not to be, that is the question\n" * 200)
    words = [sys.executable, "-m", "trainer", "train", "--nproc", "1", "--data.text", str(folder / "text.txt"), *SMALL]
    environment = {**os.environ, "TRAINER_SNAPSHOT_DIR": str(folder / "snapshots"), **variables}
    done = subprocess.run(
        [*words, "--run.folder", str(folder / "run")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    report = json.loads((folder / "run" / "start" / "rank-00000.json").read_text())
    note = next(note for note in report["layers"] if note["layer"] == "lazy")
    return [row["loss"] for row in rows if "event" not in row], note, report["modules"]["torch"]


def test_a_run_has_the_same_losses_with_a_third_less_modules(tmp_path: Path) -> None:
    found = {}
    for policy in ("auto", "safe"):
        (tmp_path / policy).mkdir()
        found[policy] = trained(tmp_path / policy, TRAINER_START_POLICY=policy)
    assert found["auto"][0] == found["safe"][0]
    assert len(found["auto"][0]) == 2
    note = found["auto"][1]
    assert (note["state"], note["touched"], note["policy"]) == ("on", [], "auto")
    assert len(note["modules"]) > 40
    assert found["safe"][1]["state"] == "off"
    assert found["safe"][1]["why"] == "start.policy is safe"
    assert found["auto"][2] < found["safe"][2] * 2 / 3


@pytest.mark.parametrize(
    ("setting", "value"), [("precision__weights", "bf16"), ("parallel__compress", "bf16"), ("parallel__tensor", "2")]
)
def test_what_needs_dtensors_or_hooks_is_not_lazy(setting: str, value: str) -> None:
    assert doubt(run__device="cpu", **{setting: value}) != ""
