"""`trainer env snapshot`: makes the file that the environment's Python code is served from at the next starts."""

import contextlib
import io
import os
import tempfile
from pathlib import Path

from trainer.errors import UserError

MEBIBYTE = 1 << 20

# of every part of a run a little: both optimizers, both kinds of layers, a checkpoint, a sample
RECORDED_RUN = {
    "run.device": "cpu",
    "run.steps": "2",
    "run.threads": "1",
    "start.layers": "[]",
    "model.layers": "1",
    "model.width": "32",
    "data.sequence": "16",
    "batch.size": "2",
    "optim.name": "muon",
    "eval.sample_tokens": "2",
    "log.progress": "none",
}


def run(force: bool) -> int:
    """Makes it, or finds that it is up to date; `force`: makes it anyway. UserError."""
    note = _serve()
    if force:
        Path(str(note["path"])).unlink(missing_ok=True)
        note = _serve()
    if note["state"] == "on":
        print(f"up to date: {_described(note)}")
        return 0
    with tempfile.TemporaryDirectory(prefix="trainer-snapshot-") as folder:
        _train_a_little(Path(folder))
        _wrap_for_ranks(Path(folder))
    note = _record()
    print(_described(note))
    return 0


def _record() -> dict[str, object]:
    """Makes the snapshot, however long that takes; what is known of it."""
    from trainer import startup

    made = startup.record_snapshot(patient=True)
    note = _serve()
    if note["state"] != "on":
        why = made["why"] or note["why"]
        raise UserError(f"no snapshot was made: {why}", "Set TRAINER_SNAPSHOT_DIR to a folder of your own.", 1)
    return note


def _serve() -> dict[str, object]:
    """Serves this process from the snapshot if it fits to the last byte; what is known of it."""
    from trainer import startup

    (note,) = (note for note in startup.put_on(["snapshot"], "full") if note["layer"] == "snapshot")
    return note


def _described(note: dict[str, object]) -> str:
    return f"{note['path']}: {note['modules']} modules, {int(str(note['bytes'])) / MEBIBYTE:.0f} MiB"


def _train_a_little(folder: Path) -> None:
    """A run of one rank, in this process and in silence."""
    from trainer.config import resolve
    from trainer.launch.detect import World
    from trainer.launch.stop import StopRequest
    from trainer.run import run as train

    text = folder / "text.txt"
    text.write_text("".join(f"{number} is followed by {number + 1}\n" for number in range(500)), encoding="utf-8")
    places = {"run.folder": str(folder / "run"), "data.text": f'["{text}"]'}
    resolved = resolve("the recorded run", list((RECORDED_RUN | places).items()), {}, "")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        train(resolved, World(0, 0, 1, 1, "none"), StopRequest(quiet=True))


def _wrap_for_ranks(folder: Path) -> None:
    """What only a run of several ranks imports."""
    import torch
    import torch.distributed as dist

    import trainer.parallel.fsdp  # noqa: F401  # with what it needs of torch
    from trainer.parallel.ddp import apply_ddp

    if not dist.is_gloo_available():
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=0, world_size=1)
    module = apply_ddp(torch.nn.Linear(2, 2), torch.device("cpu"), 1)
    module(torch.ones(1, 2)).sum().backward()
    dist.destroy_process_group()
