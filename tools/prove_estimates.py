"""What `trainer check` says of the peak of memory is what torch's memory tracker measures, within a tenth.

    uv run python -m tools.prove_estimates              writes docs/proofs/estimates.json
    uv run python -m tools.prove_estimates --only full  cases whose name begins so

Each case trains three updates of a GPT on real ranks under MemTracker of torch.distributed._tools.mem_tracker, which
counts the storages of live tensors, not resident memory; the peak is that of the fullest rank in the third update. It
cannot follow pipelines, whose modules run several times before their backward: tools/live_tensors.py counts those.
"""

import sys
from typing import Any, NamedTuple

import torch
from torch.distributed._tools.mem_tracker import MemTracker

from tests.beds import ranks
from tests.beds.ranks import on_ranks
from tools.live_tensors import LiveTensors
from tools.proof import parser as proof_parser
from tools.proof import write
from trainer.config import resolve
from trainer.estimate.job import job_of
from trainer.estimate.memory import Moment, peak
from trainer.estimate.parts import parts_of
from trainer.mesh import plan_batch, plan_layout
from trainer.models import build_model
from trainer.models.loss import token_loss
from trainer.optim import build_optimizer
from trainer.parallel import parallelize
from trainer.precision import make_policy
from trainer.schema import Config
from trainer.step import Step

LIMIT = 0.1
CPU = torch.device("cpu")
MODEL = {
    "run.device": "cpu", "model.layers": "4", "model.width": "128", "model.heads": "4", "model.vocabulary": "2048",
    "data.sequence": "128", "data.text": "none", "batch.micro": "4", "precision.compute": "fp32",
}  # fmt: skip


class Case(NamedTuple):
    """A run file's changes to `MODEL`, on `ranks` ranks with `forwards` micro-batches each."""

    name: str
    ranks: int = 1
    forwards: int = 1
    changes: tuple[tuple[str, str], ...] = ()

    def config(self) -> Config:
        """The whole configuration."""
        settings = {**MODEL, **dict(self.changes)}
        size = int(settings["batch.micro"]) * self.forwards * self.ranks
        for degree in ("pipeline", "tensor", "context"):
            size //= int(settings.get(f"parallel.{degree}", "1"))
        return resolve(None, [*settings.items(), ("batch.size", str(size))], {}).config


def change(**values: str) -> tuple[tuple[str, str], ...]:
    """`section__key="value"` as settings."""
    return tuple((name.replace("__", "."), value) for name, value in values.items())


CASES = [
    Case("one rank"),
    Case("one rank, two forwards", forwards=2),
    Case("one rank, tied, small vocabulary", changes=change(model__tied="true", model__vocabulary="257")),
    Case("one rank, bf16", changes=change(precision__compute="bf16")),
    Case("one rank, fp64, grouped heads", changes=change(precision__compute="fp64", model__kv_heads="2")),
    Case("ddp", 2),
    Case("ddp, bf16, two forwards", 2, 2, change(precision__compute="bf16")),
    Case("full", 2, 1, change(parallel__strategy="full")),
    Case("full, many layers", 2, 1, change(parallel__strategy="full", model__layers="8", model__vocabulary="257")),
    Case("full, two forwards", 2, 2, change(parallel__strategy="full")),
    Case("full, bf16", 2, 1, change(parallel__strategy="full", precision__compute="bf16")),
    Case(
        "full, bf16 gathered",
        2,
        1,
        change(parallel__strategy="full", precision__compute="bf16", precision__gathered="compute"),
    ),
    Case("gradients", 2, 1, change(parallel__strategy="gradients")),
    Case("optimizer", 2, 1, change(parallel__strategy="optimizer")),
    Case("full, recomputed", 2, 1, change(parallel__strategy="full", memory__recompute="full")),
    Case("recomputed, long", 1, 1, change(memory__recompute="full", model__vocabulary="257", data__sequence="512")),
    Case("selective, long", 1, 1, change(memory__recompute="selective", model__vocabulary="257")),
    Case("every second, bf16", 1, 1, change(memory__recompute="every", precision__compute="bf16")),
    Case("tensor", 2, 1, change(parallel__tensor="2")),
    Case("tensor, sequence", 2, 1, change(parallel__tensor="2", parallel__sequence_parallel="true")),
    Case("full x tensor", 4, 1, change(parallel__tensor="2", parallel__strategy="full")),
    Case("context", 2, 1, change(parallel__context="2")),
    *(
        Case(
            f"pipeline {ranks} {schedule}", ranks, 8, change(parallel__pipeline=str(ranks), parallel__schedule=schedule)
        )
        for ranks, schedule in (
            (2, "gpipe"),
            (2, "1f1b"),
            (4, "1f1b"),
            (2, "interleaved"),
            (2, "zero_bubble"),
            (2, "zbv"),
            (2, "dualpipev"),
        )
    ),
    Case("pipeline x ddp", 4, 4, change(parallel__pipeline="2", model__vocabulary="257", model__layers="8")),
    Case("pipeline, recomputed", 2, 4, change(parallel__pipeline="2", memory__recompute="full")),
    Case("pipeline, bf16", 2, 4, change(parallel__pipeline="2", precision__compute="bf16")),
]


def predicted(case: Case) -> Moment:
    """What the arithmetic says."""
    config = case.config()
    layout = plan_layout(config, case.ranks)
    plan = plan_batch(config, layout.data_ranks)
    job = job_of(config, layout, plan.micro, plan.accumulation)
    return peak(job, parts_of(config.model, 0, job))


def measured(rank: int, count: int, case: Case) -> dict[str, int]:
    """Bytes of this rank at its peak in the third update, by torch's kinds, and their "Total"."""
    config = case.config()
    layout = plan_layout(config, count)
    plan = plan_batch(config, layout.data_ranks)
    torch.set_num_threads(1)
    torch.manual_seed(1)
    live = LiveTensors() if layout.pipeline > 1 else None
    tracker = MemTracker()
    with live or tracker:
        model = build_model(config.model, vocabulary=0)
        policy = make_policy(config.precision, config.precision.compute, CPU)
        model.to(dtype=policy.weights)
        if policy.attention is not None:
            model.attention_dtype = policy.attention  # type: ignore[assignment]  # a property
        cut = parallelize(
            model,
            token_loss,
            layout,
            config.parallel,
            CPU,
            gathered=policy.gathered,
            memory=config.memory,
        )
        optimizers = build_optimizer(model, config.optim, CPU, cut.spread)
        step = Step(cut, optimizers, policy, CPU, clip=config.optim.clip)
        backward = cut.backward
        for update in range(3):
            batches = [(batch(config, plan.micro), plan.micro) for _ in range(plan.accumulation)]
            if update == 2 and live is not None:
                live.forget_peak()
            elif update == 2:
                tracker._peak_mem.clear()
            if live is None:
                cut.backward = lambda parts, weight, autocast: [
                    sums for part in [_Forgetting(tracker, parts)] for sums in backward(part, weight, autocast)
                ]
            step(batches, float(plan.size * config.data.sequence), 1.0, False)
    if live is not None:
        return {"Total": live.peak}
    found = tracker.get_tracker_snapshot("peak")[CPU]
    return {str(getattr(kind, "value", kind)): size for kind, size in found.items()}


class _Forgetting(list[Any]):
    """Micro-batches before each of which the tracker forgets the modules of the forward before, as it demands."""

    def __init__(self, tracker: MemTracker, batches: Any) -> None:
        super().__init__(batches)
        self.tracker = tracker

    def __iter__(self) -> Any:
        for each in super().__iter__():
            self.tracker.reset_mod_stats()
            yield each


def batch(config: Config, samples: int) -> dict[str, torch.Tensor]:
    """Random tokens."""
    ids = torch.randint(config.model.vocabulary, (samples, config.data.sequence + 1))
    return {"tokens": ids[:, :-1], "labels": ids[:, 1:]}


def main() -> int:
    parser = proof_parser(__doc__)
    parser.add_argument("--only", default="", help="cases whose name begins so")
    arguments = parser.parse_args()
    ranks.LIMIT = 600.0  # on a busy machine too
    rows: list[dict[str, Any]] = []
    for case in CASES:
        if not case.name.startswith(arguments.only):
            continue
        found = max(on_ranks(case.ranks, measured, case), key=lambda each: each["Total"])
        said = predicted(case)
        error = said.total / found["Total"] - 1
        rows.append(
            {
                "case": case.name,
                "ranks": case.ranks,
                "settings": {**MODEL, **dict(case.changes)},
                "predicted": said.to_dict(),
                "measured": found,
                "error": round(error, 4),
                "good": abs(error) <= LIMIT,
            }
        )
        print(
            f"{case.name:<34} predicted {said.total / 2**20:7.2f} MiB ({said.name}), "
            f"measured {found['Total'] / 2**20:7.2f} MiB, {error:+.1%}",
            flush=True,
        )
    good = sum(row["good"] for row in rows)
    print(f"{good} of {len(rows)} within {LIMIT:.0%}")
    if not arguments.only:
        write("estimates", {"limit": LIMIT, "cases": len(rows), "good": good, "rows": rows}, arguments)
    return 0 if good == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
