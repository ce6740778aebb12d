"""However a run is cut, every optimizer gives the numbers of one process, and a stopped run those of one that was not.

    uv run python -m tools.prove_optimizers           docs/proofs/optimizers.json

Five updates as in tools.prove_layouts, on layouts that cut weights or optimizer state: fp64 has to agree to 1e-10, fp32
to 1e-5 in losses and weights and to 1e-4 in gradient norms. Muon's matrices are made orthogonal in the weights' own
format; once more in bf16, as on CUDA, without a limit. What an update costs: on a GPT of 3.4 million weights, one
process, one thread.
"""

import sys
import time
from typing import Any

import torch

from tools import layouts
from tools.layouts import Case
from tools.proof import parser as proof_parser
from tools.proof import write
from trainer.models import MODELS
from trainer.optim import build_optimizer
from trainer.schema import Model, Optim

LIMITS = {
    "fp64": {"loss": 1e-10, "norm": 1e-10, "weights": 1e-10},
    "fp32": {"loss": 1e-5, "norm": 1e-4, "weights": 1e-5},
}
CASES = (
    Case(2, "ddp", 0, 2),
    Case(2, "optimizer", 0, 2),
    Case(4, "optimizer", 0, 1),
    Case(2, "gradients", 0, 2),
    Case(2, "full", 0, 2),
    Case(4, "full", 0, 1),
    Case(4, "full", 2, 2),
)


def main() -> int:
    arguments = proof_parser(__doc__).parse_args()
    rows = [row for dtype in LIMITS for optimizer in layouts.MORE_OPTIMIZERS for row in compare(dtype, optimizer)]
    rows += compare("fp32", "muon_bf16")
    bad = [row for row in rows if not row["good"]]
    print(f"{len(rows) - len(bad)} of {len(rows)} within the limits")
    costs = {name: cost(name) for name in ("sgd", "adamw", "adafactor", "lion", "schedule_free", "muon")}
    print("milliseconds of an update: " + ", ".join(f"{name} {value:.1f}" for name, value in costs.items()))
    write(
        "optimizers",
        {"limits": LIMITS, "good": len(rows) - len(bad), "update_milliseconds": costs, "rows": rows},
        arguments,
    )
    return 1 if bad else 0


def compare(dtype: str, optimizer: str) -> list[dict[str, Any]]:
    """A row for each layout."""
    one = layouts.one_process(dtype, optimizer)
    rows = []
    for case in CASES:
        found = layouts.compared(one, layouts.on(case, dtype, optimizer))
        limited = optimizer in layouts.MORE_OPTIMIZERS
        good = not limited or all(found[name] <= limit for name, limit in LIMITS[dtype].items())
        rows.append({"layout": case.name, "precision": dtype, "optimizer": optimizer, "good": good, **found})
        print(
            f"{dtype} {optimizer:<13} {case.name:<34} loss {found['loss']:.1e} norm {found['norm']:.1e} "
            f"weights {found['weights']:.1e}, worst {found['worst']:.1e}{'' if good else '  TOO FAR'}",
            flush=True,
        )
    return rows


def cost(name: str, rounds: int = 7) -> float:
    """Milliseconds of one update, the best of some."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = MODELS["gpt"](Model(kind="gpt", layers=4, width=256, heads=4), 257)
    optimizers = build_optimizer(model, Optim(name=name, schedule="constant", momentum=0.9), layouts.CPU)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        optimizers.step()
        best = min(best, time.perf_counter() - start)
    return round(best * 1000, 2)


if __name__ == "__main__":
    sys.exit(main())
