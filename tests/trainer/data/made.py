"""Corpora and configurations for these tests."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from trainer.data.source import Indices
from trainer.schema import Config


def text_config(*entries: Path | str, sequence: int = 8, holdout: int = 0) -> Config:
    config = Config()
    config.data.text = [str(entry) for entry in entries]
    config.data.sequence = sequence
    config.data.holdout = holdout
    return config


def ids_config(path: Path, sequence: int = 8) -> Config:
    config = Config()
    config.data.jsonl = [str(path)]
    config.data.field = "ids"
    config.data.tokenizer = "ids"
    config.data.sequence = sequence
    config.data.holdout = 0
    return config


def write_documents(folder: Path, documents: Sequence[str | bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, document in enumerate(documents):
        content = document.encode() if isinstance(document, str) else document
        (folder / f"{number:03}.txt").write_bytes(content)
    return folder


def write_ids(path: Path, documents: Sequence[Sequence[int]]) -> Path:
    path.write_text("".join(json.dumps({"ids": list(document)}) + "\n" for document in documents))
    return path


class Numbers:
    """Sample i is the number i."""

    tokens_per_sample = 1

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def fetch(self, indices: Indices, epoch: int = 0) -> list[int]:
        return np.asarray(indices).tolist()  # type: ignore[no-any-return]  # numbers, as the array holds


def flat(batch: dict[str, Tensor], key: str) -> list[int]:
    return [int(number) for number in batch[key].flatten().tolist()]
