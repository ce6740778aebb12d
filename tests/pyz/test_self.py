"""What the file says of itself: contents, bill of materials, licences, signatures, differences."""

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.boot import bed

ROOT = bed.ROOT


def asked(pyz: Path, *words: str, status: int = 0, **variables: str) -> str:
    """What `self` printed; where it fails, its error line."""
    done = bed.run([pyz], "self", *words, environment=variables)
    assert done.returncode == status, done.stdout + done.stderr
    if status and not done.stdout:
        error, fix = done.stderr.splitlines()
        assert fix.startswith("fix: ")
        return error
    return done.stdout


def test_it_knows_its_digests_options_and_sizes(pyz: Path) -> None:
    found = json.loads(asked(pyz, "info", "--json"))
    content = pyz.read_bytes()
    assert found["sha256"] == hashlib.sha256(content).hexdigest()
    assert found["lock_sha256"] == hashlib.sha256((ROOT / "uv.lock").read_bytes()).hexdigest()
    assert sum(found["sizes"].values()) == found["bytes"] == len(content)
    assert found["options"]["originals"] is True
    assert list(found["python"]) == [f"{sys.version_info[0]}.{sys.version_info[1]}"]
    told = asked(pyz, "info")
    assert f"sha256 {found['sha256']}" in told
    assert "originals yes" in told


def test_it_is_whole(pyz: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256(pyz.read_bytes()).hexdigest()
    assert ": whole, " in asked(pyz, "verify", "--sha256", digest)
    assert "is whole, but another file" in asked(pyz, "verify", "--sha256", "0" * 64, status=1)
    data = bytearray(pyz.read_bytes())
    data[-len(data) // 3] ^= 1
    (tmp_path / "damaged.pyz").write_bytes(data)
    assert "is damaged: " in asked(pyz, "verify", str(tmp_path / "damaged.pyz"), status=1)
    (tmp_path / "no.pyz").write_bytes(b"something else")
    assert "is not a trainer.pyz of this format" in asked(pyz, "verify", str(tmp_path / "no.pyz"), status=1)
    assert "No such file" in asked(pyz, "verify", str(tmp_path / "absent.pyz"), status=1)


def test_bytes_that_no_reader_looks_at_are_covered_too(pyz: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(pyz) as archive:
        offset = archive.getinfo("_trainer/environment.json").header_offset
    data = bytearray(pyz.read_bytes())
    data[offset + 10] ^= 1  # the time in the local header
    (tmp_path / "odd.pyz").write_bytes(data)
    assert "differs between its members" in asked(pyz, "verify", str(tmp_path / "odd.pyz"), status=1)


def test_the_bill_of_materials_is_valid_and_complete(pyz: Path) -> None:
    text = asked(pyz, "sbom")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    with zipfile.ZipFile(pyz) as archive:
        wanted = json.loads(archive.read("_trainer/requirements.json"))
    listed = {(each["name"], each["version"]): each for each in bill["components"]}
    assert set(listed) == {(each["name"], each["version"]) for each in wanted}
    packaging = next(each for (name, _), each in listed.items() if name == "packaging")
    assert packaging["licenses"] == [{"expression": "Apache-2.0 OR BSD-2-Clause"}]
    assert packaging["purl"] == packaging["bom-ref"] == f"pkg:pypi/packaging@{packaging['version']}"
    needs = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    assert packaging["purl"] in needs[bill["metadata"]["component"]["bom-ref"]]
    assert {ref for refs in needs.values() for ref in refs} <= needs.keys()


def test_the_texts_of_all_licences_travel(pyz: Path) -> None:
    listed = asked(pyz, "licences")
    assert "packaging " in listed and "tqdm " in listed and "trainer-pyz " in listed
    texts = asked(pyz, "licenses", "--texts")
    assert (ROOT / "LICENSE").read_text().rstrip() in texts


def test_modules_one_a_line(pyz: Path) -> None:
    assert {"trainer.cli", "packaging.version", "trainer_boot.finder"} <= set(asked(pyz, "modules").splitlines())


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen here")
def test_signed_by_one_who_may(pyz: Path, other_pyz: Path, tmp_path: Path) -> None:
    file = Path(shutil.copy(pyz, tmp_path / "trainer.pyz"))
    for name in ("ours", "theirs"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(tmp_path / name)]
        subprocess.run(command, check=True, capture_output=True)
    public = (tmp_path / "ours.pub").read_text()
    (tmp_path / "signers").write_text(f'release@site namespaces="trainer.pyz" {public}')
    signature, signers = ["--signature", f"{file}.sig"], ["--allowed-signers", str(tmp_path / "signers")]
    assert "cannot read" in asked(file, "verify", *signature, *signers, status=2)
    assert f"{file}.sig" in asked(file, "sign", "--key", str(tmp_path / "ours"))
    assert "already exists" in asked(file, "sign", "--key", str(tmp_path / "ours"), status=1)
    assert "signed by release@site" in asked(file, "verify", *signature, *signers)
    assert "signed by release@site" in asked(file, "verify", *signature, *signers, "--identity", "release@site")
    assert "is not a signature of" in asked(file, "verify", *signature, *signers, "--identity", "me@site", status=1)
    assert "is not a signature of" in asked(pyz, "verify", str(other_pyz), *signature, *signers, status=1)
    asked(file, "sign", "--force", "--key", str(tmp_path / "theirs"))
    assert "is not by a signer in" in asked(file, "verify", *signature, *signers, status=1)
    assert "was not signed" in asked(file, "sign", "--force", "--key", str(tmp_path / "none"), status=1)
    command = ["ssh-keygen", "-Y", "sign", "-n", "git", "-f", str(tmp_path / "ours")]
    (tmp_path / "trainer.pyz.sig").write_bytes(
        subprocess.run(command, input=pyz.read_bytes(), capture_output=True, check=True).stdout
    )
    assert "namespace does not match" in asked(file, "verify", *signature, *signers, status=1)


def test_without_ssh_keygen_one_clear_error(pyz: Path, tmp_path: Path) -> None:
    words = [sys.executable, str(pyz), "self", "sign", "--key", "k"]
    done = subprocess.run(words, capture_output=True, text=True, env={"PATH": str(tmp_path)}, check=False)
    assert done.stderr.startswith("error: ssh-keygen is not installed\nfix: Install the OpenSSH client")
    assert "verifying a signature needs the list of allowed signers" in asked(
        pyz, "verify", "--signature", "x", status=2
    )


def test_what_another_build_has_otherwise(pyz: Path, other_pyz: Path, tmp_path: Path) -> None:
    assert asked(pyz, "diff", str(pyz), str(pyz)).startswith("the same file: sha256 ")
    told = asked(pyz, "diff", str(pyz), str(other_pyz), status=1).splitlines()
    assert "option originals: True -> False" in told
    found = json.loads(asked(pyz, "diff", "--json", str(other_pyz), status=1))
    assert found["facts"]["option originals"] == [False, True]
    assert (found["same"], found["packages"], found["code"]) == (False, {}, {})
    assert "trainer/cli.py" in found["members"]["originals"]
    assert not found["members"]["added"] + found["members"]["removed"] + found["members"]["changed"]
    (tmp_path / "no.pyz").write_bytes(b"")
    assert "is not a trainer.pyz" in asked(pyz, "diff", str(tmp_path / "no.pyz"), status=2)


def test_members_and_code_that_differ_are_named(pyz: Path, tmp_path: Path) -> None:
    files: bed.Files = {"app.py": "A = 1", "pack/__init__.py": "", "pack/gone.py": "", "x.txt": "1"}
    bed.CODE = tmp_path / "code"
    old = bed.archive(tmp_path / "old.pyz", files)
    new = bed.archive(tmp_path / "new.pyz", {"app.py": "A = 2", "pack/__init__.py": "", "y.txt": "1", "x.txt": "2"})
    found = json.loads(asked(pyz, "diff", "--json", str(old), str(new), status=1))
    members = {"added": ["y.txt"], "removed": ["pack/gone.py"], "changed": ["app.py", "x.txt"], "originals": []}
    assert found["members"] == members
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert found["code"] == {version: ["app", "pack.gone"]}
    told = asked(pyz, "diff", str(old), str(new), status=1).splitlines()
    assert [line for line in told if not line.startswith("bytes: ")] == [
        "added: y.txt", "removed: pack/gone.py", "changed: app.py", "changed: x.txt",
    ]  # fmt: skip


def test_a_checkout_can_look_at_files_but_is_none(pyz: Path) -> None:
    def trainer(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "trainer", "self", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert "nothing is bundled" in trainer("info").stdout
    assert "there is no file to look at" in trainer("verify").stdout
    assert trainer("sbom").returncode == 2
    assert ": whole, " in trainer("verify", str(pyz)).stdout
    assert trainer("verify", "--sha256").returncode == trainer("shine").returncode == 2
