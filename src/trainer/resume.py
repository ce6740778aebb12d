"""A run's checkpoints, saved and loaded by all its ranks together."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from trainer.checkpoint import state as saved
from trainer.checkpoint.manifest import MANIFEST
from trainer.checkpoint.store import Store
from trainer.checkpoint.tensors import understood
from trainer.config import Resolved, differences, from_toml, to_toml
from trainer.errors import UserError
from trainer.launch import comm
from trainer.launch.detect import World
from trainer.loop import State
from trainer.mesh import plan_layout
from trainer.optim import Optimizers
from trainer.precision import Policy
from trainer.schema import Config

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class Checkpoints:
    """Saves and loads a whole run: model, optimizers, counters, loss scale, every rank's random state."""

    def __init__(self, config: Config, world: World, folder: Path, fingerprint: str) -> None:
        self.store = Store(folder, config.checkpoint.keep)
        self.config = config
        self.world = world
        self.fingerprint = fingerprint
        self.measured: dict[str, Any] = {}  # what a run finds out when it begins, and a resumed one keeps

    def save(
        self,
        model: nn.Module,
        optimizers: Optimizers,
        state: State,
        policy: Policy,
        stages: "ProcessGroup | None" = None,
    ) -> None:
        """Collective: every rank writes its own part, then rank 0 commits the whole. `stages`: the ranks that have the
        other stages of a pipeline."""
        temporary = ""
        if self.world.rank == 0:
            temporary = str(self.store.begin(state.step))
        part = Path(comm.broadcast_text(temporary))
        try:
            first = self.world.rank == 0
            saved.save_rank_state(part, self.world.rank)
            with optimizers.averaged():
                saved.save_model(part, model, first, stages)
            if optimizers.average is not None:
                saved.save_model(part, model, first, stages, file=saved.TRAINED_FILE)
            saved.save_optimizer(part, model, optimizers.optimizers, first, stages)
            comm.barrier()
            if self.world.rank == 0:
                self.store.commit(part, state.step, self._meta(state, policy))
        except BaseException:
            if self.world.rank == 0:
                self.store.abort(part)
            raise

    def _meta(self, state: State, policy: Policy) -> dict[str, object]:
        return {
            "state": state.to_dict(),
            **policy.state(),
            **self.measured,
            "threads": torch.get_num_threads(),
            "fingerprint": self.fingerprint,
            "world_size": self.world.world_size,
            "config": to_toml(Resolved(self.config, {}), comments=False),
        }

    def load(
        self, path: Path, meta: dict[str, Any], model: nn.Module, optimizers: Optimizers, state: State, policy: Policy
    ) -> None:
        """Everything as it was saved. Where other ranks share samples, random states start anew, said in one line."""
        saved.load_optimizer(path, model, optimizers.optimizers)
        with understood(path, MANIFEST):
            state.load(meta["state"])
        if optimizers.average is not None and saved.has_average(path):
            optimizers.average.load(saved.saved_parameters(path, model), state.applied)
        with understood(path, MANIFEST):
            policy.load(meta)
        theirs = from_toml(meta["config"], str(path))
        # tensor ranks that have all tokens must draw alike: states of other ranks would let them drift apart
        alike = sharing(theirs, meta["world_size"]) == sharing(self.config, self.world.world_size)
        if alike:
            saved.load_rank_state(path, self.world.rank)
        if self.world.rank == 0:
            changed = differences(theirs, self.config)
            changed = [item for item in changed if not item.startswith("run.resume")]
            print(f"resumed from {path} at step {state.step}", file=sys.stderr)
            if changed:
                print("with changed settings: " + "; ".join(changed), file=sys.stderr)
            before, now = meta.get("threads"), torch.get_num_threads()
            if before not in (None, now):
                print(
                    f"saved with {before} threads per rank, resumed with {now}: the last bits of sums may differ; "
                    f"set run.threads to {before} to repeat them",
                    file=sys.stderr,
                )
            if not alike:
                print(
                    f"saved by {meta['world_size']} ranks, resumed by {self.world.world_size}, in another layout: "
                    "dropout draws anew",
                    file=sys.stderr,
                )

    def check_data(self, meta: dict[str, Any]) -> None:
        """A cursor into other data means nothing."""
        if meta["fingerprint"] != self.fingerprint:
            raise UserError(
                "the training data is not what this run was started with",
                "Restore the files, or start a new run with another --run.folder.",
            )


def sharing(config: Config, world_size: int) -> tuple[int, ...]:
    """Which ranks see the same samples, and which of them the same tokens."""
    layout = plan_layout(config, world_size)
    sequence = config.parallel.sequence_parallel and layout.tensor > 1
    return layout.pipeline, layout.data_ranks, layout.context, layout.tensor, int(sequence)
