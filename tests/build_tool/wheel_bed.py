"""Wheels made on the spot, and a lock that holds them, so that nothing is fetched from anywhere."""

import base64
import hashlib
import zipfile
from pathlib import Path

from build.lock import Lock
from build.resolve import Resolution, resolve
from tests.build_tool.lock_bed import lock, package, project

PYPROJECT = """[build-system]
requires = ["uv_build"]
build-backend = "uv_build"

[tool.uv.build-backend]
module-name = ["trainer", "trainer_boot"]
module-root = "src"

[project]
name = "App.Name"
version = "0.1.0"
description = "What it is"
license = "Apache-2.0"
license-files = ["LICEN*"]
requires-python = ">=3.11"
dependencies = ["plain >= 1"]

[project.optional-dependencies]
more = ["other; sys_platform == 'linux'"]

[project.scripts]
app = "trainer.cli:main"

[project.entry-points."app.plugins"]
one = "trainer.cli:one"
"""


def wheel(folder: Path, name: str, version: str, files: dict[str, bytes], tag: str = "py3-none-any") -> str:
    """Writes a wheel and returns its hash as a lock writes it."""
    information = f"{name}-{version}.dist-info"
    members = {
        **files,
        f"{information}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{information}/WHEEL": b"Wheel-Version: 1.0\nGenerator: bed\nRoot-Is-Purelib: true\nTag: "
        + f"{tag}\n".encode(),
    }
    rows = [f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in members.items()]
    members[f"{information}/RECORD"] = "".join([*rows, f"{information}/RECORD,,\n"]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in members.items():
            archive.writestr(zipfile.ZipInfo(member), data)  # of one date: the same wheel at any time
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def source_tree(folder: Path) -> Path:
    """A checkout with our two import packages and its pyproject.toml."""
    texts = {
        "pyproject.toml": PYPROJECT,
        "LICENSE": "free\n",
        "src/trainer/__init__.py": "",
        "src/trainer/cli.py": "def main(): ...\n",
        "src/trainer/py.typed": "",
        "src/trainer/__pycache__/cli.pyc": "junk",
        "src/trainer/.swap": "junk",
        "src/trainer_boot/__init__.py": "",
    }
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def locked(folder: Path, wheels: dict[str, str]) -> tuple[Lock, Resolution]:
    """A lock of "name version" -> hash, all needed by the project, and its resolution."""
    packages = []
    for label, value in wheels.items():
        name, version = label.split()
        line = f'    {{ url = "https://files.example/{name}-{version}-py3-none-any.whl", hash = "{value}", size = 1 }},'
        packages.append(package(name, version, line))
    folder.mkdir(parents=True, exist_ok=True)
    edges = [f'{{ name = "{label.split()[0]}" }}' for label in wheels]
    root = project(*edges).replace('name = "app"', 'name = "app-name"')
    found = lock(folder, root, *packages)
    return found, resolve(found)
