"""Time of an update of a GPT on CPU in each number format: what `precision.compute auto` decides about.

uv run python -m tools.bench_precision          one thread, interleaved rounds; medians, and ratios to fp32
"""

import argparse
import statistics
import sys
import time

import torch

from trainer.formats import choose_compute
from trainer.mesh import Layout
from trainer.models import build_model
from trainer.models.loss import token_loss
from trainer.optim import build_optimizer
from trainer.parallel import parallelize
from trainer.precision import make_policy
from trainer.schema import Model, Optim, Parallel, Precision
from trainer.step import Step

CPU = torch.device("cpu")
FORMATS = {
    "fp32": Precision(compute="fp32"),
    "bf16, fp32 attention": Precision(compute="bf16"),
    "bf16": Precision(compute="bf16", attention="bf16"),
    "bf16 weights": Precision(compute="bf16", weights="bf16"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--updates", type=int, default=5, help="of each format in a round")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    batch = {name: torch.randint(257, (16, 128)) for name in ("tokens", "labels")}
    steps = {}
    for name, settings in FORMATS.items():
        torch.manual_seed(0)
        model = build_model(Model(layers=arguments.layers, width=arguments.width), vocabulary=257)
        policy = make_policy(settings, settings.compute, CPU)
        policy.cast(model, CPU)
        optimizers = build_optimizer(model, Optim(), CPU)
        policy.keep_small_steps(optimizers, model)
        steps[name] = Step(parallelize(model, token_loss, Layout(), Parallel(), CPU), optimizers, policy, CPU, clip=1.0)
    seconds: dict[str, list[float]] = {name: [] for name in FORMATS}
    for turn in range(arguments.rounds + 1):
        for name, step in steps.items():
            start = time.process_time()
            for _ in range(arguments.updates):
                step([(batch, 16)], 16.0 * 128, 0.1, False)
            if turn:  # the first warms up
                seconds[name].append((time.process_time() - start) / arguments.updates)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name, median in medians.items():
        print(f"{name:<24} {1e3 * median:8.1f} ms of processor time an update, {medians['fp32'] / median:.2f}x of fp32")
    print("precision.compute auto: {}, as {}".format(*choose_compute(Precision(), "cpu")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
