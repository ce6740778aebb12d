"""A hand-written first step of the trainer's built-in GPT, alone or as one DDP rank: `gpt.py FOLDER`. Reads text.txt.

Pre-norm RMSNorm, rotary positions, SwiGLU, a byte a token; weights are drawn in the order of the modules.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

VOCABULARY, WIDTH, HEADS, LAYERS, HIDDEN, BASE = 257, 64, 4, 4, 192, 10000.0
SEQUENCE, BATCH, UPDATES = 32, 8, 2
HEAD = WIDTH // HEADS


class Linear(nn.Linear):
    """Normal weights, no bias."""

    def __init__(self, inputs: int, outputs: int, scale: float = 1.0) -> None:
        self.scale = scale
        super().__init__(inputs, outputs, bias=False)

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.scale * self.in_features**-0.5)


class Embedding(nn.Embedding):
    """Normal rows."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)


class Norm(torch.autograd.Function):
    """x / sqrt(mean(x^2) + 1e-6) * weight, with the backward in one go."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        size: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale = size.square_().div_(WIDTH).add_(1e-6).rsqrt_()
        normal = x * scale
        ctx.save_for_backward(normal, weight, scale)
        return normal * weight

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        normal, weight, scale = ctx.saved_tensors
        product = gradient * normal
        along = (product @ weight).unsqueeze(-1)
        of_x = (gradient * weight).addcmul_(normal, along, value=-1.0 / WIDTH).mul_(scale)
        return of_x, product.reshape(-1, WIDTH).sum(0)


class Block(nn.Module):
    """(B, S, 64) -> the same."""

    def __init__(self) -> None:
        super().__init__()
        scale = (2 * LAYERS) ** -0.5
        self.attention_norm = nn.Parameter(torch.ones(WIDTH))
        self.query, self.key, self.value = Linear(WIDTH, WIDTH), Linear(WIDTH, WIDTH), Linear(WIDTH, WIDTH)
        self.out = Linear(WIDTH, WIDTH, scale)
        self.norm = nn.Parameter(torch.ones(WIDTH))
        self.gate, self.up, self.down = Linear(WIDTH, HIDDEN), Linear(WIDTH, HIDDEN), Linear(HIDDEN, WIDTH, scale)

    def forward(self, x: Tensor, rotations: Tensor) -> Tensor:
        normal: Tensor = Norm.apply(x, self.attention_norm)
        value = heads(self.value(normal)).transpose(1, 2)
        query, key = rotated(self.query(normal), rotations), rotated(self.key(normal), rotations)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        normal = Norm.apply(x, self.norm)
        return x + self.down(functional.silu(self.gate(normal)) * self.up(normal))  # type: ignore[no-any-return]


def heads(x: Tensor) -> Tensor:
    """(B, S, 64) -> (B, S, 4, 16)."""
    return x.view(*x.shape[:-1], HEADS, HEAD)


def rotated(x: Tensor, rotations: Tensor) -> Tensor:
    """Neighbouring values turned by their position; (B, S, 64) -> (B, 4, S, 16)."""
    pairs = torch.view_as_complex(heads(x).reshape(*x.shape[:-1], HEADS, -1, 2))
    return torch.view_as_real(pairs * rotations).flatten(-2).transpose(1, 2)


class GPT(nn.Module):
    """(B, S) tokens -> (B, S, 257) logits."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.Parameter(torch.ones(WIDTH))
        self.output = Linear(WIDTH, VOCABULARY)
        angles = torch.outer(
            torch.arange(SEQUENCE, dtype=torch.float64), BASE ** (-torch.arange(0, HEAD, 2, dtype=torch.float64) / HEAD)
        )
        self.rotations = torch.polar(torch.ones_like(angles), angles).unsqueeze(1).to(torch.complex64)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.rotations)
        return self.output(Norm.apply(x, self.norm))  # type: ignore[no-any-return]


torch.set_num_threads(1)
rank, size = 0, 1
if "RANK" in os.environ:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model: nn.Module = GPT()
if size > 1:
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(model, gradient_as_bucket_view=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
data = torch.frombuffer(bytearray(Path("text.txt").read_bytes()), dtype=torch.uint8).long()
share = BATCH // size
losses, done = [], 0
for update in range(UPDATES):
    start = (update * BATCH + rank * share) * SEQUENCE
    rows = torch.stack([data[start + row * SEQUENCE : start + (row + 1) * SEQUENCE + 1] for row in range(share)])
    logits = model(rows[:, :-1])
    total = functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="sum")
    torch.autograd.backward(total / (share * SEQUENCE))
    told = total.detach().double()
    if size > 1:
        dist.all_reduce(told)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(told.item() / (BATCH * SEQUENCE))
    done = done or time.monotonic_ns()
with open(f"{sys.argv[1]}/rank-{rank}.txt", "w") as file:
    print(done, *losses, file=file)
if size > 1:
    dist.barrier()
    dist.destroy_process_group()
os._exit(0)
