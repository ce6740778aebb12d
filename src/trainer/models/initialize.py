"""A model built without memory; its weights are the plain build's, bit for bit, whatever part of them a rank keeps."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from trainer.errors import UserError
from trainer.models.recording import NotRecordable, Recording, draws, given_tensors, tensors_of, view


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # no types in torch
    """Notes every call, but those that only tensors made of given values take part in, which are done.

    Within torch's FakeTensorMode: tensors of no memory which are, to whoever asks, on the CPU. With those on the meta
    device some of torch's own initializers do nothing.
    """

    def __init__(self, recording: Recording) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.recording = recording

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        given = given_tensors(function, args, options)
        random = draws(function)
        fake = any(isinstance(tensor, FakeTensor) for _, tensor in given)
        if given and not fake and not random:
            with unset_fake_temporarily():
                return function(*args, **options)
        _check(function, args, options, given, fake)
        arguments, options = tree_map(_copied, (tuple(args), options))
        result = function(*args, **dict(kwargs or {}))
        results = tree_map(_copied, result)
        with no_dispatch():
            self.recording.note(function, arguments, options, results)
        return result


def _check(function: Any, args: Any, options: Any, given: list[tuple[Any, Tensor]], fake: bool) -> None:
    """Raises NotRecordable for what can't be done later."""
    name = function._schema.name
    if given and not fake:
        raise NotRecordable(f"{name} draws random numbers into a tensor that was made of values")
    if torch.device(options.get("device") or "cpu").type != "cpu":
        raise NotRecordable(f"{name} makes a tensor on {options['device']}")
    if any(isinstance(value, torch.Generator) for value in (*args, *options.values())):
        raise NotRecordable(f"{name} draws from a random generator of its own")
    for argument, tensor in given:
        if tensor.is_conj() or tensor.is_neg():
            raise NotRecordable(f"{name} takes a tensor that is conjugated lazily")
        written = argument.alias_info is not None and argument.alias_info.is_write
        if written and not isinstance(tensor, FakeTensor):
            raise NotRecordable(f"{name} writes into a tensor that was made of values")


@contextlib.contextmanager
def _whole_calls(recording: Recording) -> Iterator[None]:
    """torch's truncated normal draws until all numbers are in range, so it looks at them: it is noted as one call."""
    original = nn.init._no_grad_trunc_normal_

    def truncated(
        tensor: Tensor, mean: float, std: float, a: float, b: float, generator: torch.Generator | None = None
    ) -> Tensor:
        if not isinstance(tensor, FakeTensor):
            return original(tensor, mean, std, a, b, generator)
        if generator is not None:
            raise NotRecordable("trunc_normal_ draws from a random generator of its own")
        with no_dispatch():
            recording.note_filling(original, view(tensor.untyped_storage(), tensor), mean, std, a, b)
        return tensor

    nn.init._no_grad_trunc_normal_ = truncated
    try:
        yield
    finally:
        nn.init._no_grad_trunc_normal_ = original


def _copied(value: Any) -> Any:
    """A tensor as it is now, whatever becomes of it: without values its storage as a meta tensor, else its values."""
    if not isinstance(value, Tensor):
        return value
    with no_dispatch():
        return view(value.untyped_storage(), value) if isinstance(value, FakeTensor) else value.detach().clone()


def record(build: Callable[[], nn.Module]) -> tuple[nn.Module, Recording]:
    """What build() gives, with tensors on the meta device, but those that it made of given values, and how the others
    are made.

    Raises NotRecordable, or what build() raises where it asks for values that are not there.
    """
    recording = Recording()
    with warnings.catch_warnings():
        # a copy of a tensor asks for its address, and torch says that it has none
        warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
        with FakeTensorMode(allow_non_fake_inputs=True), _Recorder(recording), _whole_calls(recording):
            model = build()
    metas: dict[int, Tensor] = {}
    for name, holder, key, tensor in slots(model):
        if isinstance(tensor, FakeTensor):
            if not recording.known(tensor):
                raise NotRecordable(f"{name} was made in a way that is not seen")
            if id(tensor) not in metas:
                meta = _copied(tensor)
                parameter = isinstance(tensor, nn.Parameter)
                metas[id(tensor)] = nn.Parameter(meta, tensor.requires_grad) if parameter else meta
            holder[key] = metas[id(tensor)]
        recording.tensors[name] = holder[key].detach()
    for place, tensor in _strays(model):
        if isinstance(tensor, FakeTensor):
            raise NotRecordable(f"{place} is a tensor, and neither parameter nor buffer")
    return model, recording


def record_or_refuse(build: Callable[[], nn.Module]) -> tuple[nn.Module, Recording]:
    """`record(build)`; raises UserError (status 2) where it cannot be."""
    from torch._subclasses.fake_tensor import DataDependentOutputException

    try:
        return record(build)
    except (UserError, NotRecordable, RuntimeError) as error:
        cause = error.__cause__ if isinstance(error, UserError) else error
        if not isinstance(cause, NotRecordable | RuntimeError):
            raise
        asks = isinstance(cause, DataDependentOutputException)
        told = "it asks for values of tensors" if asks else str(cause).partition("\n")[0]
        raise UserError(
            f"memory.meta is on, but the model cannot be built one tensor at a time: {told}",
            "Set memory.meta to off; every rank then builds the whole model.",
            2,
        ) from error


def materialize(model: nn.Module, recording: Recording, part: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Gives every tensor of `model` that is on the meta device its values: part(whole, what it replaces).

    `model` may be a part of the recorded one, cut in any way that keeps names. Ties stay.
    """
    empty = {name: (holder, key) for name, holder, key, tensor in slots(model) if tensor.is_meta}
    lacking = empty.keys() - recording.tensors.keys()
    assert not lacking, f"not in what was recorded: {sorted(lacking)}"

    def keep(names: list[str], whole: Tensor) -> None:
        made: dict[int, Tensor] = {}
        for name in names:
            holder, key = empty[name]
            old = holder[key]
            assert old is not None
            if id(old) not in made:
                new = part(whole.to(old.dtype), old)
                if isinstance(old, nn.Parameter):
                    new = nn.Parameter(new, old.requires_grad)
                    if old.grad_dtype != old.dtype:
                        new.grad_dtype = old.grad_dtype
                made[id(old)] = new
            holder[key] = made[id(old)]

    recording.replay(empty, keep)


def slots(model: nn.Module) -> Iterator[tuple[str, dict[str, Any], str, Tensor]]:
    """(name, dictionary that holds it, key, tensor) of all parameters and buffers, tied ones at all of theirs."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        for holder in (module._parameters, module._buffers):
            for key, tensor in holder.items():
                if tensor is not None:
                    yield f"{prefix}.{key}" if prefix else key, holder, key, tensor


def _strays(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Tensors that modules keep in plain attributes, there or in lists, dictionaries and objects of them."""
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if key in ("_parameters", "_buffers", "_modules"):
                continue
            inside = [] if isinstance(value, nn.Module) else list(getattr(value, "__dict__", {}).values())
            for tensor in tensors_of([value, *inside]):
                yield f"{name}.{key}" if name else key, tensor
