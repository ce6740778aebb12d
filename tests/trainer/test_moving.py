"""Batches on their way to the model."""

import torch

from trainer.moving import moved

CPU = torch.device("cpu")


def test_under_fp64_floating_point_values_become_fp64_and_nothing_else() -> None:
    batch = {"inputs": torch.ones(2), "labels": torch.ones(2, dtype=torch.int64), "name": "a"}
    wide = moved(batch, CPU, torch.float64)
    assert wide["inputs"].dtype == torch.float64
    assert wide["labels"].dtype == torch.int64
    assert wide["name"] == "a"
    assert moved(batch, CPU, torch.float32) is batch
