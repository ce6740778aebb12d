"""Detached signatures of the built file by OpenSSH, whose keys and tool everybody has."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from trainer.arguments import Arguments
from trainer.errors import UserError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer_boot.bundle_file import BundleFile

NAMESPACE = "trainer.pyz"
"""What our signatures are for: one that was made for a commit or a letter does not count."""


def sign(file: "BundleFile", given: Arguments) -> int:
    """Writes FILE.sig. UserError for a damaged file, a key that ssh-keygen refuses, or a signature that is there."""
    key = given.flags.get("key")
    if key is None:
        raise UserError("no key is given", "Give one, for example --key ~/.ssh/id_ed25519.", 2)
    found = file.damage()
    if found:
        raise UserError(f"{file.path} is damaged: {found[0]}", "Build or copy it again.")
    target = Path(f"{file.path}.sig")
    if target.exists() and "force" not in given.flags:
        raise UserError(f"{target} already exists", "Remove it, or overwrite it with --force.")
    done = _ssh_keygen(["sign", "-f", key], file)
    if done.returncode or not done.stdout:
        raise UserError(
            f"the file was not signed: {_said(done)}", f"Check that {key} is a private key that you can read."
        )
    _write(target, done.stdout)
    print(f"{target}: signature in the namespace {NAMESPACE}")
    return 0


def signer(file: "BundleFile", flags: "Mapping[str, str]") -> str:
    """Who has signed the file, by the name in the allowed signers file. UserError if nobody of these has."""
    signature, allowed = flags["signature"], flags["allowed-signers"]
    for path in (signature, allowed):
        if not os.access(path, os.R_OK):
            raise UserError(f"cannot read {path}", "Give the path of an existing file.", 2)
    who = flags.get("identity")
    if who is None:
        named = _ssh_keygen(["find-principals", "-s", signature, "-f", allowed], file)
        who = named.stdout.decode(errors="replace").partition("\n")[0].strip()
        if named.returncode or not who:
            raise UserError(
                f"{signature} is not by a signer in {allowed}: {_said(named)}",
                "Do not run the file. Find out who signed it.",
            )
    done = _ssh_keygen(["verify", "-s", signature, "-f", allowed, "-I", who], file)
    if done.returncode:
        raise UserError(
            f"{signature} is not a signature of {file.path} by {who}: {_said(done)}",
            "Do not run the file. Get both again.",
        )
    return who


def _ssh_keygen(arguments: list[str], file: "BundleFile") -> "subprocess.CompletedProcess[bytes]":
    tool = shutil.which("ssh-keygen")
    if tool is None:
        raise UserError("ssh-keygen is not installed", "Install the OpenSSH client, or compare digests with --sha256.")
    action, *rest = arguments
    command = [tool, "-Y", action, *rest, *([] if action == "find-principals" else ["-n", NAMESPACE])]
    with file.stream() as content:
        return subprocess.run(command, stdin=content, capture_output=True, check=False)


def _said(done: "subprocess.CompletedProcess[bytes]") -> str:
    lines = (done.stderr + b"\n" + done.stdout).decode(errors="replace").split("\n")
    return next((line.strip().rstrip(".") for line in lines if line.strip()), f"ssh-keygen: status {done.returncode}")


def _write(target: Path, content: bytes) -> None:
    """Whole or not at all."""
    try:
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o644)
            file.write(content)
        Path(name).replace(target)
    except OSError as error:
        raise UserError(
            f"cannot write {target}: {error.strerror}", "Sign a copy in a folder that you can write to."
        ) from None
