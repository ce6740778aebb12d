"""Micro-batches in flight and time waited in a pipeline, against what theory says.

    uv run python -m tools.prove_pipeline       4 ranks, 8 micro-batches, every schedule; docs/proofs/pipeline.json
    uv run python -m tools.prove_pipeline --ranks 2 --no-json

The stages sleep, a forward as long as each half of the backward, so any number of ranks may share a core. Measured: the
most micro-batches that each rank has in flight, and the share of all ranks' time in which they wait. Beside it what
arithmetic gives for the order that they followed, and the formula that `trainer check` uses.
"""

import sys
from typing import Any

from tests.beds.ranks import on_ranks
from tools.pipeline_trace import Times, by_arithmetic, in_flight, traced, waited
from tools.proof import parser as proof_parser
from tools.proof import write
from trainer.estimate.bubble import idle_share
from trainer.schedules import SCHEDULES, allowed, stages_per_rank

LIMIT = 0.03  # of the whole time, between measured and arithmetic
ROUNDED = 0.001  # between arithmetic and formula


def main() -> int:
    parser = proof_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.4, help="of a rank's forward of one micro-batch")
    arguments = parser.parse_args()
    ranks, count = arguments.ranks, arguments.micro_batches
    times = Times(*[arguments.seconds] * 3)
    rows: list[dict[str, Any]] = []
    for schedule in SCHEDULES:
        if not allowed(schedule, ranks, count):
            continue
        virtual = stages_per_rank(schedule, 0)
        events = on_ranks(ranks, traced, schedule, virtual, count, times)
        shared = Times(*(each / virtual for each in times))
        row: dict[str, Any] = {
            "schedule": schedule,
            "stages_per_rank": virtual,
            "in_flight": [in_flight(each) for each in events],
            "measured": round(waited(events), 4),
            "arithmetic": round(by_arithmetic(events, ranks * virtual, shared), 4),
            "formula": round(idle_share(schedule, ranks, count, virtual)[0], 4),
        }
        near = [abs(row["measured"] - row["arithmetic"]) <= LIMIT, abs(row["arithmetic"] - row["formula"]) <= ROUNDED]
        row["good"] = all(near)
        rows.append(row)
        print(
            f"{schedule:<12} {virtual} stages a rank, in flight {' '.join(map(str, row['in_flight'])):<12} waited: "
            f"measured {row['measured']:.3f}, arithmetic {row['arithmetic']:.3f}, formula {row['formula']:.3f}"
            f"{'' if row['good'] else '  TOO FAR'}",
            flush=True,
        )
    given = {"ranks": ranks, "micro_batches": count, "seconds": arguments.seconds}
    write("pipeline", {**given, "limit": LIMIT, "rows": rows}, arguments)
    return 0 if all(row["good"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
