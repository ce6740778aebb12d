"""Images by number: from arrays, or decoded from files."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trainer.data.images import Listing
from trainer.errors import UserError
from trainer.schema import Model

Pixels = NDArray[Any]
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_PEEK = 64  # images that a fingerprint reads


class Images(Protocol):
    """`labels`: of every image; `classes`: how many there are."""

    labels: NDArray[np.int64]
    classes: int

    def read(self, numbers: NDArray[np.int64]) -> Pixels:
        """(N, height, width, channels), uint8, or floats from 0 to 1."""

    def digest(self) -> str:
        """Differs for other images, as far as a quick look can tell."""


def open_images(found: Listing | str, model: Model) -> Images:
    """`model`: the size that images have or are brought to; of arrays for a model of the user's own, any.

    Raises UserError (status 2) for arrays that are no images, or of another size than a built-in model's.
    """
    if isinstance(found, Listing):
        return FileImages(found, model.image, model.channels)
    arrays = ArrayImages(found)
    if not model.build:
        height, width, channels = arrays.shape
        if (height, width) != (model.image, model.image) or channels != model.channels:
            raise UserError(
                f"{found} has images of {height} x {width} with {channels} channels, but the model expects "
                f"{model.image} x {model.image} with {model.channels}",
                f"Set model.image to {height} and model.channels to {channels}."
                if height == width
                else "Use square images, or a model of your own (model.build).",
                2,
            )
    return arrays


class ArrayImages:
    """A folder with images.npy and labels.npy, which stay on the disk until they are used, or an .npz file."""

    def __init__(self, place: str) -> None:
        self.place = place
        images, labels = _arrays(Path(place))
        if images.ndim == 3:
            images = images[..., None]
        if images.ndim != 4 or not (images.dtype == np.uint8 or np.issubdtype(images.dtype, np.floating)):
            raise _wrong(place, f"images are {images.dtype} of shape {images.shape}")
        if images.shape[1] in MODES and images.shape[3] not in MODES:  # channels first
            images = np.moveaxis(images, 1, 3)
        if labels.shape != (len(images),) or not np.issubdtype(labels.dtype, np.integer):
            raise _wrong(place, f"labels are {labels.dtype} of shape {labels.shape} for {len(images)} images")
        self.images = images
        self.labels = np.asarray(labels).astype(np.int64)
        if not len(images) or self.labels.min() < 0:
            raise _wrong(place, "there is no image" if not len(images) else "a label is negative")
        self.classes = int(self.labels.max()) + 1
        self.shape: tuple[int, int, int] = images.shape[1:]

    def read(self, numbers: NDArray[np.int64]) -> Pixels:
        return self.images[numbers]

    def digest(self) -> str:
        digest = hashlib.sha256(f"{self.images.shape} {self.images.dtype}".encode())
        digest.update(self.labels.tobytes())
        for number in np.linspace(0, len(self.labels) - 1, _PEEK).astype(np.int64):
            digest.update(np.ascontiguousarray(self.images[number]).tobytes())
        return digest.hexdigest()[:32]


class FileImages:
    """Files, decoded when they are read: the largest square in the middle, brought to `size` x `size`."""

    def __init__(self, listing: Listing, size: int, channels: int) -> None:
        if channels not in MODES:
            raise UserError(
                f"model.channels is {channels}, but image files have 1, 3 or 4", "Set model.channels to 3.", 2
            )
        self.listing = listing
        self.labels = np.array(listing.labels, np.int64)
        self.classes = len(listing.classes)
        self.size = size
        self.channels = channels

    def read(self, numbers: NDArray[np.int64]) -> Pixels:
        return np.stack([self._decode(Path(self.listing.folder, self.listing.files[number])) for number in numbers])

    def digest(self) -> str:
        told: Sequence[object] = (self.listing.classes, self.listing.files, self.listing.labels)
        return hashlib.sha256(repr(told).encode()).hexdigest()[:32]

    def _decode(self, path: Path) -> Pixels:
        from PIL import Image

        try:
            with Image.open(path) as opened:
                image = opened.convert(MODES[self.channels])
        except Exception as error:
            raise UserError(f"cannot decode {path}: {error}", "Repair or remove it.") from error
        side = min(image.size)
        left, top = ((length - side) // 2 for length in image.size)
        box = (left, top, left + side, top + side)
        if (self.size, self.size) != image.size:
            image = image.resize((self.size, self.size), Image.Resampling.BILINEAR, box)
        return np.asarray(image).reshape(self.size, self.size, self.channels)


def _arrays(place: Path) -> tuple[Pixels, Pixels]:
    try:
        if place.is_dir():
            images = np.load(place / "images.npy", mmap_mode="r", allow_pickle=False)
            return images, np.load(place / "labels.npy", allow_pickle=False)
        with np.load(place, allow_pickle=False) as file:
            return file["images"], file["labels"]
    except KeyError as error:
        raise UserError(f"{place}: {error.args[0]}", "Store arrays named images and labels in it.", 2) from error
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"cannot read {place}: {error}", "Write it with numpy.savez or numpy.save.", 2) from error


def _wrong(place: str, what: str) -> UserError:
    fix = (
        "Store images as (N, height, width) or (N, height, width, channels), uint8 or floats from 0 to 1, and labels "
        "as N integers."
    )
    return UserError(f"{place}: {what}", fix, 2)
