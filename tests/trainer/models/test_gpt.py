"""The GPT against its promises: causality, documents, cache, number formats, initialization."""

import copy

import pytest
import torch
from torch import Tensor

from trainer.models import build_model
from trainer.models.attention import Attention, Rotary, rotate
from trainer.models.check import count_parameters
from trainer.models.gpt import GPT
from trainer.schema import Model

VOCABULARY = 97

SHAPES = {
    "plain": Model(layers=2, width=32, heads=4),
    "grouped": Model(layers=2, width=48, heads=6, kv_heads=2, qk_norm=True),
    "everything": Model(layers=3, width=32, heads=4, kv_heads=1, qk_norm=True, bigram=200, tied=True, hidden=40),
    "own vocabulary": Model(layers=1, width=32, heads=2, vocabulary=128, bigram=50),
}


def gpt(model: Model, dtype: torch.dtype = torch.float64) -> GPT:
    torch.manual_seed(0)
    built = build_model(model, vocabulary=VOCABULARY)
    assert isinstance(built, GPT)
    for parameter in built.parameters():  # norms start at one: let every weight matter
        torch.nn.init.normal_(parameter, std=0.3)
    return built.to(dtype)


def some_tokens(batch: int = 2, length: int = 24) -> Tensor:
    return torch.randint(0, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shape", SHAPES)
def test_parameters_are_as_many_as_counted(shape: str) -> None:
    model = SHAPES[shape]
    assert sum(p.numel() for p in gpt(model).parameters()) == count_parameters(model, VOCABULARY)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_token_changes_nothing_before_it(shape: str) -> None:
    module, tokens = gpt(SHAPES[shape]), some_tokens()
    before = module(tokens)
    tokens[:, 11] = (tokens[:, 11] + 1) % VOCABULARY
    after = module(tokens)
    assert torch.equal(before[:, :11], after[:, :11])
    assert (before[:, 11:] != after[:, 11:]).any(-1).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_decoding_with_a_cache_equals_the_full_forward(shape: str) -> None:
    module, tokens = gpt(SHAPES[shape]), some_tokens()
    with torch.no_grad():
        cache = module.new_cache(2, 24)
        pieces = [module(tokens[:, :7], cache=cache), module(tokens[:, 7:12], cache=cache)]
        pieces += [module(tokens[:, i : i + 1], cache=cache) for i in range(12, 24)]
        torch.testing.assert_close(torch.cat(pieces, 1), module(tokens), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_documents_in_one_sample_are_as_if_alone(shape: str) -> None:
    module, tokens = gpt(SHAPES[shape]), some_tokens(1)
    documents = torch.tensor([[0] * 9 + [1] * 5 + [2] * 10])
    packed = module(tokens, documents)
    alone = torch.cat([module(tokens[:, a:b]) for a, b in ((0, 9), (9, 14), (14, 24))], 1)
    torch.testing.assert_close(packed, alone, rtol=1e-10, atol=1e-11)


def test_one_document_is_plain_causal_attention() -> None:
    module, tokens = gpt(SHAPES["grouped"]), some_tokens()
    torch.testing.assert_close(module(tokens, torch.zeros_like(tokens)), module(tokens), rtol=1e-12, atol=1e-12)


def test_cache_is_not_for_documents_nor_for_more_than_its_room() -> None:
    module, tokens = gpt(SHAPES["plain"]), some_tokens()
    with pytest.raises(ValueError, match="documents"):
        module(tokens, torch.zeros_like(tokens), module.new_cache(2, 24))
    with pytest.raises(ValueError, match="20 tokens, not 2 of 24"):
        module(tokens, cache=module.new_cache(2, 20))
    with pytest.raises(ValueError, match="1 texts"):
        module(tokens, cache=module.new_cache(1, 24))


def test_attention_is_the_textbooks() -> None:
    torch.manual_seed(0)
    attention = Attention(8, heads=2, kv_heads=1, qk_norm=False, scale=1.0).double()
    x = torch.randn(1, 6, 8, dtype=torch.float64)
    rotations = Rotary(4, 10000.0).table(0, 6, x.device, x.dtype)
    q = rotate((x @ attention.query.weight.T).view(1, 6, 2, 4), rotations)
    k = rotate((x @ attention.key.weight.T).view(1, 6, 1, 4), rotations)
    v = (x @ attention.value.weight.T).view(1, 6, 1, 4)
    heads = []
    for head in range(2):
        scores = q[0, :, head] @ k[0, :, 0].T / 2.0
        scores = scores.masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf)
        heads.append(scores.softmax(-1) @ v[0, :, 0])
    expected = torch.cat(heads, -1) @ attention.output.weight.T
    torch.testing.assert_close(attention(x, rotations)[0], expected)


def test_rotation_depends_on_distance_only_and_tables_are_exact_in_float64() -> None:
    rotary = Rotary(16, 10000.0)
    single = rotary.table(0, 4, torch.device("cpu"), torch.float32)
    assert single.dtype == torch.complex64
    table = rotary.table(0, 5000, torch.device("cpu"), torch.float64)
    assert table.dtype == torch.complex128
    assert abs(table[4999, 0, 1].angle() - 4999 * 10000.0 ** (-2 / 16) % (2 * torch.pi)).remainder(2 * torch.pi) < 1e-9
    a, b = torch.randn(2, 1, 1, 1, 16, dtype=torch.float64)
    near = (rotate(a, table[3:4]) * rotate(b, table[1:2])).sum()
    far = (rotate(a, table[4002:4003]) * rotate(b, table[4000:4001])).sum()
    torch.testing.assert_close(near, far, rtol=1e-10, atol=1e-10)
    assert torch.equal(rotary.table(7, 9, torch.device("cpu"), torch.float64), table[7:9])


def test_float64_is_float64_all_the_way() -> None:
    module, tokens = gpt(SHAPES["everything"], torch.float32), some_tokens()
    single = module(tokens)
    double = copy.deepcopy(module).double()(tokens)
    assert double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=1e-4)
    module = module.double()
    torch.testing.assert_close(module(tokens), double, rtol=0, atol=0)


def test_attention_stays_in_float32_under_bf16() -> None:
    module, tokens = gpt(SHAPES["everything"], torch.float32), some_tokens()
    seen = []
    real = torch.nn.functional.scaled_dot_product_attention

    def spy(query: Tensor, *args: object, **options: object) -> Tensor:
        seen.append((query.dtype, torch.is_autocast_enabled("cpu")))
        return real(query, *args, **options)  # type: ignore[arg-type]

    for dtype, expected in ((None, (torch.bfloat16, True)), (torch.float32, (torch.float32, False))):
        module.attention_dtype = dtype
        assert module.attention_dtype == dtype
        seen.clear()
        with pytest.MonkeyPatch.context() as patch, torch.autocast("cpu", torch.bfloat16):
            patch.setattr(torch.nn.functional, "scaled_dot_product_attention", spy)
            logits = module(tokens)
        assert seen == [expected] * 3
        assert logits.dtype == torch.bfloat16
        logits.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in module.parameters())


def test_pure_bf16_weights_work_with_and_without_float32_attention() -> None:
    module, tokens = gpt(SHAPES["everything"], torch.bfloat16), some_tokens()
    for dtype in (None, torch.float32):
        module.attention_dtype = dtype
        assert module(tokens).dtype == torch.bfloat16
        cache = module.new_cache(2, 24)
        module(tokens[:, :5], cache=cache)
        assert module(tokens[:, 5:6], cache=cache).dtype == torch.bfloat16


def test_initialization_is_a_function_of_the_seed() -> None:
    weights = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        weights.append(build_model(SHAPES["everything"], vocabulary=VOCABULARY).state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not torch.equal(weights[0]["embedding.weight"], weights[2]["embedding.weight"])


def test_a_fresh_model_gives_every_token_about_the_same_chance() -> None:
    torch.manual_seed(0)
    logits = build_model(Model(layers=2, width=64, heads=4), vocabulary=VOCABULARY)(some_tokens())
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), some_tokens().flatten())
    assert loss.item() == pytest.approx(torch.tensor(float(VOCABULARY)).log().item(), abs=0.6)


def test_dropout_acts_in_training_only() -> None:
    module, tokens = gpt(Model(layers=1, width=32, heads=2, dropout=0.5)), some_tokens()
    assert not torch.equal(module(tokens), module(tokens))
    module.eval()
    assert torch.equal(module(tokens), module(tokens))


def test_tied_output_is_the_embedding() -> None:
    module = gpt(SHAPES["everything"])
    assert module.output.weight is module.embedding.weight
    assert copy.deepcopy(module).output.weight is not module.embedding.weight
