"""Models that tensor and context ranks cannot share are refused without torch."""

import pytest

from trainer.config import resolve
from trainer.errors import UserError
from trainer.mesh import Layout, plan_layout
from trainer.resume import sharing

GPT = {"model.heads": "4", "model.kv_heads": "2", "model.width": "32", "data.sequence": "12"}
MLP = {"model.kind": "mlp", "model.width": "9"}


def plan(world: int, changes: dict[str, str]) -> Layout:
    return plan_layout(resolve("here", list(changes.items()), {}, "").config, world)


@pytest.mark.parametrize(
    ("changes", "what", "fix"),
    [
        (
            {**GPT, "parallel.tensor": "4"},
            "model.kv_heads = 2 is not a multiple of parallel.tensor = 4",
            "Set parallel.tensor to 2",
        ),
        ({**GPT, "parallel.tensor": "3"}, "model.heads = 4 is not a multiple", "Set parallel.tensor to 2"),
        ({**GPT, "model.hidden": "33", "parallel.tensor": "2"}, "model.hidden = 33 is not", "Set parallel.tensor to 1"),
        ({**MLP, "parallel.tensor": "2"}, "model.width = 9 is not a multiple", "Set parallel.tensor to 1"),
        (
            {**MLP, "parallel.tensor": "3", "parallel.sequence_parallel": "true"},
            "an mlp has no sequence",
            "Remove parallel.sequence_parallel",
        ),
        ({**MLP, "parallel.context": "2"}, "model.kind mlp has none", "Remove parallel.context"),
        ({**GPT, "parallel.context": "5"}, "data.sequence = 12 is not a multiple of 5", "Set data.sequence to 10"),
        (
            {**GPT, "parallel.context": "4", "parallel.tensor": "2", "parallel.sequence_parallel": "true"},
            r"is not a multiple of 8 \(context 4 x tensor 2\)",
            "Set data.sequence to 8",
        ),
        ({**GPT, "parallel.context": "2", "model.loss": "mine.py:loss"}, "a model.loss of your own", "built-in loss"),
        ({**GPT, "parallel.tensor": "2", "parallel.context": "2"}, "6 ranks is not a multiple of", "4 ranks"),
    ],
)
def test_what_cannot_be_cut_is_refused_with_the_fix(changes: dict[str, str], what: str, fix: str) -> None:
    with pytest.raises(UserError, match=what) as found:
        plan(6, changes)
    assert fix in found.value.fix
    assert found.value.status == 2


def test_the_rest_of_the_ranks_see_other_samples() -> None:
    cut = plan(8, {**GPT, "parallel.tensor": "2", "parallel.context": "2", "parallel.strategy": "full"})
    assert cut.shape() == {"pipeline": 1, "replicate": 1, "shard": 2, "context": 2, "tensor": 2}
    assert (cut.data_ranks, cut.averaged, cut.holders) == (2, 4, 8)
    assert [cut.data_index(rank) for rank in range(8)] == [0] * 4 + [1] * 4
    assert plan(8, {**GPT, "parallel.tensor": "2"}).replicate == 4


def test_random_states_belong_to_ranks_that_share_samples_alike() -> None:
    def shared(**changes: str) -> tuple[int, ...]:
        settings = [(name.replace("__", "."), value) for name, value in {**changes}.items()]
        return sharing(resolve("here", [*GPT.items(), *settings], {}, "").config, 4)

    assert shared() == shared(parallel__strategy="full") == shared(parallel__strategy="full", parallel__shard="2")
    cut = shared(parallel__tensor="2")
    assert len({shared(), cut, shared(parallel__tensor="2", parallel__sequence_parallel="true")}) == 3
    assert cut != shared(parallel__context="2")
