"""Compiled blocks: the same numbers, one compilation for blocks that are alike, nothing compiled outside of training.

The compiler's tracing and its cut of forward from backward are real here. Its code for the CPU takes a C++ compiler half
a minute: `tools/prove_compile.py`.
"""

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from trainer.errors import UserError
from trainer.models import build_model
from trainer.models.loss import token_loss
from trainer.models.plan import blocks_of
from trainer.parallel.compile import apply_compile
from trainer.parallel.recompute import apply_recompute
from trainer.schema import Model

CPU = torch.device("cpu")
BACKEND = "aot_eager_decomp_partition"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Nothing of it is left for other tests."""
    yield
    torch._dynamo.reset()


def gpt() -> nn.Module:
    """Three blocks that are alike."""
    torch.manual_seed(2)
    return build_model(Model(kind="gpt", layers=3, width=16, heads=2), vocabulary=32)


def gradients(model: nn.Module) -> Tensor:
    """Of one batch, in one vector behind the loss."""
    ids = torch.randint(32, (2, 9), generator=torch.Generator().manual_seed(1))
    total, _ = token_loss(model, {"tokens": ids[:, :-1], "labels": ids[:, 1:]})
    total.backward()
    return torch.cat(
        [total.detach().reshape(1), *(each.grad.flatten() for each in model.parameters() if each.grad is not None)]
    )


def test_compiled_blocks_give_the_same_gradients_and_are_compiled_once() -> None:
    from torch._dynamo.utils import counters

    expected = gradients(gpt())
    model = gpt()
    names = list(model.state_dict())
    apply_recompute(blocks_of(model), "full")
    apply_compile(blocks_of(model), CPU, backend=BACKEND)
    model = copy.deepcopy(model)
    counters.clear()
    with torch.no_grad():
        model(torch.zeros(1, 5, dtype=torch.int64))
    assert counters["stats"]["unique_graphs"] == 0
    assert float((gradients(model) - expected).norm() / expected.norm()) < 1e-6
    assert counters["stats"]["unique_graphs"] == 1
    assert list(model.state_dict()) == names


def kept(budget: float) -> int:
    """Values that a compiled forward keeps for its backward."""
    torch._dynamo.reset()
    model = gpt()
    apply_compile(blocks_of(model), CPU, budget, BACKEND)
    sizes: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        gradients(model)
    return sum(sizes.values())


def test_a_smaller_budget_keeps_less() -> None:
    assert kept(0.0) < kept(1.0)


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(UserError, match="nothing can be compiled"):
        apply_compile([], CPU)


def test_a_machine_without_a_compiler_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="needs a C\\+\\+ compiler"):
        apply_compile(blocks_of(gpt()), CPU)
