"""Where multiprocessing keeps the sockets through which loader workers hand memory over."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from trainer.launch import scratch
from trainer.launch.detect import LOCAL_FOLDER, World

# a socket's path may have 107 bytes; what multiprocessing adds has 18
LONGEST = 80


@contextlib.contextmanager
def workers_folder(world: World) -> Iterator[None]:
    """Inside, this process and its workers use a launch folder, which is gone with its last user however that ends; by
    themselves they would leave `/tmp/pymp-...` behind when they are killed."""
    import multiprocessing

    with contextlib.ExitStack() as stack:
        if world.launcher == "local":
            folder = Path(os.environ[LOCAL_FOLDER], f"workers-{world.rank}")
            folder.mkdir(0o700)
        else:
            folder = stack.enter_context(scratch.Scratch()).path
        config = multiprocessing.current_process()._config  # type: ignore[attr-defined]  # no other way in
        fits = len(os.fsencode(folder)) <= LONGEST
        before = config.get("tempdir")
        if fits:
            config["tempdir"] = str(folder)
        try:
            yield
        finally:
            if fits:
                config["tempdir"] = before
