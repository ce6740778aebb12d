"""Where a run's images lie and which classes they have. No torch; numpy for arrays only.

One rank lists folders and notes what it found in the run's folder; the others read that: a folder of a million files is
not walked by a thousand ranks, and nobody sees another order.
"""

import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from trainer.data.description import partial_name
from trainer.errors import UserError
from trainer.schema import Data

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
_INDEX = "images.json"


class Listing(NamedTuple):
    """What a folder with a folder for each class holds: names of the classes, and (file, class) in order of the names;
    files relative to `folder`."""

    folder: str
    classes: list[str]
    files: list[str]
    labels: list[int]


class Found(NamedTuple):
    """Training and validation data, each a listing or the path of arrays; no validation data: None."""

    train: Listing | str
    validation: Listing | str | None


def find_images(data: Data) -> Found:
    """Looks at `data.images` and `data.validation`. UserError (status 2) for what is neither folder nor arrays."""
    if len(data.validation) > 1:
        raise UserError(
            f"data.validation has {len(data.validation)} entries; images take one", "Give one folder or file.", 2
        )
    train = _find(data.images, "data.images")
    if not data.validation:
        return Found(train, None)
    validation = _find(data.validation[0], "data.validation")
    if isinstance(train, Listing) and isinstance(validation, Listing):
        validation = _classes_as(validation, train)
    return Found(train, validation)


def note(folder: Path, found: Found) -> None:
    """Writes the listing into the run's folder, whole or not at all."""
    path = folder / _INDEX
    partial = partial_name(path)
    try:
        partial.write_text(json.dumps(found), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror}", "Free space there, or choose another --run.folder."
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def noted(folder: Path) -> Found:
    """What `note` wrote."""
    path = folder / _INDEX
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}", "Start the run again.") from error
    train, validation = (Listing(*each) if isinstance(each, list) else each for each in stored)
    return Found(train, validation)


def check_normalization(data: Data, channels: int) -> None:
    """UserError (status 2) for means and deviations that are neither one number nor one a channel (0: not known)."""
    for name in ("mean", "deviation"):
        given = getattr(data, name)
        if not given or (channels and len(given) not in (1, channels)):
            raise UserError(
                f"data.{name} has {len(given)} numbers, not 1 or {channels or 'one'} a channel",
                "Give one number, or one per channel.",
                2,
            )
    if not all(data.deviation):
        raise UserError(
            "data.deviation contains 0, which values cannot be divided by", "Set data.deviation to 0.5, for example.", 2
        )


def _find(place: str, key: str) -> Listing | str:
    path = Path(place).expanduser()
    if path.is_dir():
        arrays = [path / name for name in ("images.npy", "labels.npy")]
        if all(each.is_file() for each in arrays):
            return str(path.absolute())
        return _list(path, key)
    if path.suffix == ".npz" and path.is_file():
        return str(path.absolute())
    what = "does not exist" if not path.exists() else "is neither a folder nor an .npz file"
    raise UserError(
        f"{key}: {place} {what}",
        "Give a folder with one subfolder per class, a folder with images.npy and labels.npy, or an .npz file.",
        2,
    )


def _list(path: Path, key: str) -> Listing:
    classes = sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and not entry.name.startswith("."))
    files: list[str] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        inside = sorted(entry.name for entry in os.scandir(path / name) if _is_image(entry.name))
        files += [f"{name}/{each}" for each in inside]
        labels += [label] * len(inside)
    if not files:
        raise UserError(
            f"{key}: {path} has no folder with images in it ({', '.join(suffix[1:] for suffix in SUFFIXES)})",
            "Put the images of each class into a subfolder.",
            2,
        )
    if find_spec("PIL") is None:
        raise UserError(
            f"{key}: {path} holds image files, which need Pillow, and it is not installed",
            "Install the extra `images` (or pillow), or use an .npz file with arrays images and labels.",
            3,
        )
    return Listing(str(path.absolute()), classes, files, labels)


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES) and not name.startswith(".")


def _classes_as(validation: Listing, train: Listing) -> Listing:
    """The same images with the numbers that training gives their classes."""
    numbers = {name: number for number, name in enumerate(train.classes)}
    for name in validation.classes:
        if name not in numbers:
            raise UserError(
                f"data.validation has a class {name!r} that data.images does not have", "Remove that class.", 2
            )
    labels = [numbers[validation.classes[label]] for label in validation.labels]
    return validation._replace(classes=train.classes, labels=labels)
