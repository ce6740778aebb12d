"""Text from a trained model: sampling with a key/value cache."""

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trainer.errors import UserError
from trainer.precision import Policy

if TYPE_CHECKING:
    from trainer.data.tokenize import Tokenizer


def generate(
    model: nn.Module,
    tokenizer: "Tokenizer",
    prompt: str,
    tokens: int,
    *,
    seed: int,
    policy: Policy,
    temperature: float = 0.8,
    top_k: int = 40,
) -> str:
    """`tokens` tokens that continue `prompt`, as text. `temperature` 0 takes the likeliest each time; `top_k` 0 keeps
    all. Uses a random generator of its own, so that training draws are not touched."""
    device = next(model.parameters()).device
    ids = tokenizer.encode(prompt) or ([tokenizer.end] if tokenizer.end is not None else [])
    if not ids:
        raise UserError("the prompt is empty", "Give a prompt with --prompt TEXT.", 2)
    generator = torch.Generator(device=device)
    generator.manual_seed(seed)
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), policy.autocast(device.type):
            found = _sample(model, ids, tokens, generator, temperature, top_k, device)
    finally:
        model.train(training)
    return tokenizer.decode(found)


def _sample(
    model: Any,
    ids: list[int],
    tokens: int,
    generator: torch.Generator,
    temperature: float,
    top_k: int,
    device: torch.device,
) -> list[int]:
    cache = model.new_cache(1, len(ids) + tokens)
    given = torch.tensor([ids], device=device)
    found: list[int] = []
    for _ in range(tokens):
        logits = model(given, cache=cache)[0, -1].float()
        if hasattr(logits, "full_tensor"):  # cut over the vocabulary
            logits = logits.full_tensor()
        if temperature == 0:
            chosen = logits.argmax().view(1)
        else:
            if top_k:
                least = logits.topk(min(top_k, logits.numel())).values[-1]
                logits = logits.masked_fill(logits < least, float("-inf"))
            probabilities = (logits / temperature).softmax(-1)
            chosen = torch.multinomial(probabilities, 1, generator=generator)
        found.append(int(chosen))
        given = chosen.view(1, 1)
    return found
