"""A model's weights: the same bits back, under its own names, or nothing at all."""

import hashlib
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from tests.trainer.checkpoint.helpers import mounted
from trainer.checkpoint.names import plain_names
from trainer.checkpoint.state import load_model, save_model, weights_digest
from trainer.errors import UserError


class Small(nn.Module):
    """An embedding tied to the output, a norm with buffers, and a layer whose weight is stored transposed."""

    def __init__(self, width: int = 8, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.norm = nn.BatchNorm1d(width)
        self.turned = nn.Parameter(torch.randn(width, 3).t())
        self.output = nn.Linear(width, 11, bias=False)
        self.output.weight = self.embedding.weight
        self.register_buffer("scratch", torch.zeros(3), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return torch.as_tensor(self.output(self.norm(x)))


class Compiled(nn.Module):
    """Shaped like what `torch.compile` returns, without the seconds that its import costs."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self._orig_mod = inner


def model(seed: int, width: int = 8, layers: int = 2) -> Small:
    torch.manual_seed(seed)
    return Small(width, layers)


def file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_weights_and_buffers_come_back_bit_for_bit(tmp_path: Path) -> None:
    first, second = model(1), model(2)
    first(torch.arange(10))  # moves the norm's statistics and its counter
    save_model(tmp_path, first)
    assert weights_digest(first) != weights_digest(second)
    load_model(tmp_path, second)
    assert weights_digest(first) == weights_digest(second)
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name])


def test_tied_weights_are_stored_once_and_stay_tied(tmp_path: Path) -> None:
    first, second = model(1, width=512), model(2, width=512)
    save_model(tmp_path, first)
    saved = torch.load(tmp_path / "model.pt", weights_only=True)
    assert saved["embedding.weight"].data_ptr() == saved["output.weight"].data_ptr()
    load_model(tmp_path, second)
    assert second.output.weight is second.embedding.weight
    assert torch.equal(second.embedding.weight, first.embedding.weight)


def test_the_same_weights_give_the_same_file(tmp_path: Path) -> None:
    first, second = model(1), model(2)
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
    save_model(tmp_path / "one", first)
    load_model(tmp_path / "one", second)
    save_model(tmp_path / "two", second)
    save_model(tmp_path / "three", model(1))
    assert len({file_digest(tmp_path / name / "model.pt") for name in ("one", "two", "three")}) == 1


def test_a_part_of_a_large_tensor_does_not_bring_the_whole(tmp_path: Path) -> None:
    layer = nn.Linear(4, 4)
    layer.weight = nn.Parameter(torch.randn(1 << 20)[:16].view(4, 4))
    save_model(tmp_path, layer)
    assert (tmp_path / "model.pt").stat().st_size < 10_000


def test_wrappers_leave_no_trace_in_the_names(tmp_path: Path) -> None:
    plain = model(1)
    wrapped = model(1)
    for index, block in enumerate(wrapped.blocks):
        wrapped.blocks[index] = checkpoint_wrapper(block)
    compiled = Compiled(wrapped)
    save_model(tmp_path, compiled)
    saved = torch.load(tmp_path / "model.pt", weights_only=True)
    assert list(saved) == list(plain.state_dict())
    assert weights_digest(compiled) == weights_digest(plain)
    fresh = model(2)
    load_model(tmp_path, fresh)
    assert weights_digest(fresh) == weights_digest(plain)
    load_model(tmp_path, torch.nn.DataParallel(model(3)))
    other = nn.DataParallel(compiled)
    assert set(plain_names(other, other.state_dict()).values()) == set(plain.state_dict())


def test_a_users_own_submodule_called_module_keeps_its_name() -> None:
    own = nn.Module()
    own.module = nn.Linear(2, 2)
    assert plain_names(own, own.state_dict()) == {"module.weight": "module.weight", "module.bias": "module.bias"}
    wrapped = nn.DataParallel(own)
    assert plain_names(wrapped, wrapped.state_dict())["module.module.weight"] == "module.weight"


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (lambda: model(2, layers=3), r"has no blocks\.2\.weight"),
        (lambda: model(2, layers=1), r"has blocks\.1\.weight, which this model does not have"),
        (lambda: model(2, width=6), "turned has shape 3x8, this model's 3x6"),
        (lambda: model(2).double(), r"turned is torch\.float32, this model's torch\.float64"),
        (lambda: nn.Linear(3, 3), "has no weight"),
    ],
)
def test_another_models_checkpoint_is_refused_and_nothing_is_copied(tmp_path: Path, other: object, what: str) -> None:
    save_model(tmp_path, model(1))
    assert callable(other)
    running = other()
    before = weights_digest(running)
    with pytest.raises(UserError, match=what) as raised:
        load_model(tmp_path, running)
    assert raised.value.status == 2
    assert "--run.folder" in raised.value.fix
    assert weights_digest(running) == before


def test_a_late_difference_in_shape_leaves_the_early_weights_alone(tmp_path: Path) -> None:
    save_model(tmp_path, model(1))
    running = model(2)
    running.turned = nn.Parameter(torch.zeros(3, 9))
    before = weights_digest(running)
    with pytest.raises(UserError, match="turned"):
        load_model(tmp_path, running)
    assert weights_digest(running) == before


def test_a_checkpoint_without_weights_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot load .*model\.pt"):
        load_model(tmp_path, model(1))


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    with (
        mounted(tmp_path / "small", "size=64k") as folder,
        pytest.raises(UserError, match=f"cannot save a checkpoint in {folder}: No space left on device") as raised,
    ):
        save_model(folder, model(1, width=256))
    assert "Free space" in raised.value.fix


def test_the_digest_tells_names_types_shapes_and_signs_apart() -> None:
    def digest(name: str, value: torch.Tensor) -> str:
        module = nn.Module()
        module.register_buffer(name, value)
        return weights_digest(module)

    zeros = torch.zeros(2, 3)
    values = [
        digest("a", zeros),
        digest("b", zeros),
        digest("a", zeros.t()),
        digest("a", -zeros),
        digest("a", zeros.to(torch.bfloat16)),
        digest("a", zeros.to(torch.int32)),
        digest("a", torch.tensor(0.0)),
    ]
    assert len(set(values)) == len(values)
    assert digest("a", torch.arange(6).view(2, 3).t()) == digest("a", torch.arange(6).view(2, 3).t().contiguous())
