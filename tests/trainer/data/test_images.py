"""Images from arrays and folders; what chance does to them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainer.data.datasets import Datasets, open_data
from trainer.data.image_source import augmented
from trainer.data.images import find_images, note
from trainer.data.loader import Loader
from trainer.errors import UserError
from trainer.schema import Config


def pictures(count: int = 20, size: int = 6, channels: int = 3) -> Any:
    return np.random.default_rng(0).integers(0, 256, (count, size, size, channels), dtype=np.uint8)


def config(images: Path, **data: Any) -> Config:
    made = Config()
    made.model.kind = "resnet"
    made.model.image = 6
    made.data.images = str(images)
    for name, value in data.items():
        setattr(made.data, name, value)
    return made


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    np.savez(tmp_path / "made.npz", images=pictures(), labels=np.arange(20) % 4)
    return tmp_path / "made.npz"


def test_arrays_are_normalized_and_split(arrays: Path) -> None:
    data = open_data(config(arrays, holdout=5, mean=[0.5, 0.4, 0.3], deviation=[0.25]), arrays.parent)
    assert data.validation is not None
    assert (len(data.train), len(data.validation), data.vocabulary) == (16, 4, 4)
    batch = data.validation.fetch([0, 3])
    assert batch["labels"].tolist() == [0, 3]
    assert batch["inputs"].dtype == torch.float32
    expected = (pictures()[[4, 19]].transpose(0, 3, 1, 2) / 255 - np.array([0.5, 0.4, 0.3])[:, None, None]) / 0.25
    assert np.allclose(batch["inputs"].numpy(), expected, atol=1e-6)


def test_a_folder_of_arrays_and_channels_first_are_the_same_images(arrays: Path) -> None:
    np.save(arrays.parent / "images.npy", pictures().transpose(0, 3, 1, 2))
    np.save(arrays.parent / "labels.npy", np.arange(20) % 4)
    one, other = open_data(config(arrays), arrays.parent), open_data(config(arrays.parent), arrays.parent)
    assert torch.equal(one.train.fetch([1, 7])["inputs"], other.train.fetch([1, 7])["inputs"])
    assert one.fingerprint == other.fingerprint


def drawn(data: Datasets, *, ranks: int, workers: int = 0, start: int = 0) -> dict[int, Any]:
    """Images by position in two epochs, as `ranks` ranks see them from a cursor on."""
    found = {}
    for rank in range(ranks):
        loader = Loader(
            data.train, global_batch=6, micro_batch=1, dp_rank=rank, dp_size=ranks, seed=1, workers=workers, epochs=2
        )
        before = start
        for update in loader.updates(start):
            for number, (batch, real) in enumerate(update.micro_batches):
                if real:
                    found[before + number * ranks + rank] = batch["inputs"].numpy().copy()
            before = update.cursor
        loader.close()
    return found


def test_chance_depends_on_seed_epoch_and_sample_alone(arrays: Path) -> None:
    data = open_data(config(arrays, crop=2, flip=True), arrays.parent)
    one = drawn(data, ranks=1)
    assert len(one) == 36
    for other in (drawn(data, ranks=2), drawn(data, ranks=1, workers=1), drawn(data, ranks=3, start=12)):
        assert other.keys() == {each for each in one if len(other) == 36 or each >= 12}
        assert all(np.array_equal(image, one[at]) for at, image in other.items())
    epochs = [data.train.fetch([0], epoch)["inputs"] for epoch in range(6)]
    assert any(not torch.equal(epochs[0], each) for each in epochs)
    assert data.validation is not None
    assert torch.equal(data.validation.fetch([0])["inputs"], data.validation.fetch([0], 3)["inputs"])


def test_shifts_and_mirrors_are_as_drawn() -> None:
    image = pictures(1)
    still = 2 | 2 << 24
    assert np.array_equal(augmented(image, [still], 2, True), image)
    assert np.array_equal(augmented(image, [still | 1 << 63], 2, True), image[:, :, ::-1])
    moved = augmented(image, [0 | 3 << 24], 2, False)
    assert np.array_equal(moved[0, 2:, :-1], image[0, :-2, 1:])
    assert not moved[0, :2].any()
    assert not moved[0, :, -1].any()


def folders(place: Path, *names: str) -> Path:
    from PIL import Image

    for number, name in enumerate(names):
        (place / name).mkdir(parents=True)
        for each in range(3):
            Image.fromarray(pictures(1, 12 + each)[0] // (number + 1)).save(place / name / f"{each}.png")
        (place / name / "notes.txt").touch()
    return place


def test_a_folder_for_each_class_is_decoded_and_brought_to_size(tmp_path: Path) -> None:
    train, held = folders(tmp_path / "train", "cat", "dog", "ant"), folders(tmp_path / "held", "dog")
    made = config(train, validation=[str(held)])
    note(tmp_path, find_images(made.data))
    for data in (open_data(made, tmp_path), open_data(made, tmp_path, prepare=False)):
        assert data.validation is not None
        assert (len(data.train), len(data.validation), data.vocabulary) == (9, 3, 3)
        assert data.train.fetch([0, 3, 6])["labels"].tolist() == [0, 1, 2]
        assert data.validation.fetch([0])["labels"].tolist() == [2]  # of ant, cat, dog
        assert data.train.fetch(range(9))["inputs"].shape == (9, 3, 6, 6)
    grey = config(train)
    grey.model.channels = 1
    assert open_data(grey, tmp_path).train.fetch([0])["inputs"].shape == (1, 1, 6, 6)


def test_what_cannot_be_images_is_named(tmp_path: Path, arrays: Path) -> None:
    folders(tmp_path / "train", "cat")
    (tmp_path / "train" / "cat" / "9.png").write_bytes(b"no image")
    folders(tmp_path / "held", "bird")
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "flat.npz", images=np.zeros((3, 5)), labels=np.zeros(3, int))
    np.savez(tmp_path / "short.npz", images=pictures(3), labels=np.zeros(2, int))
    np.savez(tmp_path / "nameless.npz", pictures(3))
    (tmp_path / "broken.npz").write_bytes(b"no arrays")
    large = config(arrays)
    large.model.image = 32
    cases = [
        (config(tmp_path / "nowhere"), "does not exist"),
        (config(tmp_path / "empty"), "no folder with images"),
        (config(tmp_path / "train", validation=[str(tmp_path / "held")]), "class 'bird'"),
        (config(tmp_path / "flat.npz"), "float64 of shape \\(3, 5\\)"),
        (config(tmp_path / "short.npz"), "shape \\(2,\\) for 3 images"),
        (config(tmp_path / "nameless.npz"), "images is not"),
        (config(tmp_path / "broken.npz"), "cannot read"),
        (config(arrays, mean=[0.1, 0.2]), "data.mean has 2 numbers"),
        (config(arrays, deviation=[0.0]), "data.deviation contains 0"),
        (large, "6 x 6 with 3 channels, but the model expects 32 x 32"),
    ]
    for made, told in cases:
        with pytest.raises(UserError, match=told) as caught:
            open_data(made, tmp_path)
        assert caught.value.fix
    with pytest.raises(UserError, match=r"cannot decode .*9\.png"):
        open_data(config(tmp_path / "train"), tmp_path).train.fetch([3])


def test_without_pillow_a_folder_is_refused_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders(tmp_path / "train", "cat")
    monkeypatch.setattr("trainer.data.images.find_spec", lambda name: None)
    with pytest.raises(UserError, match="need Pillow") as caught:
        find_images(config(tmp_path / "train").data)
    assert "images" in caught.value.fix


def test_the_index_is_json(tmp_path: Path, arrays: Path) -> None:
    note(tmp_path, find_images(config(arrays).data))
    assert json.loads((tmp_path / "images.json").read_text()) == [str(arrays), None]
