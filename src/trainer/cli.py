"""argv -> a command. Imports a command's room only when it is chosen: `--version` pays for nothing else."""

import os
import sys

from trainer.version import VERSION

# name -> (module, one line for --help)
COMMANDS = {
    "train": ("train", "train a model; without a run file: a small GPT on Python's own library"),
    "exec": ("exec_", "run your own program on torch with the fast start; --nproc N ranks of it"),
    "init": ("init", "write a commented run file to start from"),
    "check": ("check", "validate a run file; memory, traffic and layouts for any number of ranks, without training"),
    "verify": ("verify", "compare your model and data on one rank with the layout of the run file"),
    "prepare": ("prepare", "tokenize and pack the data ahead of a run"),
    "eval": ("evaluate", "evaluate a run's newest checkpoint"),
    "generate": ("generate", "generate text with a run's newest checkpoint"),
    "checkpoints": ("checkpoints", "list (ls) or verify the checkpoints of a run"),
    "env": ("env", "compare the environment with the lock (check), make it (create), keep several; snapshot"),
    "bench": ("bench", "measure the start beside a hand-written script on this machine (startup)"),
    "self": ("self_", "what this file is (info, verify, sign, diff, sbom, licences, modules)"),
}


def usage() -> str:
    """The text of `--help`."""
    lines = [
        "usage: trainer COMMAND [ARGUMENTS] [--section.key VALUE ...]",
        "",
        "commands:",
        *(f"  {name:<12} {text}" for name, (_, text) in COMMANDS.items()),
        "",
        "examples:",
        "  trainer train                                 a small GPT, about a minute on two CPU cores",
        "  trainer init run.toml && trainer train run.toml --nproc 2",
        "  trainer train run.toml --optim.lr 3e-4 --run.folder runs/second",
        "",
        "`trainer COMMAND --help` tells more. --version; --traceback shows where an error came from.",
    ]
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns the exit status; prints a UserError as `error:` and `fix:` lines."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if "--traceback" in arguments:
        arguments.remove("--traceback")
        os.environ["TRAINER_TRACEBACK"] = "1"  # for ranks started from here
    first = arguments[0] if arguments else "--help"
    try:
        if first == "--version":
            print("trainer", VERSION)
            status = 0
        elif first in ("--help", "-h", "help"):
            print(usage())
            status = 0
        else:
            status = _run(first, arguments[1:])
        sys.stdout.flush()  # what it is refused is an error of ours, not of the interpreter's end
        return status
    except BrokenPipeError:
        # the reader of our output has gone (`trainer check ... | head`): nothing is wrong
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        return _failed(error)


def program() -> int:
    """`main` as a process of its own, whose end need not take the interpreter apart."""
    _open_streams()
    status = main()
    if sys.flags.inspect or sys.getprofile() or sys.gettrace():
        return status  # somebody waits for the end to look at what there is
    startup = sys.modules.get("trainer.startup")
    if startup is not None and startup.leaves_fast():
        from trainer.leaving import leave_tidily

        leave_tidily(status)
    if not any(name in sys.modules for name in ("torch", "threading", "trainer.program")):
        # only our own lines have run, which leave no file open
        import atexit

        atexit._run_exitfuncs()
        try:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
        except (OSError, ValueError):
            return status  # the interpreter's own end tells of it
        os._exit(status)
    return status


def _open_streams() -> None:
    """A standard descriptor that is closed would be given to the next file that is opened, and what is printed would go
    there. What a terminal or a pipe can't show is printed as an escape."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _failed(error: Exception) -> int:
    """Print an error and return its status. What tells its own `what` and `fix` is no bug and shows no traceback."""
    shown: Exception = error
    if not hasattr(error, "what"):
        from trainer import surroundings

        shown = surroundings.explained(error) or error
        if shown is error and os.environ.get("TRAINER_LAUNCH_DIR"):
            raise error
    what, fix = getattr(shown, "what", None), getattr(shown, "fix", "")
    try:
        if what is None or os.environ.get("TRAINER_TRACEBACK"):
            import traceback

            traceback.print_exception(error)
        print(f"error: {type(error).__name__ + ': ' + str(error) if what is None else what}", file=sys.stderr)
        if fix:
            print(f"fix: {fix}", file=sys.stderr)
        for other in getattr(shown, "others", ()):
            print(f"error: {other.what}\nfix: {other.fix}", file=sys.stderr)
    except (OSError, ValueError):
        pass  # nobody can be told: the status still says it
    if isinstance(error, OSError):
        from trainer.surroundings import quiet_end

        quiet_end()
    return int(getattr(shown, "status", 1))


def _run(name: str, arguments: list[str]) -> int:
    if name not in COMMANDS:
        from trainer.errors import UserError
        from trainer.suggestions import did_you_mean

        raise UserError(
            f"no such command: {name}", did_you_mean(name, list(COMMANDS)) or "`trainer --help` lists the commands.", 2
        )
    if name in ("train", "exec"):
        from trainer import startup

        startup.serve_early(arguments, os.environ)
    if name != "exec":  # a program prints as under Python
        try:  # noqa: SIM105 - contextlib is not imported yet
            sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        except (AttributeError, OSError, ValueError):
            pass  # somebody has put a stream of their own there
    from importlib import import_module

    command = import_module(f"trainer.commands.{COMMANDS[name][0]}")
    status: int = command.run(arguments)
    return status


if __name__ == "__main__":
    sys.exit(program())
