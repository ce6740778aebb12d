"""`trainer eval`: a run's checkpoint on its validation data."""

import json
from pathlib import Path

from trainer.arguments import split

HELP = """usage: trainer eval RUN_FOLDER [--checkpoint FOLDER] [--json] [--section.key VALUE ...]

Evaluates the newest whole checkpoint of a run (or the one given) on its validation data. Settings given here replace
those of the run, e.g. other validation files.

examples:
  trainer eval runs/default
  trainer eval runs/default --json --data.validation "other/*.txt" """


def run(arguments: list[str]) -> int:
    """Prints the numbers, as text or JSON."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP)
        return 0
    given = split(arguments, {"checkpoint": True, "json": False}, 1, "eval")
    from trainer.commands.generate import run_place
    from trainer.needs import need

    place = Path(run_place(given.places, "eval"))
    need("torch", "numpy")
    from trainer.errors import UserError
    from trainer.evaluation import Evaluation
    from trainer.loaded import load
    from trainer.mesh import Layout
    from trainer.models import choose_loss, scored
    from trainer.moving import moved
    from trainer.parallel import parallelize

    loaded = load(place, given.settings, given.flags.get("checkpoint", ""))
    config = loaded.config
    loss = choose_loss(config.model, loaded.model)
    scores = scored(loss)
    evaluation = Evaluation(
        parallelize(loaded.model, scores or loss, Layout(), config.parallel, loaded.device),
        loaded.data,
        loaded.policy,
        loaded.device,
        0,
        micro=config.eval.micro or config.batch.micro or 32,
        limit=config.eval.samples,
        to_device=lambda batch: moved(batch, loaded.device, loaded.policy.weights),
        scores=scores,
    )
    result = evaluation()
    if not result:
        raise UserError(
            f"{place} has no validation data", "Set data.validation, or data.holdout to a number such as 10.", 2
        )
    if "json" in given.flags:
        print(json.dumps({"checkpoint": str(loaded.checkpoint), **result}))
    else:
        print(f"checkpoint: {loaded.checkpoint}")
        for name, value in result.items():
            print(f"{name.replace('_', ' ')}: {value:.6f}")
    return 0
