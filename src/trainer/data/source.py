"""What the loader reads from. No torch, no numpy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from trainer.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# dict[str, Tensor] from token files; from a user's dataset whatever its collate makes of samples.
Batch: TypeAlias = Any
Indices: TypeAlias = "Sequence[int] | NDArray[np.int64]"


class NoData:
    """The training data of a run whose token files are gone: a model of it can still be used."""

    tokens_per_sample = 0

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return 0

    def fetch(self, indices: Indices, epoch: int = 0) -> Batch:
        """Raise a UserError."""
        raise UserError(f"the prepared data of {self.folder} is gone", "Restore it, or train anew.")


class Source(Protocol):
    """Samples by number."""

    @property
    def tokens_per_sample(self) -> int:
        """Tokens a sample holds; 0 if samples are no token sequences."""

    def __len__(self) -> int: ...

    def fetch(self, indices: Indices, epoch: int = 0) -> Batch:
        """The samples as one batch. A pure function: a source that draws random numbers draws by (epoch, index)."""
