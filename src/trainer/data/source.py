"""What the loader reads from. No torch, no numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# dict[str, Tensor] from token files; from a user's dataset whatever its collate makes of samples.
Batch: TypeAlias = Any
Indices: TypeAlias = "Sequence[int] | NDArray[np.int64]"


class Source(Protocol):
    """Samples by number."""

    @property
    def tokens_per_sample(self) -> int:
        """Tokens a sample holds; 0 if samples are no token sequences."""

    def __len__(self) -> int: ...

    def fetch(self, indices: Indices, epoch: int = 0) -> Batch:
        """The samples as one batch. A pure function: a source that draws random numbers draws by (epoch, index)."""
