"""SIGKILL at any moment of a save leaves a newest checkpoint that is whole."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.trainer.checkpoint.helpers import content, hidden
from trainer.checkpoint.store import Store

# Saves step after step, some of them twice (a resumed run saves the same step again), and says which are committed.
WRITER = """
import sys
from pathlib import Path
from tests.trainer.checkpoint.helpers import save
from trainer.checkpoint.store import Store
store = Store(Path(sys.argv[1]), 2)
step = int(sys.argv[2])
while True:
    save(store, step)
    print(step, flush=True)
    if step % 3 == 0:
        save(store, step)
    step += 1
"""


def test_killed_at_random_moments_the_newest_is_whole_and_none_is_lost(tmp_path: Path) -> None:
    moments = random.Random(5)
    committed = 0
    for _ in range(8):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(committed + 1)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(moments.uniform(0, 0.15))
        writer.send_signal(signal.SIGKILL)
        told = (first + writer.stdout.read()).split()
        writer.stdout.close()
        writer.wait()
        committed = int(told[-1])
        store = Store(tmp_path, 2)
        found, passed_over = store.newest()
        assert found is not None
        assert passed_over == []
        step = store.meta(found)["step"]
        assert step in (committed, committed + 1), "the rename may be done before it is told"
        assert (found / "model.pt").read_bytes() == content(step)
        assert len(store.list()) in (1, 2, 3)
    store = Store(tmp_path, 2)
    store.abort(store.begin(committed + 2))
    assert hidden(store.folder) == [], "what the killed writers left is swept"
