"""`trainer env`: is this environment the locked one, make it, keep several. No torch."""

from trainer.arguments import split
from trainer.errors import UserError

HELP = """usage: trainer env check [--full] [--json] [--variant NAME] [--extra NAME,...]
       trainer env create [--from FOLDER] [--variant NAME] [--extra NAME,...] [--repair] [--no-use] [--no-snapshot]
       trainer env pack FOLDER [--variant NAME] [--extra NAME,...] [--python 3.12] [--machine aarch64]
       trainer env list | use NAME | use NUMBER | rollback | prune [--keep N] [--dry-run]
       trainer env snapshot [--force]

check    compares what is installed with the lock that this file carries: versions and builds, code without metadata,
         metadata without code, what PYTHONPATH puts in front; prints every difference and the command that mends it.
         Nothing is imported. --full: reads every file and compares it with its hash.
create   makes the locked environment in the store, with uv (fetched by its locked hash where there is none), makes it
         current, and its import snapshot. Commands under a Python without torch go on in it by themselves.
         --repair: one that is there is compared file by file, and made again where it differs.
pack     fetches all wheels and uv into a folder; `create --from FOLDER` then needs no network.
list     the environments of the store, their sizes, generations.   use: makes one current, by name or generation.
rollback goes back to the generation before.   prune: keeps N generations (2), what is in use, and what fits this file.
snapshot puts the Python code of the packages that training imports into one file, so that the next starts read that
         instead of thousands; trains a few steps in a temporary folder to see which. The first run that finds none
         makes one too. Kept in $TRAINER_SNAPSHOT_DIR, else in the user's cache. --force: also where there is one.

The store: --store FOLDER, else $TRAINER_ENV_STORE, else trainer-pyz among the user's data. It counts only if it belongs
to you, to root, or to an owner named in $TRAINER_ENV_OWNERS, and nobody else can write it or replace a folder above it.
TRAINER_ENV_ENTER=0: never go on in a stored environment. Mirrors: UV_DEFAULT_INDEX, PIP_INDEX_URL. All but snapshot
take --json.

examples:
  python trainer.pyz env check
  python trainer.pyz env create && python trainer.pyz train
  python trainer.pyz env pack wheels && python trainer.pyz env create --from wheels
  python trainer.pyz env snapshot

exit status: 0 the environment fits, done; 3 it does not, or the lock does not cover it; 1 could not be done; 2 usage"""

JSON, STORE = {"json": False}, {"store": True}
CHOICE = {"variant": True, "extra": True}
# command -> its flags (True: with a value), how many places it takes
COMMANDS: dict[str, tuple[dict[str, bool], int, int]] = {
    "check": ({"full": False, **CHOICE, **JSON, **STORE}, 0, 0),
    "create": ({"from": True, "repair": False, "no-use": False, "no-snapshot": False, **CHOICE, **JSON, **STORE}, 0, 0),
    "pack": ({"python": True, "machine": True, **CHOICE, **JSON}, 1, 1),
    "list": ({**JSON, **STORE}, 0, 0),
    "use": ({**JSON, **STORE}, 1, 1),
    "rollback": ({**JSON, **STORE}, 0, 0),
    "prune": ({"keep": True, "dry-run": False, **JSON, **STORE}, 0, 0),
    "snapshot": ({"force": False}, 0, 0),
}


def run(arguments: list[str]) -> int:
    """Runs one; results go to standard output, progress and differences to standard error."""
    if not arguments or "--help" in arguments or "-h" in arguments:
        print(HELP)
        return 0 if arguments else 2
    command, *rest = arguments
    if command not in COMMANDS:
        from trainer.suggestions import did_you_mean

        hint = did_you_mean(command, list(COMMANDS)) or "`trainer env --help` lists the commands."
        raise UserError(f"no such command: env {command}", hint, 2)
    flags, most, least = COMMANDS[command]
    given = split(rest, flags, most, "env")
    if given.settings:
        raise UserError(f"env {command} takes no settings (--{given.settings[0][0]})", "See `trainer env --help`.", 2)
    if len(given.places) < least:
        raise UserError(f"env {command} needs the name of an environment", "See `trainer env --help`.", 2)
    if command == "snapshot":
        from trainer.commands import env_snapshot

        return env_snapshot.run("force" in given.flags)
    if command == "check":
        from trainer.commands import env_check

        return env_check.run(given.flags)
    from trainer.commands import env_store

    return env_store.run(command, given.places, given.flags)
