"""A run's data, opened: from settings to sources of samples."""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from trainer.data.description import Damaged, Prepared, Split, read_description, read_zlib, require_sizes, there
from trainer.data.prepare import damaged, require_right, root_of, say
from trainer.data.prepare import prepare as prepare_tokens
from trainer.data.run_note import noted_folder, read_note, tokenizer_of_run, with_fingerprint, write_note
from trainer.data.source import NoData, Source
from trainer.data.tokenize import Tokenizer, check_vocabulary, open_tokenizer
from trainer.errors import UserError
from trainer.schema import Config, Data


class Datasets(NamedTuple):
    """What a run trains on and is evaluated on.

    `vocabulary` is 0 if neither settings nor data tell it, and of images the number of classes; `tokenizer` is None for
    what is no text. `validation_bytes`
    and `validation_tokens` are the bytes of text and the tokens that all of `validation` stands for, 0 if unknown.
    `fingerprint` is a digest of the tokens: equal for equal data, however often it was prepared. `files` are the token
    files that hold it, if any do. `zlib_bits_per_byte` is there if it was asked for and the validation data is text.
    `info` is for people: counts and places.
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
    files: Prepared | None = None


def open_data(
    config: Config, folder: Path, *, prepare: bool = True, place: str = "", zlib: bool = False, tell: bool = False
) -> Datasets:
    """Open the data of a run in `folder`, and with `prepare` prepare it where it is not.

    With several ranks one prepares, and the others open what it names: `place` as `place_of` gives it. Without a place
    what the run's folder notes is opened. `zlib` asks for `zlib_bits_per_byte`; `tell`: say what a user should know.

    Raises UserError: status 2 for settings and sources, 1 where prepared files cannot be written, are missing or
    damaged.
    """
    if config.data.dataset:
        return _user_data(config)
    if config.data.images:
        return _image_data(config, folder, prepare)
    if prepare:
        tokenizer = open_tokenizer(config.data.tokenizer)
        files = prepare_tokens(config.data, folder, tokenizer, zlib=zlib)
        data = _token_data(config, files, tokenizer, tell=True)
        write_note(folder, files, tokenizer, data.vocabulary)
        return data
    files = _placed(config.data, folder, place)
    tokenizer = tokenizer_of_run(config.data, folder, files.tokenizer)
    return _token_data(config, files, tokenizer, tell=tell)


def place_of(data: Data, folder: Path, files: Prepared) -> str:
    """Return where token files lie, for other ranks: relative to the folder of all of them, which hosts may have under
    another path."""
    root, here = root_of(data, folder).absolute(), files.folder.absolute()
    return str(here.relative_to(root) if here.is_relative_to(root) else here)


def open_for_use(config: Config, folder: Path, fingerprint: str, changed: bool) -> Datasets:
    """Open what a trained run in `folder` is evaluated on and generates with; nothing in its folder changes.

    `fingerprint` is that of the data of the checkpoint. `changed`: the settings of the data are not those of the run,
    so that other validation data is prepared, in a temporary folder. Without the run's token files there is no
    validation data, unless other is named.
    """
    if config.data.dataset:
        return _user_data(config)
    if config.data.images:
        return _image_data(config, folder, True)
    files = with_fingerprint(config.data, folder, fingerprint)
    tokenizer = tokenizer_of_run(config.data, folder, files.tokenizer if files is not None else "")
    if files is not None and not changed:
        require_right(files, folder, config.data)
        return _token_data(config, files, tokenizer, tell=False)
    vocabulary = config.model.vocabulary or tokenizer.vocabulary or _noted_vocabulary(folder, files)
    if not changed:
        noted = noted_folder(folder, fingerprint)
        if noted is not None and there(noted):
            try:
                read_description(noted)
            except Damaged as problem:
                raise damaged(problem) from None
        return Datasets(NoData(folder), None, vocabulary, tokenizer, 0, 0, fingerprint, None, {})
    return _other_validation(config, tokenizer, vocabulary, fingerprint)


def _other_validation(config: Config, tokenizer: Tokenizer, vocabulary: int, fingerprint: str) -> Datasets:
    """Validation data that the run does not have. Its files are gone as soon as they are mapped."""
    import tempfile

    data = Data(**config.data.__dict__)
    data.cache = ""
    if data.validation:  # then the training data need not be read
        kind = "jsonl" if data.jsonl else "text"
        data.text, data.jsonl = [], []
        setattr(data, kind, data.validation)
        data.validation, data.holdout = [], 0
    with tempfile.TemporaryDirectory(prefix="trainer-validation-") as place:
        files = prepare_tokens(data, Path(place), tokenizer)
        check_vocabulary(max(files.train.largest_id, files.validation.largest_id), vocabulary)
        name, split = ("validation", files.validation) if data.holdout else ("train", files.train)
        if split.tokens < 2:
            raise UserError(
                f"the validation data holds {_counted(split)}, and a sample needs 2 tokens", "Add more text.", 2
            )
        from trainer.data.packing import TokenSource

        source = TokenSource(files.folder, name, split, data.sequence, mask_documents=data.mask_documents)
    info: dict[str, int | str] = {"validation_tokens": split.tokens, "validation_documents": split.documents}
    return Datasets(source, source, vocabulary, tokenizer, split.text_bytes, split.tokens, fingerprint, None, info)


def _noted_vocabulary(folder: Path, files: Prepared | None) -> int:
    """Return the vocabulary of a run whose tokenizer does not tell it."""
    if files is not None:
        return max(files.train.largest_id, files.validation.largest_id) + 1
    try:
        note = read_note(folder)
    except Damaged as problem:
        raise UserError(str(problem), "Set model.vocabulary to that of the run.") from None
    if note is None:
        raise UserError(f"{folder} does not record its vocabulary", "Set model.vocabulary to that of the run.")
    return note.vocabulary


def _placed(data: Data, folder: Path, place: str) -> Prepared:
    """Return the token files that another process has prepared, without a look at the sources."""
    fix = "Prepare it first. With several nodes run.folder and data.cache must lie on storage that all of them see."
    try:
        if place:
            found: Prepared | None = read_description(root_of(data, folder) / place)
        else:
            note = read_note(folder)
            found = with_fingerprint(data, folder, note.current) if note is not None else None
        if found is not None:
            require_sizes(found)
    except Damaged as problem:
        raise UserError(f"prepared data: {problem}", fix) from None
    if found is None:
        raise UserError(f"there is no prepared data for {folder}", fix)
    return found


def _token_data(config: Config, files: Prepared, tokenizer: Tokenizer, *, tell: bool) -> Datasets:
    data = config.data
    largest = max(files.train.largest_id, files.validation.largest_id)
    vocabulary = config.model.vocabulary or tokenizer.vocabulary or largest + 1
    check_vocabulary(largest, vocabulary)
    if files.train.tokens < 2:
        raise UserError(
            f"the training data holds {_counted(files.train)}, and a sample needs 2 tokens",
            "Add more text, or set data.holdout to 0 if all of it was held out for validation.",
            2,
        )
    if data.validation and files.validation.tokens < 2:
        raise UserError(
            f"data.validation holds {_counted(files.validation)}, and a sample needs 2 tokens", "Add more text.", 2
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
        zlib_bits_per_byte=read_zlib(files.folder),
        info=_described(files),
        files=files,
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
            raise UserError(f"data.dataset and data.{other} are both set", "Set only one of them.", 2)


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
