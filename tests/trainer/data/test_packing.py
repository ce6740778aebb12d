import pickle
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from tests.trainer.data.made import flat, ids_config, text_config, write_documents, write_ids
from trainer.data import open_data
from trainer.data.packing import TokenSource


def opened(path: Path, documents: list[list[int]], sequence: int, *, mask: bool = False) -> TokenSource:
    config = ids_config(write_ids(path / "d.jsonl", documents), sequence)
    config.data.mask_documents = mask
    source = open_data(config, path / "run").train
    assert isinstance(source, TokenSource)
    return source


def test_every_token_but_the_first_is_a_label_once(tmp_path: Path) -> None:
    for tokens in range(2, 12):
        folder = tmp_path / str(tokens)
        folder.mkdir()
        source = opened(folder, [list(range(100, 100 + tokens))], 4)
        assert len(source) == -(-(tokens - 1) // 4)
        batch = source.fetch(range(len(source)))
        assert batch["tokens"].shape == batch["labels"].shape == (len(source), 4)
        counted = batch["labels"] != -100
        assert batch["labels"][counted].tolist() == list(range(101, 100 + tokens))
        assert batch["tokens"][counted].tolist() == list(range(100, 99 + tokens))
        assert not batch["tokens"][~counted].any()
        assert all(batch[key].dtype == torch.int64 and batch[key].is_contiguous() for key in batch)


def test_order_and_repeats_are_the_callers(tmp_path: Path) -> None:
    source = opened(tmp_path, [list(range(20))], 4)
    assert flat(source.fetch([4, 0, 4]), "tokens") == [16, 17, 18, 0, 0, 1, 2, 3, 16, 17, 18, 0]
    assert flat(source.fetch(np.array([2])), "labels") == [9, 10, 11, 12]


def test_ids_around_the_limits_of_numbers_come_back(tmp_path: Path) -> None:
    documents = [[5, 32767, 32768, 65535, 65536, 65541, 69999, 2], [0, 0, 7, 0, 2], [65541] * 6 + [2]]
    source = opened(tmp_path, documents, 19)
    batch = source.fetch([0])
    stream = [number for document in documents for number in document]
    assert flat(batch, "tokens") == stream[:-1]
    assert flat(batch, "labels") == stream[1:]


def test_labels_are_shifted_once(tmp_path: Path) -> None:
    batch = opened(tmp_path, [list(range(10, 31))], 20).fetch([0])
    logits = torch.full((1, 20, 64), -20.0).scatter(2, (batch["tokens"] + 1)[..., None], 20.0)  # previous + 1
    assert float(functional.cross_entropy(logits[0], batch["labels"][0])) < 1e-6


def test_documents_inside_a_sample(tmp_path: Path) -> None:
    documents = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10, 11, 12], [13, 14]]
    batch = opened(tmp_path, documents, 5, mask=True).fetch([0, 1, 2])
    assert batch["tokens"].tolist() == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12, 13, 0, 0]]
    assert batch["documents"].tolist() == [[0, 0, 0, 1, 2], [0, 0, 0, 0, 0], [0, 0, 1, 2, 2]]
    none = -100
    assert batch["labels"].tolist() == [[2, 3, none, none, 6], [7, 8, 9, 10, 11], [12, none, 14, none, none]]


def test_documents_at_random_match_a_plain_count(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    lengths = generator.integers(1, 12, 60)
    numbers = np.repeat(np.arange(60), lengths)  # token t of the stream is the number of its document
    documents = [[number] * int(length) for number, length in enumerate(lengths)]
    source = opened(tmp_path, documents, 16, mask=True)
    order = generator.permutation(len(source))
    batch = source.fetch(order)
    for row, sample in enumerate(order):
        inside = numbers[sample * 16 : sample * 16 + 16]
        inside = inside[: len(numbers) - 1 - sample * 16]
        starts = np.flatnonzero(np.diff(inside, prepend=inside[0])).tolist()
        expected = np.zeros(16, np.int64)
        for start in starts:
            expected[start:] += 1
        assert batch["documents"][row, : len(inside)].tolist() == expected[: len(inside)].tolist()
        counted = batch["labels"][row] != -100
        assert torch.equal(batch["labels"][row][counted], batch["tokens"][row][counted])  # never into another document


def test_a_document_ends_with_the_end_of_document_which_predicts_nothing(tmp_path: Path) -> None:
    config = text_config(write_documents(tmp_path / "c", ["ab", "", "c"]), sequence=4)
    config.data.mask_documents = True
    batch = open_data(config, tmp_path / "run").train.fetch([0])
    assert flat(batch, "tokens") == [97, 98, 256, 99]
    assert flat(batch, "labels") == [98, 256, -100, 256]
    assert flat(batch, "documents") == [0, 0, 0, 1]


def test_a_source_can_be_sent_to_another_process(tmp_path: Path) -> None:
    source = opened(tmp_path, [list(range(50))], 4, mask=True)
    copy = pickle.loads(pickle.dumps(source))
    assert all(torch.equal(copy.fetch([3, 1])[key], source.fetch([3, 1])[key]) for key in ("tokens", "documents"))
