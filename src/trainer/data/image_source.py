"""Batches of images, shifted and mirrored at random, normalized: {"inputs": (B, C, H, W) float32, "labels": (B,)}."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from trainer.data.draws import item_seed
from trainer.data.image_files import Images, Pixels
from trainer.data.order import mix
from trainer.data.source import Batch, Indices
from trainer.schema import Data


class ImageSource:
    """Those of `images` with these `numbers`. `augment`: a draw for each image, by seed, epoch and index alone, so that
    it depends on neither ranks nor workers nor resumes."""

    tokens_per_sample = 1

    def __init__(self, images: Images, numbers: NDArray[np.int64], data: Data, *, augment: bool, seed: int = 0) -> None:
        self._images = images
        self._numbers = numbers
        self._shift = data.crop if augment else 0
        self._flip = data.flip and augment
        self._mean = torch.tensor(data.mean).view(1, -1, 1, 1)
        self._deviation = torch.tensor(data.deviation).view(1, -1, 1, 1)
        self._seed = seed

    def __len__(self) -> int:
        return len(self._numbers)

    def fetch(self, indices: Indices, epoch: int = 0) -> Batch:
        chosen = np.asarray(indices, np.int64)
        numbers = self._numbers[chosen]
        pixels = self._images.read(numbers)
        if self._shift or self._flip:
            first = epoch * len(self)
            draws = [mix(item_seed(self._seed, first + int(index))) for index in chosen]
            pixels = augmented(pixels, draws, self._shift, self._flip)
        return {"inputs": self._normalized(pixels), "labels": torch.from_numpy(self._images.labels[numbers])}

    def _normalized(self, pixels: Pixels) -> torch.Tensor:
        images = torch.from_numpy(np.ascontiguousarray(np.moveaxis(pixels, 3, 1)))
        if images.dtype == torch.uint8:
            return images.float().div_(255).sub_(self._mean).div_(self._deviation)
        return images.float().sub(self._mean).div_(self._deviation)


def augmented(pixels: Pixels, draws: list[int], shift: int, flip: bool) -> Pixels:
    """Each image of (N, H, W, C) moved by up to `shift` pixels down or up and right or left, with 0 around it, and half
    of them mirrored, as its 64-bit draw says."""
    count, height, width, channels = pixels.shape
    padded: Any = np.zeros((count, height + 2 * shift, width + 2 * shift, channels), pixels.dtype)
    padded[:, shift : shift + height, shift : shift + width] = pixels
    made = np.empty_like(pixels)
    for number, draw in enumerate(draws):
        top = (draw & 0xFFFFFF) % (2 * shift + 1)
        left = (draw >> 24 & 0xFFFFFF) % (2 * shift + 1)
        part = padded[number, top : top + height, left : left + width]
        made[number] = part[:, ::-1] if flip and draw >> 63 else part
    return made


def split(images: Images, holdout: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers for training and for validation: the last of every `holdout`, 0: none."""
    numbers = np.arange(len(images.labels))
    held = numbers % holdout == holdout - 1 if holdout else np.zeros(len(numbers), bool)
    return numbers[~held], numbers[held]
