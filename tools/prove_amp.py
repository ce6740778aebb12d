"""Number formats on every way to keep a model: what fp16 and bf16 lose is seen by all ranks, or not lost.

    uv run python -m tools.prove_amp              one process, 2 and 4 ranks; docs/proofs/amp.json
    uv run python -m tools.prove_amp --ranks 2    only those

For each: an overflow on the last rank or in its shard (all skip, one scale, the same weights); one in a single layer;
gradients 2^-23 ... 2^-26 with and without the loss scale; 512 ones added up in bf16 forwards; 200 updates of AdamW at
1e-3 from weights of 1. Then once: the loss scale over 4000 real updates, its state through a resume, and how far bf16
formats are from fp32 after five updates of a GPT.
"""

import math
import sys
from typing import Any

import torch

from tests.beds.ranks import on_ranks
from tools import amp, layouts
from tools.proof import parser as proof_parser
from tools.proof import write
from trainer.models import MODELS
from trainer.models.loss import token_loss
from trainer.optim import build_optimizer
from trainer.parallel import parallelize
from trainer.precision import LossScale, Policy
from trainer.precision.rounding import Rounding
from trainer.schema import Optim
from trainer.step import Step


def on(cut: amp.Cut, function: Any, *arguments: Any) -> tuple[Any, bool]:
    """What rank 0 found, and whether all found the same."""
    if cut.ranks == 1:
        return function(0, 1, cut, *arguments), True
    found = on_ranks(cut.ranks, function, cut, *arguments)
    return found[0], all(each == found[0] for each in found)


def overflows(cut: amp.Cut, function: Any, *arguments: Any) -> dict[str, Any]:
    """One skipped update of three."""
    found, alike = on(cut, function, *arguments)
    good = alike and found.finite_losses and found.scales == [8.0, 4.0, 4.0] and found.applied == [True, False, True]
    good = good and found.weights[0] == found.weights[1] != found.weights[2]
    weights = [each[amp.FIRST][-1] for each in found.weights]
    return {"good": good, "alike": alike, "scales": found.scales, "weights": weights}


def staged(cut: amp.Cut) -> dict[str, Any]:
    """One skipped update of three, where only the first stage overflows: as on one process."""
    alone = amp.overflow_on_a_stage(0, 1, amp.Cut(1))
    good = True
    for found in on_ranks(cut.ranks, amp.overflow_on_a_stage, cut):
        good = good and (found.scales, found.applied) == (alone.scales, alone.applied) and alone.finite_losses
        for mine, right in zip(found.weights, alone.weights, strict=True):
            good = good and all(mine[name] == right[name] for name in mine)
    return {"good": good, "scales": alone.scales}


def small(cut: amp.Cut, scaled: bool, gathered: str) -> dict[str, Any]:
    """Which of four powers of two survive fp16."""
    found, alike = on(cut, amp.smallest, scaled, gathered)
    lost = [exponent for exponent, weight in zip(range(-23, -27, -1), found, strict=True) if weight == 0.0]
    exact = all(weight in (0.0, -(2.0**exponent)) for exponent, weight in zip(range(-23, -27, -1), found, strict=True))
    return {"good": alike and exact and lost == ([] if scaled else [-25, -26]), "lost": lost}


def sums(cut: amp.Cut, weights: str, gathered: str) -> dict[str, Any]:
    """512 ones."""
    found, alike = on(cut, amp.ones, weights, gathered)
    return {"good": alike and abs(found - 1.0) < 1e-6, "sum": 512 * found}


def moves(cut: amp.Cut, weights: str, update: str) -> dict[str, Any]:
    """Weights that should be 0.8."""
    found, alike = on(cut, amp.two_hundred, weights, update)
    limit = {"plain": 0.0 if weights == "bf16" else 1e-3, "kahan": 0.004, "stochastic": 0.06}[update]
    right = 1.0 if weights == "bf16" and update == "plain" else 0.8
    return {"good": alike and all(abs(each - right) <= limit for each in found), "weights": found}


def rows_of(cut: amp.Cut) -> dict[str, dict[str, Any]]:
    """All that is shown of one cut."""
    rows = {
        "overflow": overflows(cut, amp.overflow),
        "overflow of one layer": overflows(cut, amp.overflow_on_a_stage),
        "fp16 without scale": small(cut, False, ""),
        "fp16 with scale": small(cut, True, ""),
        "512 ones, fp32 weights": sums(cut, "fp32", ""),
        "512 ones, bf16 weights": sums(cut, "bf16", ""),
        "200 updates, fp32 weights": moves(cut, "fp32", "plain"),
    }
    for update in ("plain", "kahan", "stochastic"):
        rows[f"200 updates, bf16 weights, {update}"] = moves(cut, "bf16", update)
    if cut.strategy != "ddp":
        rows["overflow, gathered in fp16"] = overflows(cut, amp.overflow, "fp16")
        rows["fp16 without scale, gathered in fp16"] = small(cut, False, "fp16")
        rows["fp16 with scale, gathered in fp16"] = small(cut, True, "fp16")
        rows["512 ones, gathered in bf16"] = sums(cut, "fp32", "bf16")
    return rows


def trace() -> dict[str, Any]:
    """The scale over 4000 real updates of one weight, the 2500th an overflow; and over the same with a resume."""

    def run(stop_at: int) -> list[float]:
        scale = LossScale(65536.0, 2000, 1.0)
        step = amp.make(amp.Column(1.0), amp.Cut(1), "fp16", scale=scale)
        found = []
        for update in range(1, 4001):
            step([amp.item(1.0, [1e4 if update == 2500 else 1e-3] * amp.ROWS)], 1.0, 0.01, False)
            found.append(scale.scale)
            if update == stop_at:
                resumed = LossScale(65536.0, 2000, 1.0)
                resumed.load(scale.state())
                step.policy.scale = scale = resumed
        return found

    straight, resumed = run(0), run(1234)
    changes = {1: straight[0]}
    for update in range(2, 4001):
        if straight[update - 1] != straight[update - 2]:
            changes[update] = straight[update - 1]
    good = changes == {1: 65536.0, 2000: 131072.0, 2500: 65536.0} and straight == resumed
    return {"good": good, "scale_after_update": changes, "same_through_a_resume": straight == resumed}


def gpt(rank: int, count: int, case: layouts.Case, formats: dict[str, str]) -> layouts.Numbers:
    """Five updates of the tied GPT of the table of layouts."""
    torch.manual_seed(7)
    model = MODELS["gpt"](layouts.MODEL, layouts.VOCABULARY)
    low = formats.get("weights") == "bf16"
    policy = Policy(
        amp.FORMATS[formats["compute"]],
        torch.bfloat16 if low else torch.float32,
        torch.float32 if formats["compute"] != "fp32" else None,
        LossScale(65536.0, 2000, 1.0) if formats["compute"] == "fp16" else None,
        gathered=amp.FORMATS[formats["gathered"]] if "gathered" in formats else None,
        rounding=Rounding(formats.get("update", "stochastic"), 0) if low else None,
    )
    policy.cast(model, amp.CPU)
    layout = case.layout()
    parallel = parallelize(model, token_loss, layout, case.settings(), amp.CPU, gathered=policy.gathered)
    optim = Optim(name="sgd", lr=0.1, momentum=0.9, clip=0.5, weight_decay=0.01)
    optimizers = build_optimizer(model, optim, amp.CPU)
    policy.keep_small_steps(optimizers, model)
    step = Step(parallel, optimizers, policy, amp.CPU, clip=optim.clip)
    outcomes = []
    for update in range(layouts.UPDATES):
        parts = layouts.parts(layout.data_index(rank), case.data, case.micro)
        batches = [(layouts.batch(update, part), case.micro) for part in parts]
        outcomes.append(step(batches, float(layouts.SAMPLES * layouts.SEQUENCE), 1.0, False))
    weights = {name: layouts.whole(value).float() for name, value in model.state_dict().items()}
    return layouts.Numbers([each.loss for each in outcomes], [each.grad_norm for each in outcomes], weights)


GPT_FORMATS = [
    {"compute": "bf16"},
    {"compute": "fp16"},
    {"compute": "bf16", "gathered": "bf16"},
    {"compute": "bf16", "weights": "bf16", "update": "stochastic"},
    {"compute": "bf16", "weights": "bf16", "update": "kahan"},
]


GPT_CASES = [
    layouts.Case(1, "ddp", 0, 2),
    layouts.Case(2, "ddp", 0, 2),
    layouts.Case(2, "gradients", 0, 2),
    layouts.Case(2, "full", 0, 2),
    layouts.Case(1, "ddp", 0, 2, pipeline=2),
    layouts.Case(1, "ddp", 0, 2, tensor=2),
    layouts.Case(1, "ddp", 0, 2, tensor=2, sequence=True),
    layouts.Case(1, "ddp", 0, 2, context=2),
    layouts.Case(2, "full", 0, 2, pipeline=2),
    layouts.Case(2, "full", 0, 2, tensor=2),
]


def near(case: layouts.Case, formats: dict[str, str]) -> dict[str, Any]:
    """Difference to fp32 on one process; a hundredth is a few units in the last place of bf16. Of the norms only the
    first is judged: the small embedding of this GPT makes a difference of weights a hundred times one of gradients."""
    right = gpt(0, 1, GPT_CASES[0], {"compute": "fp32"})
    ranks = [gpt(0, 1, case, formats)] if case.ranks == 1 else on_ranks(case.ranks, gpt, case, formats)
    weights: dict[str, torch.Tensor] = {}
    alike = True
    for found in ranks:
        alike = alike and found.losses == ranks[0].losses and found.norms == ranks[0].norms
        for name, value in found.weights.items():
            alike = alike and torch.equal(weights.setdefault(name, value), value)
    row = layouts.compared(right, layouts.Numbers(ranks[0].losses, ranks[0].norms, weights))
    row["weights_differ"] = row.pop("weights")
    row["first_norm"] = abs(ranks[0].norms[0] - right.norms[0]) / right.norms[0]
    small = row["loss"] < 0.01 and row["first_norm"] < 0.02 and row["weights_differ"] < 0.02
    good = alike and small and math.isfinite(row["loss"])
    return {"layout": case.name, **formats, "good": good, "alike": alike, **row}


def nearness(count: int) -> list[dict[str, Any]]:
    """Of all layouts of that many ranks (0: of any)."""
    rows = []
    for case in GPT_CASES:
        for formats in GPT_FORMATS:
            if count in (0, case.ranks) and not ("gathered" in formats and case.strategy == "ddp"):
                rows.append(near(case, formats))
                print(f"GPT against fp32 {rows[-1]}", flush=True)
    return rows


def main() -> int:
    parser = proof_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=0, help="only that many ranks")
    arguments = parser.parse_args()
    cuts = [cut for cut in amp.CUTS if arguments.ranks in (0, cut.ranks)]
    table = {}
    good, count = 0, 0
    for cut in cuts:
        table[cut.name] = rows_of(cut)
        for name, row in table[cut.name].items():
            good, count = good + row["good"], count + 1
            values = ", ".join(f"{key} {value}" for key, value in row.items() if key != "good")
            print(f"{cut.name:<24} {name:<44} {'good' if row['good'] else 'WRONG'}: {values}", flush=True)
    for cut in amp.STAGED:
        if arguments.ranks in (0, cut.ranks):
            table[cut.name] = {"overflow on one stage": staged(cut)}
            good, count = good + table[cut.name]["overflow on one stage"]["good"], count + 1
            print(f"{cut.name:<24} {table[cut.name]}", flush=True)
    scale = trace()
    print(f"loss scale {scale}")
    rows = nearness(arguments.ranks)
    good, count = good + scale["good"] + sum(row["good"] for row in rows), count + 1 + len(rows)
    print(f"{good} of {count} as they should be")
    if not arguments.ranks:
        write("amp", {"good": good, "of": count, "cuts": table, "scale": scale, "gpt": rows}, arguments)
    return 0 if good == count else 1


if __name__ == "__main__":
    sys.exit(main())
