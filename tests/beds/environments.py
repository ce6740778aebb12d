"""Small wheels for a torch that is none, an index of them on this machine, and a file that is locked to them."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from build.cache import Cache
from build.carried import environment_json
from build.collect import collect
from build.compile import compile_code
from build.interpreters import find_interpreters
from build.lock import read_lock
from build.minify import minify, read_policy
from build.provenance import facts
from build.resolve import resolve
from build.uv import find_uv
from build.write import write
from tests.build_tool import lock_bed
from tests.build_tool.wheel_bed import wheel

ROOT = Path(__file__).resolve().parent.parent.parent
# not pure Python, or the file would carry it
TAG = f"py3-none-manylinux2014_{os.uname().machine}"
MODULE = """
__version__ = {version!r}
def main():
    print(__file__)
"""
PROGRAM = """
import sys, torch
print("torch", torch.__version__, sys.prefix, *sys.argv[1:])
"""


class Wheels:
    """Wheels in a folder, and a lock of them."""

    def __init__(self, folder: Path, tag: str = TAG) -> None:
        self.folder = folder
        self.tag = tag
        self.hashes: dict[str, tuple[str, str]] = {}

    def add(self, name: str, version: str, files: int = 3, size: int = 100) -> None:
        """A package of that many modules, with a program."""
        code = "\n" * size
        contents = {f"{name}/__init__.py": MODULE.format(version=version).encode()}
        contents |= {f"{name}/part{number}.py": f"VALUE = {number}\n{code}".encode() for number in range(files)}
        program = f"[console_scripts]\n{name}-tool = {name}:main\n"
        contents[f"{name}-{version}.dist-info/entry_points.txt"] = program.encode()
        self.hashes[name] = (version, wheel(self.folder, name, version, contents, self.tag))

    def add_uv(self, version: str, real: bool = True) -> None:
        """uv itself, as its wheel has it; or a program that starts it, which is smaller."""
        place = Path(shutil.which(find_uv()) or "")
        program = place.read_bytes() if real else f'#!/bin/sh\nexec "{place}" "$@"\n'.encode()
        digest = wheel(self.folder, "uv", version, {f"uv-{version}.data/scripts/uv": program}, self.tag)
        self.hashes["uv"] = (version, digest)

    def lock(self, folder: Path) -> Path:
        """A uv.lock in which the project needs all of them but uv."""
        packages = []
        for name, (version, digest) in self.hashes.items():
            file = f"{name}-{version}-{self.tag}.whl"
            size = (self.folder / file).stat().st_size
            line = f'    {{ url = "https://files.example/{file}", hash = "{digest}", size = {size} }},'
            packages.append(lock_bed.package(name, version, line))
        edges = [f'{{ name = "{name}" }}' for name in self.hashes if name != "uv"]
        folder.mkdir(parents=True, exist_ok=True)
        return lock_bed.write(folder, lock_bed.project(*edges), *packages)

    def pages(self, place: Path) -> Path:
        """The simple index of all that were ever added: a page for each name."""
        for path in self.folder.glob("*.whl"):
            page = place / path.name.partition("-")[0]
            page.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, page / path.name)
        for page in place.iterdir():
            links = [
                f'<a href="{path.name.replace("+", "%2B")}#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}">'
                f"{path.name}</a><br>"
                for path in sorted(page.glob("*.whl"))
            ]
            (page / "index.html").write_text(f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>")
        return place


def small(folder: Path, with_uv: bool = False, files: int = 3) -> Wheels:
    """torch, numpy and another one."""
    wheels = Wheels(folder)
    wheels.add("torch", "2.15.0", files)
    wheels.add("numpy", "2.4.6")
    wheels.add("helper", "1.0")
    if with_uv:
        wheels.add_uv("0.13.9")
    return wheels


def pyz(lock: Path, place: Path) -> Path:
    """The trainer as it is built, but carrying another lock's environment."""
    cache = ROOT / ".cache" / "build"
    own = read_lock(ROOT / "uv.lock")
    resolution = resolve(own)
    tree, _ = minify(collect(resolution, ROOT, cache), read_policy(ROOT / "pyproject.toml"), cache / "minified")
    sections = compile_code(tree, find_interpreters([]), Cache(cache / "code"))
    known = facts(ROOT, resolution.root.name, resolution.root.version or "", tree, sections, {})
    requirements = resolution.requirements_json().encode()
    content = write(tree, sections, known, requirements=requirements, environment=environment_json(read_lock(lock)))
    place.write_bytes(content)
    return place


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of the folder on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Bench:
    """A file, a store and a home of their own; a bare Python that has no torch."""

    def __init__(self, folder: Path, file: Path, index: str | None = None, base: str = sys.executable) -> None:
        self.folder = folder
        self.file = file
        self.store = folder / "store"
        bare = folder / f"bare-{Path(base).name}"
        self.python = str(bare / "bin" / "python")
        if not Path(self.python).exists():
            subprocess.run([base, "-m", "venv", "--without-pip", str(bare)], check=True)
        (folder / "program.py").write_text(PROGRAM)
        self.uv = str(Path(shutil.which(find_uv()) or "").parent)
        self.variables = {
            "PATH": f"{self.uv}:/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "TRAINER_ENV_STORE": str(self.store),
            "UV_CACHE_DIR": str(folder / "cache"),
            "LC_ALL": "C.UTF-8",
        }
        if index is not None:
            self.variables |= {"UV_DEFAULT_INDEX": index, "PIP_INDEX_URL": index, "PIP_CONFIG_FILE": os.devnull}

    def command(self, *words: str) -> list[str]:
        """The words that run the file."""
        return [self.python, str(self.file), *words]

    def run(self, *words: str, **more: Any) -> "subprocess.CompletedProcess[str]":
        """Runs the file to its end. `variables` come on top."""
        variables: Mapping[str, str] = more.pop("variables", {})
        return subprocess.run(
            self.command(*words),
            env={**self.variables, **variables},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            **more,
        )

    def env(self, *words: str, **more: Any) -> Any:
        """`env ... --json`, which must go well; what it printed."""
        done = self.run("env", *words, "--json", **more)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def create(self, *words: str, **more: Any) -> Any:
        """`env create`, without a snapshot."""
        return self.env("create", "--no-snapshot", *words, **more)

    def train(self, **more: Any) -> "subprocess.CompletedProcess[str]":
        """What needs torch: a program that says where it is."""
        return self.run("exec", "--start.layers", "", "program.py", "word", **more)
