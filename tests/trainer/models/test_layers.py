"""Norm, bigram table and initialization against their definitions."""

import pytest
import torch
from torch.nn import functional

from trainer.models.layers import EPSILON, BigramEmbedding, Linear, RMSNorm, SwiGLU


def test_norm_equals_torchs_and_its_gradient_is_right() -> None:
    torch.manual_seed(0)
    norm = RMSNorm(12).double()
    torch.nn.init.normal_(norm.weight)
    x = torch.randn(2, 3, 12, dtype=torch.float64, requires_grad=True)
    expected = functional.rms_norm(x, (12,), norm.weight, EPSILON)
    torch.testing.assert_close(norm(x), expected, rtol=1e-14, atol=1e-14)
    ways = torch.randn_like(x)
    wanted = torch.autograd.grad(expected, (x, norm.weight), ways)
    found = torch.autograd.grad(norm(x), (x, norm.weight), ways)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-13)


def test_norm_of_low_precision_is_taken_in_float32() -> None:
    norm = RMSNorm(64).bfloat16()
    x = torch.full((1, 64), 300.0, dtype=torch.bfloat16, requires_grad=True)  # squares would lose the sum's last bits
    out = norm(x)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, torch.ones_like(out))
    out.sum().backward()
    assert x.grad is not None and x.grad.dtype == torch.bfloat16
    assert norm.weight.grad is not None and norm.weight.grad.dtype == torch.bfloat16


def test_norm_of_zeros_is_finite() -> None:
    x = torch.zeros(1, 4, requires_grad=True)
    RMSNorm(4)(x).sum().backward()
    assert x.grad is not None and torch.isfinite(x.grad).all()


def test_swiglu_formula() -> None:
    layer = SwiGLU(8, 16, 1.0).double()
    x = torch.randn(3, 8, dtype=torch.float64)
    gate, up, down = layer.gate.weight, layer.up.weight, layer.down.weight
    inner = x @ gate.T
    expected = (inner * torch.sigmoid(inner) * (x @ up.T)) @ down.T
    torch.testing.assert_close(layer(x), expected)


def test_linear_starts_with_the_deviation_asked_for() -> None:
    torch.manual_seed(0)
    weight = Linear(256, 512, 0.5).weight
    assert weight.std().item() == pytest.approx(0.5 / 16, rel=0.02)


@pytest.mark.parametrize("rows", [50, 20 * 20 + 1])
def test_bigram_rows(rows: int) -> None:
    table = BigramEmbedding(rows, 4, 20, 0.02)
    tokens = torch.randint(0, 20, (3, 40))
    found = table.row_of(tokens)
    assert found.shape == tokens.shape
    assert (found[:, 0] == 0).all()
    assert ((found[:, 1:] >= 1) & (found[:, 1:] < rows)).all()
    pairs = torch.cartesian_prod(torch.arange(20), torch.arange(20))
    used = len(set(table.row_of(pairs)[:, 1].tolist()))
    assert used == 400 if rows == 401 else used > 40


def test_bigram_rows_spread_for_a_large_vocabulary() -> None:
    table = BigramEmbedding(10_001, 1, 100_000, 0.02)
    found = table.row_of(torch.randint(0, 100_000, (1, 200_001)))[0, 1:]
    counts = torch.bincount(found - 1, minlength=10_000).double()
    assert counts.mean() == 20.0
    assert counts.var().item() == pytest.approx(20.0, rel=0.1)  # as random rows would


def test_bigram_rows_do_not_change_between_versions() -> None:
    table = BigramEmbedding(1000, 1, 257, 0.02)
    assert table.row_of(torch.tensor([[105, 109, 112, 111, 256]])).tolist() == [[0, 41, 808, 598, 738]]


def test_bigram_of_a_documents_first_token_does_not_see_the_one_before() -> None:
    table = BigramEmbedding(1000, 1, 257, 0.02)
    tokens = torch.randint(0, 257, (2, 10))
    documents = torch.tensor([[0] * 4 + [1] * 6, [0] * 9 + [1]])
    found = table.row_of(tokens, documents)
    plain = table.row_of(tokens)
    first = torch.zeros(2, 10, dtype=torch.bool)
    first[0, 0] = first[0, 4] = first[1, 0] = first[1, 9] = True
    assert torch.equal(found, plain.masked_fill(first, 0))


def test_bigram_goes_on_after_a_previous_token() -> None:
    table = BigramEmbedding(1000, 1, 257, 0.02)
    tokens = torch.randint(0, 257, (2, 10))
    assert torch.equal(table.row_of(tokens[:, 4:], previous=tokens[:, 3:4]), table.row_of(tokens)[:, 4:])
