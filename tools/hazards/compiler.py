"""Calls that compile, trace, or work without numbers."""

import warnings
from typing import Any

from tools.hazards.common import call, loaded, network, trained, values


@call
def compile_eager() -> Any:
    torch = loaded()
    model, optimizer = trained()
    compiled = torch.compile(model, backend="eager")
    loss = compiled(values()).square().mean()
    loss.backward()
    optimizer.step()
    return loss, compiled(values())


@call
def compile_aot() -> Any:
    torch = loaded()
    model, _ = trained()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    loss = compiled(values()).square().mean()
    loss.backward()
    return loss, model[0].weight.grad


@call
def compile_inductor() -> Any:
    torch = loaded()
    model, _ = trained()
    return torch.compile(model)(values())


@call
def compile_dynamic() -> Any:
    torch = loaded()

    def product(left: Any, right: Any) -> Any:
        return torch.nn.functional.gelu(left @ right.T)[: left.shape[0] // 2].sum()

    compiled = torch.compile(product, backend="aot_eager", fullgraph=True, dynamic=True)
    return compiled(values(), values()), compiled(values()[:4], values()[:4])


@call
def compile_optimizer_step() -> Any:
    torch = loaded()
    model, optimizer = trained()
    model(values()).sum().backward()
    torch.compile(lambda: optimizer.step(), backend="eager")()
    optimizer.zero_grad()
    return model(values())


@call
def compile_graph_breaks() -> Any:
    torch = loaded()
    model, optimizer = trained()

    def train(inputs: Any) -> Any:
        optimizer.zero_grad()
        return model(inputs).sum()

    explained = torch._dynamo.explain(train)(values())
    return explained.graph_count, explained.graph_break_count


@call
def export() -> Any:
    torch = loaded()
    rows = torch.export.Dim("rows", min=2, max=50)
    program = torch.export.export(network(), (values(),), dynamic_shapes=({0: rows},))
    return program.module()(values()[:3]), len(program.graph.nodes)


@call
def custom_operator() -> Any:
    import torch

    @torch.library.custom_op("hazards::twice", mutates_args=())
    def twice(given: torch.Tensor) -> torch.Tensor:
        return given * 2

    @twice.register_fake
    def _(given: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(given)

    compiled = torch.compile(lambda given: twice(given) + 1, backend="aot_eager")(values())
    checked = torch.library.opcheck(twice, (values(),))
    return twice(values()), compiled, sorted(checked.items())


@call
def operator_library() -> Any:
    torch = loaded()
    library = torch.library.Library("hazards", "DEF")
    library.define("shifted(Tensor given) -> Tensor")
    library.impl("shifted", lambda given: given + 1, "CompositeExplicitAutograd")
    torch.library.register_fake("hazards::shifted", lambda given: torch.empty_like(given), lib=library)
    return torch.ops.hazards.shifted(values()), torch.ops.hazards.shifted(values().to("meta")).shape


@call
def schemas() -> Any:
    import torch

    def three(given: torch.Tensor, size: int, names: list[int]) -> torch.Tensor:
        return given

    return torch.library.infer_schema(three, mutates_args=())


@call
def scripts() -> Any:
    torch = loaded()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(network())(values()), torch.jit.trace(network(), values())(values())


@call
def graphs() -> Any:
    torch = loaded()
    from torch.fx.experimental.proxy_tensor import make_fx

    traced = torch.fx.symbolic_trace(network())
    made = make_fx(lambda given: torch.nn.functional.gelu(given).sum(), tracing_mode="symbolic")(values())
    return traced(values()), traced.code, made(values())


@call
def meta_tensors() -> Any:
    torch = loaded()
    raw = torch.empty(4, 6, device="meta")
    heads = raw.view(1, 1, 4, 6)
    attention = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
    loss = torch.nn.functional.cross_entropy(raw, torch.empty(4, dtype=torch.long, device="meta"))
    return attention.shape, torch.linalg.qr(raw)[0].shape, loss.shape, torch.einsum("ab,cb->ac", raw, raw).stride()


@call
def meta_module() -> Any:
    torch = loaded()
    with torch.device("meta"):
        model = network()
    output = model(torch.empty(5, 6, device="meta"))
    output.sum().backward()
    model.to_empty(device="cpu")
    return output.shape, output.stride(), model[0].weight.device.type


@call
def fake_tensors() -> Any:
    torch = loaded()
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        parts = torch.linalg.svd(network()(mode.from_tensor(values())))
    return parts[0].shape, parts[0].stride(), parts[1].dtype


@call
def symbols() -> Any:
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv, guard_or_false

    unknown = ShapeEnv().create_unbacked_symint()
    try:
        decided = bool(unknown > 3)
    except GuardOnDataDependentSymNode:
        return "undecided", guard_or_false(unknown > 3)
    return decided


@call
def higher_order() -> Any:
    torch = loaded()
    from torch.nn.attention.flex_attention import flex_attention

    heads = values().view(1, 1, 5, 6)
    return torch.cond(torch.tensor(True), torch.sin, torch.cos, (values(),)), flex_attention(heads, heads, heads)


@call
def decompositions() -> Any:
    torch = loaded()
    table = torch._decomp.core_aten_decompositions()
    return len(table) > 100, torch._refs.softmax(values(), -1), torch.ops.prims.sin(values())


@call
def sources() -> Any:
    import inspect

    torch = loaded()
    found: list[Any] = [torch.optim.AdamW.step, torch.optim.Optimizer.zero_grad, torch.nn.Linear, torch._check]
    return [len(inspect.getsource(each)) for each in found], [str(inspect.signature(each)) for each in found]
