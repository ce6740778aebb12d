"""Calls that need what a lazy start has not run, each by another door: a tensor without numbers, an operator's name, an
attribute, an import, a walk through all modules, several threads at once."""

import copy
import importlib
import inspect
import io
import pickle
import pkgutil
import sys
import threading
import warnings
from types import ModuleType
from typing import Any

from tools.hazards.common import call, loaded, network, values
from trainer_boot.overlays import no_compiler, no_symbols, overloads, sources

OURS = (no_compiler.STAND_IN, no_symbols.ALIAS, overloads.STAND_IN, sources.STAND_IN)


@call
def raw_meta_sum() -> Any:
    torch = loaded()
    total = torch.empty(2, device="meta") + 1
    wide = torch.empty_strided((2, 3), (1, 2), device="meta")
    return total.shape, torch.nn.functional.interpolate(wide.view(1, 2, 3), 6).stride(), torch.cdist(wide, wide).shape


@call
def meta_copies() -> Any:
    torch = loaded()
    moved = values().to("meta")
    model = network().to("meta")
    stream = io.BytesIO()
    torch.save(network().state_dict(), stream)
    stream.seek(0)
    read = torch.load(stream, map_location="meta")
    return torch.linalg.svd(moved)[1].shape, model(moved).shape, torch.linalg.qr(read["0.weight"])[0].stride()


@call
def default_device_meta() -> Any:
    torch = loaded()
    torch.set_default_device("meta")
    found = torch.nn.functional.gelu(torch.nn.Linear(3, 4)(torch.ones(2, 3)))
    torch.set_default_device(None)
    return found.shape, found.device.type


@call
def wrong_meta_shapes() -> Any:
    torch = loaded()
    one = torch.empty(2, 3, device="meta")
    try:
        torch.nn.functional.cross_entropy(one, torch.empty(3, dtype=torch.long, device="meta"))
    except (RuntimeError, ValueError) as error:
        return str(error)
    return None


@call
def sharded_clamp() -> Any:
    torch = loaded()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    shared = distribute_tensor(values(), init_device_mesh("cpu", (1,)), [Shard(0)])
    result = torch.clamp(shared, min=0.25).full_tensor(), torch.einsum("ab,cb->ac", shared, shared).full_tensor()
    torch.distributed.destroy_process_group()
    return result


@call
def generators() -> Any:
    torch = loaded()
    made = torch.Generator().manual_seed(5)
    copied = torch.Generator()
    copied.set_state(made.get_state())
    drawn = torch.rand(3, generator=made), torch.rand(3, generator=copied)
    return drawn, isinstance(made, torch.Generator), type(torch.Generator).__name__, repr(torch.Generator)


@call
def generator_operator() -> Any:
    import torch

    @torch.library.custom_op("hazards::drawn", mutates_args=())
    def drawn(given: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return given + torch.rand(given.shape, generator=generator)

    return drawn(values(), torch.Generator().manual_seed(1)), str(torch.ops.hazards.drawn.default._schema)


@call
def packaged() -> Any:
    torch = loaded()
    stream = io.BytesIO()
    with torch.package.PackageExporter(stream) as exporter:
        exporter.extern("torch.**")
        exporter.save_pickle("model", "model.pkl", network())
    stream.seek(0)
    return torch.package.PackageImporter(stream).load_pickle("model", "model.pkl")(values())


@call
def traced_graph() -> Any:
    torch = loaded()
    traced = torch.fx.symbolic_trace(network())
    return traced.code, [node.op for node in traced.graph.nodes], pickle.loads(pickle.dumps(traced))(values())


@call
def scripted_function() -> Any:
    torch = loaded()
    scripted = torch.jit.script(network())
    stream = io.BytesIO()
    torch.jit.save(scripted, stream)
    stream.seek(0)
    return torch.jit.load(stream)(values()), torch.jit.freeze(scripted.eval())(values()), str(scripted.graph)[:40]


@call
def transforms() -> Any:
    torch = loaded()
    from torch.func import jvp, vmap

    return torch.vmap(torch.sin)(values()), jvp(torch.tanh, (values(),), (values(),)), vmap is torch.vmap


@call
def functions_under_transforms() -> Any:
    import torch

    class Double(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(given: torch.Tensor) -> torch.Tensor:
            return given * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            return None

        @staticmethod
        def backward(ctx: Any, *given: Any) -> Any:
            return given[0] * 2

    return torch.vmap(Double.apply)(values()), torch.func.grad(lambda each: Double.apply(each).sum())(values())


@call
def quantized() -> Any:
    torch = loaded()
    warnings.simplefilter("ignore")
    small = torch.ao.quantization.quantize_dynamic(network(), {torch.nn.Linear}, dtype=torch.qint8)
    return (
        torch.quantization.get_default_qconfig is not None,
        small(values()).shape,
        torch.nn.quantized.Linear.__module__,
    )


@call
def old_names() -> Any:
    import torch.nn.intrinsic.modules.fused as fused
    from torch.nn.qat.modules import Linear

    return fused.LinearReLU.__module__, Linear.__module__


@call
def masks() -> Any:
    torch = loaded()
    masked = torch.masked.masked_tensor(values(), values() > 0)
    return masked.sum().get_data(), torch.masked.softmax(values(), 1, mask=values() > 0)


@call
def rooms() -> Any:
    torch = loaded()
    small = values()
    return (
        torch.fft.rfft(small).abs(),
        torch.linalg.norm(small),
        torch.special.erf(small),
        torch.signal.windows.hann(4),
        torch.sparse.sum(small.to_sparse()),
        torch.hub.get_dir()[-3:],
        torch.futures.Future().done(),
    )


@call
def devices() -> Any:
    torch = loaded()
    return (
        torch.cuda.is_available(),
        torch.backends.mps.is_available(),
        torch.accelerator.is_available(),
        torch.cpu.current_device(),
        torch.xpu.is_available(),
        torch.backends.cuda.is_built(),
    )


@call
def onnx_attribute() -> Any:
    torch = loaded()
    return torch.onnx.__name__, callable(torch.onnx.export)


@call
def close() -> Any:
    torch = loaded()
    torch.testing.assert_close(values(), values().clone())
    try:
        torch.testing.assert_close(values(), values() + 1)
    except AssertionError as error:
        return str(error), torch.testing.make_tensor((2,), dtype=torch.float32, device="cpu", low=1, high=1.0001).shape
    return None


@call
def distributed_checkpoint() -> Any:
    import tempfile

    torch = loaded()
    saved = importlib.import_module("torch.distributed.checkpoint")
    model, other = network(), network()
    with tempfile.TemporaryDirectory() as folder:
        saved.save(model.state_dict(), checkpoint_id=folder, no_dist=True)
        for each in other.parameters():
            torch.nn.init.zeros_(each)
        state = other.state_dict()
        saved.load(state, checkpoint_id=folder, no_dist=True)
    other.load_state_dict(state)
    return other(values())


@call
def operator_names() -> Any:
    torch = loaded()
    found = [hasattr(torch.ops.prims, "sin"), hasattr(torch.ops.higher_order, "cond"), hasattr(torch.ops.prims, "none")]
    return found, torch.ops.prims.sin(values()), str(torch.ops.prims.sin.default._schema), "cond" in torch.__all__


@call
def trees_of_sizes() -> Any:
    from torch.utils import _pytree

    torch = loaded()
    leaves, spec = _pytree.tree_flatten({"a": values().shape, "b": [1, torch.Size([7])]})
    return leaves, str(spec), _pytree.tree_map(lambda each: each + 1, torch.Size([2, 3]))


@call
def names_of_modules() -> Any:
    """Submodules are left out: what of the compiler is imported shows there, in a plain start."""
    torch = loaded()
    found: list[str] = []
    for name in ("torch", "torch.compiler", "torch.fx", "torch._prims", "torch.distributions", "torch.ao"):
        module = sys.modules[name]
        names = [each for each in dir(module) if not isinstance(vars(module).get(each), ModuleType)]
        found += [f"{name}.{each}" for each in names if not each.startswith("__") and each not in OURS]
    signature = str(inspect.signature(torch.compiler.nested_compile_region))
    return found, signature, len(torch.compiler.nested_compile_region.__doc__)


@call
def walks() -> Any:
    """What tools do that go through all modules."""
    torch = loaded()
    warned = [bool(getattr(each, "__warningregistry__", None)) for each in list(sys.modules.values())]
    kinds = {type(each).__name__ for each in list(sys.modules.values()) if getattr(each, "__file__", None)}
    places = [getattr(inspect.getmodule(each), "__name__", "") for each in (torch.nn.Linear, torch.optim.AdamW)]
    names = [each.name for each in pkgutil.iter_modules(torch.fx.__path__)]
    return (
        "Deferred" in kinds,
        any(warned),
        places,
        len(names),
        getattr(importlib.util.find_spec("torch.fx"), "name", ""),
    )


@call
def module_objects() -> Any:
    torch = loaded()
    module = torch.distributions
    told = []
    for act in (copy.copy, copy.deepcopy, pickle.dumps):
        try:
            told.append(str(act(module)))
        except TypeError as error:
            told.append(str(error))
    kinds = type(module) is ModuleType, isinstance(module, ModuleType), hasattr(module, "nothing")
    return (
        told,
        kinds,
        repr(module).partition(" from ")[0],
        module.__name__,
        module.__doc__[:20],
        len(vars(module)) > 50,
    )


@call
def forgotten_module() -> Any:
    torch = loaded()
    old = sys.modules.pop("torch.distributions")
    again = importlib.import_module("torch.distributions")
    reloaded = importlib.reload(importlib.import_module("torch.hub"))
    return again is old, old.Normal is again.Normal, torch.distributions is again, reloaded is torch.hub


@call
def written_attribute() -> Any:
    torch = loaded()
    torch.masked.softmax = "ours"
    kept = torch.masked.softmax, hasattr(torch.masked, "sum")
    del torch.masked.softmax
    return kept, hasattr(torch.masked, "softmax")


@call
def many_threads() -> Any:
    torch = loaded()
    start = threading.Barrier(8)
    found: list[Any] = []

    def touch(number: int) -> None:
        start.wait()
        if number % 4 == 0:
            found.append(torch.distributions.Normal.__name__)
        elif number % 4 == 1:
            found.append(importlib.import_module("torch.utils.checkpoint").checkpoint.__name__)
        elif number % 4 == 2:
            found.append(torch.fx.Graph.__name__)
        else:
            found.append(importlib.import_module("torch._subclasses.fake_tensor").FakeTensor.__name__)

    threads = [threading.Thread(target=touch, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    return sorted(found), [each.is_alive() for each in threads]


@call
def forked_child() -> Any:
    import multiprocessing

    torch = loaded()
    found = []
    for way in ("fork", "spawn"):
        context = multiprocessing.get_context(way)
        with context.Pool(1) as pool:
            found.append(pool.apply(_in_child, (3,)))
    return found, torch.distributions.Normal(0.0, 1.0).mean


def _in_child(number: int) -> Any:
    torch = loaded()
    return torch.distributions.Normal(0.0, float(number)).variance.item(), torch.fx.Graph.__name__


@call
def exported_late() -> Any:
    from torch.export import export

    return export(network(), (values(),)).run_decompositions().module()(values())


@call
def direct_imports() -> Any:
    import torch._refs.nn.functional as reference
    from torch._decomp.decompositions import gelu_backward
    from torch.fx.passes.shape_prop import ShapeProp
    from torch.utils._debug_mode import DebugMode
    from torch.utils._python_dispatch import TorchDispatchMode

    return (
        reference.gelu(values()),
        gelu_backward.__module__,
        ShapeProp.__name__,
        issubclass(DebugMode, TorchDispatchMode),
    )
