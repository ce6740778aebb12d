"""One file with code for all supported Pythons trains on each of them to the same losses; so does a file that has no
code for the one that starts it.

For each Python an environment is made from the lock (without the development tools). Three runs of a few updates: the
file for all, a file for this Python alone, and one for another Python, which has to be compiled from its text. The
losses of all nine are compared with the first's, bit for bit, and the sizes of the files are told.

    uv run python -m tools.prove_one_file          writes docs/proofs/one-file.json

The interpreters are those that the build finds; PYTHONS_FOLDER, if set, is where environments are made and kept.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from build.interpreters import SUPPORTED, find_interpreters
from tools.proof import losses, small_text, write
from tools.proof import parser as proof_parser
from tools.prove_pythons import run, tell, uv

UPDATES = 6
SETTINGS = {
    "run.steps": str(UPDATES), "run.device": "cpu", "run.threads": "1", "model.layers": "2", "model.width": "64",
    "data.sequence": "64", "batch.size": "4", "log.progress": "none",
}  # fmt: skip


def environment(version: str, executable: str, folder: Path) -> str:
    """The Python of an environment as locked, made with that interpreter."""
    place = folder / f"bare-{version}"
    words = ["sync", "--locked", "--no-dev", "--no-install-project", "--python", executable]
    run([*uv(), *words], UV_PROJECT_ENVIRONMENT=str(place))
    return str(place / "bin" / "python")


def trained(python: str, pyz: Path, folder: Path, text: Path) -> list[float]:
    """The losses of one run."""
    words = [word for name, value in SETTINGS.items() for word in (f"--{name}", value)]
    run(
        [python, str(pyz), "train", *words, "--data.text", json.dumps([str(text)]), "--run.folder", str(folder)],
        TRAINER_SNAPSHOT_DIR=str(folder.parent / "snapshots"),
    )
    return losses(folder)


def main() -> int:
    arguments = proof_parser(__doc__).parse_args()
    interpreters = {each.version: each.executable for each in find_interpreters(["all"])}
    with tempfile.TemporaryDirectory(prefix="one-file-") as name:
        folder = Path(name)
        kept = Path(os.environ.get("PYTHONS_FOLDER") or folder)
        text = small_text(folder)
        files = {"all": folder / "all.pyz"} | {version: folder / f"{version}.pyz" for version in SUPPORTED}
        for what, pyz in files.items():
            run([sys.executable, "-m", "build", "-q", "--python", interpreters.get(what, what), "--output", str(pyz)])
        found: dict[str, dict[str, Any]] = {}
        for version in SUPPORTED:
            tell(version, "environment")
            python = environment(version, interpreters[version], kept)
            other = next(each for each in SUPPORTED if each != version)
            told = run([python, "-c", "import platform, torch; print(platform.python_version(), torch.__version__)"])
            found[version] = {"python": told.split()[0], "torch": told.split()[1]}
            for title, which in (("for all", "all"), ("for it alone", version), ("from the text", other)):
                tell(version, title)
                found[version][title] = trained(python, files[which], folder / f"{version} {title}", text)
        sizes = {what: pyz.stat().st_size for what, pyz in files.items()}
    runs = [value for row in found.values() for value in row.values() if isinstance(value, list)]
    same = all(each == runs[0] for each in runs) and len(runs[0]) == UPDATES
    print(f"{len(runs)} runs on {len(found)} Pythons: losses {'the same' if same else 'DIFFERENT'}; sizes {sizes}")
    write("one-file", {"same_losses": same, "runs": len(runs), "bytes": sizes, "pythons": found}, arguments)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
