"""Whether a stored environment may be entered: nobody else could have put code into it, as far as a start looks.

Looked at before every start in it (one or two milliseconds): everything on the way from `/` to the store and to the
environment; all entries of the environment's folder, of `bin`, of `lib` and of `site-packages`; the `__init__.py` of
every package and all entries of `torch`; where `bin/python` and `pyvenv.cfg` lead. Not looked at are the entries of
deeper folders, thirty thousand: nobody else can have made one in a folder that nobody else can write, unless it was
writable before. `env check --full` looks at all of them.
"""

from __future__ import annotations

import os
import sys

from trainer_boot import trust, variables
from trainer_boot.environment.problems import Problem
from trainer_boot.environment.refused import Refused
from trainer_boot.trust import Untrusted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

OWNERS = "TRAINER_ENV_OWNERS"
FIRST_PACKAGE = "torch"
SHOWN = 10
OTHER_STORE = "name another store with --store FOLDER"


def owners() -> frozenset[int]:
    """The user numbers whose code may run: as trainer_boot.trust has them, and those that the variable names. Refused
    (status 2) for a user that does not exist."""
    more = []
    for name in variables.value(OWNERS).replace(",", " ").split():
        if name.isdigit():
            more.append(int(name))
            continue
        import pwd

        try:
            more.append(pwd.getpwnam(name).pw_uid)
        except KeyError:
            raise Refused(
                f"{OWNERS}: there is no user {name!r}", f"Set {OWNERS} to names or numbers of users that exist.", 2
            ) from None
    return trust.owners(more)


def require_folder(path: str) -> None:
    """Refused where somebody else could put code there."""
    try:
        place = trust.require_own(path, owners())
    except Untrusted as problem:
        raise refused(problem, path) from None
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}", f"Repair that path, or {OTHER_STORE}.") from None
    if not os.path.isdir(place):
        raise Refused(f"{path} is not a directory", f"Remove it, or {OTHER_STORE}.")


def require_environment(path: str) -> None:
    """Refused where somebody else could have put code into the environment, as far as a start looks."""
    for problem in _first(path, owners()):
        raise refused(problem, path)


def all_of(path: str) -> Iterator[Untrusted]:
    """Everything in the environment that is somebody else's, or that others can write."""
    trusted = owners()
    yield from _first(path, trusted)
    yield from trust.inside(path, 0, trusted, _known())


def problems(path: str) -> list[Problem]:
    """The same as differences from the lock: the first few, and how many more there are."""
    found = {problem.path: problem for problem in all_of(path)}
    listed = list(found.values())
    shown = []
    for each in listed[:SHOWN]:
        told = refused(each, path)
        shown.append(Problem("", None, None, told.what, told.fix, kind="untrusted"))
    if len(listed) > SHOWN:
        what = f"{len(listed) - SHOWN} more files and folders of {path} belong to others or can be written by them"
        shown.append(Problem("", None, None, what, _made_again(path), kind="untrusted"))
    return shown


def refused(problem: Untrusted, holder: str) -> Refused:
    """As the user is told of it. `holder`: the store or environment that it is about."""
    here = (problem.path + "/").startswith(holder + "/")
    where = "" if here else f"; it is on the way to {holder}"
    what = f"{problem.path} {problem.why}: it holds code that would be run{where}"
    otherwise = _made_again(holder) if here and problem.path != holder else OTHER_STORE
    if problem.owner:
        fix = f"If you trust that user, set {OWNERS}={problem.owner}; otherwise {otherwise}."
    else:
        fix = f"Run `{problem.fix}` if nobody else has changed anything there; otherwise {otherwise}."
    return Refused(what, fix)


def _made_again(holder: str) -> str:
    return f"remove {holder} and make it again with `env create`"


def _first(path: str, trusted: frozenset[int]) -> Iterator[Untrusted]:
    """What a start looks at."""
    try:
        place = trust.require_own(path, trusted)
        yield from trust.inside(place, 1, trusted)
        for name in ("bin", "lib"):
            if os.path.isdir(f"{place}/{name}"):
                yield from trust.inside(f"{place}/{name}", 1, trusted, _known())
        for site in _sites(place):
            trust.require_own(site, trusted)
            yield from trust.inside(site, 1, trusted)
            with os.scandir(site) as packages:
                for package in packages:
                    trust.judge_if_there(f"{package.path}/__init__.py", trusted)
            if os.path.isdir(f"{site}/{FIRST_PACKAGE}"):
                yield from trust.inside(f"{site}/{FIRST_PACKAGE}", 1, trusted)
        _require_base(place, trusted)
    except Untrusted as problem:
        yield problem
    except OSError as error:
        yield Untrusted(str(error.filename or path), f"can't be looked at ({error.strerror})")


def _sites(place: str) -> Iterator[str]:
    try:
        names = os.listdir(f"{place}/lib")
    except OSError:
        return
    for name in names:
        site = f"{place}/lib/{name}/site-packages"
        if name.startswith("python") and os.path.isdir(site):
            yield site


def _known() -> set[str]:
    """Paths of the interpreter that runs this: whoever started it trusts it."""
    running = getattr(sys, "_base_executable", "") or sys.executable
    return {running, os.path.realpath(running)}


def _require_base(place: str, trusted: frozenset[int]) -> None:
    """The interpreter that it was made with, unless it is the one that runs this."""
    known = _known()
    python = f"{place}/bin/python"
    if os.path.islink(python):
        target = os.path.join(f"{place}/bin", os.readlink(python))
        if target not in known:
            trust.require_own(target, trusted)
    for line in _lines(f"{place}/pyvenv.cfg"):
        key, _, value = line.partition("=")
        home = value.strip()
        if key.strip() == "home" and os.path.isabs(home) and home not in map(os.path.dirname, known):
            trust.require_own(home, trusted)


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(1 << 16).splitlines()
    except OSError:
        return []
