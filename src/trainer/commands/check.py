"""`trainer check`: what a run file means, without training and without torch."""

from trainer.arguments import split, whole
from trainer.commands.train import resolve_run
from trainer.config import global_batch, to_toml
from trainer.refuse import refuse_early

HELP = """usage: trainer check [RUN.toml] [--section.key VALUE ...] [--world N]

Validates a run file and prints every setting with where it came from, then the batch arithmetic for N ranks
(default 1). Without a run file: the embedded default run. The output is itself a valid run file.

examples:
  trainer check run.toml
  trainer check run.toml --world 8 --batch.size 256 > resolved.toml"""


def run(arguments: list[str]) -> int:
    """Prints the resolved configuration and what follows from it."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP)
        return 0
    given = split(arguments, {"world": True}, 1, "check")
    world = whole(given.flags, "world", 1, 1)
    resolved = resolve_run(given.places, given.settings)
    config = resolved.config
    plan = refuse_early(config, world)
    if config.data.images:
        from trainer.data.images import find_images

        find_images(config.data)
    elif not config.data.dataset:
        from trainer.data.sources import resolve_files

        resolve_files(config.data)
    print(to_toml(resolved), end="")
    print()
    print(f"# ranks                {world}")
    print(f"# global batch         {plan.size} samples = {world} ranks x {plan.accumulation} forwards x {plan.micro}")
    if not (config.data.dataset or config.data.images):
        print(f"# tokens per update    {global_batch(config) * config.data.sequence:,}")
    vocabulary = config.model.vocabulary or _vocabulary(config.data.tokenizer)
    known = vocabulary if config.model.kind == "gpt" else config.model.classes
    if not config.model.build and known:
        from trainer.models.check import count_parameters

        print(f"# parameters           {count_parameters(config.model, vocabulary):,}")
    return 0


def _vocabulary(tokenizer: str) -> int:
    """Known without reading a file for bytes only."""
    return 257 if tokenizer == "bytes" else 0
