"""Weights of bf16 move by steps too small for the format, alike on every layout."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.beds.ranks import on_ranks
from tools import amp
from trainer.mesh import Layout
from trainer.optim import Optimizers, build_optimizer
from trainer.parallel.fsdp import apply_fsdp
from trainer.parallel.meshes import device_mesh
from trainer.precision.rounding import REST, RoundedStep, Rounding, noise, places, rounded_at_random
from trainer.schema import Optim

CPU = torch.device("cpu")


def test_a_value_is_rounded_up_as_often_as_its_remainder_says() -> None:
    low, high = 1.0, 1.0 + 2.0**-7
    value = torch.full((100_000,), low + 0.3 * (high - low))
    found = rounded_at_random(value, noise(places(value), 1))
    assert set(found.tolist()) == {low, high}
    assert float((found == high).float().mean()) == pytest.approx(0.3, abs=0.005)
    assert torch.equal(rounded_at_random(-value, noise(places(value), 1)), -found)


def test_what_bf16_holds_stays_and_infinities_too() -> None:
    value = torch.tensor([0.0, 1.5, -3.0, float("inf"), -float("inf")])
    for key in range(50):
        assert torch.equal(rounded_at_random(value, noise(places(value), key)), value)


def test_noise_differs_between_updates_and_tensors() -> None:
    at = places(torch.zeros(1000))
    first, second = noise(at, Rounding("stochastic", 0).key("a")), noise(at, Rounding("stochastic", 0).key("b"))
    assert 0 <= int(first.min()) < 1000 and 64_000 < int(first.max()) < 65_536
    assert abs(float(torch.corrcoef(torch.stack([first, second]).float())[0, 1])) < 0.1
    assert abs(float(torch.corrcoef(torch.stack([first[1:], first[:-1]]).float())[0, 1])) < 0.1


@pytest.mark.parametrize(
    ("update", "moved", "tolerance"),
    [
        ("plain", 0.0, 0.0),
        ("kahan", 0.2, 0.004),
        ("stochastic", 0.2, 0.06),
    ],
)
def test_weights_of_one_move_unless_bf16_rounds_to_the_nearest(update: str, moved: float, tolerance: float) -> None:
    found = amp.two_hundred(0, 1, amp.Cut(1), "bf16", update)
    assert found == pytest.approx([1.0 - moved] * amp.ROWS, abs=tolerance)
    assert all(value == float(torch.tensor(value).bfloat16()) for value in found)


class Net(nn.Module):
    """Weights of several shapes; some ranks hold none of the smallest."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList([nn.Linear(6, 7), nn.Linear(7, 1, bias=False)])
        self.norm = nn.LayerNorm(6)


def stepped(rank: int, count: int, update: str, name: str, strategy: str, updates: int) -> dict[str, Tensor]:
    """After some updates with given gradients: weights and the optimizer's state, whole."""
    model = Net().bfloat16()
    for parameter in model.parameters():
        parameter.grad_dtype = torch.float32
    if strategy:
        layout = Layout(shard=count) if strategy == "full" else Layout(replicate=count // 2, shard=2)
        apply_fsdp(model, device_mesh(layout, CPU)["replicate", "shard"] if strategy != "full" else
                   device_mesh(layout, CPU), list(model.blocks), reshard=True)  # fmt: skip
    rounding = Rounding(update, 3)
    optimizers = build_optimizer(model, Optim(name=name, lr=1e-3, momentum=0.9, weight_decay=0.1), CPU)
    optimizers.apply = RoundedStep(rounding, model)
    for number in range(updates):
        for index, parameter in enumerate(model.parameters()):
            whole = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(100 * number + index))
            parameter.grad = _cut(whole, parameter)
        optimizers.step()
        optimizers.zero_grad()
    found = {}
    for label, parameter in model.named_parameters():
        found[label] = _whole(parameter.detach())
        for optimizer in optimizers.optimizers:
            for part, value in optimizer.state.get(parameter, {}).items():
                found[f"{label} {part}"] = _whole(value)
    return found


def _cut(whole: Tensor, parameter: Any) -> Any:
    if not hasattr(parameter, "placements"):
        return whole
    from trainer.checkpoint.parts import part_like

    return part_like(whole, parameter)


def _whole(value: Any) -> Tensor:
    full: Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
    return full.clone()


@pytest.mark.parametrize(("update", "name"), [("stochastic", "adamw"), ("kahan", "adamw"), ("stochastic", "sgd")])
def test_the_same_bits_come_from_every_layout(update: str, name: str) -> None:
    alone = stepped(0, 1, update, name, "", 4)
    assert alone["blocks.0.weight"].dtype == torch.bfloat16
    if name == "adamw":
        assert alone["blocks.0.weight exp_avg"].dtype == torch.bfloat16
        assert alone["blocks.0.weight step"].item() == 4
    assert (f"blocks.0.weight {REST}" in alone) == (update == "kahan")
    for ranks, strategy in ((2, "full"), (4, "hybrid")):
        for found in on_ranks(ranks, stepped, update, name, strategy, 4):
            assert found.keys() == alone.keys()
            for label, value in alone.items():
                assert torch.equal(value, found[label]), (ranks, label)


def test_an_optimizer_of_elsewhere_sees_all_its_groups_at_once() -> None:
    calls: list[list[int]] = []

    class Own(torch.optim.Optimizer):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]  # torch has overloads
            calls.append([len(group["params"]) for group in self.param_groups])
            for group in self.param_groups:
                group["count"] = group.get("count", 0) + 1
                for parameter in group["params"]:
                    assert parameter.dtype == parameter.grad.dtype == torch.float32
                    parameter.sub_(parameter.grad)

    Own.__module__ = "elsewhere"
    model = nn.Linear(2, 2).bfloat16()
    groups: list[dict[str, Any]] = [{"params": [model.weight]}, {"params": [model.bias]}]
    own = Own(groups, {"lr": 1.0})
    optimizers = Optimizers([own])
    optimizers.apply = RoundedStep(Rounding("kahan", 0), model)
    model.weight.grad, model.bias.grad = torch.ones_like(model.weight), torch.ones_like(model.bias)
    optimizers.step()
    assert calls == [[1, 1]]
    assert [group["count"] for group in own.param_groups] == [1, 1]
    assert own.param_groups[0]["params"] == [model.weight]
