"""Does the environment hold what the file was locked with?

Requirements are the list of objects that the build wrote from uv.lock: name, version, marker, kind ("bundled" or
"environment"), hashes, and index where it is not the usual one. What is installed is read from the names of the
`.dist-info` folders, not from `__version__`: one listing for each folder of sys.path, no import, and torch reports two
versions of itself. packaging is imported only inside functions: a start that checks nothing does not pay for it.
"""

import os
import sys

SUFFIXES = (".dist-info", ".egg-info")


class Problem:
    """One way in which the environment differs from the lock.

    `what` and `fix` are sentences for the user; a problem that is not `fatal` is a note, and has no fix.
    """

    __slots__ = ("fatal", "fix", "installed", "locked", "name", "what")

    def __init__(self, name: str, locked: str, installed: str | None, what: str, fix: str, fatal: bool = True) -> None:
        self.name = name
        self.locked = locked
        self.installed = installed
        self.what = what
        self.fix = fix
        self.fatal = fatal

    def __repr__(self) -> str:
        return f"Problem({self.what!r}, fatal={self.fatal})"


def needed(requirements: list[dict[str, object]], marker_environment: dict[str, str] | None = None) -> dict[str, str]:
    """Name -> version of what is needed where these markers hold (None: here and now).

    ValueError where two versions of one name are needed at once: the lock does not cover this environment.
    """
    found: dict[str, str] = {}
    for requirement in _applicable(requirements, marker_environment):
        name, version = str(requirement["name"]), str(requirement["version"])
        if found.setdefault(name, version) != version:
            raise ValueError(f"the lock asks for {name} {found[name]} and {version} at once")
    return found


def check(
    requirements: list[dict[str, object]],
    distributions: list[tuple[str, str]],
    *,
    marker_environment: dict[str, str] | None = None,
    bundled: bool = False,
) -> list[Problem]:
    """The differences, by name. `distributions` are (name, version) as `installed` gives them.

    `bundled` says that the bundled packages are there, since the file that carries them runs: they are not looked for.
    A build label (after `+`) counts: another one, or none where the lock has one, is another build. Where the lock has
    none, any build of the version is taken, with a note.
    """
    versions: dict[str, list[str]] = {}
    for name, version in distributions:
        versions.setdefault(name, []).append(version)
    problems = []
    for requirement in _applicable(requirements, marker_environment):
        if bundled and requirement["kind"] == "bundled":
            continue
        problem = _difference(requirement, versions.get(str(requirement["name"]), []))
        if problem is not None:
            problems.append(problem)
    return sorted(problems, key=lambda problem: problem.name)


def installed(path: list[str] | None = None) -> list[tuple[str, str]]:
    """(normalized name, version) of every distribution on the path (None: sys.path), as imports would find them.

    Of a name in two folders the first is given; of a name twice in one folder, both.
    """
    found: list[tuple[str, str]] = []
    seen: set[str] = set()
    for folder in sys.path if path is None else path:
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        here = [_read(folder, entry) for entry in sorted(entries) if entry.endswith(SUFFIXES) and entry[0] != "~"]
        fresh = [each for each in here if each is not None and each[0] not in seen]
        seen.update(name for name, _ in fresh)
        found += fresh
    return found


def _applicable(
    requirements: list[dict[str, object]], marker_environment: dict[str, str] | None
) -> list[dict[str, object]]:
    from packaging.markers import Marker, default_environment

    environment = {key: str(value) for key, value in default_environment().items()} | (marker_environment or {})
    verdicts: dict[object, bool] = {None: True}
    chosen = []
    for requirement in requirements:
        marker = requirement["marker"]
        if marker not in verdicts:
            verdicts[marker] = Marker(str(marker)).evaluate(environment)
        if verdicts[marker]:
            chosen.append(requirement)
    return chosen


def _difference(requirement: dict[str, object], versions: list[str]) -> Problem | None:
    name, locked = str(requirement["name"]), requirement["version"]
    if not versions:
        wanted = f"{name} {locked}" if locked else name
        return Problem(name, str(locked), None, f"{wanted} is locked, and no {name} is installed", _mend(requirement))
    if locked is None:
        return None
    if len(versions) > 1:
        what = f"{name} is installed more than once ({', '.join(versions)}); {locked} is locked"
        return Problem(name, str(locked), versions[0], what, _mend(requirement, again=True))
    found = versions[0]
    verdict = _verdict(str(locked), found)
    if verdict == "same":
        return None
    if verdict == "unlabelled":
        what = f"{name} {found} is taken for the locked {locked}, which names no build"
        return Problem(name, str(locked), found, what, "", fatal=False)
    what = f"{name} {found} is installed, {locked} is locked" + (": another build" if verdict == "build" else "")
    return Problem(name, str(locked), found, what, _mend(requirement))


def _verdict(locked: str, found: str) -> str:
    """`same`, `unlabelled` (the lock leaves the build open), `build` or `version`: the rules of PEP 440."""
    from packaging.version import InvalidVersion, Version

    try:
        wanted, there = Version(locked), Version(found)
    except InvalidVersion:
        return "same" if locked == found else "version"
    if wanted == there:
        return "same"
    # `public` keeps pre- and post-releases, and is compared as a version: 1.0 is 1.0.0
    if Version(wanted.public) != Version(there.public):
        return "version"
    return "build" if wanted.local else "unlabelled"


def _mend(requirement: dict[str, object], again: bool = False) -> str:
    """The command that installs exactly this; its own needs are locked and checked by themselves."""
    name, version = str(requirement["name"]), requirement["version"]
    uv, python = _has_uv(), _shell(sys.executable)
    words = ["uv", "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
    words.append("--no-deps")
    if again:
        words.append("--reinstall" if uv else "--force-reinstall")
    if requirement.get("index"):
        words += ["--extra-index-url", _shell(str(requirement["index"]))]
    words.append(_shell(f"{name}=={version}" if version else name))
    return "run " + " ".join(words)


def _has_uv() -> bool:
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return any(os.access(os.path.join(folder, name), os.X_OK) for folder in folders for name in ("uv", "uv.exe"))


def _shell(word: str) -> str:
    plain = "-._/=+:\\"
    return word if all(letter.isalnum() or letter in plain for letter in word) else '"' + word + '"'


def _read(folder: str, entry: str) -> tuple[str, str] | None:
    """Name and version of one entry; from inside it where its own name was not written to the rules."""
    stem = entry.rsplit(".", 1)[0]
    name, _, version = stem.partition("-")
    if entry.endswith(".dist-info") and version[:1].isdigit():
        return _normalized(name), version
    for inside in ("METADATA", "PKG-INFO", ""):
        try:
            with open(os.path.join(folder, entry, inside).rstrip(os.sep), encoding="utf-8", errors="replace") as file:
                return _headers(file.read())
        except OSError:
            continue
    return None


def _headers(text: str) -> tuple[str, str] | None:
    values: dict[str, str] = {}
    for line in text.split("\n"):
        key, colon, value = line.partition(":")
        if not colon:
            break
        values.setdefault(key.lower(), value.strip())
    if "name" not in values or "version" not in values:
        return None
    return _normalized(values["name"]), values["version"]


def _normalized(name: str) -> str:
    """PEP 503, without `re`."""
    pieces = name.lower().replace("_", "-").replace(".", "-").split("-")
    return "-".join(piece for piece in pieces if piece)
