"""Batch norm by the statistics of all ranks' micro-batches together, on any device; torch's own is for CUDA only."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.distributed import ProcessGroup
from torch.nn.modules.batchnorm import _BatchNorm


class SyncBatchNorm(_BatchNorm):
    """(N, C, ...) in and out. Running statistics are the same on all ranks of `group` (None: all ranks).

    While not `counted` its samples count nothing; they are normalized, and the rank takes part so that nobody waits.
    """

    group: ProcessGroup | None = None
    counted = True

    def _check_input_dim(self, input: Tensor) -> None:
        assert input.dim() >= 2, input.shape

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input)
        x = input.reshape(*input.shape[:2], -1).to(torch.promote_types(input.dtype, torch.float32))
        with torch.no_grad():
            mean, variance, count = moments(x, self.counted, self.group)
            self._remember(mean, variance * (count / max(count - 1, 1)))
            scale = (variance + self.eps).rsqrt()
        normal: Tensor = _Normalize.apply(x, mean, scale, count, self.counted, self.group)
        if self.affine:
            normal = normal * self.weight.unsqueeze(1) + self.bias.unsqueeze(1)
        return normal.to(input.dtype).view(input.shape)

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = self.momentum if self.momentum is not None else 1 / int(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


def apply_sync_batch_norm(model: nn.Module, group: ProcessGroup | None = None) -> None:
    """Puts a `SyncBatchNorm` in the place of every batch norm inside `model`, with its parameters and buffers."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, _BatchNorm) and not isinstance(child, SyncBatchNorm):
                setattr(module, name, _converted(child, group))


def _converted(norm: _BatchNorm, group: ProcessGroup | None) -> SyncBatchNorm:
    made = SyncBatchNorm(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
    made._parameters = norm._parameters
    made._buffers = norm._buffers
    made.training = norm.training
    made.group = group
    return made


def moments(x: Tensor, counted: bool, group: ProcessGroup | None) -> tuple[Tensor, Tensor, int]:
    """Mean and variance (C,) of `x` (N, C, L) of all ranks that count, and how many N * L that are (Chan, Golub and
    LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979)."""
    variance, mean = torch.var_mean(x, (0, 2), correction=0)
    number = float(x.shape[0] * x.shape[2] if counted else 0)
    own = torch.cat((x.new_tensor([number]), mean, variance))
    ranks = torch.distributed.get_world_size(group)
    flat = own.new_empty(ranks * len(own))
    torch.distributed.all_gather_into_tensor(flat, own, group=group)
    every = flat.view(ranks, -1)
    weights = every[:, :1]
    count = int(weights.sum())
    assert count, "no rank has a sample that counts"
    means, variances = every[:, 1:].chunk(2, 1)
    middle = (means * weights).sum(0) / count
    spread = ((variances + (means - middle).square()) * weights).sum(0) / count
    return middle, spread, count


class _Normalize(torch.autograd.Function):
    """(x - mean) * scale for x (N, C, L); mean and scale depend on the x of all ranks that count, `count` of them."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mean: Tensor, scale: Tensor, count: int, counted: bool, group: ProcessGroup | None
    ) -> Tensor:
        normal = (x - mean.unsqueeze(1)) * scale.unsqueeze(1)
        ctx.save_for_backward(normal, scale)
        ctx.count, ctx.counted, ctx.group = count, counted, group
        return normal

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        normal, scale = ctx.saved_tensors
        sums = torch.cat((gradient.sum((0, 2)), (gradient * normal).sum((0, 2))))
        torch.distributed.all_reduce(sums, group=ctx.group)
        if ctx.counted:
            straight, along = (sums / ctx.count).unsqueeze(1).chunk(2)
            gradient = gradient - straight - normal * along
        return gradient * scale.unsqueeze(1), None, None, None, None, None
