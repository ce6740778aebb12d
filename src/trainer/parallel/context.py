"""Context parallelism: every rank computes a part of each sequence, and gathers the keys and values of all of it.

All-gathering keys and values (Llama Team, "The Llama 3 Herd of Models", 2024, 3.3.2) instead of passing them round a
ring: any mask, any number format and any device; a rank's share of keys and values is whole during one layer only.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from trainer.errors import UserError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

TOKENS = 3  # dimension of stacked keys and values: (2, B, heads, S, head)


def apply_context(model: nn.Module, mesh: "DeviceMesh") -> None:
    """Lets `model` compute one part of its tokens on each rank of the one-dimensional `mesh`, in place; it still takes
    all of them. Gradients are then a part of the sum on each rank: they are averaged over these ranks as over those
    that see other samples. UserError for a model that has no method `cut_tokens` as GPT has.
    """

    def gather(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        own = DTensor.from_local(torch.stack((keys, values)), mesh, (Shard(TOKENS),), run_check=False)
        # every rank's queries add to the gradient of the keys and values of all
        both = own.redistribute(placements=(Replicate(),)).to_local(grad_placements=(Partial(),))
        return both[0], both[1]

    cutting: Any = model
    if not callable(getattr(model, "cut_tokens", None)):
        raise UserError(
            f"parallel.context shards sequences, but {type(model).__name__} cannot compute a part of one",
            "Remove parallel.context, or define cut_tokens and own_tokens in the model, as GPT does.",
            2,
        )
    cutting.cut_tokens(mesh.get_local_rank(), mesh.size(), gather)
