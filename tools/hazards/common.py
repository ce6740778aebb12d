"""What the calls share. A call gives tensors and plain values; tensors are compared by their bytes."""

from collections.abc import Callable
from typing import Any

CALLS: dict[str, Callable[[], Any]] = {}


def call(function: Callable[[], Any]) -> Callable[[], Any]:
    """One of the calls."""
    CALLS[function.__name__] = function
    return function


def loaded() -> Any:
    """torch; calls use much of it that has no types."""
    import torch

    return torch


def network() -> Any:
    """A small network, the same in every process."""
    import torch

    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.SiLU(), torch.nn.LayerNorm(12), torch.nn.Linear(12, 3))


def values() -> Any:
    """(5, 6) numbers from -1 to 1."""
    import torch

    return torch.linspace(-1, 1, 30).reshape(5, 6)


def trained() -> tuple[Any, Any]:
    """A network and its AdamW after two steps."""
    import torch

    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    for _ in range(2):
        model(values()).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer
