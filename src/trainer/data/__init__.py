"""Text to samples: sources, tokenizing, prepared token files, packing, data order and the loader.

Opening and preparing data needs no torch; it comes with the first batch.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainer.data.datasets import Datasets as Datasets
    from trainer.data.datasets import open_data as open_data

__all__ = ["Datasets", "open_data"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainer.data import datasets

    return getattr(datasets, name)
