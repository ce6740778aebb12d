"""`spawn.py N SCRIPT ARGUMENTS`: the least that starts N ranks on this machine. Imports no torch."""

import os
import socket
import subprocess
import sys

count = int(sys.argv[1])
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
# each in a session of its own, as torchrun and the trainer have them: Linux shares processors out by session
ranks = [
    subprocess.Popen(
        [sys.executable, *sys.argv[2:]],
        env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        start_new_session=True,
    )
    for rank in range(count)
]
sys.exit(max(abs(rank.wait()) for rank in ranks))
