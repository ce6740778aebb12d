"""Is behind the metadata what they say? Metadata without code, code of another place in front of it, half an uninstall.

Cheap: of each distribution that is needed METADATA's head and RECORD are read, a few files are looked for. `hashing`
reads all of them.
"""

from __future__ import annotations

import os
import re
import sys
from itertools import islice

from trainer_boot.environment.installed import Installed, Survey, headers
from trainer_boot.environment.problems import Problem, mend, shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Requirement = Mapping[str, object]

# a file at the top of site-packages that `import` finds, or the __init__.py of a folder there; begun with the end of
# the line before, it is found four times as fast as by the beginning of a line
MODULE = re.compile(rb"\n((\w+)(?:/__init__\.py|\.py|\.[\w.-]*so)),")
# any other file of its own
FILE = re.compile(rb'^(?!\.\./|[^/,\n]+\.dist-info/)([^",\n]+),', re.MULTILINE)
PROBES = 3
HEAD = 8192


def look(requirements: Sequence[Requirement], survey: Survey) -> list[Problem]:
    """What is wrong behind the metadata of those that are needed and installed once, by name."""
    problems: list[Problem] = []
    for requirement in requirements:
        found = survey.of(str(requirement["name"]))
        if len(found) == 1:
            problems += _behind(requirement, found[0], survey)
    wanted = {str(requirement["name"]): requirement for requirement in requirements}
    for each in survey.hidden:
        if each.name in wanted:
            used = survey.of(each.name)[0]
            what = f"{each.name} {used.version} in {used.site} is used; {each.version} in {each.site} is hidden by it"
            problems.append(_note(wanted[each.name], each, what, "hidden"))
    for path in survey.leftovers:
        what = f"{path} is what an interrupted uninstall has left"
        problems.append(Problem("", None, None, what, f"rm -r {shell(path)}", fatal=False, kind="leftover"))
    return problems


def record_of(distribution: Installed) -> bytes | None:
    """The text of its RECORD; None where it has none, as packages of a system's own have none."""
    try:
        with open(os.path.join(distribution.folder, "RECORD"), "rb") as file:
            return file.read()
    except OSError:
        return None


def _behind(requirement: Requirement, distribution: Installed, survey: Survey) -> Iterator[Problem]:
    if not distribution.entry.endswith(".dist-info"):
        return
    locked, name = str(requirement["version"]), distribution.name
    try:
        with open(os.path.join(distribution.folder, "METADATA"), encoding="utf-8", errors="replace") as file:
            inside = headers(file.read(HEAD))
    except OSError:
        inside = None
    if inside is None:
        what = f"{name} is half removed: {distribution.folder} holds no METADATA"
        command = f"run rm -r {shell(distribution.folder)}, then {mend(requirement, again=True).removeprefix('run ')}"
        yield Problem(name, locked, distribution.version, what, command, kind="half-removed")
        return
    if inside != (name, distribution.version):
        what = f"the metadata of {name} are stale: {distribution.folder} is of {inside[0]} {inside[1]}"
        yield _broken(requirement, distribution, what, "stale")
        return
    yield from _elsewhere(requirement, distribution)
    record = record_of(distribution)
    if record is None:
        return
    names = next((names for place, names in survey.places if place == distribution.site), frozenset[str]())
    modules = {match[2].decode(): match[1] for match in MODULE.finditer(b"\n" + record)}
    probes = _probes(record, modules.values())
    absent = next((path for path in probes if not _is_there(distribution.site, path, names)), None)
    if absent is not None:
        what = f"{name} {distribution.version} has metadata without its code: {absent} is not there"
        yield _broken(requirement, distribution, what, "no-code")
        return
    yield from _shadowed(requirement, distribution, survey, modules.keys() - sys.stdlib_module_names)


def _probes(record: bytes, modules: Iterable[bytes]) -> list[str]:
    """The files whose absence shows that code is gone: what imports begin with, and the first few."""
    first = [match[1] for match in islice(FILE.finditer(record), PROBES)]
    return [path.decode(errors="replace") for path in dict.fromkeys([*modules, *first])]


def _is_there(site: str, path: str, names: frozenset[str]) -> bool:
    if "/" not in path:
        return path in names
    return os.path.exists(os.path.join(site, path))


def _shadowed(
    requirement: Requirement, distribution: Installed, survey: Survey, modules: set[str]
) -> Iterator[Problem]:
    """A module of one of these names that comes earlier on the path."""
    for place, names in survey.places:
        if place == distribution.site:
            return
        for module in sorted(modules):
            path = _importable(place, module, names)
            if path is not None:
                what = f"{path} comes before {distribution.name} {distribution.version}, which is locked"
                locked = str(requirement["version"])
                yield Problem(
                    distribution.name, locked, distribution.version, what, _clear(place, path), kind="shadowed"
                )


def _importable(place: str, module: str, names: frozenset[str]) -> str | None:
    """The path of a module of that name in a folder. A folder without __init__.py hides no package that has one."""
    if module in names and os.path.isfile(os.path.join(place, module, "__init__.py")):
        return os.path.join(place, module)
    for name in names:
        if name == f"{module}.py" or (name.startswith(f"{module}.") and name.endswith(".so")):
            return os.path.join(place, name)
    return None


def _clear(place: str, path: str) -> str:
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if place in given or os.path.abspath(place) in map(os.path.abspath, filter(None, given)):
        return "unset PYTHONPATH, or leave that folder out of it"
    site = sys.modules.get("site")
    if site is not None and site.ENABLE_USER_SITE and place == site.getusersitepackages():
        return f"start with {shell(sys.executable)} -s, which leaves the user's own packages out"
    return f"move {shell(path)} away"


def _elsewhere(requirement: Requirement, distribution: Installed) -> Iterator[Problem]:
    """Installed from a folder or an address: which code it is the version does not tell."""
    try:
        with open(os.path.join(distribution.folder, "direct_url.json"), "rb") as file:
            text = file.read()
    except OSError:
        return
    import json

    try:
        origin = json.loads(text)
        archive = origin.get("archive_info")
        hashes = {f"{kind}:{value}" for kind, value in ((archive or {}).get("hashes") or {}).items()}
    except (ValueError, AttributeError):
        return
    hashes.add(str((archive or {}).get("hash", "")).replace("=", ":", 1))
    locked = requirement.get("hashes")
    if isinstance(locked, list) and hashes & set(locked):
        return
    what = f"{distribution.name} {distribution.version} was installed from {origin.get('url')}"
    if archive is None:
        yield _broken(requirement, distribution, f"{what}, not from a locked wheel", "elsewhere")
    else:
        yield _note(requirement, distribution, f"{what}; its hash was not compared", "elsewhere")


def _broken(requirement: Requirement, distribution: Installed, what: str, kind: str) -> Problem:
    fix = mend(requirement, again=True)
    return Problem(distribution.name, str(requirement["version"]), distribution.version, what, fix, kind=kind)


def _note(requirement: Requirement, distribution: Installed, what: str, kind: str) -> Problem:
    locked = str(requirement["version"])
    return Problem(distribution.name, locked, distribution.version, what, "", fatal=False, kind=kind)
