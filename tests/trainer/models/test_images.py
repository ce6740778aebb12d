"""Models of images: what they see, how large they are, what is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.beds.ranks import on_ranks
from trainer.errors import UserError
from trainer.mesh import Layout
from trainer.models import build_model
from trainer.models.check import check_model, count_parameters
from trainer.models.loss import classification_loss
from trainer.models.resnet import ResNet
from trainer.models.scores import Scored, hits, shares
from trainer.models.vit import GridRotary
from trainer.optim import build_optimizer
from trainer.parallel import parallelize
from trainer.precision import Policy
from trainer.schema import Model, Optim, Parallel
from trainer.step import Step

MODELS = {
    "vit": Model(kind="vit", image=8, patch=4, width=16, heads=2, layers=2, qk_norm=True),
    "vit, grouped": Model(kind="vit", image=6, patch=2, channels=1, width=16, heads=4, kv_heads=2, classes=7),
    "resnet": Model(kind="resnet", image=8, stages=[1, 2], filters=4),
    "resnet, large stem": Model(kind="resnet", image=16, channels=1, stages=[1, 1, 1], filters=4, stem="large"),
}


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_as_many_as_counted_and_all_are_trained(name: str) -> None:
    model = build_model(MODELS[name], vocabulary=5)
    size = MODELS[name].image
    assert sum(each.numel() for each in model.parameters()) == count_parameters(MODELS[name], 5)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)  # the last of a block starts at zero, and nothing flows through it
    logits = model(torch.randn(3, MODELS[name].channels, size, size))
    assert logits.shape == (3, MODELS[name].classes or 5)
    logits.square().sum().backward()
    assert all(each.grad is not None and each.grad.abs().sum() > 0 for each in model.parameters())


def test_resnet_18_has_its_known_size() -> None:
    model = Model(kind="resnet", image=224, stem="large", classes=1000)
    assert count_parameters(model, 1000) == 11_689_512


def test_a_patch_sees_all_others_and_knows_where_it_is() -> None:
    torch.manual_seed(0)
    model = build_model(MODELS["vit"], vocabulary=5).double()
    image = torch.randn(1, 3, 8, 8).double()
    shifted = image.roll(4, 3)
    one, other = model.patches(image), model.patches(shifted)  # type: ignore[operator]
    assert torch.allclose(one.roll(1, 3), other)
    assert not torch.allclose(model(image), model(shifted))
    seen: list[Tensor] = []
    model.blocks[0].register_forward_hook(lambda _module, _inputs, out: seen.append(out))  # type: ignore[index, union-attr]
    changed = image.clone()
    changed[..., 4:, 4:] += 1  # the last patch
    model(image)
    model(changed)
    assert not torch.allclose(seen[0][:, 0], seen[1][:, 0])


def test_rotations_tell_rows_from_columns() -> None:
    table = GridRotary(8, 3).table(0, 9, torch.device("cpu"), torch.float64)[:, 0]
    assert table.shape == (9, 4)
    assert torch.equal(table[0:3, :2], table[0:1, :2].expand(3, 2))  # a row: the first half of the pairs alike
    assert torch.equal(table[0::3, 2:], table[0:1, 2:].expand(3, 2))
    assert not torch.equal(table[0, :2], table[3, :2])


@pytest.mark.parametrize(
    ("model", "named"),
    [
        (Model(kind="vit", image=30, patch=4), "model.image = 30"),
        (Model(kind="vit", width=24, heads=4), "6 wide"),
        (Model(kind="vit", width=30, heads=4), "model.width = 30"),
        (Model(kind="resnet", stages=[]), "model.stages"),
        (Model(kind="resnet", stages=[1, 0]), "model.stages"),
        (Model(kind="resnet", image=4, stages=[1, 1, 1, 1]), "model.image = 4"),
        (Model(kind="resnet", classes=3), "5 classes"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_with_a_fix(model: Model, named: str) -> None:
    with pytest.raises(UserError, match=named) as caught:
        check_model(model, 5)
    assert caught.value.status == 2
    assert caught.value.fix


def test_a_model_needs_to_know_its_classes() -> None:
    with pytest.raises(UserError, match=r"model\.classes is not set"):
        build_model(Model(kind="resnet"), vocabulary=0)


def test_blocks_are_listed_in_order_for_cutting() -> None:
    from trainer.models.plan import plan_of

    model = ResNet(channels=3, filters=4, stages=[2, 1], classes=3)
    assert plan_of(model).blocks == ("blocks.0", "blocks.1", "blocks.2")


def cut_vit(rank: int, count: int, degrees: dict[str, int]) -> list[float]:
    """Losses and norms of two updates and of an evaluation's batch; the hits of that batch on rank 0."""
    torch.manual_seed(0)
    model = build_model(MODELS["vit"], vocabulary=6).double()
    loss = Scored(classification_loss)
    settings = Parallel(sequence_parallel=False)
    cut = parallelize(model, loss, Layout(**degrees), settings, torch.device("cpu"))
    policy = Policy(torch.float64, torch.float64, None, None)
    optimizers = build_optimizer(model, Optim(name="sgd", lr=0.1), torch.device("cpu"))
    step = Step(cut, optimizers, policy, torch.device("cpu"), clip=1.0)
    generator = torch.Generator().manual_seed(1)
    made = [torch.randn(4, 3, 8, 8, generator=generator).double() for _ in range(4)]
    batches: list[tuple[Any, int]] = [({"inputs": each, "labels": torch.tensor([0, 2, 3, 5])}, 4) for each in made]
    told = []
    for first in (0, 2):
        outcome = step(batches[first : first + 2], 8.0, 1.0, False)
        told += [outcome.loss, outcome.grad_norm]
    loss.counting = True
    with torch.no_grad():
        sums = torch.stack([each.double() for each in cut.evaluate(batches[0][0])]) * cut.counts
    found = torch.tensor(loss.taken(), dtype=torch.float64) * cut.counts
    if count > 1:
        torch.distributed.all_reduce(sums)
        torch.distributed.all_reduce(found)
    return told + sums.tolist() + found.tolist()


@pytest.mark.parametrize("name", ["tensor", "pipeline"])
def test_a_vit_that_is_cut_is_the_same(name: str) -> None:
    one = cut_vit(0, 1, {})
    assert one[-1] == 4
    for other in on_ranks(2, cut_vit, {name: 2}):
        assert other == pytest.approx(one, rel=1e-11)


def test_hits_are_counted_of_counted_labels_only() -> None:
    logits = torch.tensor([[5.0, 4, 3, 2, 1, 0], [0, 1, 2, 3, 4, 5], [9, 0, 0, 0, 0, 1], [9, 0, 0, 0, 0, 1]])
    assert hits(logits, torch.tensor([0, 0, 5, -100])).tolist() == [1, 2, 3]
    assert shares([1, 2, 3], 3) == {"accuracy": pytest.approx(1 / 3), "top5_accuracy": pytest.approx(2 / 3)}
    assert shares([float(each) for each in hits(logits[:, :3], torch.tensor([0, 0, 2, -100])).tolist()], 3) == {
        "accuracy": pytest.approx(1 / 3)
    }
    assert shares([0, 0, 0], 3) == {}


def test_a_scored_loss_is_the_loss() -> None:
    loss = Scored(classification_loss)
    model = nn.Linear(2, 3)
    batch = {"inputs": torch.randn(4, 2), "labels": torch.tensor([0, 1, 2, 0])}
    expected = classification_loss(model, batch)
    assert torch.equal(loss(model, batch)[0], expected[0])
    assert loss.taken() == [0, 0, 0]
    loss.counting = True
    assert torch.equal(loss(model, batch)[0], expected[0])
    assert loss.taken()[1] == 4
