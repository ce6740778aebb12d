"""A model that is built without memory has the weights of the plain build, bit for bit."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.beds.ranks import on_ranks
from tests.trainer.toy import ToyModel
from tools import layouts
from trainer.errors import UserError
from trainer.mesh import Layout
from trainer.models import build_model
from trainer.models.initialize import materialize, record, record_or_refuse
from trainer.models.loss import token_loss
from trainer.parallel import parallelize
from trainer.schema import Model, Parallel

GPT = Model(kind="gpt", layers=4, width=16, heads=4, tied=True, qk_norm=True, bigram=9)


class Unusual(nn.Module):
    """Copies of layers, second thoughts, ties, buffers of all kinds, draws that look at what they drew."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.embedding = nn.Embedding(10, 8, padding_idx=1)
        self.output = nn.Linear(8, 10, bias=False)
        self.output.weight = self.embedding.weight
        self.norm = nn.BatchNorm1d(8)
        self.convolution = nn.Conv2d(3, 4, 3)
        self.positions = nn.Parameter(torch.randn(1, 5, 8) * 0.02)
        self.register_buffer("rates", 1.0 / (10000 ** (torch.arange(0, 8, 2).float() / 8)), persistent=False)
        self.register_buffer("mask", torch.ones(5, 5, dtype=torch.bool).tril())
        self.register_buffer("given", torch.tensor([1.0, 2.0, 3.0]))
        self.low = nn.Linear(3, 3, dtype=torch.bfloat16)
        nn.init.orthogonal_(self.convolution.weight)
        self.apply(self.again)
        for name, parameter in self.named_parameters():
            if name.endswith("linear2.weight"):
                nn.init.normal_(parameter, std=0.02 / math.sqrt(4))
        with torch.no_grad():
            self.positions[0, 0] = 7
            self.convolution.weight[0].mul_(2)
        nn.init.trunc_normal_(self.positions, std=0.02)

    def again(self, module: nn.Module) -> None:
        """As many language models do it."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)


class Seeding(nn.Module):
    """Seeds the generator on its way."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(20, 20)
        torch.manual_seed(4)
        self.second = nn.Linear(20, 20)


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """All of it."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


BUILDERS: dict[str, Callable[[], nn.Module]] = {
    "gpt": lambda: build_model(GPT, vocabulary=61),
    "mlp": lambda: build_model(Model(kind="mlp", inputs=7, classes=3, width=20), vocabulary=0),
    "unusual": Unusual,
    "seeding": Seeding,
    "given values": ToyModel,
}


@pytest.mark.parametrize("name", BUILDERS)
def test_the_weights_and_the_next_random_number_are_those_of_the_plain_build(name: str) -> None:
    build = BUILDERS[name]
    torch.manual_seed(3)
    plain, drawn = tensors(build()), torch.rand(4)
    torch.manual_seed(3)
    model, recording = record(build)
    assert {key for key, tensor in tensors(model).items() if not tensor.is_meta} <= {
        "given",
        "norm.num_batches_tracked",
    }
    materialize(model, recording, lambda whole, old: whole.clone())
    assert torch.equal(torch.rand(4), drawn)
    made = tensors(model)
    assert made.keys() == plain.keys()
    for key, tensor in plain.items():
        assert torch.equal(tensor, made[key]), key
        assert (tensor.dtype, tensor.stride(), type(tensor)) == (made[key].dtype, made[key].stride(), type(made[key]))
    # a part of them, such as a pipeline stage has
    some = [key for index, key in enumerate(recording.tensors) if index % 3 == 0 and recording.tensors[key].is_meta]
    found: dict[str, Tensor] = {}
    recording.replay(some, lambda names, whole: found.update(dict.fromkeys(names, whole.clone())))
    assert torch.equal(torch.rand(4), drawn)
    assert set(found) == set(some)
    assert all(torch.equal(found[key], plain[key]) for key in some if key in plain)


def test_one_tensor_at_a_time_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    _, recording = record(lambda: nn.Sequential(*(nn.Linear(64, 64) for _ in range(8))))
    sizes: list[int] = []
    do = type(recording)._do

    def watched(self: object, operation: object, made: dict[int, torch.UntypedStorage]) -> None:
        do(self, operation, made)  # type: ignore[arg-type]  # as given
        sizes.append(sum(storage.nbytes() for storage in made.values()))

    monkeypatch.setattr(type(recording), "_do", watched)
    recording.replay(recording.tensors, lambda names, whole: None)
    assert 64 * 64 * 4 <= max(sizes) <= 64 * 65 * 4


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda: nn.LSTM(4, 4), "neither parameter nor buffer"),
        (lambda: nn.Linear(4, int(torch.rand(1).item() * 4) + 1), "asks for values"),
        (lambda: _own_generator(), "a random generator of its own"),
        (lambda: _put_back(), "back to where it was"),
    ],
    ids=["stray", "values", "generator", "fork"],
)
def test_builders_that_cannot_be_recorded_are_told_apart(build: Callable[[], nn.Module], why: str) -> None:
    with pytest.raises(UserError, match=why) as found:
        record_or_refuse(build)
    assert "Set memory.meta to off" in found.value.fix


def _own_generator() -> nn.Module:
    model = nn.Linear(3, 3)
    nn.init.normal_(model.weight, generator=torch.Generator().manual_seed(1))
    return model


def _put_back() -> nn.Module:
    model = nn.Linear(3, 3)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        nn.init.normal_(model.weight)
    nn.init.normal_(model.bias)
    return model


def part(rank: int, count: int, degrees: dict[str, int], settings: dict[str, object]) -> tuple[set[str], int]:
    """Names of what differs from the plain build after one backward's preparations; values kept."""
    torch.manual_seed(5)
    plain = build_model(GPT, vocabulary=64).double().state_dict()
    torch.manual_seed(5)
    model, recording = record(lambda: build_model(GPT, vocabulary=64))
    model.to(dtype=torch.float64)
    cut = parallelize(model, token_loss, Layout(**degrees), Parallel(**settings), layouts.CPU, recording=recording)
    held = sum(each.to_local().numel() if hasattr(each, "to_local") else each.numel() for each in model.parameters())
    state = {name: layouts.whole(value) for name, value in model.state_dict().items()}
    (batch, real) = layouts.batch(0, range(4)), 4
    cut.backward([(batch, real), (batch, real)], 1.0, torch.autocast("cpu", enabled=False))
    return {name for name, value in state.items() if not torch.equal(value, plain[name])}, held


@pytest.mark.parametrize(
    ("degrees", "settings"),
    [({"shard": 2}, {"strategy": "full"}), ({"tensor": 2}, {"tensor": 2}), ({"pipeline": 2}, {"pipeline": 2})],
    ids=["full", "tensor", "pipeline"],
)
def test_the_layout_does_not_matter(degrees: dict[str, int], settings: dict[str, object]) -> None:
    whole = sum(each.numel() for each in build_model(GPT, vocabulary=64).parameters())
    for differing, held in on_ranks(2, part, degrees, settings):
        assert not differing
        assert held < 0.6 * whole
