"""`trainer prepare`: tokenizes and packs the data ahead of a run."""

from pathlib import Path

from trainer import folder
from trainer.arguments import split
from trainer.commands.train import resolve_run
from trainer.config import require_data

HELP = """usage: trainer prepare [RUN.toml] [--section.key VALUE ...]

Tokenizes the run's data into memory-mapped files, in data.cache or the run folder, so that training starts at once.
Runs with the same files, tokenizer and hold-out share them. What is there already is never changed, so that a run that
is going on keeps its data. Needs no torch.

example:
  trainer prepare run.toml --data.cache /scratch/tokens"""


def run(arguments: list[str]) -> int:
    """Prepares and says what there is."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP)
        return 0
    given = split(arguments, {}, 1, "prepare")
    config = resolve_run(given.places, given.settings).config
    require_data(config)
    if config.data.dataset:
        print("data.dataset is your own code: there is nothing to prepare")
        return 0
    if config.data.images:
        print("data.images is read as it is: there is nothing to prepare")
        return 0
    from trainer.data.datasets import open_data
    from trainer.launch.stop import StopRequest
    from trainer.needs import need
    from trainer.run import leaving_at_once
    from trainer.run_data import prepare_files

    need("numpy")

    place = Path(config.run.folder)
    folder.make(place, "auto")
    stop = StopRequest()
    stop.install()
    try:
        with leaving_at_once(
            stop, "stopped before the data was prepared; nothing is left of it", "Give the same command again to start."
        ):
            made = prepare_files(config, place, None)
    finally:
        stop.uninstall()
    data = open_data(config, place, prepare=False, place=made, tell=True)
    print(f"training: {len(data.train):,} samples of {data.train.tokens_per_sample} tokens")
    if data.validation is not None:
        print(f"validation: {len(data.validation):,} samples, {data.validation_bytes:,} bytes of text")
    print(f"vocabulary: {data.vocabulary}")
    print(f"fingerprint: {data.fingerprint}")
    return 0
