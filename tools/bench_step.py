"""Time of one update: `trainer train` against a hand-written loop and other trainers, on the same model and batches.

All contenders run interleaved in the same processes, in blocks; the figure is the median over the blocks, as a ratio to
the hand-written loop of the same run. Every contender does what a real run does at each update: fetch a batch from a
memory-mapped token file, forward, backward, clip the gradient norm, AdamW, learning-rate schedule, the loss of all of
the batch on the host. Ours also writes its metrics line and draws its progress, as it always does.

    uv run --group bench python -m tools.bench_step                    both models on every layout, all contenders
    uv run python -m tools.bench_step --contenders hand,trainer       without the bench group
    uv run --group bench python -m tools.bench_step --layouts ddp     two ranks, DDP; `one` is one process; FSDP2 (full,
                                                                      gradients), pipeline
    uv run --group bench python -m tools.bench_step --json FILE

The losses of all contenders are compared too: they must agree, or the comparison is of different work.
"""

import argparse
import contextlib
import io
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch

from tests.beds import ranks as ranks_bed
from tests.beds.ranks import close_all, on_ranks
from tools.step_contenders import CONTENDERS
from tools.step_work import MODELS, Absent, Work

# name -> ranks, parallel.strategy (or stages)
LAYOUTS = {
    "one": (1, "ddp"),
    "ddp": (2, "ddp"),
    "full": (2, "full"),
    "gradients": (2, "gradients"),
    "pipeline": (2, "pipeline"),
}
PER_BLOCK = {"tiny": 200, "small": 6}

Figures = dict[str, Any]


def measure(
    rank: int, ranks: int, name: str, strategy: str, contenders: list[str], rounds: int, per_block: int, folder: str
) -> Figures:
    """On one rank: interleaved blocks of every contender; seconds per update, losses after the same updates, and why
    some do not take part."""
    warnings.filterwarnings("ignore")
    if ranks > 1:
        _as_torchrun_would(rank, ranks)
    work = Work(name, Path(folder), per_block * (rounds + 2), rank=rank, ranks=ranks, strategy=strategy)
    work.open()
    blocks, absent = {}, {}
    for contender in contenders:
        with contextlib.redirect_stderr(io.StringIO()):
            try:
                blocks[contender] = CONTENDERS[contender](work)
            except Absent as error:
                absent[contender] = str(error)
    seconds: dict[str, list[float]] = {contender: [] for contender in blocks}
    losses = {}
    for number in range(rounds + 1):
        order = list(blocks) if number % 2 else list(blocks)[::-1]
        for contender in order:
            if ranks > 1:
                torch.distributed.barrier()
            start = time.perf_counter()
            losses[contender] = blocks[contender](per_block)
            taken = getattr(blocks[contender], "seconds", 0.0) or time.perf_counter() - start
            if number:  # the first block warms up
                seconds[contender].append(taken / per_block)
    return {"seconds": seconds, "loss": losses, "absent": absent}


def _as_torchrun_would(rank: int, ranks: int) -> None:
    """The other trainers look for these; the group is there already."""
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
        "TORCHELASTIC_RUN_ID": "bench",
    }


def measured(name: str, layout: str, contenders: list[str], rounds: int, per_block: int) -> Figures:
    """The same as medians, and ratios to the hand-written loop."""
    ranks, strategy = LAYOUTS[layout]
    ranks_bed.LIMIT = 3600.0  # all rounds are one call
    with tempfile.TemporaryDirectory() as folder:
        Work(name, Path(folder), 1).prepare()
        arguments = (name, strategy, contenders, rounds, per_block, folder)
        found = measure(0, 1, *arguments) if ranks == 1 else on_ranks(ranks, measure, *arguments)[0]
    seconds, base = found["seconds"], found["seconds"]["hand"]
    return {
        "milliseconds": {c: 1000 * statistics.median(values) for c, values in seconds.items()},
        "ratio_to_hand": {
            c: statistics.median(v / b for v, b in zip(values, base, strict=True)) for c, values in seconds.items()
        },
        "loss": found["loss"],
        "absent": found["absent"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="comma-separated; hand is always there")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--layouts", default=",".join(LAYOUTS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--updates", type=int, default=0, help="of each contender in a round (default: by model)")
    parser.add_argument("--threads", type=int, default=1, help="of `one`; ranks have one each")
    parser.add_argument("--json", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    os.environ["PYTHONWARNINGS"] = "ignore"
    torch.set_num_threads(arguments.threads)
    chosen = list(dict.fromkeys(["hand", *arguments.contenders.split(",")]))
    unknown = [name for name in chosen if name not in CONTENDERS]
    unknown += [name for name in arguments.layouts.split(",") if name not in LAYOUTS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}")
    results: dict[str, Figures] = {}
    for layout in arguments.layouts.split(","):
        for name in arguments.models.split(","):
            row = measured(name, layout, chosen, arguments.rounds, arguments.updates or PER_BLOCK[name])
            results.setdefault(layout, {})[name] = row
            print(f"{layout}, {name}: {MODELS[name]}", flush=True)
            for contender in row["loss"]:
                print(
                    f"  {contender:<12} {row['milliseconds'][contender]:8.3f} ms per update, "
                    f"{row['ratio_to_hand'][contender]:.3f} of hand-written, loss {row['loss'][contender]:.5f}",
                    flush=True,
                )
    close_all()
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
