"""`trainer self`: what this file is, whether it is what was built, and who says so."""

from trainer import startup
from trainer.arguments import Arguments, split
from trainer.errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer_boot.bundle_file import BundleFile

HELP = """usage: trainer self info     [FILE] [--json]
       trainer self verify   [FILE] [--sha256 DIGEST] [--signature FILE --allowed-signers FILE [--identity WHO]]
       trainer self sign     [FILE] --key KEY [--force]
       trainer self diff     FILE [FILE] [--json]
       trainer self sbom     [FILE]
       trainer self licences [FILE] [--texts]
       trainer self modules  [FILE]

  info      version, commit, digests, Python versions served, options of the build, sizes, what is bundled
  verify    reads every byte and compares it with the recorded digests; on request also the file's SHA-256, or a
            signature by OpenSSH: in the namespace trainer.pyz, by somebody whom the allowed signers file names
  sign      writes FILE.sig with an SSH key (or its public half, if the key is in the agent)
  diff      what another file has otherwise: versions, lock, options, packages, members; exit status 1 if anything
  sbom      the software bill of materials, CycloneDX as JSON
  licences  of everything in the file; --texts: in full
  modules   the bundled modules, one a line

Without FILE: the file that this is. A file that vouches for itself proves a whole copy, not an honest one: verify
another one with a trainer that you trust, or have it signed. At every start what is executed is checked;
TRAINER_VERIFY=all has the whole file checked first, TRAINER_VERIFY=DIGEST lets no file run but the one of that SHA-256.
Both are checked by the file itself: where another zip was appended to it (`cat`), or its __main__ replaced by a program
that never calls the trainer, Python runs that and nothing of ours can refuse it. Check such a file from outside, with
sha256sum or with `self verify FILE --sha256 DIGEST` of another copy, before it is started.

examples:
  python trainer.pyz self info
  python trainer.pyz self sign --key ~/.ssh/id_ed25519
  trainer self verify trainer.pyz --signature trainer.pyz.sig --allowed-signers signers
  trainer self diff old.pyz new.pyz"""

# action -> its flags and the most files that it takes
ACTIONS: dict[str, tuple[dict[str, bool], int]] = {
    "info": ({"json": False}, 1),
    "verify": ({"sha256": True, "signature": True, "allowed-signers": True, "identity": True}, 1),
    "sign": ({"key": True, "force": False}, 1),
    "diff": ({"json": False}, 2),
    "sbom": ({}, 1),
    "licences": ({"texts": False}, 1),
    "modules": ({}, 1),
}
NOTHING = "started from a checkout or an installed package: "


def run(arguments: list[str]) -> int:
    """Runs one of them."""
    if not arguments or "--help" in arguments or "-h" in arguments:
        print(HELP)
        return 0
    action = {"licenses": "licences"}.get(arguments[0], arguments[0])
    if action not in ACTIONS:
        raise UserError(f"no such action: self {action}", f"Use one of {', '.join(ACTIONS)}.", 2)
    flags, most = ACTIONS[action]
    given = split(arguments[1:], flags, most, "self")
    if given.settings:
        raise UserError(f"self takes no settings (--{given.settings[0][0]})", "See `trainer self --help`.", 2)
    if action == "diff":
        from trainer.commands.self_diff import diff

        return diff(given)
    file = startup.bundle_file(given.places[0] if given.places else None)
    if file is None:
        return _without_file(action)
    if action == "sign":
        from trainer.commands.self_sign import sign

        return sign(file, given)
    return {"info": _info, "verify": _verify, "sbom": _sbom, "licences": _licences, "modules": _modules}[action](
        file, given
    )


def _without_file(action: str) -> int:
    if action == "info":
        from trainer.version import VERSION

        print(f"trainer {VERSION}")
        print(NOTHING + "nothing is bundled")
    elif action in ("verify", "modules"):
        print(NOTHING + "there is no file to look at")
    else:
        raise UserError(NOTHING + "there is no file", f"Name a file: trainer self {action} FILE.", 2)
    return 0


def _info(file: "BundleFile", given: Arguments) -> int:
    info = file.information
    if "json" in given.flags:
        import json

        print(json.dumps({**_facts(file), "files": len(file.files())}, indent=1, sort_keys=True))
        return 0
    print(f"{info.get('name', 'trainer')} {info.get('version', '')}")
    print(f"file: {file.path}, {file.size:,} bytes, sha256 {file.sha256}")
    print(f"build: {file.build}")
    commit = info.get("commit") or "unknown"
    print(f"commit: {commit}{' with changes' if info.get('dirty') else ''}")
    print(f"lock: sha256 {file.lock}")
    print(f"bytecode for Python: {', '.join(file.pythons)}; other versions from 3.11 up run from source")
    options = ", ".join(f"{name} {_shown(value)}" for name, value in sorted(info.get("options", {}).items()))
    print(f"options: {options or 'none'}")
    print(f"sizes: {', '.join(f'{kind} {size:,}' for kind, size in file.sizes().items())}")
    for kind in ("bundled", "environment"):
        names = [f"{item['name']} {item['version']}" for item in file.requirements if item["kind"] == kind]
        print(f"{kind}: {', '.join(names)}")
    print(f"modules: {len(file.archive.members.modules)}")
    return 0


def _facts(file: "BundleFile") -> dict[str, object]:
    info = file.information
    return {
        **{name: info.get(name) for name in ("name", "version", "commit", "dirty", "passes", "options", "entry")},
        "path": file.path,
        "bytes": file.size,
        "sha256": file.sha256,
        "build_sha256": file.build,
        "lock_sha256": file.lock,
        "python": file.pythons,
        "sizes": file.sizes(),
        "modules": len(file.archive.members.modules),
        "requirements": file.requirements,
    }


def _verify(file: "BundleFile", given: Arguments) -> int:
    flags = given.flags
    signed = [name for name in ("signature", "allowed-signers") if name in flags]
    if len(signed) == 1 or ("identity" in flags and not signed):
        raise UserError(
            "verifying a signature needs the list of allowed signers",
            "Give both --signature FILE and --allowed-signers FILE.",
            2,
        )
    found = file.damage()
    if found:
        raise UserError(f"{file.path} is damaged: {found[0]}", "Build or copy it again.")
    wanted = flags.get("sha256", file.sha256).lower()
    if wanted != file.sha256:
        raise UserError(
            f"{file.path} is whole, but another file: its SHA-256 is {file.sha256}",
            "Get the file with the SHA-256 that you gave.",
        )
    told = [
        f"{file.path}: whole, {len(file.archive.members.modules)} modules",
        f"code for Python {', '.join(file.pythons)}",
        f"sha256 {file.sha256}",
    ]
    if signed:
        from trainer.commands.self_sign import signer

        told.append(f"signed by {signer(file, flags)}")
    print(", ".join(told))
    return 0


def _sbom(file: "BundleFile", given: Arguments) -> int:
    bill = file.bill
    if bill is None:
        raise UserError(f"{file.path} was built without a bill of materials", "Build it again with `python -m build`.")
    print(bill.decode(), end="")
    return 0


def _licences(file: "BundleFile", given: Arguments) -> int:
    import json

    bill = json.loads(file.bill or b"{}")
    listed = [bill["metadata"]["component"], *bill["components"]] if bill else []
    for component in listed:
        paths = [each["value"] for each in component["properties"] if each["name"].startswith("trainer:licence-file:")]
        if paths:
            said = ", ".join(
                each.get("expression") or each["license"]["name"] for each in component.get("licenses", [])
            )
            print(f"{component['name']} {component.get('version', '')}: {said or 'see the text'}")
            for path in paths:
                print(f"  {path}")
                if "texts" in given.flags:
                    print(f"\n{file.read(path).decode(errors='replace').rstrip()}\n")
    return 0


def _modules(file: "BundleFile", given: Arguments) -> int:
    for name in sorted(file.archive.members.modules):
        print(name)
    return 0


def _shown(value: object) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)
