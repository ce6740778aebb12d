"""Calls of eager training and of what goes with it: optimizers, groups of ranks, files, workers."""

import copy
import io
import pickle
from typing import Any

from tools.hazards.common import call, loaded, network, trained, values


@call
def functional() -> Any:
    torch = loaded()
    model = network()
    parameters = dict(model.named_parameters())
    gradient = torch.func.grad(lambda given: torch.func.functional_call(model, given, (values(),)).sum())(parameters)
    each = torch.func.vmap(model)(values())
    return (
        gradient["0.weight"],
        each,
        torch.func.jacrev(model)(values()[0]),
        torch.func.hessian(lambda inputs: model(inputs).sum())(values()[0]),
    )


@call
def gradients_given() -> Any:
    torch = loaded()
    inputs = values().requires_grad_()
    output = inputs.exp()
    given = torch.autograd.grad(output, inputs, torch.ones_like(output), retain_graph=True)
    try:
        output.backward(torch.ones(2, 2))
    except RuntimeError as error:
        return given, str(error)
    return None


@call
def checks() -> Any:
    torch = loaded()
    torch._check(True)
    texts = []
    for condition in (False, 1, torch.tensor(True)):
        try:
            torch._check(condition, lambda: "said")
        except (RuntimeError, TypeError) as error:
            texts.append(f"{type(error).__name__}: {error}")
    return texts


@call
def pickles() -> Any:
    torch = loaded()
    model, optimizer = trained()
    again = pickle.loads(pickle.dumps((model, optimizer)))
    copied, other = copy.deepcopy((model, optimizer))
    stream = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, stream)
    stream.seek(0)
    read = torch.load(stream, weights_only=True)
    other.load_state_dict(read["optimizer"])
    return again[0](values()), copied(values()), read["model"]["0.weight"], len(other.state_dict()["state"])


@call
def pickled_methods() -> Any:
    torch = loaded()
    found = [torch.optim.Adam.step, torch.optim.Optimizer.zero_grad, torch.utils.checkpoint.checkpoint]
    return [pickle.loads(pickle.dumps(each)) is each for each in found]


@call
def group_of_one() -> Any:
    torch = loaded()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(network())
    model(values()).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9).step()
    result = model(values())
    torch.distributed.destroy_process_group()
    return result


@call
def sharded_tensor() -> Any:
    torch = loaded()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    tensor = torch.distributed.tensor  # named, never imported: a plain start has it by now
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    shared = tensor.distribute_tensor(values(), mesh, [tensor.Shard(0)])
    product = (shared @ shared.T).clamp(min=0).softmax(-1)
    stream = io.BytesIO()
    torch.save(shared, stream)
    stream.seek(0)
    read = torch.load(stream, weights_only=True)
    result = product.full_tensor(), read.full_tensor(), torch.cat([shared, shared]).sort(0)[0].full_tensor()
    torch.distributed.destroy_process_group()
    return result


@call
def fully_sharded() -> Any:
    torch = loaded()
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    model = network()
    torch.distributed.fsdp.fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (1,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    loss = model(values()).sum()
    loss.backward()
    optimizer.step()
    result = loss, model(values())
    torch.distributed.destroy_process_group()
    return result


@call
def profiled() -> Any:
    torch = loaded()
    model, optimizer = trained()
    with torch.profiler.profile(with_stack=True) as profile:
        model(values()).sum().backward()
        optimizer.step()
    return sorted({event.key for event in profile.key_averages() if event.key.startswith(("aten::add", "Optimizer"))})


@call
def recomputed() -> Any:
    torch = loaded()
    model = network()
    inputs = values().requires_grad_()
    output = torch.utils.checkpoint.checkpoint(model, inputs, use_reentrant=False)
    output.sum().backward()
    other = values().requires_grad_()
    torch.utils.checkpoint.checkpoint(model, other, use_reentrant=True).sum().backward()
    return output, inputs.grad, other.grad


@call
def hooks() -> Any:
    torch = loaded()
    model, optimizer = trained()
    seen: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    optimizer.register_state_dict_post_hook(lambda *_: seen.append("state"))
    model.register_state_dict_post_hook(lambda *_: seen.append("module"))
    model(values()).sum().backward()
    loss = optimizer.step(lambda: torch.is_grad_enabled())
    optimizer.state_dict()
    model.state_dict()
    return seen, loss, torch.is_grad_enabled()


@call
def differentiable_step() -> Any:
    torch = loaded()
    weight = values().requires_grad_()
    copy_of = weight.clone()
    optimizer = torch.optim.SGD([copy_of], lr=0.1, differentiable=True)
    copy_of.grad = weight.square()
    optimizer.step()
    copy_of.sum().backward()
    return weight.grad


@call
def every_optimizer() -> Any:
    torch = loaded()
    found = []
    for name, kind in sorted(vars(torch.optim).items()):
        if not isinstance(kind, type) or not issubclass(kind, torch.optim.Optimizer):
            continue
        if name in ("Optimizer", "LBFGS", "SparseAdam", "Muon"):
            continue
        model = network()
        optimizer: Any = kind(model.parameters(), lr=0.01)
        model(values()).sum().backward()
        optimizer.step()
        found.append(model(values()))
    return found


@call
def mixed_precision() -> Any:
    torch = loaded()
    model, optimizer = trained()
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(values()).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss, model(values())


@call
def loader_workers() -> Any:
    torch = loaded()
    data = torch.utils.data.TensorDataset(values())
    both = [
        torch.utils.data.DataLoader(data, batch_size=2, num_workers=1, multiprocessing_context=context)
        for context in ("fork", "spawn")
    ]
    return [[batch[0] for batch in loader] for loader in both]


@call
def nested_and_sparse() -> Any:
    torch = loaded()
    nested = torch.nested.nested_tensor([values()[0], values()[:2].flatten()], layout=torch.jagged)
    return (nested * 2).values(), torch.sparse.mm(values().to_sparse(), values().T)


@call
def distributions() -> Any:
    torch = loaded()
    torch.manual_seed(1)
    drawn = torch.distributions.Normal(0.0, 1.0).sample((3,))
    return drawn, torch.distributions.Categorical(logits=values()[0]).log_prob(torch.tensor(1))


@call
def attributes() -> Any:
    torch = loaded()
    words = "distributed.fsdp distributed.tensor utils._sympy fx.experimental.symbolic_shapes _functorch.config onnx"
    found = []
    for word in [*words.split(), "_dynamo", "_inductor", "export", "utils.nothing_of_it"]:
        here: Any = torch
        try:
            for part in word.split("."):
                here = getattr(here, part)
            found.append(here.__name__)
        except AttributeError as error:
            found.append(str(error))
    return found


@call
def reducer_default() -> Any:
    torch = loaded()
    return torch._dynamo.utils.get_optimize_ddp_mode()


@call
def no_thread_left_behind() -> Any:
    import threading

    return sorted(thread.name for thread in threading.enumerate())
