"""A corpus larger than memory trains in the memory that a small one needs, preparation included.

Makes a 10 MB and a 1 GB corpus by repeating the standard library, trains a few updates on each, and samples the
peak of anonymous and shared memory (RssAnon + RssShmem) of every process on the way.

    uv run python -m tools.prove_memory                writes docs/proofs/memory.json
    uv run python -m tools.prove_memory --megabytes 10,200
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tools.proof import need_pyz, write
from tools.proof import parser as proof_parser


def make_corpus(folder: Path, megabytes: int) -> Path:
    """A folder of 10 MB text files made of the standard library's sources."""
    place = folder / f"corpus-{megabytes}"
    place.mkdir()
    sources = b"".join(path.read_bytes() for path in sorted(Path(os.__file__).parent.glob("*.py")))
    block = (sources * (10_000_000 // len(sources) + 1))[:10_000_000]
    for number in range(max(1, megabytes // 10)):
        (place / f"part-{number:04}.txt").write_bytes(block)
    return place


def anonymous_kib(pid: int) -> int:
    """RssAnon + RssShmem of one process, in KiB; 0 when it has gone."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = {line.split(":")[0]: line.split()[1] for line in text.splitlines() if line.startswith("Rss")}
    return int(found.get("RssAnon", 0)) + int(found.get("RssShmem", 0))


def peak_mib(pyz: Path, folder: Path, corpus: Path) -> tuple[float, float]:
    """(peak MiB of the training process, seconds)."""
    (folder / "run.toml").touch()
    command = [
        sys.executable,
        str(pyz),
        "train",
        "run.toml",
        "--data.text",
        f"{corpus}/*.txt",
        "--run.folder",
        f"run-{corpus.name}",
        "--run.steps",
        "30",
        "--run.threads",
        "1",
        "--data.sequence",
        "128",
        "--batch.size",
        "16",
        "--model.layers",
        "2",
        "--model.width",
        "64",
        "--model.heads",
        "2",
        "--log.progress",
        "none",
        "--precision.compute",
        "fp32",
        "--eval.samples",
        "64",
        "--data.holdout",
        "10",
    ]
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    peak = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, anonymous_kib(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    status = process.wait()
    done.set()
    watcher.join()
    assert status == 0, f"training ended with {status}"
    return peak / 1024, time.perf_counter() - start


def main() -> int:
    parser = proof_parser(__doc__)
    parser.add_argument("--megabytes", default="10,1000", help="sizes; the first is what the others are compared with")
    arguments = parser.parse_args()
    pyz = need_pyz(arguments.pyz)
    result: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in map(int, arguments.megabytes.split(",")):
            corpus = make_corpus(folder, size)
            peak, seconds = peak_mib(pyz, folder, corpus)
            result[f"{size} MB"] = {"peak_mib": round(peak, 1), "seconds": round(seconds, 1)}
            print(f"{size} MB: peak {peak:.1f} MiB anonymous + shared, {seconds:.1f} s", flush=True)
    peaks = [row["peak_mib"] for row in result.values()]
    ratio = max(peaks[1:]) / peaks[0]
    print(f"ratio {ratio:.3f} (limit 1.2)")
    write("memory", {"sizes": result, "ratio": round(ratio, 4), "limit": 1.2}, arguments)
    return 0 if ratio <= 1.2 else 1


if __name__ == "__main__":
    sys.exit(main())
