"""The schedule by arithmetic; parameter groups; what stepping does."""

import copy
import math
from pathlib import Path

import pytest
import torch
from torch import nn

from trainer.errors import UserError
from trainer.models import build_model
from trainer.optim import Optimizers, build_optimizer, learning_rate, split_parameters
from trainer.schema import Model, Optim

CPU = torch.device("cpu")


def rates(optim: Optim, updates: int) -> list[float]:
    return [learning_rate(optim, applied, updates) for applied in range(updates)]


def test_warm_up_reaches_the_peak_at_its_last_update() -> None:
    optim = Optim(lr=0.4, warmup=4, schedule="constant")
    assert [0.4 * rate for rate in rates(optim, 6)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4], rel=1e-15)


def test_a_skipped_update_takes_no_rate() -> None:
    optim = Optim(lr=0.4, warmup=4, schedule="constant")
    applied, used = 0, []
    for skipped in (False, False, True, False, False, False, False, False):
        used.append(None if skipped else round(0.4 * learning_rate(optim, applied, 8), 12))
        applied += not skipped
    assert used == [0.1, 0.2, None, 0.3, 0.4, 0.4, 0.4, 0.4]


def test_cosine_falls_from_the_peak_to_the_end() -> None:
    optim = Optim(schedule="cosine", warmup=2, final=0.1)
    expected = [0.5, 1.0] + [0.1 + 0.45 * (1 + math.cos(math.pi * i / 8)) for i in range(8)]
    assert rates(optim, 10) == pytest.approx(expected, rel=1e-15)
    assert learning_rate(optim, 10, 10) == pytest.approx(0.1)
    assert learning_rate(optim, 99, 10) == pytest.approx(0.1)


def test_linear_falls_in_equal_steps() -> None:
    assert rates(Optim(schedule="linear"), 5) == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


def test_wsd_stays_then_falls_over_the_last_share() -> None:
    optim = Optim(schedule="wsd", warmup=2, decay=0.5)
    assert rates(optim, 10) == pytest.approx([0.5, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2])
    assert rates(Optim(schedule="wsd", decay=1.0, final=0.5), 4) == pytest.approx([1.0, 0.875, 0.75, 0.625])


@pytest.mark.parametrize("schedule", ["cosine", "linear", "wsd", "constant"])
@pytest.mark.parametrize(("warmup", "updates"), [(0, 1), (5, 3), (5, 5), (5, 6), (90, 100)])
def test_rates_are_shares_of_the_peak_and_never_nothing(schedule: str, warmup: int, updates: int) -> None:
    optim = Optim(schedule=schedule, warmup=warmup)
    assert all(0.0 < rate <= 1.0 for rate in rates(optim, updates))


@pytest.mark.parametrize(
    "optim",
    [
        Optim(betas=[0.9]),
        Optim(betas=[0.9, 1.0]),
        Optim(momentum=1.0),
        Optim(final=1.5),
        Optim(decay=0.0),
        Optim(decay=2.0),
        Optim(warmup=-1),
        Optim(schedule="step"),
    ],
)
def test_values_out_of_range_are_refused(optim: Optim) -> None:
    with pytest.raises(UserError) as caught:
        learning_rate(optim, 0, 10)
    assert caught.value.status == 2 and caught.value.fix
    with pytest.raises(UserError):
        build_optimizer(nn.Linear(2, 2), optim, CPU)


@pytest.mark.parametrize(("applied", "total"), [(-1, 10), (0, 0)])
def test_updates_that_do_not_exist_have_no_rate(applied: int, total: int) -> None:
    with pytest.raises(UserError):
        learning_rate(Optim(), applied, total)


class Mixed(nn.Module):
    """One of each sort of parameter."""

    output_layers = ("head",)

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.convolution = nn.Conv1d(4, 4, 3)
        self.matrix = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 10)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)


def names(model: nn.Module, parameters: list[torch.Tensor]) -> set[str]:
    known = {parameter: name for name, parameter in model.named_parameters()}
    return {known[parameter] for parameter in parameters}  # type: ignore[index]  # all are Parameters


def test_matrices_outputs_and_the_rest() -> None:
    model = Mixed()
    matrices, outputs, rest = split_parameters(nn.Sequential(model))
    assert names(model, matrices) == {"convolution.weight", "matrix.weight"}
    assert names(model, outputs) == {"head.weight"}
    assert names(model, rest) == {
        "embedding.weight", "convolution.bias", "matrix.bias", "norm.weight", "norm.bias", "head.bias",
    }  # fmt: skip


def test_a_tied_output_is_an_embedding() -> None:
    model = build_model(Model(layers=1, width=16, heads=2, tied=True, bigram=10, qk_norm=True), vocabulary=20)
    matrices, outputs, rest = split_parameters(model)
    assert outputs == []
    assert len(matrices) == 7 and all(name.startswith("blocks.") for name in names(model, matrices))
    assert {"embedding.weight", "bigram.weight", "norm.weight"} <= names(model, rest)


@pytest.mark.parametrize("name", ["adamw", "sgd", "muon"])
def test_only_matrices_decay(name: str) -> None:
    torch.manual_seed(0)
    model = Mixed()
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizers = build_optimizer(model, Optim(name=name, lr=0.1, matrix_lr=0.1, weight_decay=0.5), CPU)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizers.step()
    for key, parameter in model.named_parameters():
        decays = key in ("convolution.weight", "matrix.weight", "head.weight")
        factor = 1.0 - 0.1 * 0.5 if decays else 1.0
        torch.testing.assert_close(parameter.detach(), before[key] * factor)


def test_decoupled_decay_of_sgd() -> None:
    weight = nn.Linear(2, 2, bias=False)
    start = weight.weight.detach().clone()
    optimizers = build_optimizer(weight, Optim(name="sgd", lr=0.5, weight_decay=0.1), CPU)
    weight.weight.grad = torch.ones(2, 2)
    optimizers.step()
    torch.testing.assert_close(weight.weight.detach(), start - 0.5 * (1.0 + 0.1 * start))


def test_every_trained_parameter_is_updated_once() -> None:
    for name in ("adamw", "sgd", "muon"):
        for decay in (0.0, 0.1):
            model = Mixed()
            optimizers = build_optimizer(model, Optim(name=name, weight_decay=decay), CPU)
            held = [p for o in optimizers.optimizers for group in o.param_groups for p in group["params"]]
            assert len(held) == len({id(p) for p in held})
            assert names(model, held) == {key for key, p in model.named_parameters() if p.requires_grad}


def test_muon_takes_hidden_matrices_only() -> None:
    model = build_model(Model(layers=2, width=16, heads=2, bigram=10), vocabulary=20)
    optimizers = build_optimizer(model, Optim(name="muon", lr=1e-3, matrix_lr=0.02, momentum=0.95), CPU)
    muon, adamw = optimizers.optimizers
    assert isinstance(muon, torch.optim.Muon) and isinstance(adamw, torch.optim.AdamW)
    assert len(muon.param_groups[0]["params"]) == 14
    assert (muon.param_groups[0]["lr"], adamw.param_groups[0]["lr"]) == (0.02, 1e-3)
    optimizers.set_lr(0.5)
    assert (muon.param_groups[0]["lr"], adamw.param_groups[0]["lr"]) == (0.01, 5e-4)
    optimizers.set_lr(1.0)
    assert (muon.param_groups[0]["lr"], adamw.param_groups[0]["lr"]) == (0.02, 1e-3)


def test_muon_leaves_out_adamw_where_nothing_is_left_for_it() -> None:
    assert len(build_optimizer(nn.Linear(4, 4, bias=False), Optim(name="muon"), CPU).optimizers) == 1
    assert len(build_optimizer(nn.LayerNorm(4), Optim(name="muon"), CPU).optimizers) == 1


def train(model: nn.Module, optimizers: Optimizers, updates: range) -> None:
    for update in updates:
        tokens = torch.randint(0, 20, (2, 8), generator=torch.Generator().manual_seed(update))
        torch.autograd.backward(torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()))
        optimizers.set_lr(1.0 / (update + 1))
        optimizers.step()
        optimizers.zero_grad()
        assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("name", ["adamw", "sgd", "muon"])
def test_state_of_the_optimizers_goes_on_bit_for_bit(name: str) -> None:
    settings = Model(layers=1, width=16, heads=2, bigram=10)
    optim = Optim(name=name, momentum=0.9, lr=0.01, weight_decay=0.1)

    def fresh() -> tuple[nn.Module, Optimizers]:
        torch.manual_seed(0)
        model = build_model(settings, vocabulary=20)
        return model, build_optimizer(model, optim, CPU)

    straight, optimizers = fresh()
    train(straight, optimizers, range(3))
    weights = {key: value.clone() for key, value in straight.state_dict().items()}
    states = [copy.deepcopy(optimizer.state_dict()) for optimizer in optimizers.optimizers]
    resumed, others = fresh()
    resumed.load_state_dict(weights)
    for optimizer, state in zip(others.optimizers, states, strict=True):
        optimizer.load_state_dict(state)
    train(straight, optimizers, range(3, 6))
    train(resumed, others, range(3, 6))
    for key, value in straight.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[key]), key


def test_weights_that_start_at_one_move_in_float32() -> None:
    model = nn.LayerNorm(8, bias=False)
    optimizers = build_optimizer(model, Optim(lr=1e-3), CPU)
    for _ in range(200):
        torch.autograd.backward((model.weight * torch.linspace(0.5, 1.5, 8)).sum())
        optimizers.step()
        optimizers.zero_grad()
    torch.testing.assert_close(model.weight.detach(), torch.full((8,), 0.8), rtol=0, atol=1e-3)


OWN = """
import torch

def one(model, optim):
    return torch.optim.Adagrad(model.parameters(), lr=optim.lr)

def two(model, optim):
    return [torch.optim.SGD([model.weight], lr=1.0), torch.optim.SGD([model.bias], lr=2.0)]

def none(model, optim):
    return "adam"

number = 3
"""


def test_own_optimizers(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    model = nn.Linear(2, 2)
    one = build_optimizer(model, Optim(build=f"{path}:one", lr=0.25), CPU)
    assert isinstance(one.optimizers[0], torch.optim.Adagrad)
    two = build_optimizer(model, Optim(build=f"{path}:two"), CPU)
    two.set_lr(0.5)
    assert [o.param_groups[0]["lr"] for o in two.optimizers] == [0.5, 1.0]
    with pytest.raises(UserError, match="raised AttributeError"):
        build_optimizer(nn.ReLU(), Optim(build=f"{path}:two"), CPU)
    with pytest.raises(UserError, match="not a function"):
        build_optimizer(model, Optim(build=f"{path}:number"), CPU)
    with pytest.raises(UserError, match="returned str, not a torch optimizer"):
        build_optimizer(model, Optim(build=f"{path}:none"), CPU)
