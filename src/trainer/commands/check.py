"""`trainer check`: what a run file means and what it will need, without training and without torch."""

import copy
import sys

from trainer import doubts
from trainer.arguments import Arguments, split, whole
from trainer.commands.train import resolve_run
from trainer.config import Resolved, global_batch, to_toml
from trainer.errors import UserError
from trainer.formats import choose_attention, choose_compute
from trainer.launch.cores import usable_cores
from trainer.mesh import BatchPlan, Layout, plan_layout, usual_norm_group
from trainer.refuse import refuse_early, refuse_settings
from trainer.schema import Config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer.estimate.job import Job
    from trainer.estimate.parts import Parts
    from trainer.estimate.suggest import Suggestion

HELP = """usage: trainer check [RUN.toml] [--section.key VALUE ...] [--world N] [--memory SIZE] [--measure] [--json]

Validates a run file and prints every setting with where it came from, then what follows for N ranks (default 1): the
mesh, batch sizes, bytes per rank at the peak of an update, bytes that a rank sends, idle time of a pipeline. Nothing is
trained, no device is needed. Without a run file: the embedded default run. The output is itself a valid run file.

  --world N        ranks, also many more than there are here
  --memory SIZE    memory of a device, such as 80GiB: suggests layouts of N ranks that fit
  --measure        memory by torch's tracker on tensors without content, instead of by formula; what a model of your
                   own needs is always found so
  --json           all of it as JSON

examples:
  trainer check run.toml
  trainer check run.toml --world 8 --batch.size 256 > resolved.toml
  trainer check run.toml --world 4096 --memory 80GiB --run.device cuda"""


def run(arguments: list[str]) -> int:
    """Prints the resolved configuration and what follows from it."""
    if "--help" in arguments or "-h" in arguments:
        print(HELP)
        return 0
    given = split(arguments, {"world": True, "memory": True, "measure": False, "json": False}, 1, "check")
    world = whole(given.flags, "world", 1, 1)
    resolved = resolve_run(given.places, given.settings)
    config = resolved.config
    plan, problem = _plan(config, world)
    for doubt in doubts.of_settings(config, usable_cores()):
        print(f"warning: {doubt}", file=sys.stderr)
    if config.data.images:
        from trainer.data.images import find_images

        find_images(config.data)
    elif not config.data.dataset:
        from trainer.data.sources import resolve_files

        resolve_files(config.data)
    found = Findings(config, plan, plan_layout(config, world), given)
    found.problem = problem
    if "json" in given.flags:
        import json

        print(json.dumps(found.to_dict(resolved)))
        return _told(problem)
    print(to_toml(resolved), end="")
    print()
    for line in found.lines():
        print(f"# {line}")
    return _told(problem)


def _plan(config: Config, world: int) -> tuple[BatchPlan, UserError | None]:
    """The batch arithmetic; where `world` ranks do not go with the batch, that of the nearest batch that does, and what
    is wrong. Any other mistake is raised."""
    layout = refuse_settings(config, world)
    try:
        return refuse_early(config, world), None
    except UserError as error:
        near = copy.deepcopy(config)
        share = max(1, round(global_batch(config) / layout.data_ranks))
        micro = config.batch.micro
        near.batch.size, near.batch.tokens = layout.data_ranks * max(share, micro), 0
        if micro and share > micro:
            near.batch.size = layout.data_ranks * -(-share // micro) * micro
        try:
            return refuse_early(near, world), error
        except UserError:  # more than the size is in the way
            raise error from None


def _told(problem: UserError | None) -> int:
    if problem is None:
        return 0
    raise problem


class Findings:
    """What a configuration means on `layout`. `parts` is None where the model's size is not known."""

    def __init__(self, config: Config, plan: BatchPlan, layout: Layout, given: Arguments) -> None:
        from trainer.estimate.job import device_of, job_of

        self.config = config
        self.device = device_of(config)
        self.plan = plan
        self.layout = layout
        self.vocabulary = config.model.vocabulary or (257 if config.data.tokenizer == "bytes" else 0)
        self.job: Job = job_of(config, layout, plan.micro, plan.accumulation)
        self.parts: Parts | None = None
        self.measured: dict[str, int] | None = None
        self.suggested: list[Suggestion] = []
        self.room = 0
        self.problem: UserError | None = None
        from trainer.estimate.parts import KINDS, parts_of

        # how many classes a folder of images has is not looked at
        known = self.vocabulary if config.model.kind == "gpt" else config.model.classes
        if not config.model.build and config.model.kind in KINDS and known:
            self.parts = parts_of(config.model, self.vocabulary, self.job, masked=config.data.mask_documents)
        if "memory" in given.flags:
            self._suggest(given.flags["memory"])
        if config.model.build or "measure" in given.flags:
            self._measure()

    def _suggest(self, memory: str) -> None:
        from trainer.estimate.report import parse_size
        from trainer.estimate.suggest import suggestions

        self.room = parse_size(memory, "--memory")
        if self.parts is None:
            raise UserError(
                "layouts can be suggested only for a gpt, vit or mlp of known size",
                "Set model.vocabulary or model.classes. For other models, try layouts one by one with --world N.",
                2,
            )
        model, batch = self.config.model, self.plan.size
        self.suggested = suggestions(self.job, model, self.vocabulary, self.layout.world_size, self.room, batch)

    def _measure(self) -> None:
        from trainer.needs import need

        need("torch", "numpy")
        from trainer.estimate.measure import measure

        self.measured = measure(self.config, self.layout, self.plan, self.vocabulary)

    def lines(self) -> list[str]:
        """For people."""
        from trainer.estimate import report

        plan, layout = self.plan, self.layout
        shape = " x ".join(f"{name} {size}" for name, size in layout.shape().items() if size > 1)
        found = [f"ranks                {layout.world_size}" + (f" = {shape}" if shape else "")]
        found.append(
            f"global batch         {plan.size} samples = {plan.data_ranks} ranks x {plan.accumulation} forwards"
            f" x {plan.micro}"
        )
        if self.problem is not None:
            size = global_batch(self.config)
            found.append(
                f"not possible         as set: {size} samples over {plan.data_ranks} ranks; these figures are for "
                f"batch.size = {plan.size}"
            )
        if plan.norm_group:
            set_by = "batch.micro" if self.config.batch.micro else "the same in every layout"
            found.append(f"batch norms          statistics over {plan.norm_group} samples ({set_by})")
        elif self.config.model.build and not self.config.batch.micro:
            group = usual_norm_group(plan.size)
            found.append(f"batch norms          if the model has any: statistics over {group} samples in every layout")
        if not (self.config.data.dataset or self.config.data.images):
            found.append(f"tokens per update    {plan.size * self.config.data.sequence:,}")
        found.append(self._precision())
        if self.parts is not None:
            found.append(f"parameters           {self.parts.weights:,}")
            found += report.lines(self.job, self.parts)
        elif not self.config.model.build:
            if self.config.model.kind == "resnet" and self.config.model.classes:
                from trainer.models.check import count_parameters

                found.append(f"parameters           {count_parameters(self.config.model, 0):,}")
            need = {"gpt": "--model.vocabulary N", "vit": "--model.classes N"}.get(self.config.model.kind, "--measure")
            found.append(f"memory, traffic      unknown; add {need}")
        if self.measured is not None:
            found.append(f"measured             {report.size(self.measured['total'])} at the peak of a rank")
            found += [
                f"  {name:<18} {size:,}" if name == "numbers of weights" else f"  {name:<18} {report.size(size)}"
                for name, size in self.measured.items()
                if name != "total" and size
            ]
        if self.room:
            found += report.table(self.suggested, layout.world_size, self.room)
        return found

    def _precision(self) -> str:
        """The number formats that training will use, and why."""
        compute, why = choose_compute(self.config.precision, self.device)
        attention = choose_attention(self.config.precision.attention, compute, self.device)
        other = f"; attention {attention}" if attention != compute and self.config.model.kind in ("gpt", "vit") else ""
        return f"precision            {compute} on {self.device} ({why}){other}"

    def to_dict(self, resolved: Resolved) -> dict[str, object]:
        """For programs."""
        from trainer.config import keys
        from trainer.estimate import report

        values: dict[str, dict[str, object]] = {}
        for section, key, _ in keys():
            values.setdefault(section, {})[key] = getattr(getattr(self.config, section), key)
        problem = {"what": self.problem.what, "fix": self.problem.fix} if self.problem is not None else None
        result: dict[str, object] = {
            "problem": problem,
            "config": values,
            "origins": {name: origin for name, origin in resolved.origins.items() if origin != "default"},
            "layout": self.layout.shape(),
            "world": self.layout.world_size,
            "batch": dict(self.plan.__dict__),
            "precision": dict(zip(("compute", "why"), choose_compute(self.config.precision, self.device), strict=True)),
        }
        if self.parts is not None:
            result["estimate"] = report.to_dict(self.job, self.parts)
        if self.measured is not None:
            result["measured"] = self.measured
        if self.room:
            result["suggestions"] = [each.to_dict() for each in self.suggested]
        return result
