"""A traceback out of the file beside the same one out of the checkout: same files, lines, text and carets.

Two parts. (1) What a traceback would show of an error at each instruction of each function of each module, out of the
file's minified and precompiled code, must be among what Python shows of the plain sources that the file was made of.
(2) Real errors, out of the file and out of the checkout, must print the same.

    uv run python -m tools.prove_tracebacks                      writes docs/proofs/tracebacks.json
    uv run python -m tools.prove_tracebacks --pyz FILE --python 3.11 --no-json
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from tools.proof import ROOT, interpreters, need_pyz, small_text, write
from tools.proof import parser as proof_parser

FRAMES = Path(__file__).with_name("traceback_frames.py")
VERSIONS = ("3.11", "3.12", "3.13")
Table = dict[str, Any]

USER_CODE = """
import threading
import warnings

def build_model():
    raise RuntimeError("in build_model")

def in_loss(model, batch):
    from trainer.models import MODELS
    return sum(MODELS, [None])

def wrong_type(model, batch):
    return model(batch[0]).sum(), "many"

def warned(model, batch):
    from trainer_boot.members import Members
    Members.read(None, "x")
"""
TRIALS = {
    "a model that can't be built": ["--model.build", "user.py:build_model"],
    "a loss that fails": ["--model.loss", "user.py:in_loss"],
    "a loss that counts wrong": ["--model.loss", "user.py:wrong_type"],
    "our own code, called wrong": ["--model.loss", "user.py:warned"],
}
SMALL = [
    "--nproc",
    "1",
    "--data.sequence",
    "32",
    "--model.layers",
    "1",
    "--model.width",
    "32",
    "--model.heads",
    "2",
    "--run.steps",
    "2",
]


def sources(pyz: Path) -> dict[str, list[str]]:
    """Module -> its file in the checkout or in site-packages, its path in the archive."""
    site = Path(sysconfig.get_path("purelib"))
    found = {}
    with zipfile.ZipFile(pyz) as archive:
        for path in archive.namelist():
            places = [folder / path for folder in (ROOT / "src", site) if (folder / path).is_file()]
            if path.endswith(".py") and places:
                name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
                found[name] = [str(places[0]), path]
    return found


def tables(python: str, place: Path) -> Table:
    """What traceback_frames.py prints."""
    variables = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    done = subprocess.run(
        [python, "-I", str(FRAMES), str(place)], capture_output=True, text=True, check=False, env=variables, cwd="/"
    )
    if done.returncode:
        raise SystemExit(f"{python} {FRAMES.name} {place} failed:\n{done.stderr[-3000:]}")
    return dict(json.loads(done.stdout))


def compare(bundled: Table, plain: Table) -> dict[str, Any]:
    """Counts, and what is other than in plain sources."""
    functions = shown = bare = 0
    differ = []
    for module, (file, found) in bundled.items():
        if module not in plain:
            differ.append(f"{module}: no plain source")
            continue
        if file != plain[module][0]:
            differ.append(f"{module}: {file}")
        for function, frames in found.items():
            wanted = set(plain[module][1].get(function, ()))
            functions += 1
            shown += len(frames)
            other = [frame for frame in frames if frame not in wanted]
            lines = {without_carets(frame) for frame in wanted}
            without = [frame for frame in other if frame == without_carets(frame) and frame in lines]
            bare += len(without)
            differ += [f"{module} {function}: {frame}" for frame in other if frame not in without]
    counts = {"modules": len(bundled), "functions": functions, "frames": shown}
    return {**counts, "same line and text, carets left out": bare, "differ": differ}


def without_carets(frame: str) -> str:
    """Its file, line and text."""
    return "\n".join(line for line in frame.split("\n") if not line or set(line) - set(" ^~"))


def printed(command: list[str], folder: Path) -> str:
    """The traceback of a run that fails, without what begins differently and where the files lie."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    text = done.stderr
    lines = text[text.index("Traceback") :] if "Traceback" in text else f"status {done.returncode}: {text}"
    lines = re.sub(r'File "[^"]*/(trainer|trainer_boot|packaging|tqdm)/', r'File ".../\1/', lines)
    # the checkout begins in runpy and trainer/__main__.py, the file in its own first lines
    start = lines.find('  File ".../trainer/cli.py"')
    return lines[start:] if start >= 0 else lines


def real(pyz: Path) -> dict[str, Any]:
    """The errors of the table, each once out of the file and once out of the checkout."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "user.py").write_text(USER_CODE)
        text = small_text(folder, 40_000)
        for what, words in TRIALS.items():
            common = ["train", "--traceback", "--data.text", str(text), *SMALL, *words, "--run.folder"]
            file = printed([sys.executable, str(pyz), *common, str(folder / "a")], folder)
            checkout = printed([sys.executable, "-m", "trainer", *common, str(folder / "b")], folder)
            same = file.replace(str(folder / "a"), "RUN") == checkout.replace(str(folder / "b"), "RUN")
            found[what] = {"same": same, "frames": file.count('  File "'), "of ours": file.count('File "...')}
            if not same:
                found[what] |= {"file": file, "checkout": checkout}
            print(f"{what}: {found[what]}")
    return found


def main() -> None:
    """Command line."""
    parser = proof_parser(__doc__)
    parser.add_argument("--python", action="append", metavar="VERSION", help="these only (3.11, 3.12, 3.13)")
    parser.add_argument("--static", action="store_true", help="the first part only")
    arguments = parser.parse_args()
    pyz = need_pyz(arguments.pyz)
    known = sources(pyz)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder, "sources.json")
        listed.write_text(json.dumps(known))
        for version, python in interpreters(arguments.python or VERSIONS):
            found[version] = compare(tables(python, pyz), tables(python, listed))
            counts = {name: value for name, value in found[version].items() if name != "differ"}
            print(f"{version}: {counts}, {len(found[version]['differ'])} differ")
            for line in found[version]["differ"][:20]:
                print(line)
    errors = {} if arguments.static else real(pyz)
    write("tracebacks", {"every instruction": found, "real errors": errors}, arguments)
    if any(each["differ"] for each in found.values()) or not all(each["same"] for each in errors.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
