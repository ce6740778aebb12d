"""`trainer self`: what this file is."""

from trainer import startup
from trainer.arguments import split
from trainer.errors import UserError

HELP = """usage: trainer self {info,verify,modules}

  info      version, commit, digest of the lock, Python versions served, what is bundled
  verify    reads every byte and compares it with the recorded digests
  modules   the bundled modules, one a line

examples:
  python trainer.pyz self info
  python trainer.pyz self modules | wc -l"""


def run(arguments: list[str]) -> int:
    """Runs one of the three."""
    if not arguments or "--help" in arguments or "-h" in arguments:
        print(HELP)
        return 0
    given = split(arguments[1:], {}, 0, "self")
    if given.settings:
        raise UserError(f"self takes no settings (--{given.settings[0][0]})", "`trainer self --help`", 2)
    actions = {"info": _info, "verify": _verify, "modules": _modules}
    if arguments[0] not in actions:
        raise UserError(f"no such action: self {arguments[0]}", "one of: info, verify, modules", 2)
    return actions[arguments[0]]()


def _info() -> int:
    from trainer.version import VERSION

    print(f"trainer {VERSION}")
    info = startup.build_info()
    if info is None:
        print("started from a checkout or an installed package: nothing is bundled")
        return 0
    print(f"file: {startup.bundle_path()}")
    commit = info.get("commit") or "unknown"
    print(f"commit: {commit}{' with changes' if info.get('dirty') else ''}")
    print(f"lock: sha256 {info['lock_sha256']}")
    print(f"bytecode for Python: {', '.join(sorted(info['python']))}; other versions from 3.11 up run from source")
    wanted = startup.requirements() or []
    for kind in ("bundled", "environment"):
        names = [f"{item['name']} {item['version']}" for item in wanted if item["kind"] == kind]
        print(f"{kind}: {', '.join(names)}")
    print(f"modules: {len(startup.modules())}")
    return 0


def _verify() -> int:
    if startup.bundle_path() is None:
        print("started from a checkout or an installed package: there is no file to verify")
        return 0
    found = startup.damage()
    if found:
        raise UserError(f"{startup.bundle_path()} is damaged: {found[0]}", "build or copy it again")
    print(f"{startup.bundle_path()}: whole, {len(startup.modules())} modules")
    return 0


def _modules() -> int:
    if startup.bundle_path() is None:
        print("nothing is bundled in a checkout")
    for name in startup.modules():
        print(name)
    return 0
