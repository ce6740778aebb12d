"""The trainer as a library, for a loop of your own: no run file is needed, and nothing is imported before it is used.

    layout = trainer.Layout(shard=8)
    cut = trainer.parallelize(model, loss, layout, trainer.Parallel(strategy="full"), device)
    optimizers = trainer.build_optimizer(model, trainer.Optim(lr=3e-4), device)
    policy = trainer.make_policy(trainer.Precision(), "bf16", device)
    train_step = trainer.Step(cut, optimizers, policy, device, clip=1.0)
    outcome = train_step([(batch, samples), ...], divisor, 1.0, False)  # loss and norm are those of all ranks
    trainer.save_model(folder, model, write=rank == 0)  # whole, whatever the layout; all ranks call it

`loss(model, batch)` gives (sum over counted items, their number), both scalars. `examples/own_loop.py` is a whole one.
"""

TYPE_CHECKING = False

if TYPE_CHECKING:
    from trainer.backward import LossModule as LossModule
    from trainer.checkpoint.state import load_model as load_model
    from trainer.checkpoint.state import load_optimizer as load_optimizer
    from trainer.checkpoint.state import save_model as save_model
    from trainer.checkpoint.state import save_optimizer as save_optimizer
    from trainer.checkpoint.state import weights_digest as weights_digest
    from trainer.checkpoint.store import Store as Store
    from trainer.errors import UserError as UserError
    from trainer.mesh import Layout as Layout
    from trainer.models.plan import Plan as Plan
    from trainer.optim import Optimizers as Optimizers
    from trainer.optim import build_optimizer as build_optimizer
    from trainer.optim import learning_rate as learning_rate
    from trainer.parallel import Parallelized as Parallelized
    from trainer.parallel import parallelize as parallelize
    from trainer.precision import LossScale as LossScale
    from trainer.precision import Policy as Policy
    from trainer.precision import make_policy as make_policy
    from trainer.schema import Optim as Optim
    from trainer.schema import Parallel as Parallel
    from trainer.schema import Precision as Precision
    from trainer.step import Outcome as Outcome
    from trainer.step import Step as Step

# name -> the room it comes from
_ROOMS = {
    "Layout": "mesh",
    "LossModule": "backward",
    "LossScale": "precision",
    "Optim": "schema",
    "Optimizers": "optim",
    "Outcome": "step",
    "Parallel": "schema",
    "Parallelized": "parallel",
    "Plan": "models.plan",
    "Policy": "precision",
    "Precision": "schema",
    "Step": "step",
    "Store": "checkpoint.store",
    "UserError": "errors",
    "build_optimizer": "optim",
    "learning_rate": "optim",
    "load_model": "checkpoint.state",
    "load_optimizer": "checkpoint.state",
    "make_policy": "precision",
    "parallelize": "parallel",
    "save_model": "checkpoint.state",
    "save_optimizer": "checkpoint.state",
    "weights_digest": "checkpoint.state",
}


def __getattr__(name: str) -> object:
    if name not in _ROOMS:
        raise AttributeError(f"module 'trainer' has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(f"trainer.{_ROOMS[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})
