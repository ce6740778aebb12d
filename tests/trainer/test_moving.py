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


def test_fp64_values_become_fp32_under_other_weights() -> None:
    batch = {"inputs": torch.ones(2).double(), "half": torch.ones(2).half(), "labels": torch.ones(2, dtype=torch.int64)}
    for weights in (torch.float32, torch.bfloat16):
        found = moved(batch, CPU, weights)
        assert [found[name].dtype for name in batch] == [torch.float32, torch.float16, torch.int64]
