"""Which layers a run starts with: as asked, but lazy modules for runs only that are proven to need none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer import startup

if TYPE_CHECKING:
    from trainer.schema import Config, Start

LAZY = "lazy"


def put_on(start: Start, why: str, not_forked: str = "only one rank") -> list[dict[str, object]]:
    """Puts the layers on; their notes. `why`: the doubt about lazy modules, told in their layer's note; `not_forked` as
    startup.put_on has it."""
    names = [name for name in start.layers if name != LAZY or not why]
    notes = startup.put_on(names, start.check, start.node_local, not_forked)
    for note in notes:
        if note["layer"] == LAZY and LAZY in start.layers:
            note["policy"] = start.policy
            if why:
                note["why"] = why
    return notes


def doubt_of_program(start: Start) -> str:
    """Why no module may be lazy while a program of the user's own runs; or ""."""
    if start.policy == "auto":
        return "the program is your own: nobody has proven what it needs (start.policy = fast: all the same)"
    return "" if start.policy == "fast" else "start.policy is safe"


def doubt(config: Config) -> str:
    """Why no module may be lazy in this run; or ""."""
    policy = config.start.policy
    if policy == "fast":
        return ""
    if policy == "safe":
        return "start.policy is safe"
    own = {
        "model.build": config.model.build,
        "model.loss": config.model.loss,
        "data.dataset": config.data.dataset,
        "optim.build": config.optim.build,
    }
    for name, value in own.items():
        if value:
            return f"{name} is code of your own: nobody has proven what it needs (start.policy = fast: all the same)"
    if config.data.images:
        return "models of images are not proven to need none of them (start.policy = fast: all the same)"
    parallel = config.parallel
    if parallel.strategy != "ddp" or max(parallel.pipeline, parallel.tensor, parallel.context) > 1:
        return "DTensor, which cuts the model, needs all of them"
    if config.precision.weights == "bf16":
        return "DTensor, which adds up gradients wider than their weights, needs all of them"
    if config.parallel.compress != "none":
        return "hooks of DDP are not proven to need none of them (start.policy = fast: all the same)"
    if config.run.device != "cpu" and startup.accelerator_present():
        return "not proven on an accelerator (start.policy = fast: all the same)"
    return ""
