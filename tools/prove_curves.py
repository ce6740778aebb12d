"""However a run is cut, its loss curve is the same: 300 updates of a GPT on real text under every layout.

    uv run python -m tools.prove_curves                docs/proofs/curves.json, docs/curves.svg
    uv run python -m tools.prove_curves --steps 30     a look, nothing is written

The text is the standard library's source. The measure is what a seed makes of it: the means of ten updates each may
differ from those of one process by no more than the run of another seed does, on average and at the worst.
"""

import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from tests.beds.runs import losses, trainer
from tools.curves_picture import picture
from tools.proof import ROOT, small_text, write
from tools.proof import parser as proof_parser
from trainer.config import resolve
from trainer.errors import UserError
from trainer.mesh import plan_layout

WINDOW = 10
SETTINGS = {
    "model.layers": "2",
    "model.width": "64",
    "model.heads": "2",
    "data.sequence": "64",
    "batch.size": "32",
    "batch.micro": "8",
    "optim.lr": "3e-3",
    "optim.warmup": "20",
    "precision.compute": "fp32",
    "run.device": "cpu",
    "run.threads": "1",
    "log.progress": "none",
    "checkpoint.final": "false",
    "eval.samples": "64",
}


class Case(NamedTuple):
    """A layout: ranks, and what its settings change."""

    name: str
    ranks: int
    changes: dict[str, str]


ONE, OTHER_SEED = "one process", "one process, another seed"
CASES = [
    Case(ONE, 1, {}),
    Case(OTHER_SEED, 1, {"run.seed": "1"}),
    Case("DDP, 2 ranks", 2, {}),
    Case("FSDP2 full, 2 ranks", 2, {"parallel.strategy": "full"}),
    Case("FSDP2 gradients, 2 ranks", 2, {"parallel.strategy": "gradients"}),
    Case("FSDP2 hybrid, 2 x 2 ranks", 4, {"parallel.strategy": "full", "parallel.shard": "2"}),
    Case("bf16, DDP, 2 ranks", 2, {"precision.compute": "bf16"}),
    Case("pipeline, 2 stages", 2, {"parallel.pipeline": "2"}),
    Case("tensor, 2 ranks", 2, {"parallel.tensor": "2"}),
    Case("context, 2 ranks", 2, {"parallel.context": "2"}),
]


def main() -> int:
    parser = proof_parser(__doc__)
    parser.add_argument("--steps", type=int, default=300)
    arguments = parser.parse_args()
    curves: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        small_text(Path(folder), 1_500_000)
        for case in CASES:
            why = refused(case)
            if why:
                print(f"{case.name}: {why}")
                continue
            curves[case.name] = curve(case, Path(folder), arguments.steps)
            print(f"{case.name}: loss {curves[case.name][-1]:.4f} after {arguments.steps} updates", flush=True)
    rows = compared(curves)
    spread = rows.pop(OTHER_SEED)
    print(f"another seed: {spread['mean']:.2e} on average, {spread['largest']:.2e} at the worst")
    good = True
    for name, row in rows.items():
        within = row["mean"] <= spread["mean"] and row["largest"] <= spread["largest"]
        good = good and within
        print(f"{name}: {row['mean']:.2e}, {row['largest']:.2e}{'' if within else '  TOO FAR'}")
    if arguments.steps == 300 and not arguments.no_json:
        (ROOT / "docs" / "curves.svg").write_text(picture(curves, ONE, OTHER_SEED))
        write("curves", {"window": WINDOW, "another seed": spread, "layouts": rows, "settings": SETTINGS}, arguments)
    return 0 if good else 1


def refused(case: Case) -> str:
    """Why this layout is not there; or ""."""
    config = resolve(None, list(case.changes.items()), {}).config
    try:
        plan_layout(config, case.ranks)
    except UserError as error:
        return error.what
    return ""


def curve(case: Case, folder: Path, steps: int) -> list[float]:
    """The loss of every update."""
    (folder / "run.toml").touch()
    run = case.name.replace(" ", "-").replace(",", "")
    settings = {**SETTINGS, **case.changes, "data.text": str(folder / "text.txt"), "run.folder": run}
    settings |= {"run.steps": str(steps), "data.cache": str(folder / "tokens"), "data.holdout": "0"}
    words = [word for name, value in settings.items() for word in (f"--{name}", value)]
    done = trainer("train", "run.toml", "--nproc", str(case.ranks), *words, cwd=folder, timeout=1800)
    if done.returncode:
        raise SystemExit(f"{case.name} ended with {done.returncode}\n{done.stderr}")
    return losses(folder / run)


def compared(curves: dict[str, list[float]]) -> dict[str, dict[str, Any]]:
    """Each curve against one process, by the means of WINDOW updates: their difference on average and at the worst; and
    the last such mean."""
    means = {
        name: [fmean(values[first : first + WINDOW]) for first in range(0, len(values), WINDOW)]
        for name, values in curves.items()
    }
    rows = {}
    for name, found in means.items():
        differences = [abs(one - other) for one, other in zip(found, means[ONE], strict=True)]
        rows[name] = {"mean": fmean(differences), "largest": max(differences), "last": found[-1]}
    del rows[ONE]
    return rows


if __name__ == "__main__":
    sys.exit(main())
