"""One difference between an environment and the lock, and the command that mends it."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Problem:
    """One way in which the environment differs from the lock.

    `what` and `fix` are sentences for the user; one that is not `fatal` is a note, and may have no fix. `kind` is for
    programs: missing, version, build, unlabelled, duplicate, hidden, stale, half-removed, no-code, shadowed, elsewhere,
    leftover, changed.
    """

    __slots__ = ("fatal", "fix", "installed", "kind", "locked", "name", "what")

    def __init__(
        self,
        name: str,
        locked: str | None,
        installed: str | None,
        what: str,
        fix: str,
        fatal: bool = True,
        kind: str = "version",
    ) -> None:
        self.name = name
        self.locked = locked
        self.installed = installed
        self.what = what
        self.fix = fix
        self.fatal = fatal
        self.kind = kind

    def __repr__(self) -> str:
        return f"Problem({self.what!r}, fatal={self.fatal})"

    def as_json(self) -> dict[str, object]:
        """The same as a value for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


def mend(requirement: Mapping[str, object], again: bool = False) -> str:
    """The command that installs exactly this; its own needs are locked and checked by themselves. `again`: although
    something of that name is there."""
    name, version = str(requirement["name"]), requirement["version"]
    uv, python = _has_uv(), shell(sys.executable)
    words = ["uv", "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
    words.append("--no-deps")
    if again:
        words.append("--reinstall" if uv else "--force-reinstall")
    if requirement.get("index"):
        words += ["--extra-index-url", shell(str(requirement["index"]))]
    words.append(shell(f"{name}=={version}" if version else name))
    return "run " + " ".join(words)


def shell(word: str) -> str:
    """The word as a shell takes it."""
    plain = "-._/=+:\\"
    return word if all(letter.isalnum() or letter in plain for letter in word) else '"' + word + '"'


def _has_uv() -> bool:
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return any(os.access(os.path.join(folder, name), os.X_OK) for folder in folders for name in ("uv", "uv.exe"))
