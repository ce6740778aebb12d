"""`trainer env check`: does the environment hold what this file was locked with? No torch."""

import sys

from trainer.errors import UserError

HELP = """usage: trainer env check

check    compares what is installed with the lock that this file carries; prints every difference and the command
         that mends it. Only names and versions are read, nothing is imported.

example:
  python trainer.pyz env check

exit status: 0 the environment fits; 3 it does not; 2 wrong usage"""

COMMANDS = ("check",)


def run(arguments: list[str]) -> int:
    """Runs `check`; notes and the verdict go to standard output, differences to standard error."""
    if not arguments or "--help" in arguments or "-h" in arguments:
        print(HELP)
        return 0 if arguments else 2
    command, *rest = arguments
    if command not in COMMANDS:
        from trainer.config import nearest

        hint = nearest(command, list(COMMANDS)) or "`trainer env --help` lists the commands"
        raise UserError(f"no such command: env {command}", hint, 2)
    if rest:
        raise UserError(f"too many arguments: {rest[0]}", "`trainer env --help`", 2)
    return _check()


def _check() -> int:
    from trainer import startup

    requirements = startup.requirements()
    if requirements is None:
        print("no lock inside: this is not the one-file trainer; `python trainer.pyz env check` compares with its lock")
        return 0
    problems = startup.check_environment()
    for problem in problems:
        if not problem.fatal:
            print(f"note: {problem.what}")
    fatal = [problem for problem in problems if problem.fatal]
    for problem in fatal:
        print(f"error: {problem.what}", file=sys.stderr)
        print(f"fix: {problem.fix}", file=sys.stderr)
    if fatal:
        return 3
    print(f"{sys.executable} fits the lock")
    return 0
