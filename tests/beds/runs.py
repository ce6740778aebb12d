"""Runs of the trainer for tests: in this process, or as real processes of a checkout."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent

# a toy that trains in milliseconds; every test adds what it is about
TOY = {
    "model.build": "tests.trainer.toy:ToyModel",
    "model.loss": "tests.trainer.toy:token_loss",
    "data.dataset": "tests.trainer.toy_data:Sequences",
    "precision.compute": "fp64",
    "optim.name": "sgd",
    "optim.lr": "0.5",
    "optim.clip": "0",
    "optim.schedule": "constant",
    "batch.size": "4",
    "run.device": "cpu",
    "run.threads": "1",
    "log.progress": "none",
}

# what a run of several ranks imports, and what the first optimizer does
PRELOAD = """
import torch, torch._dynamo, torch.distributed
import trainer.commands.train, trainer.launch.comm, trainer.launch.forking, trainer.launch.local
import trainer.session, trainer.start_report, trainer.summary
import trainer.models.gpt, trainer.parallel.ddp, trainer.parallel.fsdp
"""


def flags(**changes: str) -> list[str]:
    """Command-line flags of the toy with `section__key="value"` changed; "" leaves a key out."""
    settings = dict(TOY)
    for name, value in changes.items():
        settings[name.replace("__", ".")] = value
    return [word for name, value in settings.items() if value for word in (f"--{name}", value)]


def train_here(folder: Path, *arguments: str, **changes: str) -> int:
    """`trainer train` in this process with an empty run file; the run folder is <folder>/run unless changed."""
    from trainer.commands.train import run

    run_file = folder / "run.toml"
    run_file.touch()
    changes.setdefault("run__folder", str(folder / "run"))
    changes.setdefault("start__layers", "[]")  # this process has started long ago
    return run([str(run_file), *flags(**changes), *arguments])


def trainer(*arguments: str, cwd: Path, timeout: float = 100, **environment: str) -> "subprocess.CompletedProcess[str]":
    """`python -m trainer ...` as a process of its own, to its end."""
    return subprocess.run(
        command(*arguments),
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env=environ(**environment),
    )


def warm_trainer(
    *arguments: str, cwd: Path, timeout: float = 100, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """The same in a process forked from one that has imported torch: where the start is not what is tested."""
    from tests.beds.warm import warm

    variables = environ(**{"TRAINER_START_LAYERS": "fork,exit", **environment})
    return warm(PRELOAD).run(["-m", "trainer", *arguments], cwd=cwd, env=variables, timeout=timeout)


def command(*arguments: str) -> list[str]:
    """The trainer of this checkout."""
    return [sys.executable, "-m", "trainer", *arguments]


def environ(**changes: str) -> dict[str, str]:
    """The environment of a started trainer: this one's, with the toys importable."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **changes}


def metrics(run_folder: Path) -> list[dict[str, Any]]:
    """The updates of a run, read strictly: JSON as RFC 8259 has it, steps rising by one."""

    def refuse(word: str) -> float:
        raise ValueError(f"not JSON: {word}")

    rows: list[dict[str, Any]] = []
    for line in (run_folder / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line, parse_constant=refuse)
        if "event" not in row:
            rows.append(row)
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    return rows


def losses(run_folder: Path) -> list[float]:
    """The loss of every update; NaN where it was not finite."""
    return [math.nan if row["loss"] is None else row["loss"] for row in metrics(run_folder)]


def weights(run_folder: Path) -> dict[str, Any]:
    """The newest checkpoint's weights."""
    import torch

    newest = sorted((run_folder / "checkpoints").glob("step-*"))[-1]
    return dict(torch.load(newest / "model.pt", weights_only=True))


def assert_same_weights(first: Path, second: Path, tolerance: float = 0.0) -> None:
    """Bit for bit, or each tensor to `tolerance`: norm of the difference over norm."""
    import torch

    one, other = weights(first), weights(second)
    assert one.keys() == other.keys()
    for name in one:
        if isinstance(one[name], torch.Tensor):
            if tolerance and one[name].is_floating_point():
                assert float((one[name] - other[name]).norm() / other[name].norm().clamp_min(1e-30)) <= tolerance, name
            else:
                assert torch.equal(one[name], other[name]), name
