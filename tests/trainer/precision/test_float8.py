"""Products in 8 bits: refused where there are none, near the right ones where torch emulates them."""

import pytest
import torch
from torch import nn

from trainer.errors import UserError
from trainer.precision import make_policy
from trainer.precision.float8 import convert, missing, scaled
from trainer.schema import Precision

CPU = torch.device("cpu")


def test_a_device_without_8_bit_products_is_refused_by_name() -> None:
    assert "this run is on cpu" in missing(CPU)
    with pytest.raises(UserError, match=r"compute capability 8\.9") as caught:
        make_policy(Precision(compute="fp8"), "fp8", CPU)
    assert caught.value.status == 2


def test_values_take_the_whole_range_of_the_format() -> None:
    value = torch.tensor([[1e-3, -2e-3]])
    small, factor = scaled(value, torch.float8_e4m3fn)
    assert small.float().abs().max() == 448
    assert torch.allclose(small.float() * factor, value, rtol=0.07)
    assert not scaled(torch.tensor([1.0, float("inf")]), torch.float8_e5m2)[0].float().isfinite().all()


def test_forward_and_gradients_are_those_of_fp32_to_the_formats_accuracy() -> None:
    torch.manual_seed(0)
    plain, other = nn.Linear(32, 48), nn.Linear(32, 48)
    other.load_state_dict(plain.state_dict())
    assert convert(nn.Sequential(other, nn.Linear(48, 10))) == 1  # 10 is no multiple of 16
    x = torch.randn(2, 32, 32)
    inputs = [x.clone().requires_grad_(), x.clone().requires_grad_()]
    outs = [layer(each).float() for layer, each in zip((plain, other), inputs, strict=True)]
    weight = torch.randn_like(outs[0])
    for out in outs:
        (out * weight).sum().backward()
    pairs = [
        (outs[0], outs[1], 0.05),
        (inputs[0].grad, inputs[1].grad, 0.08),
        (plain.weight.grad, other.weight.grad, 0.08),
        (plain.bias.grad, other.bias.grad, 0.01),
    ]
    for right, found, limit in pairs:
        assert right is not None and found is not None
        assert float((right - found).norm() / right.norm()) < limit


def test_rows_that_do_not_fit_are_multiplied_in_bf16() -> None:
    layer = nn.Linear(16, 16, bias=False)
    convert(layer)
    x = torch.randn(3, 16)
    torch.testing.assert_close(layer(x).float(), x @ layer.weight.t(), rtol=0.05, atol=0.05)
