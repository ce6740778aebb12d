"""Loss over the validation data, and accuracy of what classifies; the same numbers on any number of ranks."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from trainer.precision import Policy

if TYPE_CHECKING:
    from trainer.data.datasets import Datasets
    from trainer.models.scores import Scored
    from trainer.parallel import Parallelized


class Evaluation:
    """Evaluates a model, cut as `cut` says, on the validation samples: sums and counts over all ranks, padding never
    counted.

    `rank`: this process's; `micro`: samples per forward on one rank; `limit`: samples used, 0 for all; `scores`: the
    loss that `cut` was made with, if it counts hits. Training state (dropout mode, random numbers) is as it was
    afterwards.
    """

    def __init__(
        self,
        cut: "Parallelized",
        data: "Datasets",
        policy: Policy,
        device: torch.device,
        rank: int,
        *,
        micro: int,
        limit: int,
        to_device: Callable[[Any], Any],
        scores: "Scored | None" = None,
    ) -> None:
        self.cut = cut
        self.data = data
        self.policy = policy
        self.device = device
        self.data_index = cut.layout.data_index(rank)
        self.micro = micro
        self.limit = limit
        self.to_device = to_device
        self.scores = scores
        self.on_progress: Callable[[int, int], None] | None = None  # (samples done over all ranks, samples)

    def __call__(self) -> dict[str, float]:
        """{"loss", "perplexity", "bits_per_byte"}: nats per counted item, its exponential, and for text the bits needed
        per byte; for classes {"loss", "accuracy", "top5_accuracy"}; empty where there is no validation data."""
        if self.data.validation is None:
            return {}
        from trainer.data.loader import evaluation_batches

        samples = len(self.data.validation)
        samples, done = min(self.limit or samples, samples), 0
        totals = torch.zeros(5, dtype=torch.float64, device=self.device)
        module, layout = self.cut.module, self.cut.layout
        training = module.training
        module.eval()
        try:
            with torch.no_grad(), self.policy.autocast(self.device.type):
                for batch, real in evaluation_batches(
                    self.data.validation,
                    micro_batch=self.micro,
                    dp_rank=self.data_index,
                    dp_size=layout.data_ranks,
                    limit=self.limit,
                ):
                    if self.on_progress is not None:
                        self.on_progress(done, samples)
                        done = min(samples, done + self.micro * layout.data_ranks)
                    if not (real or self.cut.sharded):
                        continue
                    if self.scores is not None:
                        self.scores.counting = bool(real)
                    total, count = self.cut.evaluate(self.to_device(batch))
                    if not (real and self.cut.counts):
                        continue
                    totals[0] += total
                    totals[1] += count
        finally:
            if self.on_progress is not None:
                self.on_progress(samples, samples)
            module.train(training)
            if self.scores is not None:
                self.scores.counting = False
                hits = self.scores.taken()
                totals[2:] = torch.tensor(hits if self.cut.counts else [0, 0, 0])
        if layout.world_size > 1:
            torch.distributed.all_reduce(totals)
        loss_sum, count, *found = totals.tolist()
        if not count:
            return {}
        if any(found):
            from trainer.models.scores import shares

            return {"loss": loss_sum / count, **shares(found, count)}
        return self._result(loss_sum / count)

    def _result(self, loss: float) -> dict[str, float]:
        result = {"loss": loss, "perplexity": math.exp(loss) if loss < 700 else math.inf}
        if self.data.validation_bytes:
            # every token of the stream but the first is predicted once
            tokens = int(self.data.info["validation_tokens"]) - 1
            result["bits_per_byte"] = loss * tokens / math.log(2) / self.data.validation_bytes
        return result
