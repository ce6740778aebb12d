"""When to step, log, evaluate, save and stop. Every decision is the same on all ranks: each is made from the step
number, or from an outcome that the step has already reduced over the ranks."""

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainer.config import global_batch
from trainer.errors import UserError
from trainer.optim import learning_rate
from trainer.schema import Config
from trainer.step import Outcome, Step

if TYPE_CHECKING:
    from trainer.data.loader import Loader, Update
    from trainer.launch.stop import StopRequest
    from trainer.metrics.progress import Progress
    from trainer.metrics.tensorboard import EventWriter
    from trainer.metrics.writer import Metrics
    from trainer.throughput import Rate, Throughput
    from trainer.watch import Watch


class State:
    """Where a run is. `step`: updates attempted; `applied`: those that changed weights (what the schedule counts);
    `cursor`: samples consumed over all epochs; `skipped`: skipped updates in a row."""

    def __init__(self) -> None:
        self.step = 0
        self.applied = 0
        self.cursor = 0
        self.skipped = 0

    def to_dict(self) -> dict[str, int]:
        """The state as plain numbers."""
        return dict(self.__dict__)

    def load(self, values: dict[str, int]) -> None:
        """Takes over `to_dict()` of an earlier run."""
        for name in self.__dict__:
            setattr(self, name, int(values[name]))


class Reporters:
    """Where numbers go; on ranks other than 0 they go nowhere."""

    def __init__(self, metrics: "Metrics", progress: "Progress", events: "EventWriter | None") -> None:
        self.metrics = metrics
        self.progress = progress
        self.events = events

    def update(self, step: int, values: dict[str, Any], rate: "Rate") -> None:
        """Report update number `step`; `values` go to the metrics file and to TensorBoard."""
        self.metrics.write(step=step, **values)
        self.progress.update(step, values["loss"], rate.items, values["lr"])
        if self.events is not None:
            self.events.scalars(step, values)

    def evaluation(self, step: int, values: dict[str, float]) -> None:
        """Report an evaluation after `step` updates."""
        self.metrics.event("evaluation", step=step, **values)
        shown = ", ".join(f"{name} {value:.4f}" for name, value in values.items())
        self.progress.note(f"step {step}: validation {shown}")
        if self.events is not None:
            self.events.scalars(step, {"validation": values})

    def close(self) -> None:
        """Flushes and closes all."""
        self.progress.close()
        self.metrics.close()
        if self.events is not None:
            self.events.close()


class Loop:
    """Runs updates until the end, a stop request or a failure. `save()`, `evaluate()` and `settle()`, which comes
    before each of them and after a shorter update, are collective."""

    def __init__(
        self,
        config: Config,
        step: Step,
        loader: "Loader",
        stop: "StopRequest",
        reporters: Reporters,
        *,
        state: State,
        total: int,
        throughput: "Throughput",
        to_device: Callable[[Any], Any],
        save: Callable[[], None],
        evaluate: Callable[[], dict[str, float]],
        watch: "Watch | None" = None,
        settle: Callable[[], None] | None = None,
    ) -> None:
        self.config = config
        self.step = step
        self.loader = loader
        self.stop = stop
        self.reporters = reporters
        self.state = state
        self.total = total
        self.throughput = throughput
        self.to_device = to_device
        self.save = save
        self.evaluate = evaluate
        self.watch = watch
        self.settle = settle
        self.full = global_batch(config)
        self.saved_step = state.step
        self.saved_at = time.monotonic()
        self.save_due = False  # some rank's clock said so, and all know
        self.seconds = 0.0  # spent in updates since this process started
        self.last_loss = math.nan
        self.multiplier = 0.0  # learning rate of the last update, as a share of its peak
        self.on_first_update: Callable[[], None] | None = None  # called once, after the first update of this process

    def run(self) -> bool:
        """True when the run is complete, False when it was asked to stop before; either way it is saved."""
        state, total = self.state, self.total
        stopped = False
        if state.step < total:
            before = time.perf_counter()
            for update in self.loader.updates(state.cursor):
                stopped = self.advance(update, before)
                if self.on_first_update is not None:
                    self.on_first_update()
                    self.on_first_update = None
                if stopped or state.step >= total:
                    break
                self._between()
                before = time.perf_counter()
        if state.step > self.saved_step and (stopped or self.config.checkpoint.final):
            self._save()
        return not stopped

    def advance(self, update: "Update", since: float) -> bool:
        """One update and its report; `since`: when fetching it began (time.perf_counter). True: asked to stop early."""
        outcome = self._update(update)
        seconds = time.perf_counter() - since
        self.seconds += seconds
        self.last_loss = outcome.loss
        self._report(outcome, update, seconds)
        return outcome.stop and self.state.step < self.total

    def _update(self, update: "Update") -> Outcome:
        state = self.state
        self.multiplier = learning_rate(self.config.optim, state.applied, self.total)
        divisor = float(max(1, update.samples * self.throughput.tokens_per_sample))
        micro_batches = [(self.to_device(batch), real) for batch, real in update.micro_batches]
        look = self.watch.at(state.step + 1) if self.watch is not None else None
        minutes = self.config.checkpoint.every_minutes
        save = 0 < 60 * minutes <= time.monotonic() - self.saved_at
        outcome = self.step(micro_batches, divisor, self.multiplier, self.stop.requested, look, save)
        self.save_due = outcome.save
        if self.settle is not None and update.samples < self.full:
            self.settle()  # not every rank had samples for each of its forwards
        state.step += 1
        state.cursor = update.cursor
        if outcome.applied:
            state.applied += 1
            state.skipped = 0
        else:
            state.skipped += 1
        return outcome

    def _report(self, outcome: Outcome, update: "Update", seconds: float) -> None:
        state, reporters = self.state, self.reporters
        extra: dict[str, object] = {}
        if not outcome.applied:
            extra["skipped"] = True
        if self.step.policy.scale is not None:
            extra["loss_scale"] = self.step.policy.scale.scale
        if self.step.policy.scale is not None or state.step > state.applied:
            extra["skipped_updates"] = state.step - state.applied
        extra |= outcome.seen
        rate = self.throughput.of(update.samples, outcome.count, seconds)
        values = {
            "epoch": update.epoch,
            "loss": outcome.loss,
            "grad_norm": outcome.grad_norm,
            "lr": self.multiplier * self.config.optim.lr,
            "count": outcome.count,
            "samples": state.cursor,
            "seconds": round(seconds, 6),
            **rate.values,
            **extra,
        }
        reporters.update(state.step, values, rate)
        if not outcome.applied:
            self._skipped(outcome)

    def _skipped(self, outcome: Outcome) -> None:
        fault, state = self.config.fault, self.state
        what = f"step {state.step}: loss {outcome.loss:g}, gradient norm {outcome.grad_norm:g}"
        if self.step.policy.scale is None and fault.nan == "stop":
            self.reporters.metrics.flush()
            raise UserError(
                f"{what} is not finite; the weights are as before that update",
                "Lower optim.lr, check the data, or set fault.nan to skip to skip such updates.",
            )
        if state.skipped >= fault.max_skipped:
            self.reporters.metrics.flush()
            raise UserError(
                f"{state.skipped} updates in a row were skipped; last {what}",
                "Lower optim.lr, or set precision.compute to bf16.",
            )
        self.reporters.progress.note(f"skipped {what}")

    def _between(self) -> None:
        state, config = self.state, self.config
        if config.eval.every and state.step % config.eval.every == 0:
            self.evaluate_now()
        if self.save_due or (config.checkpoint.every and state.step % config.checkpoint.every == 0):
            self._save()

    def evaluate_now(self) -> dict[str, float]:
        """Evaluates and reports; nothing where there is no validation data."""
        if self.settle is not None:
            self.settle()
        result = self.evaluate()
        if result:
            self.reporters.evaluation(self.state.step, result)
        return result

    def _save(self) -> None:
        # what a resumed run will not redo must be on the disk first
        self.reporters.metrics.flush(sync=True)
        if self.settle is not None:
            self.settle()
        self.save()
        self.saved_step = self.state.step
        self.saved_at = time.monotonic()
