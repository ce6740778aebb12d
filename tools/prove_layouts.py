"""However a run is cut, it gives the numbers of one process: loss, gradient norm and weights after five updates.

    uv run python -m tools.prove_layouts              all layouts x fp64, fp32 x SGD, AdamW; docs/proofs/layouts.json
    uv run python -m tools.prove_layouts --ranks 2    those of two ranks
    uv run python -m tools.prove_layouts --more       further layouts, fp64 and AdamW only; nothing is written

Differences are relative: the largest of five losses and of five norms, and for the weights the norm of the difference
over the norm, whole model and worst tensor. fp64 has to agree to 1e-10, fp32 to 1e-5; where a row does not, it may
differ as much as one process does from itself when it adds up in other micro-batches, which is measured and said: Adam
makes large steps of gradients that are all but rounding.
"""

import sys
from typing import Any

from tools import layouts
from tools.proof import parser as proof_parser
from tools.proof import write

LIMITS = {"fp64": 1e-10, "fp32": 1e-5}


def main() -> int:
    parser = proof_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=0, help="only layouts of that many ranks")
    parser.add_argument("--only", default="", metavar="WORD", help="only layouts with this in their names")
    parser.add_argument("--more", action="store_true", help="layouts that are not in the table, fp64 and AdamW only")
    arguments = parser.parse_args()
    source = layouts.more if arguments.more else layouts.cases
    chosen = [case for case in source() if arguments.ranks in (0, case.ranks) and arguments.only in case.name]
    rows: list[dict[str, Any]] = []
    for dtype, limit in LIMITS.items():
        for optimizer in layouts.OPTIMIZERS:
            if arguments.more and (dtype, optimizer) != ("fp64", "adamw"):
                continue
            ones: dict[tuple[bool, int], layouts.Numbers] = {}
            spreads: dict[tuple[bool, int], dict[str, float]] = {}
            for case in chosen:
                kind = (case.tied, case.model().layers)
                if kind not in ones:
                    ones[kind] = layouts.one_process(dtype, optimizer, case)
                found = layouts.compared(ones[kind], layouts.on(case, dtype, optimizer))
                row = {"layout": case.name, "precision": dtype, "optimizer": optimizer, "good": True, **found}
                said = ""
                if max(found["loss"], found["norm"], found["weights"]) > limit:
                    if kind not in spreads:
                        spreads[kind] = layouts.by_rounding(ones[kind], dtype, optimizer, case)
                    spread = row["one_process"] = spreads[kind]
                    row["good"] = dtype == "fp32" and all(found[name] <= max(limit, spread[name]) for name in spread)
                    said = ", ".join(f"{name} {value:.1e}" for name, value in spread.items())
                    said = f"; one process in other micro-batches: {said}{'' if row['good'] else '  TOO FAR'}"
                rows.append(row)
                print(
                    f"{dtype} {optimizer:<5} {case.name:<40} loss {found['loss']:.1e} norm {found['norm']:.1e} "
                    f"weights {found['weights']:.1e}, worst {found['worst']:.1e} {found['worst_tensor']}"
                    f"{said}",
                    flush=True,
                )
    bad = [row for row in rows if not row["good"]]
    print(f"{len(rows) - len(bad)} of {len(rows)} within the limits, {len(chosen)} layouts")
    if not (arguments.ranks or arguments.only or arguments.more):
        write(
            "layouts", {"limits": LIMITS, "layouts": len(chosen), "good": len(rows) - len(bad), "rows": rows}, arguments
        )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
