"""Are the versions that are installed those of the lock?

Requirements are the list of objects that the build wrote from uv.lock: name, version, marker, kind ("bundled" or
"environment"), hashes, and index where it is not the usual one. packaging is imported only inside functions: a start
that checks nothing does not pay for it.
"""

from __future__ import annotations

from trainer_boot.environment.problems import Problem, mend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Requirement = dict[str, object]


def needed(requirements: Sequence[Requirement], marker_environment: dict[str, str] | None = None) -> dict[str, str]:
    """Name -> version of what is needed where these markers hold (None: here and now).

    ValueError where two versions of one name are needed at once: the lock does not cover this environment.
    """
    found: dict[str, str] = {}
    for requirement in applicable(requirements, marker_environment):
        name, version = str(requirement["name"]), str(requirement["version"])
        if found.setdefault(name, version) != version:
            raise ValueError(f"the lock asks for {name} {found[name]} and {version} at once")
    return found


def check(
    requirements: Sequence[Requirement],
    distributions: Iterable[tuple[str, str]],
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
    for requirement in applicable(requirements, marker_environment):
        if bundled and requirement["kind"] == "bundled":
            continue
        problem = _difference(requirement, versions.get(str(requirement["name"]), []))
        if problem is not None:
            problems.append(problem)
    return sorted(problems, key=lambda problem: problem.name)


def applicable(
    requirements: Sequence[Requirement], marker_environment: dict[str, str] | None = None
) -> list[Requirement]:
    """Those whose marker holds there (None: here and now)."""
    if all(requirement["marker"] is None for requirement in requirements):
        return list(requirements)
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


def verdict(locked: str, found: str) -> str:
    """`same`, `unlabelled` (the lock leaves the build open), `build` or `version`: the rules of PEP 440."""
    if locked == found:
        return "same"
    from packaging.version import InvalidVersion, Version

    try:
        wanted, there = Version(locked), Version(found)
    except InvalidVersion:
        return "version"
    if wanted == there:
        return "same"
    # `public` keeps pre- and post-releases, and is compared as a version: 1.0 is 1.0.0
    if Version(wanted.public) != Version(there.public):
        return "version"
    return "build" if wanted.local else "unlabelled"


def _difference(requirement: Requirement, versions: list[str]) -> Problem | None:
    name, locked = str(requirement["name"]), requirement["version"]
    if not versions:
        wanted = f"{name} {locked}" if locked else name
        what = f"{wanted} is locked, and no {name} is installed"
        return Problem(name, str(locked), None, what, mend(requirement), kind="missing")
    if locked is None:
        return None
    if len(versions) > 1:
        what = f"{name} is installed more than once ({', '.join(versions)}); {locked} is locked"
        return Problem(name, str(locked), versions[0], what, mend(requirement, again=True), kind="duplicate")
    found = versions[0]
    answer = verdict(str(locked), found)
    if answer == "same":
        return None
    if answer == "unlabelled":
        what = f"{name} {found} is taken for the locked {locked}, which names no build"
        return Problem(name, str(locked), found, what, "", fatal=False, kind="unlabelled")
    what = f"{name} {found} is installed, {locked} is locked" + (": another build" if answer == "build" else "")
    return Problem(name, str(locked), found, what, mend(requirement), kind=answer)
