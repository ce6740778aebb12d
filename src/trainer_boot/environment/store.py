"""Where environments are kept: one folder for many of them, shared by jobs and users.

    environments/NAME/         a whole environment; one that is being made or thrown away has a dot before its name
    profiles/NAME -> NAME-N    the current generation; profiles/NAME-N -> ../environments/NAME
    tools/                     uv, where none was there
    locks/                     one a name: who makes that environment

What is in it will be executed: a store counts only if it, the environment and everything on the way to them belong to
this user, to root, or to an owner that TRAINER_ENV_OWNERS names, and nobody else can write them: see `trusted`.
"""

from __future__ import annotations

import errno
import json
import os
import stat

from trainer_boot import variables
from trainer_boot.environment import trusted
from trainer_boot.environment.carried import platform_tag, prefix, store_name
from trainer_boot.environment.refused import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer_boot.environment.carried import Carried

PLACE = "TRAINER_ENV_STORE"
ENVIRONMENTS, PROFILES, TOOLS, LOCKS = "environments", "profiles", "tools", "locks"
MANIFEST = "trainer-environment.json"
FORMAT = 1
MOST_BYTES = 1 << 20  # of a manifest


class Manifest:
    """What an environment says about itself: written last, so that one without it is none."""

    def __init__(self, table: dict[str, object]) -> None:
        self.table = table
        self.lock = str(table["lock"])
        self.python = str(table["python"])
        self.variant = str(table["variant"])
        self.extras = tuple(map(str, table["extras"])) if isinstance(table["extras"], list) else ()
        self.size = int(str(table["size"]))
        self.packages = int(str(table["packages"]))


class Stored:
    """An environment of a store."""

    def __init__(self, path: str, manifest: Manifest) -> None:
        self.path = path
        self.name = os.path.basename(path)
        self.manifest = manifest

    @property
    def python(self) -> str:
        """Its interpreter."""
        return os.path.join(self.path, "bin", "python")

    def hold(self) -> int | None:
        """Marks it as in use, as `locks.hold` has it."""
        from trainer_boot.environment.locks import hold

        return hold(os.path.join(self.path, MANIFEST))

    def runs(self) -> bool:
        """Is the interpreter that it was made with still there?"""
        return os.access(self.python, os.X_OK)


class Store:
    """The store at a place (None: where the variable says, else the user's data folder). Nothing is made or checked."""

    def __init__(self, place: str | None = None) -> None:
        self.place = os.path.abspath(place or default_place())
        self.environments = os.path.join(self.place, ENVIRONMENTS)
        self.profiles = os.path.join(self.place, PROFILES)
        self.tools = os.path.join(self.place, TOOLS)
        self.locks = os.path.join(self.place, LOCKS)

    def path_of(self, name: str) -> str:
        """Where an environment of that name lies."""
        return os.path.join(self.environments, name)

    def get(self, name: str) -> Stored | None:
        """A whole environment by its name; None where there is none. Refused for one that others can write."""
        path = self.path_of(name)
        if not os.path.lexists(os.path.join(path, MANIFEST)):
            return None
        for folder in (self.place, self.environments):
            trusted.require_folder(folder)
        trusted.require_environment(path)
        manifest = read_manifest(path)
        return None if manifest is None else Stored(path, manifest)

    def all(self) -> list[Stored]:
        """The whole ones that may be entered, by name."""
        return self.sorted_out()[0]

    def sorted_out(self) -> tuple[list[Stored], list[Refused]]:
        """The whole ones by name: those that may be entered, and why the others may not."""
        found, others = [], []
        for name in self.names():
            try:
                stored = self.get(name)
            except Refused as refused:
                others.append(refused)
                continue
            if stored is not None:
                found.append(stored)
        return found, others

    def names(self) -> list[str]:
        """What lies under `environments` and is not hidden."""
        try:
            return sorted(name for name in os.listdir(self.environments) if not name.startswith("."))
        except OSError:
            return []

    def fitting(self, carried: Carried) -> Stored | None:
        """The environment to start this file in: the current generation if it is of this lock and this Python, else the
        usual variant for this Python, else the only one that there is, else the current one with another Python.
        Refused where several would do, or one that others can write.
        """
        from trainer_boot.environment.profile import Profile

        usual = store_name(carried)
        if not os.path.isdir(self.environments):
            return None
        for folder in (self.place, self.environments, self.profiles):
            if os.path.lexists(folder):
                trusted.require_folder(folder)
        names = [name for name in self.names() if name == usual or name.startswith(usual + "-")]
        current = Profile(self).current()
        chosen = "" if current is None else current.environment
        if chosen in names:
            names = [chosen, *names]
        elif not chosen.startswith(prefix(carried)) or f"-{platform_tag()}" not in chosen:
            chosen = ""
        whole = [stored for stored in map(self.get, names or filter(None, [chosen])) if stored and stored.runs()]
        if len(whole) > 1 and whole[0].name not in (usual, chosen):
            told = ", ".join(stored.name for stored in whole)
            raise Refused(
                f"several environments of {self.place} fit this file: {told}", "Choose one with `env use NAME`."
            )
        return whole[0] if whole else None

    def make(self) -> None:
        """Makes the folders. Refused where this user may not or there is no room."""
        try:
            before = os.umask(0o022)
            try:
                for folder in (self.place, self.environments, self.profiles, self.tools, self.locks):
                    os.makedirs(folder, mode=0o755, exist_ok=True)
            finally:
                os.umask(before)
        except OSError as error:
            raise unwritable(self.place, error) from None
        for folder in (self.place, self.environments, self.profiles, self.tools, self.locks):
            trusted.require_folder(folder)
        if not os.access(self.environments, os.W_OK | os.X_OK):
            read_only = os.statvfs(self.environments).f_flag & os.ST_RDONLY
            number = errno.EROFS if read_only else errno.EACCES
            raise unwritable(self.place, OSError(number, os.strerror(number)))


def default_place() -> str:
    """The variable's, or a folder among the user's data. Refused for a user without a home."""
    given = variables.value(PLACE)
    if given:
        return given
    data = os.environ.get("XDG_DATA_HOME", "")
    if not os.path.isabs(data):
        data = os.path.expanduser("~/.local/share")
    if not os.path.isabs(data):
        raise Refused(
            "there is no home directory to keep environments in", f"Give a folder: --store FOLDER, or set {PLACE}."
        )
    return os.path.join(data, "trainer-pyz")


def _regular(path: str, flags: int) -> int:
    """Opens a file that is neither a link nor a pipe: one of these would make whoever reads it wait for ever."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor


def read_manifest(path: str) -> Manifest | None:
    """Of the environment in that folder; None where there is none, or none of ours."""
    try:
        with open(os.path.join(path, MANIFEST), "rb", opener=_regular) as file:
            table = json.loads(file.read(MOST_BYTES))
        return Manifest(table) if table.get("format") == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def unwritable(place: str, error: OSError) -> Refused:
    """What to say where the store can't be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return no_room(place)
    return Refused(
        f"{place} cannot be written: {(error.strerror or str(error)).lower()}",
        f"Use a store of your own: --store FOLDER, or set {PLACE}.",
        1,
    )


def no_room(place: str, where: str = "") -> Refused:
    """What to say where it is full."""
    free = ""
    folder = place
    while folder != "/" and not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    try:
        status = os.statvfs(folder)
        free = f" ({status.f_bavail * status.f_frsize / (1 << 20):,.0f} MiB are free)"
    except OSError:
        pass
    what = f"no space is left for {where or place}{free}; nothing was changed"
    return Refused(what, "Free space (`env prune`), or use another store: --store FOLDER.", 1)
