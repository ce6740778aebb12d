"""Sums and counts, and which loss goes with which model."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from trainer.errors import UserError
from trainer.models import build_model, choose_loss
from trainer.models.loss import cross_entropy, token_loss
from trainer.models.mlp import MLP
from trainer.schema import Model


def test_only_counted_labels_count() -> None:
    logits = torch.randn(2, 3, 5, dtype=torch.float64)
    labels = torch.tensor([[1, -100, 4], [-100, 0, -100]])
    total, count = cross_entropy(logits, labels)
    chances = logits.log_softmax(-1)
    assert total.item() == pytest.approx(-(chances[0, 0, 1] + chances[0, 2, 4] + chances[1, 1, 0]).item(), rel=1e-14)
    assert total.dtype == torch.float64
    assert (count.item(), count.dtype, count.ndim) == (3, torch.int64, 0)


def test_no_counted_label_is_a_loss_of_zero_with_gradient_zero() -> None:
    logits = torch.randn(1, 3, 5, requires_grad=True)
    total, count = cross_entropy(logits, torch.full((1, 3), -100))
    torch.autograd.backward(total)
    assert (total.item(), count.item()) == (0.0, 0)
    assert logits.grad is not None and not logits.grad.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_logits_are_summed_in_float32(dtype: torch.dtype) -> None:
    logits = torch.zeros(1, 4096, 2, dtype=dtype)
    total, _ = cross_entropy(logits, torch.zeros(1, 4096, dtype=torch.int64))
    assert total.dtype == torch.float32
    assert total.item() == pytest.approx(4096 * math.log(2), rel=1e-5)


class Successor(nn.Module):
    """Predicts the token after t to be t + 1."""

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.nn.functional.one_hot((tokens + 1) % 64, 64).double() * 40.0 - 20.0


def test_labels_are_not_shifted_again() -> None:
    stream = torch.arange(10, 30).unsqueeze(0)
    total, count = token_loss(Successor(), {"tokens": stream[:, :-1], "labels": stream[:, 1:]})
    assert total.item() / count.item() == pytest.approx(0.0, abs=1e-6)
    total, count = token_loss(Successor(), {"tokens": stream[:, :-2], "labels": stream[:, 2:]})
    assert total.item() / count.item() == pytest.approx(40.0, abs=1e-6)


def test_rows_of_ids_are_shifted_once() -> None:
    model = nn.Embedding(5, 5)
    ids = torch.tensor([[0, 1, 2, 3], [4, 3, 2, 1]])
    plain = token_loss(model, ids)
    given = token_loss(model, {"tokens": ids[:, :-1], "labels": ids[:, 1:]})
    assert torch.equal(plain[0], given[0])
    assert plain[1] == 6


def test_documents_reach_the_model() -> None:
    module = build_model(Model(layers=1, width=16, heads=2), vocabulary=20)
    tokens = torch.randint(0, 20, (1, 8))
    documents = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]])
    loss = choose_loss(Model(), module)
    apart, _ = loss(module, {"tokens": tokens, "labels": tokens, "documents": documents})
    together, _ = loss(module, {"tokens": tokens, "labels": tokens})
    assert apart.item() != together.item()


@pytest.mark.parametrize("form", [lambda x, y: {"inputs": x, "labels": y}, lambda x, y: (x, y), lambda x, y: [x, y]])
def test_classifier_takes_dicts_and_pairs(form: Callable[[Tensor, Tensor], object]) -> None:
    settings = Model(kind="mlp", inputs=12, width=8, layers=2, classes=3)
    module = build_model(settings, vocabulary=0).double()
    inputs, labels = torch.randn(4, 3, 4), torch.tensor([0, 2, -100, 1])
    total, count = choose_loss(settings, module)(module, form(inputs, labels))
    expected = torch.nn.functional.cross_entropy(module(inputs), labels, reduction="sum")
    assert (total.item(), count.item()) == (expected.item(), 3)


def test_mlp_drops_in_training_only() -> None:
    module = MLP(inputs=4, width=64, layers=1, classes=2, dropout=0.5)
    x = torch.randn(8, 4)
    assert not torch.equal(module(x), module(x))
    module.eval()
    assert torch.equal(module(x), module(x))


@pytest.mark.parametrize("settings", [Model(), Model(kind="mlp", inputs=4, classes=2)])
def test_data_of_another_form_is_a_users_error(settings: Model) -> None:
    module = build_model(settings, vocabulary=10)
    with pytest.raises(UserError) as caught:
        choose_loss(settings, module)(module, torch.zeros(3))
    assert caught.value.status == 2


OWN = """
import torch
from torch import nn

class Own(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.inner = nn.Linear(4, width)
        self.loss = nn.CrossEntropyLoss()  # a criterion, not the method

    def forward(self, x):
        return self.inner(x)

class WithLoss(Own):
    def __init__(self):
        super().__init__()
        del self.loss

    def loss(self, batch):
        out = self(batch)
        return out.square().sum(), len(out)

def build(width=4):
    return Own(width)

def loss(model, batch):
    return model(batch).sum().view(1), torch.tensor(7)

def bad_loss(model, batch):
    return model(batch).sum()

def bad_build():
    return "no module"

number = 3
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return str(path)


def test_own_model_with_options_and_own_loss(own: str) -> None:
    settings = Model(build=f"{own}:build", options={"width": 6}, loss=f"{own}:loss")
    module = build_model(settings, vocabulary=0)
    x = torch.ones(2, 4)
    assert module(x).shape == (2, 6)
    total, count = choose_loss(settings, module)(module, x)
    assert (total.shape, count.item(), count.dtype) == ((), 7, torch.int64)


def test_own_model_brings_its_loss_as_a_method(own: str) -> None:
    settings = Model(build=f"{own}:WithLoss")
    module = build_model(settings, vocabulary=0)
    x = torch.ones(3, 4)
    total, count = choose_loss(settings, module)(module, x)
    assert total.item() == pytest.approx(module(x).square().sum().item())
    assert (count.item(), count.dtype) == (3, torch.int64)


def test_own_model_without_a_loss_is_judged_by_its_batches(own: str) -> None:
    settings = Model(build=f"{own}:build")
    module = build_model(settings, vocabulary=0)
    _, count = choose_loss(settings, module)(module, [torch.ones(3, 4), torch.tensor([0, 1, 2])])
    assert count.item() == 3
    tokens = torch.arange(5).unsqueeze(0)
    successor = Successor()
    total, _ = choose_loss(settings, successor)(successor, {"tokens": tokens, "labels": tokens + 1})
    assert total.item() == pytest.approx(0.0, abs=1e-6)


def test_what_own_functions_return_is_checked(own: str) -> None:
    with pytest.raises(UserError, match=r"not a torch\.nn\.Module"):
        build_model(Model(build=f"{own}:bad_build"), vocabulary=0)
    with pytest.raises(UserError, match="unexpected keyword argument 'depth'"):
        build_model(Model(build=f"{own}:build", options={"depth": 2}), vocabulary=0)
    with pytest.raises(UserError, match="not a function"):
        build_model(Model(build=f"{own}:number"), vocabulary=0)
    settings = Model(build=f"{own}:build", loss=f"{own}:bad_loss")
    module = build_model(settings, vocabulary=0)
    with pytest.raises(UserError, match="sum of the loss"):
        choose_loss(settings, module)(module, torch.ones(2, 4))
