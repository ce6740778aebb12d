"""What the bodies that wait would have registered with torch, and who asks for it without touching a module.

Each hook stands where such a question arrives, and brings all bodies before it is answered. All are taken away before
the first body runs.
"""

from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from trainer_boot.lazy import fakes
from trainer_boot.lazy.modules import Waiting, dictionary
from trainer_boot.overlays.changes import Restore, all_of, exchange, renamed

# every tensor without numbers that is not made from another one is made by one of these
FACTORIES = ("empty.memory_format", "empty_strided")
# namespaces of operators that the bodies define
NAMESPACES = ("_native", "coor", "debug_mode_ops", "debugprims", "export", "flex_gemm", "prims", "rngprims")


def put_on(torch: ModuleType, waiting: Waiting) -> None:
    """Once torch is executed."""
    for hook in (meta_tensors, fakes_asked_for, operators, higher_order_operators, sizes_in_trees, generators):
        waiting.before.append(hook(torch, waiting))


def meta_tensors(torch: Any, waiting: Waiting) -> Restore:
    """880 operators get their kernels for meta tensors from torch._meta_registrations and what it imports."""
    library = torch.library.Library("aten", "IMPL", "Meta")

    def make(name: str) -> Any:
        packet, _, overload = name.partition(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload or "default")

        def made(*arguments: Any, **options: Any) -> Any:
            waiting.bring(f"a meta tensor is made by aten::{name}", "torch._meta_registrations")
            return operator(*arguments, **options)

        return made

    for name in FACTORIES:
        library.impl(name, make(name))
    return library._destroy  # type: ignore[no-any-return]  # a method


def fakes_asked_for(torch: Any, waiting: Waiting) -> Restore:
    """Module.to asks whether a parameter is a FakeTensor, torch.load whether there are fake tensors at the moment."""
    functions = (torch.nn.Module._apply, torch._guards.detect_fake_mode, torch._guards.active_fake_mode)
    changed = {fakes.REAL: fakes.__name__}
    return all_of([exchange(each, renamed(each.__code__, changed)) for each in functions])


def operators(torch: Any, waiting: Waiting) -> Restore:
    """torch.ops.prims.sin, for one."""
    restores: list[Restore] = []
    for name in NAMESPACES:
        if name in dictionary(torch.ops):
            continue
        namespace = getattr(torch.ops, name)
        restores.append(_answering(namespace, f"torch.ops.{name}", waiting))
    return all_of(restores)


def higher_order_operators(torch: Any, waiting: Waiting) -> Restore:
    """torch.ops.higher_order.cond, for one."""
    return _answering(torch.ops.higher_order, "torch.ops.higher_order", waiting)


def _answering(namespace: Any, told: str, waiting: Waiting) -> Restore:
    """The namespace brings all before it says that it does not have an operator."""
    kind = type(namespace)

    def __getattr__(self: Any, name: str) -> Any:
        waiting.bring(f"{told}.{name} is wanted", told, name)
        return getattr(self, name)

    namespace.__class__ = type(kind.__name__, (kind,), {"__getattr__": __getattr__, "__module__": kind.__module__})

    def restore() -> None:
        namespace.__class__ = kind

    return restore


def sizes_in_trees(torch: Any, waiting: Waiting) -> Restore:
    """torch.utils._pytree takes a torch.Size for a node with children, once fx has said so."""
    trees = torch.utils._pytree
    nodes = trees.SUPPORTED_NODES

    def forward(part: str) -> Any:
        def asked(*arguments: Any) -> Any:
            waiting.bring("a torch.Size is in a tree", "torch.utils._pytree", "SUPPORTED_NODES")
            return getattr(nodes[torch.Size], part)(*arguments)

        return asked

    ours = trees.NodeDef(torch.Size, *map(forward, trees.NodeDef._fields[1:]))
    nodes[torch.Size] = ours

    def restore() -> None:
        if nodes.get(torch.Size) is ours:
            del nodes[torch.Size]

    return restore


def generators(torch: Any, waiting: Waiting) -> Restore:
    """torch.Generator can't be made before torch._prims.rng_prims has given it its metaclass, and its place among the
    classes that operators take. The first is done here, the second when it is asked about."""
    torch._C._set_generator_metaclass(torch._custom_class_base.CustomClassBaseMeta)
    known = torch._library.opaque_object._OPAQUE_TYPES

    class Known(WeakKeyDictionary[Any, Any]):
        """Classes that operators take."""

        def __contains__(self, kind: object) -> bool:
            if kind is torch.Generator:
                waiting.bring("torch.Generator is asked about", "torch._prims.rng_prims")
            return WeakKeyDictionary.__contains__(self, kind)  # by now it may be one again

    known.__class__ = Known

    def restore() -> None:
        known.__class__ = WeakKeyDictionary

    return restore
