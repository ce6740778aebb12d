"""The data of a run: prepared by rank 0 before torch is imported, noted in its folder once it trains. No torch."""

from pathlib import Path

from trainer.checkpoint.files import Damaged
from trainer.checkpoint.run_meta import read_run_meta
from trainer.checkpoint.store import Store, read_manifest
from trainer.data.run_note import remove_unused, tokenizer_of_run, with_fingerprint, write_note
from trainer.data.tokenize import open_tokenizer
from trainer.schema import Config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer.data.datasets import Datasets


def prepare_files(config: Config, folder: Path, found: Path | None) -> str:
    """Prepare token files for a run that goes on from the checkpoint `found`, or begins (None).

    Returns where they lie, for `open_data` on all ranks. What is there already stays as it is.
    """
    from trainer.data.datasets import place_of
    from trainer.data.prepare import prepare

    keep = read_run_meta(found)["fingerprint"] if found else ""
    kept = with_fingerprint(config.data, folder, keep) if keep else None
    if kept is None:
        tokenizer = open_tokenizer(config.data.tokenizer)
    else:
        tokenizer = tokenizer_of_run(config.data, folder, kept.tokenizer)
    files = prepare(config.data, folder, tokenizer, keep=keep, zlib=wants_zlib(config))
    return place_of(config.data, folder, files)


def note(config: Config, folder: Path, data: "Datasets") -> None:
    """Note what the run uses, and remove token files in its folder that it and its checkpoints no longer do."""
    write_note(folder, data.files, data.tokenizer, data.vocabulary)
    if data.files is not None and not config.data.cache:
        used = {data.files.fingerprint}
        for path in Store(folder, config.checkpoint.keep).list():
            try:
                used.add(str(read_manifest(path).meta.get("fingerprint")))
            except Damaged:
                return  # it may need them
        remove_unused(folder, used)


def wants_zlib(config: Config) -> bool:
    """The embedded default compares itself with zlib; a corpus of terabytes is not read once more for that."""
    return any(item.startswith("python:") for item in config.data.text)
