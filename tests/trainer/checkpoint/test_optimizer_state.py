"""An optimizer's state: the same updates after a resume, bit for bit, and never another parameter's state."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW, Muon, Optimizer

from trainer.checkpoint.state import load_optimizer, save_optimizer, weights_digest
from trainer.errors import UserError

Make = Callable[[nn.Module], list[Optimizer]]


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 4), nn.Linear(4, 9, bias=False))


def adamw(model: nn.Module) -> list[Optimizer]:
    matrices = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim < 2]
    return [AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-2)]


def fused(model: nn.Module) -> list[Optimizer]:
    return [AdamW(model.parameters(), lr=1e-2, fused=True)]


def amsgrad(model: nn.Module) -> list[Optimizer]:
    return [AdamW(model.parameters(), lr=1e-2, amsgrad=True)]


def momentum(model: nn.Module) -> list[Optimizer]:
    return [SGD(model.parameters(), lr=1e-2, momentum=0.9)]


def plain(model: nn.Module) -> list[Optimizer]:
    return [SGD(model.parameters(), lr=1e-2)]


def muon(model: nn.Module) -> list[Optimizer]:
    hidden = [p for name, p in model.named_parameters() if p.ndim == 2 and not name.startswith("0.")]
    rest = [p for p in model.parameters() if not any(p is h for h in hidden)]
    return [Muon(hidden, lr=2e-2), AdamW(rest, lr=1e-2)]


def train(model: nn.Module, optimizers: list[Optimizer], seed: int) -> None:
    torch.manual_seed(seed)
    for _ in range(3):
        loss = model(torch.randint(0, 9, (16,))).square().mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("make", [adamw, fused, amsgrad, momentum, plain, muon])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_goes_on_bit_for_bit(tmp_path: Path, make: Make, dtype: torch.dtype) -> None:
    model = network(1).to(dtype)
    optimizers = make(model)
    train(model, optimizers, 5)
    (tmp_path / "one").mkdir()
    save_optimizer(tmp_path / "one", model, optimizers)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    train(model, optimizers, 6)

    resumed = network(2).to(dtype)
    resumed.load_state_dict(weights)
    others = make(resumed)
    load_optimizer(tmp_path / "one", resumed, others)
    (tmp_path / "two").mkdir()
    save_optimizer(tmp_path / "two", resumed, others)
    assert (tmp_path / "one" / "optimizer.pt").read_bytes() == (tmp_path / "two" / "optimizer.pt").read_bytes()
    train(resumed, others, 6)
    assert weights_digest(resumed) == weights_digest(model)


def test_state_in_another_type_than_the_weights_keeps_its_type(tmp_path: Path) -> None:
    model = network(1).to(torch.bfloat16)
    optimizers = momentum(model)
    for parameter in model.parameters():
        optimizers[0].state[parameter]["momentum_buffer"] = torch.full_like(parameter, 1 / 3, dtype=torch.float32)
    save_optimizer(tmp_path, model, optimizers)
    others = momentum(model)
    load_optimizer(tmp_path, model, others)
    for parameter in model.parameters():
        loaded = others[0].state[parameter]["momentum_buffer"]
        assert loaded.dtype == torch.float32
        assert torch.equal(loaded, optimizers[0].state[parameter]["momentum_buffer"])


def test_state_is_found_by_name_when_groups_are_cut_otherwise(tmp_path: Path) -> None:
    model = network(1)
    optimizers = adamw(model)
    train(model, optimizers, 5)
    save_optimizer(tmp_path, model, optimizers)
    others: list[Optimizer] = [AdamW([p]) for p in reversed(list(model.parameters()))]
    load_optimizer(tmp_path, model, others)
    for optimizer in others:
        for parameter, state in optimizer.state.items():
            assert torch.equal(state["exp_avg"], optimizers[0].state[parameter]["exp_avg"])


def test_the_running_configuration_wins(tmp_path: Path) -> None:
    model = network(1)
    optimizers = adamw(model)
    train(model, optimizers, 5)
    save_optimizer(tmp_path, model, optimizers)
    others: list[Optimizer] = [AdamW(model.parameters(), lr=7.0, betas=(0.5, 0.6), weight_decay=0.3)]
    load_optimizer(tmp_path, model, others)
    group = others[0].param_groups[0]
    assert (group["lr"], group["betas"], group["weight_decay"]) == (7.0, (0.5, 0.6), 0.3)


class Counting(SGD):
    """Counts in its group, as some optimizers from elsewhere do."""

    def __init__(self, params: object, lr: float) -> None:
        super().__init__(params, lr)  # type: ignore[arg-type]  # whatever SGD takes
        for group in self.param_groups:
            group["updates"] = 0


def test_what_a_foreign_optimizer_counts_in_its_groups_comes_back(tmp_path: Path) -> None:
    model = network(1)
    first = Counting(model.parameters(), 0.5)
    first.param_groups[0]["updates"] = 12
    save_optimizer(tmp_path, model, [first])
    second = Counting(model.parameters(), 0.25)
    load_optimizer(tmp_path, model, [second])
    assert second.param_groups[0]["updates"] == 12
    assert second.param_groups[0]["lr"] == 0.25


def test_a_parameter_without_saved_state_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    model = network(1)
    half: list[Optimizer] = [AdamW([p for name, p in model.named_parameters() if name != "3.bias"])]
    train(model, half, 5)
    save_optimizer(tmp_path, model, half)
    others = fused(model)
    train(model, others, 6)
    before = {p: {k: v.clone() for k, v in s.items()} for p, s in others[0].state.items()}
    with pytest.raises(UserError, match=r"no optimizer state for 3\.bias") as raised:
        load_optimizer(tmp_path, model, others)
    assert raised.value.status == 2
    for parameter, state in others[0].state.items():
        assert all(torch.equal(value, before[parameter][key]) for key, value in state.items())


def test_another_optimizers_state_is_refused(tmp_path: Path) -> None:
    model = network(1)
    save_optimizer(tmp_path, model, momentum(model))
    with pytest.raises(UserError, match=r"state of SGD for 0\.weight, this run uses AdamW"):
        load_optimizer(tmp_path, model, adamw(model))


def test_a_parameter_outside_the_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"shape \(2, 3\) that is not a parameter of the model"):
        save_optimizer(tmp_path, network(1), [SGD([nn.Parameter(torch.zeros(2, 3))])])
