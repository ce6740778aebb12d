"""Reads one unpacked wheel and judges it: is it what its RECORD says, and can an archive stand for an installation?"""

import csv
import hashlib
import io
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path

from packaging.tags import parse_tag
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from build.errors import BuildError
from build.lock import Package
from build.settings import leave_in_environment

# Written by installers about one installation; they differ from one machine to the next.
INSTALLERS_OWN = frozenset({"INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "RECORD"})
SIGNATURES = frozenset({"RECORD.jws", "RECORD.p7s"})
"""Of a RECORD that does not travel."""
# What a wheel puts beside the packages of an environment; in an archive nobody finds it.
BESIDE = frozenset({"bin", "Scripts", "share", "etc", "include"})
NATIVE = (".so", ".pyd", ".dylib", ".dll", ".a", ".o")
# The first bytes of a file of machine code, whatever its name: ELF, Mach-O in four kinds.
MACHINE_CODE = (b"\x7fELF", b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf", b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe")
HASHES = ("sha256", "sha384", "sha512")
"""What a RECORD may use; the format forbids weaker ones."""
NAMESPACE = "-nspkg.pth"
"""Declares a namespace package for Pythons that had none; a folder without `__init__.py` is one by itself."""


class Damaged(BuildError):
    """The copy is not what was unpacked: fetched again, it will do."""


def wheel_files(package: Package, folder: Path, ignore_pth: frozenset[str]) -> Iterator[tuple[str, bytes, str]]:
    """Yield (path, bytes, distribution) of what travels, without installers' traces and what lies beside.

    BuildError for a wheel that an archive cannot stand for; Damaged where a file is not as its RECORD says.
    """
    information = _information(package, folder)
    _check_wheel(package, information)
    rows = _record(information)
    listed = {path for path, _ in rows}
    for path in sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()):
        if path not in listed and not _is_left_out(path, information.name, folder) and path != ".lock":
            raise _refusal(package, f"has a file that its RECORD does not list: {path}")
    for path, digest in rows:
        if _is_left_out(path, information.name, folder):
            continue
        parts = path.split("/")
        if ".." in parts or path.startswith("/"):
            raise _refusal(package, f"has a file outside of its own folder: {path}")
        if path.endswith((".pyc", ".pyo")):
            if path[: -len("c")] not in listed:
                raise _refusal(package, f"has bytecode without its source, which no other Python can read: {path}")
            continue
        if len(parts) == 1 and path.endswith(".pth"):
            _check_pth(package, path, ignore_pth)
            continue
        data = _checked(package, folder, path, digest)
        if path.endswith(NATIVE) or ".so." in path or data.startswith(MACHINE_CODE):
            raise _refusal(package, f"is locked as pure Python but has native code: {path}")
        yield path, data, package.name


def record_hash(data: bytes, kind: str = "sha256") -> str:
    """Return a hash as a RECORD writes it."""
    return f"{kind}=" + urlsafe_b64encode(hashlib.new(kind, data).digest()).rstrip(b"=").decode()


def _information(package: Package, folder: Path) -> Path:
    """Return the `.dist-info`; its name is that of the package and version that are locked."""
    found = sorted(folder.glob("*.dist-info"))
    if len(found) != 1:
        raise Damaged(f"{folder} has {len(found)} .dist-info folders", f"Delete {folder}, then build again.")
    name, _, version = found[0].name.removesuffix(".dist-info").partition("-")
    try:
        same = Version(version) == Version(package.version or "")
    except InvalidVersion:
        same = version == package.version
    if canonicalize_name(name) != package.name or not same:
        raise _refusal(package, f"has the metadata of {name} {version}")
    return found[0]


def _check_wheel(package: Package, information: Path) -> None:
    """Refuse a wheel whose own tags or kind are narrower than its file name."""
    try:
        lines = (information / "WHEEL").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Damaged(
            f"{information / 'WHEEL'} cannot be read: {error}", f"Delete {information.parent}, then build again."
        ) from None
    fields = [(key.strip().lower(), value.strip()) for key, _, value in (line.partition(":") for line in lines)]
    if ("root-is-purelib", "true") not in [(key, value.lower()) for key, value in fields]:
        raise _refusal(package, "is locked as pure Python but says `Root-Is-Purelib: false`")
    for value in (value for key, value in fields if key == "tag"):
        for tag in parse_tag(value):
            if tag.platform != "any" or tag.abi != "none" or not tag.interpreter.startswith("py"):
                raise _refusal(package, f"is locked for every Python and platform but says `Tag: {value}`")


def _record(information: Path) -> list[tuple[str, str]]:
    """Return path and hash of every file, sorted."""
    try:
        text = (information / "RECORD").read_text(encoding="utf-8")
        return sorted({(row[0], row[1]) for row in csv.reader(io.StringIO(text)) if row})
    except (OSError, UnicodeDecodeError, IndexError):
        raise Damaged(f"{information} has no RECORD", f"Delete {information.parent}, then build again.") from None


def _is_left_out(path: str, information: str, folder: Path) -> bool:
    parts = path.split("/")
    if parts[0] == information and "/".join(parts[1:]) in INSTALLERS_OWN | SIGNATURES:
        return True
    if parts[0] in BESIDE and not (folder / parts[0] / "__init__.py").exists():
        return True
    return "__pycache__" in parts


def _check_pth(package: Package, path: str, ignore_pth: frozenset[str]) -> None:
    if path.endswith(NAMESPACE) or package.name in {canonicalize_name(name) for name in ignore_pth}:
        return
    raise BuildError(
        f"{package.label} has {path}, whose lines an environment runs at every start; in the file nothing would",
        f"{leave_in_environment(package.name)} If it works without that, add it to `ignore-pth` there.",
    )


def _checked(package: Package, folder: Path, path: str, digest: str) -> bytes:
    kind = digest.partition("=")[0]
    if kind not in HASHES:
        how = f"a hash that is not secure ({kind})" if kind else "no hash"
        raise _refusal(package, f"has {how} for {path} in its RECORD")
    try:
        data = (folder / path).read_bytes()
    except OSError as error:
        raise Damaged(f"cannot read {folder / path}: {error.strerror}", f"Delete {folder}, then build again.") from None
    if digest.rstrip("=") != record_hash(data, kind):
        raise Damaged(
            f"{path} of {package.label} is not what its RECORD says",
            f"Report the wheel to the authors of {package.name}. {leave_in_environment(package.name)}",
        )
    return data


def _refusal(package: Package, what: str) -> BuildError:
    return BuildError(f"the wheel of {package.label} {what}", leave_in_environment(package.name))
