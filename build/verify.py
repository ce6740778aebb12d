"""Opens what was written and looks whether all is there, as a zip reader sees it and as each Python runs it."""

import io
import json
import pickle
import zipfile
from collections.abc import Sequence
from pathlib import Path

import trainer_boot.layout as layout
from build.compile import CodeSection
from build.errors import BuildError
from build.inspector import Expected
from build.interpreters import run_clean
from build.tree import Tree

INSPECTOR = Path(__file__).with_name("inspector.py")


def verify(path: Path, tree: Tree, sections: Sequence[CodeSection], *, originals: bool = True) -> dict[str, object]:
    """The build information in the file at `path`. BuildError if anything in it is not what went in.

    Every member must have its content; in a bare interpreter of each version, every module must load from its own code,
    nothing may be compiled from source, and the original texts must be there, unless they were left out.
    """
    information = _verify_members(path.read_bytes(), tree)
    _verify_digests(information, tree, sections, originals)
    for section in sections:
        _verify_section(path, tree, section, originals)
    return information


def _verify_members(data: bytes, tree: Tree) -> dict[str, object]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
            if len(members) != len(archive.infolist()):
                raise _refusal("a member is there twice")
    except (zipfile.BadZipFile, OSError) as error:
        raise _refusal(f"no zip: {error}") from None
    for file in tree:
        if members.get(file.path) != file.data:
            raise _refusal(f"{file.path} differs")
    own = {"__main__.py", "__main__.pyc"}
    foreign = {name for name in members if not name.startswith(layout.FOLDER)} - {file.path for file in tree} - own
    if foreign:
        raise _refusal(f"{sorted(foreign)} does not belong there")
    information: dict[str, object] = json.loads(members[layout.BUILD_INFORMATION])
    return information


def _verify_digests(
    information: dict[str, object], tree: Tree, sections: Sequence[CodeSection], originals: bool
) -> None:
    texts = {file.path: file.original or b"" for file in tree.modules() if file.data != file.original}
    expected = {
        "files": layout.digest((file.path, file.data) for file in tree),
        "originals": layout.digest(texts.items()) if originals else None,
        "code": {section.interpreter.version: layout.digest(section.codes) for section in sections},
    }
    if information.get("sha256") != expected:
        raise _refusal("the recorded digests differ")


def _verify_section(path: Path, tree: Tree, section: CodeSection, originals: bool) -> None:
    codes = dict(section.codes)
    expected: Expected = {
        file.module or "": (
            codes[file.module or ""],
            file.original if originals or file.data == file.original else None,
        )
        for file in tree.modules()
    }
    answer = run_clean(
        section.interpreter.executable, str(INSPECTOR), str(path), data=pickle.dumps(expected, protocol=4)
    )
    if answer.returncode:
        last = answer.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise _refusal(f"Python {section.interpreter.version} can't run it: {last}")
    faults: list[str] = pickle.loads(answer.stdout)
    if faults:
        raise _refusal(f"under Python {section.interpreter.version}: {faults[0]} ({len(faults)} faults)")


def _refusal(fault: str) -> BuildError:
    return BuildError(
        f"the file that was written is not what was built: {fault}", "delete .cache/build and build again"
    )
