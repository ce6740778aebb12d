"""Makes an environment: under another name, compared with the lock, then one rename.

Killed at any moment, it leaves either no environment of that name or a whole one, and a hidden folder that the next one
removes. What was fetched before stays in uv's cache, so that the next one goes on from there.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import time

from trainer_boot.environment import comparing, running, uv, wheels
from trainer_boot.environment.carried import store_name
from trainer_boot.environment.locks import Lock
from trainer_boot.environment.refused import Refused
from trainer_boot.environment.store import FORMAT, MANIFEST, Store, Stored, no_room, unwritable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_boot.environment.carried import Carried, File, Pin
    from trainer_boot.environment.running import Say

DRAFT, TRASH = ".new-", ".old-"
PROBE = "import sys; print('%d.%d' % sys.version_info[:2], sys.prefix)"
# what `uv venv` adds for installers of long ago; each start of the interpreter would pay for it
UNWANTED = ("_virtualenv.pth", "_virtualenv.py")


class Order:
    """What is to be made, for this interpreter. Refused where the lock does not cover it."""

    def __init__(self, carried: Carried, variant: str = "", extras: Sequence[str] = ()) -> None:
        self.carried = carried
        self.variant = variant
        self.extras = tuple(sorted(set(extras)))
        self.name = store_name(carried, variant, self.extras)
        self.chosen: list[tuple[Pin, File]] = [(pin, wheels.best(pin)) for pin in carried.here(variant, self.extras)]

    @property
    def size(self) -> int:
        """Bytes of its wheels."""
        return sum(file.size for _, file in self.chosen)


def create(
    order: Order, store: Store, say: Say, *, wheelhouse: str | None = None, repair: bool = False
) -> tuple[Stored, bool]:
    """The environment, and whether it was made now. `wheelhouse`: a folder of wheels, and no network. `repair`: one
    that is there is compared file by file, and made again where it differs. Refused; nothing is left then."""
    there = store.get(order.name)
    if there is not None and not repair and _answers(there):
        return there, False
    store.make()
    try:
        with Lock(
            os.path.join(store.locks, order.name), lambda who: say(f"waiting: {who or 'another process'} makes it")
        ):
            there = store.get(order.name)
            if there is not None and _answers(there) and not (repair and _differs(order, there, say)):
                return there, False
            sweep(store, order.name)
            if os.path.lexists(store.path_of(order.name)):
                say(f"{order.name} is broken: made again")
                discard(store, order.name)
            return _make(order, store, say, wheelhouse), True
    except OSError as error:
        raise unwritable(store.place, error) from None


def sweep(store: Store, name: str) -> None:
    """Removes what killed processes have left of that name; whoever calls has its lock."""
    for entry in os.listdir(store.environments):
        if entry.startswith((f"{DRAFT}{name}.", f"{TRASH}{name}.")):
            shutil.rmtree(os.path.join(store.environments, entry), ignore_errors=True)


def discard(store: Store, name: str) -> None:
    """Takes an environment out of use by one rename, and removes it. OSError."""
    trash = os.path.join(store.environments, f"{TRASH}{name}.{os.getpid()}.{time.monotonic_ns():x}")
    os.rename(store.path_of(name), trash)
    shutil.rmtree(trash, ignore_errors=True)


def _make(order: Order, store: Store, say: Say, wheelhouse: str | None) -> Stored:
    draft = os.path.join(store.environments, f"{DRAFT}{order.name}.{os.getpid()}.{time.monotonic_ns():x}")
    final = store.path_of(order.name)
    before = os.umask(0o022)
    try:
        program = uv.find(order.carried, store, say, wheelhouse)
        variables = running.environment(UV_NO_PROGRESS="") if sys.stderr.isatty() else running.environment()
        variables.pop("UV_NO_PROGRESS", None)
        say(f"installing {len(order.chosen)} packages, {order.size / (1 << 20):,.0f} MiB of wheels")
        _install(order, store, draft, program, wheelhouse, say, variables)
        say("compiling")
        _compile(draft, final, variables, say)
        say("comparing with the lock")
        size = _verify(order, draft)
        _sign(order, draft, size)
        _to_disk(store.environments)
        try:
            os.rename(draft, final)
        except OSError:
            made = store.get(order.name)
            if made is None:  # no other process was faster
                raise
        _to_disk(store.environments)
        made = store.get(order.name)
        if made is None:
            raise Refused(f"{final} was removed by another process", "Run the same command again.", 1)
        return made
    finally:
        os.umask(before)
        shutil.rmtree(draft, ignore_errors=True)


def _install(
    order: Order, store: Store, draft: str, program: str, wheelhouse: str | None, say: Say, variables: dict[str, str]
) -> None:
    cache = uv.cache_arguments(store)
    base = getattr(sys, "_base_executable", "") or sys.executable
    quiet = ["--no-project", "--no-python-downloads", "--quiet", *cache]
    uv.run(
        program, ["venv", "--relocatable", "--python", base, *quiet, draft], store, store.environments, None, variables
    )
    site = site_of(draft)
    for name in UNWANTED:
        if os.path.lexists(os.path.join(site, name)):
            os.unlink(os.path.join(site, name))
    requirements = os.path.join(draft, "requirements.txt")
    with open(requirements, "w", encoding="utf-8") as file:
        file.write(wheels.requirement_lines(order.chosen))
    words = ["pip", "install", "--python", os.path.join(draft, "bin", "python"), "--requirement", requirements]
    words += ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--strict", *cache]
    if wheelhouse is not None:
        words += ["--offline", "--no-index", "--find-links", os.path.abspath(wheelhouse)]
    else:
        words += _index_words(order)
    uv.run(program, words, store, draft, say, variables)


def _index_words(order: Order) -> list[str]:
    """The registries of the lock; the usual one only if the project declares it and the user names no mirror."""
    words: list[str] = []
    if order.carried.index and not any(os.environ.get(name) for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL")):
        words += ["--default-index", order.carried.index]
    extra = wheels.indexes(order.chosen)
    for place in extra:
        words += ["--index", place]
    # what may be installed is decided by hashes, wherever it comes from
    return words + (["--index-strategy", "unsafe-best-match"] if extra else [])


def site_of(place: str) -> str:
    """Its site-packages."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return os.path.join(place, "lib", version + ("t" if "t" in sys.abiflags else ""), "site-packages")


def _compile(draft: str, final: str, variables: dict[str, str], say: Say) -> None:
    """Bytecode that names the files where they will be; who may not write there will have it all the same."""
    words = [os.path.join(draft, "bin", "python"), "-I", "-m", "compileall", "-q", "-j", str(_cores())]
    words += ["-s", draft, "-p", final, site_of(draft)]
    status, text = running.run(words, draft, variables, beat=say)
    if status and "no space left" in text.lower():  # files that are no Python of this version do not matter
        raise no_room(os.path.dirname(os.path.dirname(draft)))


def _verify(order: Order, draft: str) -> int:
    """Its bytes. Refused unless it starts and has exactly what is locked."""
    found = _probe(os.path.join(draft, "bin", "python"))
    if found != [f"{sys.version_info[0]}.{sys.version_info[1]}", draft]:
        raise Refused(f"the new environment does not start: {found}", "Run the same command again.", 1)
    verdict = comparing.compare(
        order.carried,
        order.variant,
        order.extras,
        path=[site_of(draft)],
        bundled=False,
        full=lambda done, total: None,
        sizes_only=True,
    )
    wrong = [problem for problem in verdict.problems if problem.fatal]
    if wrong:
        raise Refused(f"the new environment is not what was locked: {wrong[0].what}", "Run the same command again.", 1)
    return _settle(draft)


def _sign(order: Order, draft: str, size: int) -> None:
    """Writes the manifest: from here on it is an environment, once it has its name."""
    manifest = {
        "format": FORMAT,
        "lock": order.carried.digest,
        "python": sys.version.split()[0],
        "platform": sysconfig.get_platform(),
        "variant": order.variant,
        "extras": list(order.extras),
        "packages": len(order.chosen),
        "size": size,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "versions": {pin.name: pin.version for pin, _ in order.chosen},
    }
    path = os.path.join(draft, MANIFEST)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", path)


def _answers(stored: Stored) -> bool:
    """Does its interpreter still start, and is it the version that it was made for?"""
    return _probe(stored.python) == [".".join(stored.manifest.python.split(".")[:2]), stored.path]


def _probe(python: str) -> list[str]:
    try:
        done = subprocess.run(
            [python, "-I", "-c", PROBE],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [str(error)]
    return done.stdout.strip().split(" ", 1) if done.returncode == 0 else [done.stderr.strip()[-200:]]


def _differs(order: Order, stored: Stored, say: Say) -> bool:
    """Compares every file."""
    say(f"comparing {stored.name} file by file")
    verdict = comparing.compare(
        order.carried,
        order.variant,
        order.extras,
        path=[site_of(stored.path)],
        bundled=False,
        full=lambda done, total: None,
    )
    return not verdict.fits


def _settle(draft: str) -> int:
    """Makes all of it readable for whoever may enter the store, and writable for its owner only; its bytes, those of a
    file with two names in it once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for place, _, names in os.walk(draft):
        os.chmod(place, 0o755)
        for name in names:
            path = os.path.join(place, name)
            status = os.lstat(path)
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
            if stat.S_ISREG(status.st_mode) and status.st_mode & 0o466 != 0o444:
                # its other name may be in an installer's cache, whose modes are its own business
                shutil.copy2(path, path + ".readable")
                os.chmod(path + ".readable", status.st_mode & 0o755 | 0o444)
                os.rename(path + ".readable", path)
    return total


def _to_disk(folder: str) -> None:
    """Waits until the file system has written what it was given."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        if library.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), folder)
    finally:
        os.close(descriptor)


def _cores() -> int:
    return len(os.sched_getaffinity(0))
