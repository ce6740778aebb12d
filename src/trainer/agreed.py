"""What all ranks of a run must share before they train: settings, code of the user's own, training data."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from trainer.config import keys
from trainer.launch.facts import DIGITS, Fact
from trainer.schema import Config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer.data.datasets import Datasets
    from trainer.launch.detect import World

# settings that may differ between ranks, and why; every other one is compared
OF_A_RANK = {
    "run.folder": "a shared folder may have another path on each host; compared where all ranks share one",
    "run.resume": "rank 0 chooses the checkpoint for all",
    "run.threads": "hosts have different numbers of cores",
    "start.layers": "they change when a rank is ready, never a number",
    "start.policy": "as start.layers",
    "start.report": "rank 0 prints it",
    "start.calls": "only the process that is started by hand counts its calls",
    "start.check": "as start.layers",
    "start.node_local": "a host may lack the room for a copy",
    "data.cache": "the prepared data may have another path on each host; the data in it is compared",
    "data.workers": "hosts have different numbers of cores; random draws do not depend on it",
    "log.every": "rank 0 logs",
    "log.tensorboard": "rank 0 logs",
    "log.progress": "rank 0 logs",
    "fault.timeout": "how long a rank waits changes no number",
    "fault.max_restarts": "only the process that starts ranks reads it",
}


def settings_facts(config: Config, origins: Mapping[str, str], one_host: bool = False) -> list[Fact]:
    """Every setting that the ranks must share, in the order of the run file; on one host the run folder comes first:
    it tells two jobs apart. `origins`: as `Resolved` has them."""
    facts = []
    if one_host:
        folder = os.path.abspath(config.run.folder)  # noqa: PTH100 - as it is named, not where links lead
        facts.append(Fact("settings", "run.folder", folder, f"run.folder = {folder}"))
    for section, key, _ in keys():
        name = f"{section}.{key}"
        if name in OF_A_RANK:
            continue
        value = json.dumps(getattr(getattr(config, section), key), sort_keys=True, default=str)
        origin = origins.get(name, "")
        facts.append(Fact("settings", name, value, f"{name} = {value}" + (f" ({origin})" if origin else "")))
    return facts


def code_facts(config: Config) -> list[Fact]:
    """The sources of what the run file names of the user's own, and of the modules that these have imported.

    Loads them. UserError (status 2) for what can't be loaded.
    """
    named = {"model.build": config.model.build, "model.loss": config.model.loss, "optim.build": config.optim.build}
    named = {what: spec for what, spec in named.items() if spec}
    if not named and not config.data.dataset:
        return []
    from trainer.user_code import load_object, loaded_sources

    for what, spec in named.items():
        load_object(spec, what)
    return [
        Fact("code", name, digest, f"{path} (sha256 {digest[:DIGITS]})")
        for name, (path, digest) in sorted(loaded_sources().items())
    ]


def data_facts(data: "Datasets", folder: Path) -> list[Fact]:
    """The digest of the training data in the run's `folder`."""
    shown = f"data with fingerprint {data.fingerprint[:DIGITS]} ({data.info.get('folder', folder)})"
    return [Fact("data", "data", data.fingerprint, shown)]


def require_same_inputs(config: Config, world: "World", data: "Datasets", folder: Path) -> None:
    """Return when all ranks have the same code of the user's own and the same training data; UserError on each of
    them, that tells of the difference."""
    if world.world_size == 1:
        return
    from trainer.launch import comm

    comm.require_same(world, "inputs", [*code_facts(config), *data_facts(data, folder)], config.fault.timeout)
