"""Wheels: which one fits here, fetching it by its hash, and what it means when an installer fails.

pip fetches what uv can't: uv itself, and wheels to be packed. It is the interpreter's own, or comes with the standard
library (ensurepip); it knows the user's proxies, certificates and mirrors.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

from trainer_boot import interpreter
from trainer_boot.environment import running
from trainer_boot.environment.refused import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from packaging.tags import Tag

    from trainer_boot.environment.carried import File, Pin
    from trainer_boot.environment.running import Say

DRAFT = ".fetched-"
SMALL = 20 << 20
"""Bytes up to which wheels are fetched together."""
OLDEST_LIBRARY = 28
"""Minor version of the GNU C library 2 that another machine is taken to have."""
CAUSES = (
    ("room", ("no space left on device", "os error 28", "disk quota exceeded", "errno 28")),
    ("hash", ("hash mismatch", "do not match the hashes", "no matching hash", "hashes do not match")),
    ("read-only", ("read-only file system",)),
    ("permission", ("permission denied",)),
    ("network", (
        "failed to fetch", "error sending request", "dns error", "could not connect", "connection refused",
        "connection reset", "timed out", "network is unreachable", "network connectivity is disabled",
        "temporary failure in name resolution", "newconnectionerror", "proxyerror", "max retries exceeded",
        "not found in the cache", "incomplete message", "connection closed",
    )),
    ("absent", ("no solution found", "no matching distribution", "not found in the package registry", "no wheels")),
)  # fmt: skip


class Target:
    """The interpreter and machine that wheels are for."""

    def __init__(self, version: tuple[int, int] | None = None, machine: str | None = None) -> None:
        self.version = version or sys.version_info[:2]
        self.machine = machine or os.uname().machine
        self.native = self.version == sys.version_info[:2] and self.machine == os.uname().machine

    def markers(self) -> dict[str, str] | None:
        """The values of markers that differ from ours."""
        if self.native:
            return None
        plain = f"{self.version[0]}.{self.version[1]}"
        version = {} if self.version == sys.version_info[:2] else _version_markers(plain)
        return {"platform_machine": self.machine, **version}

    def tags(self) -> list[Tag]:
        """What it can install, the best first."""
        from packaging import tags

        if self.native:
            return list(tags.sys_tags())
        machine = self.machine
        platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(OLDEST_LIBRARY, 4, -1)]
        platforms += [f"manylinux2014_{machine}", f"linux_{machine}"]
        interpreter = f"cp{self.version[0]}{self.version[1]}"
        found = list(tags.cpython_tags(self.version, [interpreter], platforms))
        return found + list(tags.compatible_tags(self.version, interpreter, platforms))


def best(pin: Pin, target: Target | None = None) -> File:
    """The locked wheel for it (None: here). Refused where there is none, or one without a hash."""
    aim = target or Target()
    file = pin.installable(aim.tags())
    if file is None:
        where = f"Python {aim.version[0]}.{aim.version[1]} on {sysconfig.get_platform() if aim.native else aim.machine}"
        only = "its source only" if all(_is_source(each) for each in pin.files) else "wheels for others only"
        raise Refused(
            f"the lock does not cover {where}: of {pin.name} {pin.version} it has {only}",
            "Use a Python and a platform that it has wheels for; `self info` lists them.",
        )
    if file.hash is None:
        raise Refused(
            f"{file.name} is locked without a hash", "Lock it from an index that provides hashes, and build again."
        )
    return file


def require_hash(path: str, file: File) -> None:
    """Refused unless the file at `path` is the locked one."""
    try:
        with open(path, "rb") as stream:
            found = hashlib.file_digest(stream, str(file.hash).partition(":")[0]).hexdigest()
    except OSError as error:
        raise Refused(
            f"{path}: {(error.strerror or str(error)).lower()}", "Make the folder again with `env pack`."
        ) from None
    if found != str(file.hash).partition(":")[2]:
        raise Refused(
            f"{path} is not the locked {file.name}: its hash is {found[:12]}..., not {str(file.hash)[7:19]}...",
            f"Remove it (rm {path}) and fetch it again.",
        )


def requirement_lines(chosen: Sequence[tuple[Pin, File]], every_file: bool = True) -> str:
    """The text of a requirements file with hashes: of all locked files of each, or of the chosen one only."""
    lines = []
    for pin, file in chosen:
        hashes = [each.hash for each in pin.files if each.hash] if every_file else [file.hash]
        lines.append(" ".join([f"{pin.name}=={pin.version}", *(f"--hash={each}" for each in hashes)]))
    return "".join(f"{line}\n" for line in lines)


def indexes(chosen: Sequence[tuple[Pin, File]]) -> list[str]:
    """The registries besides the usual one."""
    return sorted({pin.index for pin, _ in chosen if pin.index})


def fetch(
    chosen: Sequence[tuple[Pin, File]], folder: str, say: Say, index: str | None, target: Target | None = None
) -> None:
    """Puts these wheels into the folder, each whole or not at all; those that are there are left. Refused."""
    waiting = sorted((pair for pair in chosen if not _is_whole(folder, pair[1])), key=lambda pair: pair[1].size)
    small = [pair for pair in waiting if pair[1].size <= SMALL]
    batches = [small] if small else []
    batches += [[pair] for pair in waiting if pair[1].size > SMALL]
    if not batches:
        return
    with draft_in(folder) as draft:
        pip = _pip(draft)
        for number, batch in enumerate(batches, 1):
            size = sum(file.size for _, file in batch) / (1 << 20)
            what = f"{batch[0][0].name} {batch[0][0].version}" if len(batch) == 1 else f"{len(batch)} packages"
            say(f"fetching {number}/{len(batches)}: {what}, {size:,.0f} MiB")
            _download(pip, batch, draft, say, index, target)
            for _, file in batch:
                require_hash(os.path.join(draft, file.name), file)
                os.rename(os.path.join(draft, file.name), os.path.join(folder, file.name))


def draft_in(folder: str) -> tempfile.TemporaryDirectory[str]:
    """A folder in it for what is not whole yet; those of processes that were killed go."""
    for name in os.listdir(folder):
        if name.startswith(DRAFT) and not os.path.exists(f"/proc/{name.removeprefix(DRAFT).partition('-')[0]}"):
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    return tempfile.TemporaryDirectory(prefix=f"{DRAFT}{os.getpid()}-", dir=folder)


def told(text: str, program: str, place: str) -> Refused:
    """The cause of an installer's failure, as far as its words tell it."""
    from trainer_boot.environment import store

    lowered = text.lower()
    cause = next((name for name, words in CAUSES if any(word in lowered for word in words)), "")
    last = [line.strip(" ×╰─▶├│") for line in text.splitlines() if line.strip()]
    said = next((line for line in last if line.lower().startswith("error")), last[-1] if last else "it said nothing")
    if cause == "room":
        return store.no_room(place)
    if cause in ("read-only", "permission"):
        return Refused(f"{program} may not write: {_line(text, cause)}", "Use another store: --store FOLDER.", 1)
    if cause == "hash":
        what = f"what the index serves is not what was locked: {_line(text, 'hash').split('. ')[0]}"
        return Refused(f"{what}; nothing was changed", "Do not use that index. Use another mirror, or lock again.")
    if cause == "network":
        return Refused(
            f"{program} can't reach the package index: {_network_line(text)}; nothing was changed",
            "Check the network and proxy, or set a mirror (UV_DEFAULT_INDEX, PIP_INDEX_URL). Without one, run `env "
            "pack FOLDER` on a machine that has one, then `env create --from FOLDER`.",
            1,
        )
    if cause == "absent":
        return Refused(
            f"a locked package is not available: {_line(text, 'no ') or said}",
            "Check the network, set an index that has it (UV_DEFAULT_INDEX, PIP_INDEX_URL), or use a folder of `env "
            "pack FOLDER` (--from FOLDER).",
            1,
        )
    return Refused(f"{program} failed: {said}", "Correct what it reports above, and run the same command again.", 1)


def _line(text: str, word: str) -> str:
    words = {"read-only": "read-only", "permission": "permission denied"}
    wanted = words.get(word, word)
    found = [line.strip(" ×╰─▶├│") for line in text.splitlines() if wanted in line.lower()]
    return found[-1].strip() if found else ""


def _network_line(text: str) -> str:
    """Where it could not go, or else the system's word for it."""
    lines = [line.strip(" ×╰─▶├│").removeprefix("cause: ") for line in text.splitlines()]
    place = next((line for line in lines if line.lower().startswith("failed to fetch")), "")
    cause = re.findall(r"\[Errno -?\d+\] [^'\"\n]+|dns error[^\n]*|[^\n:]*\(os error \d+\)|[^\n]*timed out[^\n]*", text)
    return ", ".join(part.strip() for part in (place, cause[-1] if cause else "") if part) or "no answer"


def _is_whole(folder: str, file: File) -> bool:
    path = os.path.join(folder, file.name)
    if not os.path.isfile(path):
        return False
    try:
        require_hash(path, file)
    except Refused:
        os.unlink(path)
        return False
    return True


def _is_source(file: File) -> bool:
    return not file.name.endswith(".whl")


def _download(
    pip: list[str], batch: Sequence[tuple[Pin, File]], folder: str, say: Say, index: str | None, target: Target | None
) -> None:
    list_of = os.path.join(folder, "requirements.txt")
    with open(list_of, "w", encoding="utf-8") as file:
        file.write(requirement_lines(batch, every_file=False))
    words = [*pip, "download", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-input"]
    words += ["--disable-pip-version-check", "--progress-bar", "off", "--dest", folder, "--requirement", list_of]
    for place in indexes(batch):
        words += ["--extra-index-url", place]
    if target is not None and not target.native:
        words += _foreign(batch, target)
    status, text = running.run(words, folder, _variables(index), beat=say)
    if status:
        raise told(text, "pip", folder)


def _foreign(batch: Sequence[tuple[Pin, File]], target: Target) -> list[str]:
    from packaging.utils import parse_wheel_filename

    plain = f"{target.version[0]}{target.version[1]}"
    words = ["--python-version", plain, "--implementation", "cp"]
    tags = [tag for _, file in batch for tag in parse_wheel_filename(file.name)[3]]
    for platform in sorted({tag.platform for tag in tags}):
        words += ["--platform", platform]
    for abi in sorted({tag.abi for tag in tags} | {f"cp{plain}", "abi3", "none"}):
        words += ["--abi", abi]
    return words


def _variables(index: str | None) -> dict[str, str]:
    """pip knows its own variables; where there are none, uv's mirror, or the index that the project declares."""
    found = running.environment(PIP_REQUIRE_VIRTUALENV="0")
    mirror = os.environ.get("UV_DEFAULT_INDEX") or os.environ.get("UV_INDEX_URL") or index
    if mirror and "PIP_INDEX_URL" not in found:
        found["PIP_INDEX_URL"] = mirror.rpartition("=")[2] if "=http" in mirror else mirror
    return found


def _pip(folder: str) -> list[str]:
    """The words that start pip; where the interpreter has none, the standard library's is put into a folder."""
    base = getattr(sys, "_base_executable", sys.executable)
    for python in dict.fromkeys([sys.executable, base]):
        command = [*interpreter.tool(python), "-m", "pip"]
        if _answers([*command, "--version"]):
            return command
    place = os.path.join(folder, "pip")
    status, text = running.run([*interpreter.tool(base), "-m", "venv", place], folder, running.environment())
    if status:
        last = (text.strip().splitlines() or [""])[-1]
        raise Refused(
            f"{base} has neither pip nor what makes one (ensurepip): {last}",
            "Install python3-venv (Debian, Ubuntu), or install uv and put it on PATH.",
        )
    return [*interpreter.tool(os.path.join(place, "bin", "python")), "-m", "pip"]


def _answers(command: list[str]) -> bool:
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=60, env=running.environment())
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _version_markers(plain: str) -> dict[str, str]:
    return {"python_version": plain, "python_full_version": f"{plain}.0", "implementation_version": f"{plain}.0"}
