"""Update rules that are our own, against their formulas in float64."""

import math

import pytest
import torch
from torch import Tensor, nn

from trainer.errors import UserError
from trainer.optim import OPTIMIZERS, build_optimizer, check_combination, check_optim
from trainer.optim.muon import orthogonal
from trainer.schema import Optim

CPU = torch.device("cpu")
SHAPE = (3, 5)


def trained(optim: Optim, gradients: list[Tensor]) -> tuple[nn.Linear, list[Tensor], Tensor]:
    """A matrix after the updates; what it was before each, and at the start."""
    torch.manual_seed(1)
    model = nn.Linear(SHAPE[1], SHAPE[0], bias=False, dtype=torch.float64)
    optimizers = build_optimizer(model, optim, CPU)
    start, seen = model.weight.detach().clone(), []
    for gradient in gradients:
        seen.append(model.weight.detach().clone())
        model.weight.grad = gradient.clone()
        optimizers.set_lr(1.0)
        optimizers.step()
    seen.append(model.weight.detach().clone())
    with optimizers.averaged():
        seen.append(model.weight.detach().clone())
    assert torch.equal(model.weight, seen[-2])
    return model, seen, start


def gradients(count: int) -> list[Tensor]:
    torch.manual_seed(2)
    return [torch.randn(SHAPE, dtype=torch.float64) for _ in range(count)]


def test_lion_steps_by_the_sign_of_its_momentum() -> None:
    given = gradients(4)
    model, _, weight = trained(Optim(name="lion", lr=0.1, betas=[0.9, 0.99], weight_decay=0.2), given)
    moment = torch.zeros_like(weight)
    for gradient in given:
        weight = weight - 0.1 * (torch.sign(0.9 * moment + 0.1 * gradient) + 0.2 * weight)
        moment = 0.99 * moment + 0.01 * gradient
    torch.testing.assert_close(model.weight.detach(), weight, rtol=1e-13, atol=1e-13)


def test_schedule_free_trains_between_its_average_and_adamw() -> None:
    given = gradients(6)
    optim = Optim(name="schedule_free", schedule="constant", lr=0.1, betas=[0.9, 0.95], weight_decay=0.2)
    _, seen, start = trained(optim, given)
    x = z = start
    second, weights = torch.zeros_like(start), 0.0
    for update, gradient in enumerate(given, 1):
        y = 0.1 * z + 0.9 * x
        torch.testing.assert_close(seen[update - 1], y, rtol=1e-12, atol=1e-12)
        second = 0.95 * second + 0.05 * gradient**2
        rate = 0.1 * math.sqrt(1 - 0.95**update)
        z = z - rate * gradient / (second.sqrt() + 1e-8) - rate * 0.2 * y
        weights += rate**2
        x = (1 - rate**2 / weights) * x + rate**2 / weights * z
    torch.testing.assert_close(seen[-2], 0.1 * z + 0.9 * x, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(seen[-1], x, rtol=1e-12, atol=1e-12)


def test_an_exponential_average_forgets_the_start_of_a_short_run() -> None:
    _, seen, average = trained(Optim(name="sgd", lr=0.1, average="ema", ema_decay=0.25), gradients(4))
    for update, weight in enumerate(seen[1:-1], 1):
        decay = min(0.25, (1 + update) / (10 + update))
        average = decay * average + (1 - decay) * weight
    torch.testing.assert_close(seen[-1], average, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (1, 5)])
def test_muons_matrices_are_nearly_orthogonal(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64)
    found = orthogonal(matrix)
    assert found.shape == shape
    values = torch.linalg.svdvals(found)
    assert values.min() > 0.65 and values.max() < 1.25
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    assert float((found * (left @ right)).sum()) == pytest.approx(float(values.sum()), rel=1e-10)


def test_muon_differs_from_torchs_by_bf16_only() -> None:
    given = gradients(3)
    _, seen, start = trained(Optim(name="muon", matrix_lr=0.1, momentum=0.9, weight_decay=0.1), given)
    theirs = nn.Parameter(start.clone())
    optimizer = torch.optim.Muon([theirs], lr=0.1, momentum=0.9, weight_decay=0.1)
    for gradient in given:
        theirs.grad = gradient.clone()
        optimizer.step()  # type: ignore[no-untyped-call]  # torch's
    torch.testing.assert_close(seen[-1], theirs.detach(), rtol=0, atol=0.01)
    assert list(optimizer.state[theirs]) == ["momentum_buffer"]


def test_the_schema_names_what_there_is() -> None:
    for name in OPTIMIZERS:
        check_optim(Optim(name=name, schedule="constant"))
    assert list(OPTIMIZERS) == list(vars(Optim)["name"].choices)


@pytest.mark.parametrize(
    ("optim", "fix"),
    [
        (Optim(name="schedule_free"), "Set optim.schedule to constant"),
        (Optim(name="schedule_free", schedule="constant", average="ema"), "Set optim.average to none"),
        (Optim(name="schedule_free", schedule="constant", betas=[0.0, 0.9]), "Set optim.betas"),
        (Optim(average="ema", ema_decay=1.0), "less than 1"),
    ],
)
def test_averages_that_make_no_sense_are_refused(optim: Optim, fix: str) -> None:
    with pytest.raises(UserError) as caught:
        check_optim(optim)
    assert caught.value.status == 2 and fix in caught.value.fix


def test_an_average_needs_digits() -> None:
    check_combination(Optim(average="ema"), "ddp", "fp32")
    with pytest.raises(UserError, match="too few digits") as caught:
        check_combination(Optim(average="ema"), "ddp", "bf16")
    assert "Set precision.weights to fp32" in caught.value.fix
