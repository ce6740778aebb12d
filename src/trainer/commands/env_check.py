"""`trainer env check`: does the environment hold what this file was locked with? No torch."""

import sys
from collections.abc import Mapping

from trainer import startup
from trainer.commands.env_progress import Bar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer_boot.environment.comparing import Verdict


def run(flags: Mapping[str, str]) -> int:
    """0 or 3; notes and the verdict go to standard output, differences to standard error."""
    bar = Bar("comparing") if "full" in flags else None
    verdict = startup.check_environment(flags.get("variant"), extras_of(flags), bar)
    if bar is not None:
        bar.end()
    if "json" in flags:
        _print_json(verdict, "full" in flags)
        return 0 if verdict is None or verdict.fits else 3
    if verdict is None:
        print("no lock inside: this is not the one-file trainer; `python trainer.pyz env check` compares with its lock")
        return 0
    for problem in verdict.problems:
        if not problem.fatal:
            print(f"note: {problem.what}" + (f"; {problem.fix}" if problem.fix else ""))
    fatal = [problem for problem in verdict.problems if problem.fatal]
    for problem in fatal:
        print(f"error: {problem.what}", file=sys.stderr)
        print(f"fix: {problem.fix}", file=sys.stderr)
    if fatal:
        count = f"{len(fatal)} differences from the lock" if len(fatal) > 1 else "one difference from the lock"
        words = ["env", "create", *(["--repair"] if verdict.stored else [])]
        command = startup.shown_command(*words)
        if any(problem.kind != "shadowed" for problem in fatal):
            print(f"{count}; `{command}` makes an environment that has none")
        if any(problem.name == "torch" and problem.installed is None for problem in fatal):
            _tell_where_it_goes_on()
        return 3
    chosen = f", variant {verdict.variant}" if verdict.variant else ""
    depth = ", every file" if "full" in flags else ""
    print(f"{sys.executable} fits the lock{chosen}: {verdict.packages} packages{depth}")
    return 0


def extras_of(flags: Mapping[str, str]) -> list[str] | None:
    """The names in --extra; None where it is not given."""
    text = flags.get("extra")
    return None if text is None else [name for name in text.replace(",", " ").split() if name]


def _tell_where_it_goes_on() -> None:
    keeper = startup.keeper(None)
    stored = None if keeper is None else keeper.store.fitting(keeper.carried)
    if stored is not None:
        print(f"what needs torch goes on in {stored.path}")


def _print_json(verdict: "Verdict | None", full: bool) -> None:
    import json

    if verdict is None:
        print(json.dumps({"lock": None, "python": sys.executable}))
        return
    found = {
        "fits": verdict.fits,
        "python": sys.executable,
        "variant": verdict.variant,
        "extras": list(verdict.extras),
        "packages": verdict.packages,
        "full": full,
        "differences": [problem.as_json() for problem in verdict.problems],
    }
    print(json.dumps(found, indent=1))
