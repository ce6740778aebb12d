"""A rank without torch: rank_program.py FOLDER PLAN, where PLAN is JSON, {rank: action}; a rank without one is done at
once. Each writes its process id to FOLDER/pid-<rank>-<restarts> when it is ready."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from trainer.errors import UserError
from trainer.launch import child
from trainer.launch.detect import World, detect
from trainer.launch.stop import StopRequest


def main() -> int:
    """A rank's life in the order in which a trainer lives it."""
    folder, plan = Path(sys.argv[1]), json.loads(sys.argv[2])
    world = detect(os.environ)
    action = plan.get(str(world.rank), "done")
    if action == "fail-early":
        sys.exit("cannot even begin")
    if action == "slow-start":
        write(folder / f"starting-{world.rank}", str(os.getpid()))
        time.sleep(1.0)
    child.start_child(world)
    stop = StopRequest(quiet=world.rank != 0)
    stop.install()
    (folder / "launch-folder").write_text(os.environ["TRAINER_LAUNCH_DIR"])
    write(folder / f"pid-{world.rank}-{os.environ['TRAINER_RESTARTS']}", str(os.getpid()))
    try:
        status = act(action, folder, world, stop)
        if action != "silent":
            child.mark_done(world)
        return status
    except BaseException as error:
        child.report_failure(world, error)
        child.leave(error.status if isinstance(error, UserError) else 1)


def write(path: Path, text: str) -> None:
    """Whole or not at all: the test looks for the file."""
    beside = path.with_name(f".{path.name}")
    beside.write_text(text)
    beside.rename(path)


def act(action: str, folder: Path, world: World, stop: StopRequest) -> int:
    """Does one rank's part and returns its exit status."""
    name, _, argument = action.partition(":")
    if name == "raise":
        time.sleep(float(argument or 0))
        raise RuntimeError(f"planned fault of rank {world.rank}")
    if name == "peer-lost":
        raise RuntimeError("[/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:21465")
    if name == "user-error":
        raise UserError("the run file is wrong", "mend it", int(argument))
    if name == "fail-once" and os.environ["TRAINER_RESTARTS"] == "0":
        raise RuntimeError("only the first time")
    if name == "exit":
        os._exit(int(argument))
    if name == "sys-exit":
        sys.exit(0)
    if name == "kill":
        os.kill(os.getpid(), getattr(signal, argument))
    if name == "stuck":
        time.sleep(1000)
    if name == "worker":
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
        worker = subprocess.Popen([sys.executable, "-c", code])
        write(folder / f"worker-{world.rank}", str(worker.pid))
        time.sleep(1000)
    if name in ("until-stopped", "slow-start"):
        while not stop.requested:
            time.sleep(0.01)
        time.sleep(float(argument or 0))  # saves
        (folder / f"saved-{world.rank}").write_text(stop.signal)
        return 75
    if name == "raise-on-stop":
        while not stop.requested:
            time.sleep(0.01)
        raise RuntimeError("the disk is full")
    if name == "environment":
        (folder / f"environment-{world.rank}").write_text(json.dumps(dict(os.environ)))
        (folder / f"stdin-{world.rank}").write_text(sys.stdin.read())
    return 0


if __name__ == "__main__":
    sys.exit(main())
