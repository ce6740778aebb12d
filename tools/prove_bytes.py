"""Bytes that a rank keeps of a model, counted over live tensors, against the formulas of its strategy; and what blocks
keep for backward by way of recomputing.

    uv run python -m tools.prove_bytes              writes docs/proofs/bytes.json
    uv run python -m tools.prove_bytes --ranks 2    that number of ranks only

A GPT in fp32 under AdamW, at the moment when most is kept for good: after the third backward, before the update.
Weights, gradients and optimizer state are storages, each counted once, not resident memory; gathered weights are those
of FSDP2 while blocks run. Averages over ranks have to be within 3 % of the formula; the largest rank is named too.
"""

import contextlib
import gc
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tests.beds.ranks import on_ranks
from tools.proof import parser as proof_parser
from tools.proof import write
from trainer.backward import LossModule
from trainer.checkpoint.parts import is_part
from trainer.mesh import Layout
from trainer.models import build_model
from trainer.models.loss import token_loss
from trainer.models.plan import blocks_of
from trainer.optim import build_optimizer
from trainer.parallel import Parallelized, parallelize
from trainer.precision import Policy
from trainer.schema import Memory, Model, Optim, Parallel
from trainer.step import Step

LIMIT = 0.03
CPU = torch.device("cpu")
VOCABULARY, SEQUENCE, SAMPLES = 256, 64, 2
MODEL = Model(kind="gpt", layers=8, width=128, heads=4)
RECOMPUTED = ("none", "every", "selective", "full")


class Strategy(NamedTuple):
    """`own`: bytes a parameter by the engine's formula on N ranks; `literature`: Rajbhandari et al., "ZeRO", 2020, for
    fp16 weights and gradients beside fp32 copies and moments."""

    name: str
    strategy: str
    gathered: torch.dtype | None
    own: Callable[[int], float]
    formula: str
    literature: Callable[[int], float]


STRATEGIES = (
    Strategy("ddp", "ddp", None, lambda n: 16, "4 weights + 4 gradients + 8 state", lambda n: 16),
    Strategy("optimizer", "optimizer", None, lambda n: 8 + 8 / n, "8 + 8/N", lambda n: 4 + 12 / n),
    Strategy(
        "gradients, gathered in bf16",
        "gradients",
        torch.bfloat16,
        lambda n: (2 if n > 1 else 0) + 16 / n,
        "2 gathered + 16/N",
        lambda n: 2 + 14 / n,
    ),
    Strategy(
        "gradients, gathered in fp32",
        "gradients",
        None,
        lambda n: (4 if n > 1 else 0) + 16 / n,
        "4 gathered + 16/N",
        lambda n: 2 + 14 / n,
    ),
    Strategy("full", "full", None, lambda n: 16 / n, "16/N", lambda n: 16 / n),
)


def held(tensors: Iterable[Tensor | None], seen: set[int]) -> int:
    """Bytes of the storages of this rank's parts that are not among `seen`, which they join."""
    total = 0
    for tensor in tensors:
        if tensor is None:
            continue
        storage = (tensor.to_local() if is_part(tensor) else tensor).untyped_storage()  # type: ignore[attr-defined]  # a DTensor's
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            total += storage.nbytes()
    return total


def gathered(model: nn.Module) -> int:
    """Bytes of the weights that FSDP2 holds whole at this moment."""
    from torch.distributed.fsdp import FSDPModule

    seen: set[int] = {0}
    total = 0
    for module in model.modules():
        group = module._get_fsdp_state()._fsdp_param_group if isinstance(module, FSDPModule) else None
        for parameter in group.fsdp_params if group is not None else ():
            total += held(getattr(parameter, "all_gather_outputs", ()), seen)
    return total


def batch() -> dict[str, Tensor]:
    """Tokens."""
    ids = torch.randint(VOCABULARY, (SAMPLES, SEQUENCE + 1))
    return {"tokens": ids[:, :-1], "labels": ids[:, 1:]}


def measured(rank: int, count: int, index: int) -> dict[str, int]:
    """Bytes of one rank under STRATEGIES[index], and the number of parameters of the whole model."""
    gc.collect()
    case = STRATEGIES[index]
    torch.manual_seed(0)
    model = build_model(MODEL, vocabulary=VOCABULARY)
    parameters = sum(each.numel() for each in model.parameters())
    sharded = case.strategy in ("gradients", "full")
    layout = Layout(shard=count) if sharded else Layout(replicate=count)
    settings = Parallel(strategy=case.strategy)
    cut = parallelize(model, token_loss, layout, settings, CPU, gathered=case.gathered if count > 1 else None)
    optimizers = build_optimizer(model, Optim(name="adamw"), CPU, cut.spread)
    step = Step(cut, optimizers, Policy(torch.float32, torch.float32, None, None), CPU, clip=0.0)
    for _ in range(2):
        step([(batch(), SAMPLES)], float(SAMPLES * SEQUENCE), 1.0, False)
    peaks = watched(model, cut)
    seen: set[int] = {0}
    found = {"model": parameters, "weights": held(model.parameters(), seen)}
    found["gradients"] = held((each.grad for each in model.parameters()), seen)
    own = [getattr(each, "optim", each) for each in optimizers.optimizers]  # ZeRO's inner one
    states = [value for each in own for state in each.state.values() for value in state.values()]
    found["state"] = held((value for value in states if isinstance(value, Tensor)), seen)
    return {**found, **peaks}


def watched(model: nn.Module, cut: Parallelized) -> dict[str, int]:
    """The third forward and backward. `gathered`: weights held whole at the end of the forward, `transient`: the most
    at once while a block begins, where blocks are given up again."""
    at: list[int] = []
    blocks = blocks_of(model)
    handles = [each.register_forward_pre_hook(lambda *_: at.append(gathered(model))) for each in blocks]
    whole = LossModule(model, token_loss)
    handles.append(whole.register_forward_hook(lambda *_: at.append(gathered(model))))
    end: list[int] = []

    def loss(parts: nn.Module, samples: Any) -> tuple[Tensor, Tensor]:
        result = token_loss(parts, samples)
        end.append(gathered(model))
        return result

    inner = cut.module.module if hasattr(cut.module, "module") else cut.module
    assert isinstance(inner, LossModule)
    inner.loss = loss
    cut.backward([(batch(), SAMPLES)], 1.0, contextlib.nullcontext())
    for handle in handles:
        handle.remove()
    return {"gathered": end[-1], "transient": max(at)}


def row(case: Strategy, count: int, ranks: list[dict[str, int]]) -> dict[str, Any]:
    """Of the table: bytes a parameter."""
    parameters = ranks[0]["model"]
    kinds = ("weights", "gradients", "state") + (("gathered",) if case.strategy == "gradients" else ())
    sums = [sum(each[kind] for kind in kinds) / parameters for each in ranks]
    mean, own = sum(sums) / count, case.own(count)
    found = {kind: round(sum(each[kind] for each in ranks) / count / parameters, 4) for kind in kinds}
    return {
        "strategy": case.name,
        "ranks": count,
        "bytes": round(mean, 4),
        "formula": round(own, 4),
        "is": case.formula,
        "off": round(mean / own - 1, 5),
        "good": abs(mean / own - 1) <= LIMIT,
        "largest_rank": round(max(sums), 4),
        "literature": round(case.literature(count), 4),
        **found,
        "gathered_at_once": round(max(each["transient"] for each in ranks) / parameters, 4),
    }


def kept(mode: str) -> int:
    """Bytes that a forward leaves for its backward, by torch's memory tracker."""
    from torch.distributed._tools.mem_tracker import MemTracker

    torch.manual_seed(0)
    model = build_model(MODEL, vocabulary=VOCABULARY)
    cut = parallelize(model, token_loss, Layout(), Parallel(), CPU, memory=Memory(recompute=mode, every=2))
    samples = batch()
    tracker = MemTracker()
    tracker.track_external(model)
    with tracker:
        before = tracker.get_tracker_snapshot("current")[CPU]["Total"]
        total, _ = cut.module(samples)
        after = tracker.get_tracker_snapshot("current")[CPU]["Total"]
    del total
    return int(after - before)


def main() -> int:
    parser = proof_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=0, help="only that many ranks")
    arguments = parser.parse_args()
    rows = []
    for count in (1, 2, 4, 8):
        for index, case in enumerate(STRATEGIES):
            if arguments.ranks in (0, count):
                ranks = on_ranks(count, measured, index)
                rows.append(found := row(case, count, ranks))
                print(
                    f"{found['strategy']:<28} {count} ranks: {found['bytes']:>7.3f} bytes a parameter, formula "
                    f"{found['formula']:>7.3f} ({found['off']:+.2%}), largest rank {found['largest_rank']:.3f}, "
                    f"literature {found['literature']:.2f}, gathered at once {found['gathered_at_once']:.3f}"
                    f"{'' if found['good'] else '  TOO FAR'}",
                    flush=True,
                )
    kept_by = {mode: kept(mode) for mode in RECOMPUTED}
    print("kept for backward: " + ", ".join(f"{mode} {size / 1e6:.2f} MB" for mode, size in kept_by.items()))
    good = all(each["good"] for each in rows) and kept_by["none"] > kept_by["selective"] > kept_by["full"]
    good = good and kept_by["none"] > kept_by["every"] > kept_by["full"]
    if not arguments.ranks:
        write("bytes", {"limit": LIMIT, "good": good, "rows": rows, "kept_for_backward": kept_by}, arguments)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
