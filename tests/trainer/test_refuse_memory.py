"""What of [memory] does not go together is refused without torch."""

import pytest

from trainer.config import resolve
from trainer.errors import UserError
from trainer.mesh import plan_layout
from trainer.refuse_memory import check_memory, starts_empty
from trainer.schema import Config


def config(*changes: str) -> Config:
    """`section.key=value`."""
    return resolve(
        None, [("data.text", "none"), *((each.split("=")[0], each.split("=")[1]) for each in changes)], {}
    ).config


@pytest.mark.parametrize(
    ("changes", "ranks", "what"),
    [
        (["memory.recompute=budget"], 1, "nothing is compiled"),
        (["memory.recompute=budget", "model.compile=blocks", "memory.budget=2"], 1, "not a fraction"),
        (["memory.offload=parameters"], 2, "parallel.strategy is ddp"),
        (["memory.offload=parameters", "parallel.strategy=full", "run.device=cpu"], 2, "already"),
        (["parallel.prefetch=1", "parallel.strategy=gradients"], 2, "gathers no blocks"),
        (["model.compile=blocks", "parallel.tensor=2"], 2, "blocks communicate inside"),
        (
            ["model.compile=blocks", "parallel.pipeline=2", "parallel.schedule=zbv"],
            2,
            "has one backward, but schedule zbv",
        ),
        (["memory.recompute=selective", "parallel.pipeline=2", "parallel.schedule=zbv"], 2, "schedule zbv runs two"),
        (["memory.meta=on"], 2, "every rank keeps the whole model"),
        (["memory.meta=on", "parallel.strategy=full", "memory.offload=parameters"], 2, "memory.offload parameters"),
        (["memory.meta=on", "parallel.pipeline=2", "parallel.balance=measured"], 2, "parallel.balance measured"),
    ],
)
def test_what_does_not_go_together(changes: list[str], ranks: int, what: str) -> None:
    found = config(*changes)
    with pytest.raises(UserError, match=what) as error:
        check_memory(found, plan_layout(found, ranks))
    assert error.value.status == 2


@pytest.mark.parametrize(
    ("changes", "ranks", "empty"),
    [
        (["parallel.strategy=full"], 2, False),
        (["parallel.strategy=full", "memory.meta=on"], 2, True),
        (["parallel.strategy=full", "model.width=2048", "model.layers=8"], 2, True),
        (["parallel.strategy=full", "model.width=2048", "model.layers=8", "memory.meta=off"], 2, False),
        (["parallel.strategy=ddp", "model.width=2048", "model.layers=8"], 2, False),
        (["parallel.tensor=2", "memory.meta=on"], 2, True),
        (["parallel.pipeline=2", "parallel.balance=measured", "model.width=2048", "model.layers=8"], 2, False),
    ],
)
def test_who_starts_without_memory(changes: list[str], ranks: int, empty: bool) -> None:
    found = config(*changes)
    layout = plan_layout(found, ranks)
    check_memory(found, layout)
    assert starts_empty(found, layout, 257) is empty
