"""Meshes of devices, DCP's state dictionaries and pipeline schedules ask torch._dynamo what is compiled.

`no_compiler` answers. `pipelining.schedules` imports the class of compiled modules when it is imported itself: its body
is executed with that one import renamed, and it gets the real class once torch._dynamo is there.
Cost without: as in `disabled`.
"""

from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

from trainer_boot.overlays import no_compiler
from trainer_boot.overlays.changes import Restore, all_of
from trainer_boot.overlays.known import Unknown, need_function, need_source
from trainer_boot.wrapped import Wrapped

SUB_MESH = {"3.11": "861a7d1341499e85", "3.12": "463adba3f05e867b", "3.13": "44ec055983bb285f"}
NAMES = {"3.11": "5d05b3da3a44fe22", "3.12": "fcdf3ac16b26e3d3", "3.13": "7993f61d096650a1"}
SCHEDULES = "9ba75717d2a3a176"


def mesh(module: ModuleType) -> Restore:
    """Of torch.distributed.device_mesh."""
    if not hasattr(module, "DeviceMesh"):
        raise Unknown("this torch has no groups of processes")
    function = need_function(module.DeviceMesh, "_create_sub_mesh", SUB_MESH)
    return no_compiler.asked_by(function)


def state(module: ModuleType) -> Restore:
    """Of torch.distributed.checkpoint.state_dict."""
    function = need_function(module, "_get_fqns", NAMES)
    return no_compiler.asked_by(function)


class _Loader(Wrapped):
    """Another loader, whose module has one import renamed in its body."""

    def exec_module(self, module: ModuleType) -> None:
        """As the other, but for that name; the module gets back the loader that it would have."""
        self.give_back(module)
        code: CodeType = self._loader.get_code(module.__name__)
        names = {no_compiler.COMPILER: no_compiler.HERE}
        exec(code.replace(co_names=tuple(names.get(name, name) for name in code.co_names)), vars(module))


def schedules(spec: ModuleSpec) -> Restore:
    """Of torch.distributed.pipelining.schedules, before it is imported."""
    if spec.origin is None or not hasattr(spec.loader, "get_code"):
        raise Unknown(f"{spec.name} comes from nowhere")
    need_source(spec.origin, SCHEDULES)
    spec.loader = _Loader(spec.loader)  # type: ignore[assignment]  # by duck typing
    return all_of([])
