"""What a model's builder does to tensors, noted without doing it, and done later, a tensor at a time."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

# write all of their first argument, whatever it held
OVERWRITES = frozenset({"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"})
# take as many random numbers, whatever their arguments hold
COUNTED = frozenset({"normal_", "uniform_", "random_", "exponential_", "rand", "randn", "randint", "randperm"})


class NotRecordable(Exception):
    """The builder needs values, or does what can't be done later; says what."""


class Operation:
    """A call, with meta tensors as arguments, or copies of real ones. Storages have numbers.

    `draws`: takes random numbers; `counted`: as many whatever its arguments hold. `reads`: whose content counts;
    `writes`: whose content is changed; `makes`: (which of the results, storage) of new ones; `state`: of the random
    generator before it, where the builder has set that.
    """

    __slots__ = ("arguments", "counted", "draws", "function", "makes", "name", "options", "reads", "state", "writes")

    def __init__(
        self, function: Any, name: str, arguments: Sequence[Any], options: Mapping[str, Any], draws: bool, counted: bool
    ) -> None:
        self.function = function
        self.name = name
        self.arguments = arguments
        self.options = options
        self.draws = draws
        self.counted = counted
        self.reads: set[int] = set()
        self.writes: set[int] = set()
        self.makes: list[tuple[int, int]] = []
        self.state: Tensor | None = None

    def needed(self, live: set[int]) -> bool:
        """Whether it has to be done as it is, if the content of these storages counts after it."""
        changed = self.writes.union(number for _, number in self.makes)
        return not changed.isdisjoint(live) or (self.draws and not self.counted)


class Recording:
    """The calls in their order. `tensors`: the model's parameters and buffers by name, as they were after them."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.tensors: dict[str, Tensor] = {}
        self._states = [torch.get_rng_state()]
        self._numbers: dict[int, int] = {}
        self._kept: list[Tensor] = []  # no address of a storage is used twice

    def number(self, tensor: Tensor) -> int:
        """Of its storage."""
        return self._numbers.setdefault(tensor.untyped_storage()._cdata, len(self._numbers))

    def known(self, tensor: Tensor) -> bool:
        """Whether its storage comes from a call that was noted."""
        return tensor.untyped_storage()._cdata in self._numbers

    def note(self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any], result: Any) -> None:
        """Adds a call of an operator of torch, and what it returned without values."""
        name = str(function._schema.name).removeprefix("aten::")
        operation = Operation(function, name, arguments, options, draws(function), name in COUNTED)
        for position, (argument, tensor) in enumerate(given_tensors(function, arguments, options)):
            if not tensor.is_meta:
                continue
            number = self.number(tensor)
            if argument.alias_info is not None and argument.alias_info.is_write:
                operation.writes.add(number)
            if position or name not in OVERWRITES or not fills(tensor):
                operation.reads.add(number)
        for leaf, tensor in enumerate(tensors_of(result)):
            self._kept.append(tensor)
            if not self.known(tensor):
                operation.makes.append((leaf, self.number(tensor)))
        if operation.draws or operation.writes or operation.makes:
            self._add(operation)

    def note_filling(self, function: Callable[..., Any], tensor: Tensor, *arguments: Any) -> None:
        """Adds a call of a function that fills `tensor` with random numbers, looking at nothing but these."""
        operation = Operation(function, function.__name__, (tensor, *arguments), {}, draws=True, counted=True)
        operation.writes.add(self.number(tensor))
        if not fills(tensor):
            operation.reads.add(self.number(tensor))
        self._add(operation)

    def _add(self, operation: Operation) -> None:
        if operation.draws:
            self._note_state(operation)
        self.operations.append(operation)

    def _note_state(self, operation: Operation) -> None:
        # nothing draws while it is noted: another state than before is one that the builder has set
        state = torch.get_rng_state()
        if torch.equal(state, self._states[-1]):
            return
        if any(torch.equal(state, each) for each in self._states):
            raise NotRecordable("it puts the random generator back to where it was")
        self._states.append(state)
        operation.state = state

    def fingerprint(self) -> str:
        """Equal on ranks whose builders did the same."""
        digest = hashlib.sha256(self._states[0].numpy().tobytes())
        for operation in self.operations:
            digest.update(operation.name.encode())
            for value in tree_leaves((operation.arguments, dict(operation.options), operation.state)):
                digest.update(_identity(value))
        for name, tensor in self.tensors.items():
            digest.update(name.encode() + _identity(tensor))
        return digest.hexdigest()

    def replay(self, names: Iterable[str], keep: Callable[[list[str], Tensor], None]) -> None:
        """Makes the tensors of these names and leaves the random generator as a plain build does.

        keep(names, tensor) gets each when it is complete, on the host, with all names of that tensor; it is given up
        afterwards. What is not wanted is not made, but draws its random numbers.
        """
        wanted: dict[int, dict[str, list[str]]] = {}
        for name in names:
            tensor = self.tensors[name]
            wanted.setdefault(self.number(tensor), {}).setdefault(geometry(tensor), []).append(name)
        needed, ends = self._needed(set(wanted))
        made: dict[int, torch.UntypedStorage] = {}
        torch.set_rng_state(self._states[0])
        with torch.no_grad():
            for index, operation in enumerate(self.operations):
                if operation.state is not None:
                    torch.set_rng_state(operation.state)
                if index in needed:
                    self._do(operation, made)
                elif operation.draws:
                    _draw(operation)
                for number in ends.get(index, ()):
                    for same in wanted.get(number, {}).values():
                        keep(same, view(made[number], self.tensors[same[0]]))
                    del made[number]

    def _needed(self, live: set[int]) -> tuple[set[int], dict[int, set[int]]]:
        """The calls without which these storages would not be right, and the storages that are done after each."""
        needed: set[int] = set()
        ends: dict[int, set[int]] = {}
        seen: set[int] = set()
        for index in reversed(range(len(self.operations))):
            operation = self.operations[index]
            if not operation.needed(live):
                continue
            needed.add(index)
            makes = {number for _, number in operation.makes}
            touched = operation.reads | operation.writes | makes
            ends[index] = touched - seen
            seen |= touched
            # what is written without being read is overwritten: what it was before counts for nothing
            live = (live - makes - operation.writes) | operation.reads
        return needed, ends

    def _do(self, operation: Operation, made: dict[int, torch.UntypedStorage]) -> None:
        def real(value: Any) -> Any:
            if not isinstance(value, Tensor) or not value.is_meta:
                return value
            number = self.number(value)
            if number not in made:  # what made it is not needed, since it is overwritten
                size = value.untyped_storage().nbytes()
                made[number] = torch.empty(size, dtype=torch.uint8, device="cpu").untyped_storage()
            return view(made[number], value)

        arguments, options = tree_map(real, (tuple(operation.arguments), dict(operation.options)))
        results = tensors_of(operation.function(*arguments, **options))
        for leaf, number in operation.makes:
            made[number] = results[leaf].untyped_storage()


def _draw(operation: Operation) -> None:
    """Takes the random numbers of a call whose result nobody needs."""

    def scratch(value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        return value

    arguments, options = tree_map(scratch, (tuple(operation.arguments), dict(operation.options)))
    operation.function(*arguments, **options)


def draws(function: Any) -> bool:
    """Whether an operator of torch takes random numbers."""
    return torch.Tag.nondeterministic_seeded in function.tags


def given_tensors(function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> list[tuple[Any, Tensor]]:
    """(argument of the operator's schema, tensor) of all that a call is given, in order."""
    found = []
    for position, argument in enumerate(function._schema.arguments):
        value = arguments[position] if position < len(arguments) else options.get(argument.name)
        found += [(argument, tensor) for tensor in tensors_of(value)]
    return found


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors in a tree of values."""
    return [each for each in tree_leaves(value) if isinstance(each, Tensor)]


def view(storage: torch.UntypedStorage, like: Tensor) -> Tensor:
    """What `like` is of its own storage, of another one."""
    empty = torch.empty(0, dtype=like.dtype, device=storage.device)
    return empty.set_(storage, like.storage_offset(), like.shape, like.stride())


def fills(tensor: Tensor) -> bool:
    """Whether it is all of its storage."""
    return tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()


def geometry(tensor: Tensor) -> str:
    """How it lies in its storage."""
    return f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride()} {tensor.storage_offset()}"


def _identity(value: Any) -> bytes:
    if not isinstance(value, Tensor):
        return str(value).encode()
    content = b"" if value.is_meta else value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return geometry(value).encode() + content
