"""What one built file has otherwise than another."""

from trainer import startup
from trainer.arguments import Arguments
from trainer.errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from trainer_boot.bundle_file import BundleFile

    Changes = dict[str, list[Any]]

FACTS = ("name", "version", "commit", "dirty", "format", "entry", "passes")
OWN = "_trainer/"


def diff(given: Arguments) -> int:
    """Prints the differences of two files, or of one and the running one; 0 if they are the same, else 1."""
    if not given.places:
        raise UserError("self diff needs two files", "Run `trainer self diff OLD.pyz NEW.pyz`.", 2)
    old, new = (_open(path) for path in (*given.places, None)[:2])
    found = compare(old, new)
    if "json" in given.flags:
        import json

        print(json.dumps(found, indent=1, sort_keys=True))
    else:
        print("\n".join(_lines(found)))
    return 0 if found["same"] else 1


def compare(old: "BundleFile", new: "BundleFile") -> "dict[str, Any]":
    """The differences as JSON values: of facts, options and packages as [old, new], of members by their paths, of code
    by version of Python and module."""
    facts = _changes(_facts(old), _facts(new))
    packages = _changes(_packages(old), _packages(new))
    files, originals = _contents(old), _originals(old)
    new_files, new_originals = _contents(new), _originals(new)
    members = {
        "added": sorted(new_files.keys() - files.keys()),
        "removed": sorted(files.keys() - new_files.keys()),
        "changed": sorted(path for path in files.keys() & new_files.keys() if files[path] != new_files[path]),
        "originals": sorted(_changes(originals, new_originals)),
    }
    code = {}
    for version in sorted(old.pythons.keys() & new.pythons.keys()):
        changed = sorted(_changes(old.code(version), new.code(version)))
        if changed:
            code[version] = changed
    return {
        "same": old.sha256 == new.sha256,
        "files": [{"path": each.path, "sha256": each.sha256, "build_sha256": each.build} for each in (old, new)],
        "facts": facts,
        "packages": packages,
        "members": members,
        "code": code,
    }


def _open(path: str | None) -> "BundleFile":
    try:
        file = startup.bundle_file(path)
    except Exception as error:  # what is no file of ours is wrong usage here: 1 means that they differ
        if not hasattr(error, "what"):
            raise
        raise UserError(str(error.what), str(getattr(error, "fix", "")), 2) from None
    if file is None:
        raise UserError("self diff needs two files", "Run `trainer self diff OLD.pyz NEW.pyz`.", 2)
    found = file.damage()
    if found:
        raise UserError(f"{file.path} is damaged: {found[0]}", "Build or copy it again.", 2)
    return file


def _facts(file: "BundleFile") -> "dict[str, Any]":
    info = file.information
    options = {f"option {name}": value for name, value in info.get("options", {}).items()}
    found = {name: info.get(name) for name in FACTS} | options
    return found | {"lock": file.lock, "python": ", ".join(file.pythons), "bytes": file.size}


def _packages(file: "BundleFile") -> dict[str, str]:
    found: dict[str, str] = {}
    for each in file.requirements:  # a name may be locked in several versions
        said = f"{each['version']} ({each['kind']})"
        found[each["name"]] = f"{found[each['name']]}, {said}" if each["name"] in found else said
    return found


def _contents(file: "BundleFile") -> dict[str, bytes]:
    return {path: file.read(path) for path in file.files() if not path.startswith(OWN)}


def _originals(file: "BundleFile") -> dict[str, bytes]:
    members = file.archive.members
    return {path: members.original_bytes(path) for path in file.files() if members.has_original(path)}


def _changes(old: "Mapping[str, Any]", new: "Mapping[str, Any]") -> "Changes":
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return {name: [old.get(name), new.get(name)] for name in names}


def _lines(found: "dict[str, Any]") -> list[str]:
    if found["same"]:
        return [f"the same file: sha256 {found['files'][0]['sha256']}"]
    lines = [f"{name}: {before} -> {after}" for name, (before, after) in found["facts"].items()]
    for name, (before, after) in sorted(found["packages"].items()):
        lines.append(f"package {name}: {before or 'absent'} -> {after or 'absent'}")
    members = found["members"]
    for kind in ("added", "removed", "changed"):
        lines += [f"{kind}: {path}" for path in members[kind]]
    # what follows from a changed text goes without saying
    known = {*members["added"], *members["removed"], *members["changed"]}
    lines += [f"original text changed: {path}" for path in members["originals"] if path not in known]
    texts = {path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in known}
    for version, modules in found["code"].items():
        lines += [f"code for Python {version} changed: {name}" for name in modules if name not in texts]
    return lines or ["the same content, packed otherwise"]
