"""The one door from the trainer to what starts it: the built file, or nothing in a checkout."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any, ParamSpec, TypeVar

    from trainer_boot.bundle_file import BundleFile
    from trainer_boot.environment.carried import Carried
    from trainer_boot.environment.comparing import Verdict
    from trainer_boot.environment.keeper import Keeper
    from trainer_boot.finder import BundleFinder
    from trainer_boot.layers import Note
    from trainer_boot.report import Phase

    Parameters = ParamSpec("Parameters")
    Result = TypeVar("Result")

# what a start is made faster by: the boot package's layers, and the trainer's own
OWN_LAYERS = ("fork", "exit")
# settings of the start that are no matter of the snapshot
HARMLESS = ("start.policy", "start.report", "TRAINER_START_POLICY", "TRAINER_START_REPORT")

_layers_on = False
_leaves_fast = False


def bundle_path() -> str | None:
    """Absolute path of the file that this process was started from; None in a checkout or an installed package."""
    finder = _running()
    return None if finder is None else finder.archive.path


def build_info() -> dict[str, Any] | None:
    """What the build wrote down about itself, or None where there was no build.

    Keys: name, version, commit (None if built outside of git), dirty, lock_sha256, python (minor version -> bytecode
    magic number), passes, entry, format, sha256 (of files, originals and code).
    """
    from trainer_boot.layout import BUILD_INFORMATION

    return _json(BUILD_INFORMATION)  # type: ignore[no-any-return]  # JSON of our own making


def requirements() -> list[dict[str, object]] | None:
    """What the lock asks of the environment and what is bundled, as trainer_boot.environment has it; None: no build."""
    from trainer_boot.layout import REQUIREMENTS

    return _json(REQUIREMENTS)  # type: ignore[no-any-return]  # JSON of our own making


def carried_lock() -> Carried | None:
    """What the file carries of its lock to check and make environments; None where there is no build."""
    finder = _running()
    if finder is None:
        return None
    from trainer_boot.environment.carried import Carried
    from trainer_boot.layout import ENVIRONMENT

    try:
        return Carried(finder.archive.members.read(ENVIRONMENT))
    except (OSError, ValueError):
        return None


def check_environment(
    variant: str | None = None, extras: Sequence[str] | None = None, full: Callable[[int, int], None] | None = None
) -> Verdict | None:
    """The differences between this environment and the lock that the file carries; None where there is no build.

    `variant`, `extras`: as the lock has them; None: those that the environment was made with. `full`: compares every
    file, and calls this with the bytes done and in all.
    """
    carried = carried_lock()
    if carried is None:
        return None
    from trainer_boot.environment.comparing import compare

    return compare(carried, variant, extras, full=full)


def keeper(place: str | None) -> Keeper | None:
    """What makes and keeps environments in the store at `place` (None: the usual one); None where there is no build."""
    carried = carried_lock()
    if carried is None:
        return None
    from trainer_boot.environment.keeper import Keeper

    return Keeper(carried, place)


def enter_environment(lacking: str) -> None:
    """Starts this command again in the stored environment that fits; returns where there is none. `lacking`: the
    package that this one has not. What can't be used is told by an exception with `what`, `fix` and `status`."""
    carried = carried_lock()
    if carried is not None:
        from trainer_boot.environment.entering import enter

        enter(carried, lacking)


def entry_command() -> list[str]:
    """The words that start this trainer again as a child, from anywhere on this machine, with the interpreter's options
    of this process; the command's own words follow."""
    from trainer_boot import interpreter

    return [*interpreter.python(), *_entry()]


def python_command(executable: str | None = None) -> list[str]:
    """The interpreter (None: this one) with the options of this process; a script or `-m` follows."""
    from trainer_boot import interpreter

    return interpreter.python(executable)


def shown_command(*words: str) -> str:
    """The command line for people that starts this trainer with these words, as a shell takes it."""
    import shlex

    isolated = ["-I"] if sys.flags.isolated else []
    return shlex.join([sys.executable, *isolated, *_entry(), *words])


def script_folder_counts() -> bool:
    """Whether the folder of a script belongs on `sys.path`: not under `-P` and `-I`."""
    from trainer_boot import interpreter

    return interpreter.script_folder_counts()


def counts(variable: str) -> bool:
    """Whether an environment variable that names code counts; where it does not, a note says so."""
    from trainer_boot import variables

    if variables.ignored():
        variables.tell(variable)
        return False
    return True


def known_variables() -> list[str]:
    """Return the `TRAINER_...` environment variables that are no settings."""
    from trainer_boot import variables

    return [*variables.NAMES_CODE, *variables.OTHERS]


def untrusted(path: str) -> tuple[str, str] | None:
    """Return why another user could have written what lies at `path`, and the command that would mend it (or "");
    None if only this user and root could."""
    from trainer_boot import trust

    try:
        trust.require_own(path)
    except trust.Untrusted as problem:
        return str(problem), problem.fix
    except OSError as problem:
        return f"{path}: {problem.strerror}", ""
    return None


def modules() -> list[str]:
    """The names of the bundled modules, sorted; none where there is no build."""
    finder = _running()
    return [] if finder is None else sorted(finder.modules)


def bundle_file(path: str | None = None) -> BundleFile | None:
    """The built file at `path`, or the one that this process was started from: None in a checkout. BundleError."""
    from trainer_boot.bundle_file import BundleFile

    path = bundle_path() if path is None else path
    return None if path is None else BundleFile(path)


def identity() -> tuple[str, str]:
    """Digests (hex) of the file that this process was started from and of its lock; empty where there was no build."""
    finder = _running()
    if finder is None:
        return "", ""
    from trainer_boot.layout import identity

    return identity(finder.archive.head)


def layers() -> tuple[str, ...]:
    """The names of all layers of a fast start."""
    from trainer_boot.layers import LAYERS

    return (*LAYERS, *OWN_LAYERS)


def accelerator_present() -> bool:
    """Whether this machine has one, as far as that is known without torch."""
    from trainer_boot import accelerators

    return accelerators.present()


def serve_early(words: list[str], environ: Mapping[str, str]) -> None:
    """Serves the standard library's modules from the snapshot before the configuration is read; `words`: the command's.
    Not where one of them or a variable sets how it is served; what the run file sets, `put_on` sees to."""
    settings = [word.removeprefix("--").partition("=")[0] for word in words if word.startswith("--start.")]
    settings += [name for name in environ if name.startswith("TRAINER_START_")]
    if any(name not in HARMLESS for name in settings):
        return
    from trainer_boot import snapshot

    snapshot.serve()


def roomy(function: Callable[Parameters, Result], *arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
    """Calls the function, with room for the frames of what it calls: see trainer_boot.frames."""
    from trainer_boot import frames

    return frames.roomy(function, *arguments, **options)


def put_on(names: list[str], check: str, node_local: str = "auto", not_forked: str = "only one rank") -> list[Note]:
    """Puts the named layers of a fast start on; a note each says whether it is on, off, or has stepped aside, and why.

    Before the first `import torch` of the process, or those that have to come first step aside. `not_forked`: why ranks
    are not forked from this process; "" where they are.
    """
    global _layers_on, _leaves_fast
    from trainer_boot import layers

    _layers_on = bool(names)
    _leaves_fast = "exit" in names
    notes = layers.put_on(names, check, node_local)
    for name in OWN_LAYERS:
        why = not_forked if name == "fork" else ""
        state = "aside" if why else "on"
        asked = name in names
        notes.append({"layer": name, "state": state if asked else "off", "why": why if asked else "not asked for"})
    return notes


def put_on_again(names: list[str]) -> None:
    """In a rank that was forked after the imports: what holds for the time of importing only holds once more."""
    global _layers_on
    if "gc" in names:
        from trainer_boot import collecting

        _layers_on = True
        collecting.pause()


def settle() -> None:
    """Waits for what reads ahead in threads: a process that forks may have one only."""
    from trainer_boot import prefetch

    prefetch.finish()


def leaves_fast() -> bool:
    """Whether this process may end without taking the interpreter apart."""
    return _leaves_fast


def take_off() -> None:
    """Everything is imported: what holds for the time of importing only ends. Does nothing where no layer is on."""
    global _layers_on
    if _layers_on:
        from trainer_boot import layers

        _layers_on = False
        layers.take_off()


def served() -> dict[str, object]:
    """What the snapshot has served so far, for the report: served (number of modules), damaged (their names)."""
    from trainer_boot import snapshot

    return {name: value for name, value in snapshot.report().items() if name in ("served", "damaged")}


def flush(why: str) -> None:
    """Runs what waits of torch's modules, before work that needs many of them; nothing where no layer is on."""
    lazy = sys.modules.get("trainer_boot.lazy")
    if lazy is not None:
        lazy.flush(why)


def record_snapshot(patient: bool = False) -> Note:
    """At the end of a run: makes the snapshot that the next start is served from, where there is none; a note. Never
    fails. `patient`: however long it takes; else what a run's end may take, and the next run adds to it."""
    try:
        from trainer_boot import snapshot

        return snapshot.record_if_missing(None if patient else snapshot.MAKING_SECONDS)
    except Exception as error:  # training is done; nothing about the next start may spoil it
        return {"layer": "snapshot", "state": "aside", "why": f"{type(error).__name__}: {error}"}


def begin() -> None:
    """A run begins: what the process did before is the first phase of its start."""
    from trainer_boot import report

    report.begin()


def mark(name: str) -> None:
    """Ends the phase `name` of the start."""
    from trainer_boot.report import mark

    mark(name)


def forked(restarted: bool) -> None:
    """This process was forked: its start is that of its parent, or, at a restart, begins now."""
    from trainer_boot import report

    report.forked(restarted)


def keep_origin() -> None:
    """In a process that will fork ranks: its start is also theirs."""
    from trainer_boot import report

    report.keep_origin()


def time_shared_objects(on: bool) -> None:
    """While modules are imported: notes when shared objects are opened; until it is turned off."""
    from trainer_boot import shared_objects

    if on:
        shared_objects.watch()
    else:
        shared_objects.unwatch()


def opening(begin: int, end: int) -> int:
    """Nanoseconds of that time, on the clock of `phases`, in which shared objects were opened."""
    from trainer_boot import shared_objects

    return shared_objects.within(begin, end)


def phases() -> list[Phase]:
    """The phases of the start so far: name, begin and end in nanoseconds of time.monotonic_ns()."""
    from trainer_boot import report

    return report.phases()


def _entry() -> list[str]:
    """What starts the trainer, after the interpreter: the file, the installed program, or the module."""
    path = bundle_path()
    if path is not None:
        return [path]
    main = sys.modules.get("__main__")
    script = getattr(main, "__file__", None) or ""
    # `-m` would put the current folder on `sys.path`, where the installed program has its own
    if getattr(main, "__spec__", None) is None and script.endswith("/trainer") and _calls_us(script):
        return [script]  # absolute: the interpreter has made it so
    return ["-m", "trainer"]


def _calls_us(script: str) -> bool:
    try:
        with open(script, "rb") as file:
            return b"trainer.cli" in file.read(1 << 16)
    except OSError:
        return False


def _running() -> BundleFinder | None:
    from trainer_boot.finder import running

    return running()


def _json(path: str) -> Any:
    finder = _running()
    if finder is None:
        return None
    import json

    return json.loads(finder.archive.members.read(path))
