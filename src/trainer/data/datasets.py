"""A run's data, opened: from settings to sources of samples."""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from trainer.data.description import Prepared, Split
from trainer.data.prepare import has_prepared, prepare, prepared, say
from trainer.data.source import Source
from trainer.data.tokenize import Tokenizer, check_vocabulary, open_tokenizer
from trainer.errors import UserError
from trainer.schema import Config, Data


class Datasets(NamedTuple):
    """What a run trains on and is evaluated on.

    `vocabulary` is 0 if neither settings nor data tell it, and of images the number of classes; `tokenizer` is None for
    what is no text. `validation_bytes`
    and `validation_tokens` are the bytes of text and the tokens that all of `validation` stands for, 0 if unknown.
    `fingerprint` is a digest of the tokens: equal for equal data, however often it was prepared. `zlib_bits_per_byte`
    is there if it was asked for and the validation data is text. `info` is for people: counts and places.
    """

    train: Source
    validation: Source | None
    vocabulary: int
    tokenizer: Tokenizer | None
    validation_bytes: int
    validation_tokens: int
    fingerprint: str
    zlib_bits_per_byte: float | None
    info: dict[str, int | str]


def open_data(
    config: Config, folder: Path, *, prepare: bool = True, resumed_fingerprint: str = "", zlib: bool = False
) -> Datasets:
    """Opens the data of a run in `folder`, and with `prepare` prepares it where it is not.

    With several ranks one calls this with `prepare`, and the others without, after it has returned: they trust what
    they find and do not look at the sources. `resumed_fingerprint` is the fingerprint in the checkpoint that a run goes
    on from: token files that have it stay, even if their sources were touched or have gone since. `zlib` asks for
    `zlib_bits_per_byte`.

    Raises UserError: status 2 for settings and sources, 1 where prepared files cannot be written or are missing.
    """
    if config.data.dataset:
        return _user_data(config)
    if config.data.images:
        return _image_data(config, folder, prepare)
    tokenizer = open_tokenizer(config.data.tokenizer)
    if prepare:
        files = _prepared_here(config, folder, tokenizer, resumed_fingerprint, zlib)
    else:
        files = prepared(config.data, folder)
    return _token_data(config, files, tokenizer, tell=prepare)


def is_prepared(config: Config, folder: Path) -> bool:
    """Whether there are token files for these settings, so that `open_data` without `prepare` can open them.

    Does not look at the sources: where they changed, the files are old until the rank that prepares is done.
    """
    if config.data.dataset or config.data.images:
        return True
    return has_prepared(config.data, folder, open_tokenizer(config.data.tokenizer))


def _prepared_here(config: Config, folder: Path, tokenizer: Tokenizer, keep: str, zlib: bool) -> Prepared:
    if config.data.holdout == 1 and not config.data.validation:
        raise UserError(
            "data.holdout = 1 makes every document validation and leaves none to train on",
            "set it to 2 or more, or to 0 for no validation",
            2,
        )
    return prepare(config.data, folder, tokenizer, keep=keep, zlib=zlib)


def _token_data(config: Config, files: Prepared, tokenizer: Tokenizer, *, tell: bool) -> Datasets:
    data = config.data
    largest = max(files.train.largest_id, files.validation.largest_id)
    vocabulary = config.model.vocabulary or tokenizer.vocabulary or largest + 1
    check_vocabulary(largest, vocabulary)
    if files.train.tokens < 2:
        raise UserError(
            f"the training data holds {_counted(files.train)}, and a sample needs 2 tokens",
            "name more text, or set data.holdout = 0 where all of it was held out for validation",
            2,
        )
    if data.validation and files.validation.tokens < 2:
        raise UserError(
            f"data.validation holds {_counted(files.validation)}, and a sample needs 2 tokens", "name more text", 2
        )
    if tell and not data.validation and data.holdout and files.validation.tokens < 2:
        say(
            f"data: no validation data: {_counted(files.train)}, of which every {data.holdout}th document would be "
            "held out; set data.validation, or a smaller data.holdout"
        )
    from trainer.data.packing import TokenSource

    train = TokenSource(
        files.folder, "train", files.train, data.sequence, mask_documents=data.mask_documents, scattered=data.shuffle
    )
    validation = None
    if files.validation.tokens >= 2:
        validation = TokenSource(
            files.folder, "validation", files.validation, data.sequence, mask_documents=data.mask_documents
        )
    return Datasets(
        train=train,
        validation=validation,
        vocabulary=vocabulary,
        tokenizer=tokenizer,
        validation_bytes=files.validation.text_bytes if validation else 0,
        validation_tokens=files.validation.tokens if validation else 0,
        fingerprint=files.fingerprint,
        zlib_bits_per_byte=files.zlib_bits_per_byte,
        info=_described(files),
    )


def _user_data(config: Config) -> Datasets:
    data = config.data
    _check_alone(data)
    from trainer.data.user_dataset import open_user_data

    train, validation, vocabulary = open_user_data(data, config.run.seed)
    # options may change on the way (a path, a cache); another length makes the cursor mean something else
    what = json.dumps((data.dataset, len(train)))
    return Datasets(
        train=train,
        validation=validation,
        vocabulary=config.model.vocabulary or vocabulary,
        tokenizer=None,
        validation_bytes=0,
        validation_tokens=0,
        fingerprint=hashlib.sha256(what.encode()).hexdigest()[:32],
        zlib_bits_per_byte=None,
        info={"train_samples": len(train), "validation_samples": len(validation) if validation else 0},
    )


def _image_data(config: Config, folder: Path, look: bool) -> Datasets:
    """`look`: here, and not at what another rank has noted in the run's folder."""
    import numpy as np

    from trainer.data.image_files import open_images
    from trainer.data.image_source import ImageSource, split
    from trainer.data.images import check_normalization, find_images, noted

    data = config.data
    found = find_images(data) if look else noted(folder)
    images = open_images(found.train, config.model)
    numbers, held = split(images, 0 if found.validation else data.holdout)
    others = open_images(found.validation, config.model) if found.validation else images
    check_normalization(data, images.read(numbers[:1]).shape[3])
    validation = ImageSource(others, np.arange(len(others.labels)) if found.validation else held, data, augment=False)
    train = ImageSource(images, numbers, data, augment=True, seed=config.run.seed)
    return Datasets(
        train=train,
        validation=validation if len(validation) else None,
        vocabulary=max(images.classes, others.classes),
        tokenizer=None,
        validation_bytes=0,
        validation_tokens=0,
        fingerprint=images.digest(),
        zlib_bits_per_byte=None,
        info={"train_samples": len(train), "validation_samples": len(validation), "classes": images.classes},
    )


def _check_alone(data: Data) -> None:
    for other in ("text", "jsonl", "images"):
        if getattr(data, other):
            raise UserError(f"data.dataset and data.{other} are both set", "keep one of them", 2)


def _described(files: Prepared) -> dict[str, int | str]:
    described: dict[str, int | str] = {"folder": str(files.folder)}
    for name, split in (("train", files.train), ("validation", files.validation)):
        described |= {
            f"{name}_tokens": split.tokens,
            f"{name}_documents": split.documents,
            f"{name}_bytes": split.text_bytes,
            f"{name}_dtype": split.dtype,
        }
    return described


def _counted(split: Split) -> str:
    documents = "1 document" if split.documents == 1 else f"{split.documents} documents"
    return f"{documents} with {split.tokens} token{'' if split.tokens == 1 else 's'}"
