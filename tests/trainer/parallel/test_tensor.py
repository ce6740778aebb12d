"""Matrices and tokens cut over ranks that see the same samples: the numbers of one process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.beds.ranks import on_ranks
from tests.trainer.parallel.cut_models import CPU, RICH, VOCABULARY, Cut, Numbers, Own, Training, build, updates
from trainer.errors import UserError
from trainer.mesh import Layout
from trainer.models import build_model
from trainer.models.gpt import GPT
from trainer.models.plan import tensor_plan
from trainer.parallel import parallelize
from trainer.parallel.tensor import apply_tensor
from trainer.schema import Model, Parallel

SEQUENCE = {"sequence_parallel": True}
SHARDED = Cut("rich", {"tensor": 2, "shard": 2}, {"strategy": "full", **SEQUENCE})
CUTS = {
    2: [
        Cut("rich", {"tensor": 2}, {"loss_parallel": False}),
        Cut("rich", {"tensor": 2}, SEQUENCE),
        Cut("own", {"tensor": 2}, {}),
        Cut("mlp", {"tensor": 2}, {}),
        Cut("rich", {"context": 2}, {}),
        Cut("rich", {"context": 2}, {"strategy": "full"}),
    ],
    4: [
        Cut("rich", {"tensor": 2, "replicate": 2}, {}),
        Cut("own", {"tensor": 2, "shard": 2}, {"strategy": "gradients"}),
        Cut("rich", {"tensor": 2, "context": 2}, SEQUENCE),
    ],
}


def all_updates(rank: int, count: int) -> list[Numbers]:
    return [updates(rank, count, case) for case in CUTS[count]]


@pytest.fixture(scope="module")
def one() -> dict[str, Numbers]:
    """Each model in one process."""
    return {name: updates(0, 1, Cut(name, {}, {})) for name in ("rich", "own", "mlp")}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        assert float((found[name] - weight).norm()) <= 1e-10 * max(1.0, float(weight.norm())), name


@pytest.mark.parametrize("ranks", [2, 4])
def test_cut_models_are_those_of_one_process(ranks: int, one: dict[str, Numbers]) -> None:
    everywhere = on_ranks(ranks, all_updates)
    for number, case in enumerate(CUTS[ranks]):
        alone = one[case.model]
        for found in (each[number] for each in everywhere):
            assert found.losses == pytest.approx(alone.losses, rel=1e-11), case
            assert found.norms == pytest.approx(alone.norms, rel=1e-10), case
            assert_same(found.weights, alone.weights)
        assert max(alone.norms) > 0.3, "clipping does something"
        if case.degrees == {"tensor": 2} and case.model == "rich":
            assert all(each[number].kept < 0.52 * alone.kept for each in everywhere)


def through_checkpoints(rank: int, count: int, folder: Path) -> list[tuple[float, float, dict[str, Tensor]]]:
    """The second update of a run that is saved before it, and of one that was saved by one process."""
    saving = Training(SHARDED, rank)
    saving.update(0)
    saving.save(folder / "cut", rank == 0)
    found = []
    for training in (saving, Training(SHARDED, rank, folder / "one")):
        outcome = training.update(1)
        found.append((outcome.loss, outcome.grad_norm, training.weights()))
    return found


def test_checkpoints_are_whole_and_go_on_in_another_layout(tmp_path: Path, one: dict[str, Numbers]) -> None:
    for name in ("cut", "one"):
        (tmp_path / name).mkdir()
    alone = Training(Cut("rich", {}, {}), 0)
    alone.update(0)
    alone.save(tmp_path / "one", True)
    found = on_ranks(4, through_checkpoints, tmp_path)[0]
    again = Training(Cut("rich", {}, {}), 0, tmp_path / "cut")
    outcome = again.update(1)
    for loss, norm, weights in [*found, (outcome.loss, outcome.grad_norm, again.weights())]:
        assert (loss, norm) == pytest.approx((one["rich"].losses[1], one["rich"].norms[1]), rel=1e-10)
        assert_same(weights, one["rich"].weights)


def decoded(model: Any) -> tuple[list[int], list[Tensor]]:
    """Greedy text after a prompt, and the logits it was chosen by; one token at a time but for the prompt."""
    model.eval()
    cache = model.new_cache(1, 9)
    given, tokens, seen = torch.tensor([[5, 9, 2]]), [], []
    with torch.no_grad():
        for _ in range(6):
            logits = model(given, cache=cache)[0, -1]
            seen.append(logits.full_tensor() if hasattr(logits, "full_tensor") else logits)
            tokens.append(int(seen[-1].argmax()))
            given = torch.tensor([[tokens[-1]]])
    return tokens, seen


def decoding(rank: int, count: int) -> list[tuple[list[int], list[Tensor]]]:
    found = []
    for degrees, settings in (({"tensor": 2}, {}), ({"tensor": 2}, SEQUENCE), ({"context": 2}, {})):
        model, loss = build("rich")
        parallelize(model, loss, Layout(**degrees), Parallel(**settings), CPU)
        found.append(decoded(model))
    return found


def test_decoding_with_a_cache_of_the_ranks_own_heads() -> None:
    tokens, logits = decoded(build("rich")[0])
    for found, seen in on_ranks(2, decoding)[1]:
        assert found == tokens
        torch.testing.assert_close(torch.stack(seen), torch.stack(logits), rtol=1e-10, atol=1e-12)


def dropped(rank: int, count: int, sequence: bool) -> Tensor:
    """What a block gives in training, with the same random state on both ranks."""
    torch.manual_seed(1)
    model = build_model(Model(layers=1, width=8, heads=2, dropout=0.5), vocabulary=11).double()
    assert isinstance(model, GPT)
    parallelize(model, build("rich")[1], Layout(tensor=2), Parallel(sequence_parallel=sequence), CPU)
    torch.manual_seed(2)
    found: Tensor = model.middle(model.begin(torch.arange(8)[None]), range(1), torch.arange(8)[None]).detach()
    return found


def test_what_is_dropped_is_the_same_on_tensor_ranks_that_have_all_tokens() -> None:
    first, second = on_ranks(2, dropped, False)
    assert torch.equal(first, second)
    assert first.shape == (1, 8, 8)
    assert [each.shape for each in on_ranks(2, dropped, True)] == [(1, 4, 8), (1, 4, 8)]


class FakeMesh:
    """Of four ranks, for what is refused before anything is cut."""

    def size(self) -> int:
        return 4


def refused(model: nn.Module, plan: dict[str, str]) -> str:
    mesh: Any = FakeMesh()
    with pytest.raises(UserError) as found:
        apply_tensor(model, mesh, plan, sequence=False, loss=True)
    assert found.value.fix
    return str(found.value.what)


@pytest.mark.parametrize(
    ("make", "plan", "what"),
    [
        (Own, {"blocks.*.up": "columns"}, "shards 'blocks.*.up' as \"columns\""),
        (Own, {"block.*.up": "column"}, "no module has that name"),
        (Own, {"blocks.*": "column"}, "blocks.0 is a OwnBlock"),
        (Own, {"tokens": "row"}, "tokens is a Embedding"),
        (lambda: nn.Sequential(nn.Linear(8, 6)), {"0": "column"}, "out_features of 0 is 6"),
        (lambda: nn.Sequential(nn.Linear(6, 8)), {"0": "row"}, "in_features of 0 is 6"),
        (lambda: nn.Sequential(nn.Linear(6, 5)), {"0": "vocabulary"}, "nothing is left for the last of 4"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused(make: Callable[[], nn.Module], plan: dict[str, str], what: str) -> None:
    assert what in refused(make(), plan)


def test_a_model_without_a_plan_is_told_what_to_write() -> None:
    with pytest.raises(UserError, match=r"Sequential does not say which and how") as found:
        tensor_plan(nn.Sequential(nn.Linear(4, 4)))
    assert '"blocks.*.up": "column"' in found.value.fix


def ragged(rank: int, count: int) -> str:
    model, loss = build("rich")
    cut = parallelize(model, loss, Layout(tensor=2), Parallel(sequence_parallel=True), CPU)
    tokens = torch.zeros(2, 7, dtype=torch.int64)
    with pytest.raises(UserError) as found:
        cut.evaluate({"tokens": tokens, "labels": tokens})
    return str(found.value.what)


def test_tokens_that_do_not_come_out_even_are_refused() -> None:
    assert on_ranks(2, ragged) == ["7 tokens is not a multiple of parallel.tensor = 2"] * 2


def test_the_rich_model_is_rich() -> None:
    words = set(tensor_plan(build_model(RICH, vocabulary=VOCABULARY)).values())
    assert words == {"vocabulary", "sequence", "whole", "column", "heads", "row"}
