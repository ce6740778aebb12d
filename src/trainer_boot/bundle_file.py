"""A built file looked at from outside or from within: what is in it, and whether every byte is as it was built."""

from __future__ import annotations

import json
import marshal
import os
from functools import cached_property
from os import pread
from typing import IO, TYPE_CHECKING, Any

from trainer_boot.finder import Archive, BundleError
from trainer_boot.integrity import FIX, content_is_whole, header_is_whole, require_untouched, sha256
from trainer_boot.layout import (
    BILL,
    BOOT_MODULES,
    BUILD_INFORMATION,
    ENVIRONMENT,
    FIRST_SLOT,
    FOLDER,
    HEADER_SIZE,
    ORIGINALS,
    REQUIREMENTS,
    SHEBANG,
    SIGNATURE,
    SLOT_SIZE,
    SLOT_VERSION,
    SLOTS,
    check,
    digest,
    identity,
    path_of,
    served,
    unpacked,
    word,
)

if TYPE_CHECKING:
    from trainer_boot.layout import Index

_MAIN = ("__main__.py", "__main__.pyc")


class BundleFile:
    """One that is whole as far as a start looks. Its content is read when it is asked for; BundleError where that is
    damaged."""

    def __init__(self, path: str) -> None:
        """BundleError for what is not a built file, or is one whose header or table of contents is damaged."""
        self.path = os.path.abspath(path)
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            head = pread(self._descriptor, HEADER_SIZE, 0)
        except OSError as error:
            raise BundleError(
                f"cannot read {path}: {error.strerror}", "Give a file made by `python -m build`."
            ) from None
        if head[len(SHEBANG) : len(SHEBANG) + len(SIGNATURE)] != SIGNATURE:
            os.close(self._descriptor)
            raise BundleError(f"{path} is not a trainer.pyz of this format", "Give a file made by `python -m build`.")
        self.archive = Archive(self.path, self._descriptor, head)
        if len(head) < HEADER_SIZE or not header_is_whole(head):
            raise BundleError(f"the header of {self.path} is damaged", FIX)
        self.build, self.lock = identity(head)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 (hex) of the whole file, as `sha256sum` prints it."""
        return sha256(self._descriptor)

    def stream(self) -> IO[bytes]:
        """The whole file from its beginning: the one that was opened, whatever lies at its path by now."""
        return open(f"/proc/self/fd/{self._descriptor}", "rb")

    @property
    def size(self) -> int:
        """In bytes."""
        return word(self.archive.head, "size")

    @property
    def pythons(self) -> dict[str, str]:
        """The versions of Python that have code in it, with their magic numbers (hex)."""
        return {version: magic.hex() for version, magic in served(self.archive.head).items()}

    def read(self, path: str) -> bytes:
        """The content of a file in it. FileNotFoundError."""
        return self.archive.members.read(path)

    def json(self, path: str) -> Any:
        """The value in a JSON file in it; None if there is no such file."""
        return json.loads(self.read(path)) if path in self.archive.members.files else None

    @property
    def information(self) -> dict[str, Any]:
        """What the build wrote down about itself."""
        value: dict[str, Any] = self.json(BUILD_INFORMATION)
        return value

    @property
    def requirements(self) -> list[dict[str, Any]]:
        """What the lock asks for, bundled or in the environment."""
        value: list[dict[str, Any]] = self.json(REQUIREMENTS) or []
        return value

    @property
    def bill(self) -> bytes | None:
        """Its software bill of materials (CycloneDX JSON); None if it was built without."""
        return self.read(BILL) if BILL in self.archive.members.files else None

    def files(self) -> list[str]:
        """The paths of all that a zip reader finds, sorted."""
        return sorted(self.archive.members.files)

    def sizes(self) -> dict[str, int]:
        """The bytes that each kind of content takes in the file: they add up to its size."""
        members = self.archive.members
        found = dict.fromkeys(("modules", "data", "code", "original texts", "lock", "start"), 0)
        modules = {path_of(name, is_package) for name, is_package in members.modules.items()}
        for path, entry in members.files.items():
            if path in _MAIN:
                kind = "start"
            elif path.startswith(f"{FOLDER}code-"):
                kind = "code"
            elif path == ORIGINALS:
                kind = "original texts"
            elif path in (ENVIRONMENT, REQUIREMENTS):
                kind = "lock"
            elif path.startswith(FOLDER):
                continue
            else:
                kind = "modules" if path in modules else "data"
            found[kind] += entry[1]
        return {**found, "rest": self.size - sum(found.values())}

    def code(self, version: str) -> dict[str, bytes]:
        """The marshalled code of each module for that version of Python. BundleError where it is damaged."""
        head = self.archive.head
        for at in range(FIRST_SLOT, FIRST_SLOT + SLOTS * SLOT_SIZE, SLOT_SIZE):
            slot = head[at : at + SLOT_SIZE]
            if slot[SLOT_VERSION:].rstrip(b"\0").decode() == version:
                break
        else:
            raise BundleError(
                f"{self.path} has no code for Python {version}",
                f"Use one of the versions that it has: {', '.join(self.pythons)}.",
            )
        offset, *sizes = [int.from_bytes(slot[i : i + 8], "little") for i in range(8, 8 * (3 + len(BOOT_MODULES)), 8)]
        start = pread(self._descriptor, sum(sizes), offset)
        if check(start) != slot[SLOT_VERSION - 8 : SLOT_VERSION]:
            raise BundleError(f"what starts Python {version} differs from what was built", FIX)
        index: Index = marshal.loads(start[-sizes[-1] :])
        codes = {}
        for name, (at, size, wanted, _) in index[2].items():
            blob = pread(self._descriptor, size, offset + len(start) + at)
            if check(blob) != wanted:
                raise BundleError(f"the code of {name} for Python {version} differs from what was built", FIX)
            codes[name] = unpacked(blob)
        return codes

    def damage(self) -> list[str]:
        """Reads every byte: a sentence for each thing that is not as it was built, none if all is.

        The digest in the header covers every byte behind it. What differs is looked for the way it is read at run time;
        all contents are compared with the digests in the build information too.
        """
        try:
            require_untouched(self.archive, self._descriptor)
            members = self.archive.members
        except BundleError as error:
            return [error.what]
        found = []
        files, originals, code = {}, {}, {}
        for version in self.pythons:
            try:
                code[version] = self.code(version)
            except BundleError as error:
                found.append(error.what)
        for path in members.files:
            try:
                files[path] = members.read(path)
                if members.has_original(path):
                    originals[path] = members.original_bytes(path)
            except BundleError:
                found.append(f"{path} differs from what was built")
        if found:
            return found
        if not content_is_whole(self.archive, self._descriptor):
            return [f"{self.path} differs between its members, where no reader looks"]
        return self._wrong_digests(files, originals, code)

    def _wrong_digests(
        self, files: dict[str, bytes], originals: dict[str, bytes], code: dict[str, dict[str, bytes]]
    ) -> list[str]:
        recorded = json.loads(files[BUILD_INFORMATION])["sha256"]
        shipped = {path: data for path, data in files.items() if not path.startswith(FOLDER) and path not in _MAIN}
        found = {"files": (recorded["files"], digest(shipped.items()))}
        if recorded["originals"] is not None:
            found["original texts"] = (recorded["originals"], digest(originals.items()))
        for version, codes in code.items():
            found[f"code for Python {version}"] = (recorded["code"][version], digest(codes.items()))
        return [
            f"the {what} of {self.path} differ from their digest" for what, (old, new) in found.items() if old != new
        ]
