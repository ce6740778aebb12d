"""Data of the user's own: any map-style torch Dataset, with draws that a resume repeats."""

from collections.abc import Callable
from typing import Any

from torch.utils.data import IterableDataset, default_collate

from trainer.data.draws import item_seed, preserved, seed_generators
from trainer.data.source import Batch, Indices
from trainer.errors import UserError
from trainer.schema import Data
from trainer.user_code import describe, load_object


class DatasetSource:
    """A user's dataset as a source.

    What a dataset may have besides `__len__` and `__getitem__`: `collate(list of items) -> batch` (else torch's
    default), `tokens_per_sample`, and `reseed(seed: int)`, called before each item, for generators of its own: those
    of `random`, numpy and torch are seeded before each item anyway, from `seed`, epoch and index, and are left as they
    were for everything else in the process.
    """

    def __init__(self, dataset: Any, name: str, seed: int) -> None:
        self._dataset = dataset
        self._name = name
        self._seed = seed
        self._length = len(dataset)
        self._reseed: Callable[[int], object] | None = getattr(dataset, "reseed", None)
        self._collate: Callable[[list[Any]], Batch] = getattr(dataset, "collate", default_collate)
        self.tokens_per_sample = int(getattr(dataset, "tokens_per_sample", 0))

    def __len__(self) -> int:
        return self._length

    def fetch(self, indices: Indices, epoch: int = 0) -> Batch:
        """The items as one batch; what the user's code raises comes as UserError (status 1)."""
        with preserved():
            items = [self._item(int(index), epoch) for index in indices]
        try:
            return self._collate(items)
        except Exception as error:
            raise UserError(
                f"{self._name}: items {', '.join(str(int(index)) for index in indices)} cannot be made a batch: "
                f"{describe(error)}",
                "Return tensors of equal shape from each item, or define collate(items) in the dataset.",
            ) from error

    def _item(self, index: int, epoch: int) -> Any:
        seed = item_seed(self._seed, epoch * self._length + index)
        seed_generators(seed)
        try:
            if self._reseed is not None:
                self._reseed(seed)
            return self._dataset[index]
        except Exception as error:
            raise UserError(
                f"{self._name}: item {index} raised {describe(error)}",
                "Correct the dataset; --traceback shows the whole traceback.",
            ) from error


def open_user_data(data: Data, seed: int) -> tuple[DatasetSource, DatasetSource | None, int]:
    """The dataset that `data.dataset` names, its validation data, and its attribute `vocabulary` (0 without one).

    Validation is what the dataset's `validation` (a method or an attribute) gives, else what `data.validation` names,
    else none: `data.holdout` is for documents only.

    Raises UserError (status 2) for what cannot be loaded or is no map-style dataset.
    """
    dataset = _made(data.dataset, "data.dataset", data.options)
    train = DatasetSource(dataset, f"data.dataset = {data.dataset!r}", seed)
    vocabulary = int(getattr(dataset, "vocabulary", 0))
    name = f"the validation data of {data.dataset!r}"
    validation = getattr(dataset, "validation", None)
    if validation is not None and not hasattr(validation, "__getitem__"):
        validation = _called(validation, {}, name)
    if validation is None and data.validation:
        if len(data.validation) > 1:
            raise UserError(f"data.validation has {len(data.validation)} datasets", "Give one.", 2)
        name = f"data.validation = {data.validation[0]!r}"
        validation = _made(data.validation[0], "data.validation", {})
    if validation is None:
        return train, None, vocabulary
    _check(validation, name)
    return train, DatasetSource(validation, name, seed), vocabulary


def _made(spec: str, key: str, options: dict[str, object]) -> Any:
    name = f"{key} = {spec!r}"
    found: Any = load_object(spec, key)
    if isinstance(found, type) or (callable(found) and not hasattr(found, "__getitem__")):
        found = _called(found, options, name)
    elif options:
        raise UserError(
            f"{name} is neither a class nor a function, so it cannot take data.options",
            "Name a class or function, or remove data.options.",
            2,
        )
    _check(found, name)
    return found


def _called(function: Callable[..., Any], options: dict[str, object], name: str) -> Any:
    try:
        return function(**options)
    except Exception as error:
        given = f"with {', '.join(options)} " if options else ""
        raise UserError(
            f"{name}: calling it {given}raised {describe(error)}",
            "Correct data.options or the code; --traceback shows the whole traceback.",
            2,
        ) from error


def _check(dataset: Any, name: str) -> None:
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise UserError(
            f"{name} is not a map-style dataset: {type(dataset).__name__} lacks __len__ or __getitem__",
            "Define both: the trainer orders and shards samples by index.",
            2,
        )
    try:
        length = len(dataset)
    except Exception as error:
        raise UserError(f"{name}: its length raised {describe(error)}", "Correct its __len__.", 2) from error
    if length == 0:
        raise UserError(f"{name} is empty", "Provide at least one item.", 2)
