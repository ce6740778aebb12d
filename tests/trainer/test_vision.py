"""Whole runs on images: accuracy, the same numbers on two ranks, going on, evaluation; what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.beds.runs import assert_same_weights, flags, losses, train_here, warm_trainer
from trainer.config import resolve
from trainer.errors import UserError
from trainer.refuse import refuse_early

IMAGES = {
    "model__build": "", "model__loss": "", "data__dataset": "", "model__image": "8", "batch__size": "16",
    "optim__name": "adamw", "optim__lr": "0.01", "optim__clip": "1", "data__crop": "1", "data__flip": "true",
}  # fmt: skip
RESNET = {**IMAGES, "model__kind": "resnet", "model__stages": "1,1", "model__filters": "8"}
VIT = {**IMAGES, "model__kind": "vit", "model__layers": "2", "model__width": "32", "model__heads": "2"}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """250 noisy pictures of eight patterns that look the same from the other side; 25 are held out."""
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 256, (8, 8, 4, 3))
    patterns = np.concatenate((patterns, patterns[:, :, ::-1]), 2)
    labels = rng.integers(0, 8, 250)
    pictures = (patterns[labels] + rng.normal(0, 30, (250, 8, 8, 3))).clip(0, 255).astype(np.uint8)
    path = tmp_path_factory.mktemp("images") / "made.npz"
    np.savez(path, images=pictures, labels=labels)
    return path


def evaluation(run: Path) -> dict[str, Any]:
    """What the last evaluation gave."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return next(row for row in reversed(rows) if row.get("event") == "evaluation")


@pytest.mark.parametrize("kind", ["resnet", "vit"])
def test_a_few_seconds_teach_eight_patterns(
    tmp_path: Path, images: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {**(RESNET if kind == "resnet" else VIT), "precision__compute": "fp32", "run__epochs": "8"}
    assert train_here(tmp_path, data__images=str(images), **settings) == 0
    found = evaluation(tmp_path / "run")
    assert found["accuracy"] >= 0.9
    assert found["top5_accuracy"] >= found["accuracy"]
    told = capsys.readouterr().out
    assert f"accuracy {found['accuracy']:.4f}, top5 accuracy" in told
    from trainer.commands.evaluate import run

    assert run([str(tmp_path / "run"), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["accuracy"] == found["accuracy"]
    assert again["loss"] == pytest.approx(found["loss"], rel=1e-6)


def test_two_ranks_train_like_one_and_one_goes_on_where_two_stopped(tmp_path: Path, images: Path) -> None:
    """Accumulation, an epoch's shorter last update, an evaluation in between; then a checkpoint of sharded ranks."""
    fp64 = {
        **RESNET,
        "precision__compute": "fp64",
        "batch__micro": "2",
        "eval__every": "7",
        "data__images": str(images),
    }
    (tmp_path / "one").mkdir()
    assert train_here(tmp_path / "one", **fp64, run__steps="18") == 0
    (tmp_path / "run.toml").touch()
    words = flags(**fp64, run__folder="run", run__steps="16", parallel__strategy="full")
    done = warm_trainer("train", "run.toml", "--nproc", "2", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert train_here(tmp_path, **fp64, run__steps="18") == 0
    one, two = tmp_path / "one" / "run", tmp_path / "run"
    assert losses(two) == pytest.approx(losses(one), rel=1e-10)
    assert_same_weights(two, one, tolerance=1e-9)
    expected, found = evaluation(one), evaluation(two)
    assert found["accuracy"] == expected["accuracy"]
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-9)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"data.images": "x", "model.kind": "gpt"}, "model.kind gpt does not take data.images"),
        ({"data.text": "x", "model.kind": "vit"}, "model.kind vit takes images"),
        ({"data.images": "x", "model.kind": "resnet", "data.mean": "0.1,0.2"}, "data.mean has 2"),
        ({"data.images": "x", "model.kind": "vit", "model.patch": "5"}, "model.patch = 5"),
        (
            {"data.images": "x", "model.kind": "resnet", "precision.weights": "bf16", "precision.compute": "bf16"},
            "precision.weights bf16",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_before_torch(settings: dict[str, str], named: str) -> None:
    with pytest.raises(UserError, match=named) as caught:
        refuse_early(resolve(None, list(settings.items()), {}).config, 1)
    assert caught.value.status == 2


def test_check_tells_the_size_of_a_model_of_images(
    tmp_path: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainer.commands.check import run

    (tmp_path / "run.toml").write_text(f'[data]\nimages = "{images}"\n[model]\nkind = "resnet"\nclasses = 8\n')
    assert run([str(tmp_path / "run.toml"), "--world", "2"]) == 0
    told = capsys.readouterr().out
    assert "# parameters           11,172,936" in told
    assert "tokens per update" not in told
