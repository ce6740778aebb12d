"""One rank and two ranks train alike: the same losses for the same global batch.

uv run python -m tools.prove_ranks      20 updates in fp32 and fp64, writes docs/proofs/ranks.json
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.proof import losses, need_pyz, small_text, train, write
from tools.proof import parser as proof_parser

LIMITS = {"fp32": 1e-6, "fp64": 1e-12}


def compare(pyz: Path, folder: Path, data: Path, precision: str, updates: int) -> dict[str, Any]:
    """Largest relative difference of the losses of `--nproc 1` and `--nproc 2`."""
    found = {}
    (folder / "run.toml").touch()
    for nproc in ("1", "2"):
        run = f"{precision}-{nproc}"
        done = train(
            pyz, folder, "run.toml", "--nproc", nproc, "--run.folder", run, "--data.text", str(data),
            "--data.holdout", "0", "--data.sequence", "64", "--batch.size", "16", "--batch.micro", "4",
            "--model.layers", "2", "--model.width", "64", "--model.heads", "2", "--run.steps", str(updates),
            "--precision.compute", precision, "--run.threads", "1", "--log.progress", "none",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found[nproc] = losses(folder / run)
    worst = max(abs(a - b) / abs(a) for a, b in zip(found["1"], found["2"], strict=True))
    return {
        "updates": updates,
        "worst_relative": worst,
        "limit": LIMITS[precision],
        "first_loss": found["1"][0],
        "last_loss": found["1"][-1],
    }


def main() -> int:
    parser = proof_parser(__doc__)
    parser.add_argument("--updates", type=int, default=20)
    arguments = parser.parse_args()
    pyz = need_pyz(arguments.pyz)
    result = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = small_text(folder)
        for precision in LIMITS:
            result[precision] = compare(pyz, folder, data, precision, arguments.updates)
            print(
                f"{precision}: worst relative difference {result[precision]['worst_relative']:.2e} over "
                f"{arguments.updates} updates (limit {LIMITS[precision]:.0e})"
            )
    write("ranks", result, arguments)
    return 0 if all(row["worst_relative"] <= row["limit"] for row in result.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
