"""The commit that a file names, whoever builds it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from build import provenance
from build.errors import BuildError
from build.provenance import facts
from build.tree import Tree

IDENTITY = ["-c", "user.name=a", "-c", "user.email=a@example.com"]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit."""
    (tmp_path / "uv.lock").write_text("version = 1\n")
    (tmp_path / "README.md").write_text("words\n")
    for words in (["init", "-q"], ["add", "."], [*IDENTITY, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def found(root: Path) -> tuple[object, object]:
    known = facts(root, "app", "1", Tree.of([]), [], {})
    return known["commit"], known["dirty"]


def head(root: Path) -> str:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_checkout_of_another_user_names_its_commit(repository: Path) -> None:
    commit = head(repository)
    if os.geteuid() == 0:
        for path in (repository, *repository.rglob("*")):
            os.chown(path, 12345, 12345)
        plain = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True, check=False)
        assert b"dubious ownership" in plain.stderr
        assert found(repository) == (commit, False)
    else:  # git's own tests pretend so
        os.environ["GIT_TEST_ASSUME_DIFFERENT_OWNER"] = "1"
        try:
            assert found(repository) == (commit, False)
        finally:
            del os.environ["GIT_TEST_ASSUME_DIFFERENT_OWNER"]


def test_what_is_shipped_makes_it_dirty(repository: Path) -> None:
    (repository / "notes.txt").write_text("not shipped\n")
    assert found(repository) == (head(repository), False)
    (repository / "README.md").write_text("in the metadata\n")
    assert found(repository) == (head(repository), True)


def test_variables_of_a_hook_name_no_other_repository(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = head(repository)
    monkeypatch.setenv("GIT_DIR", str(repository / "elsewhere"))
    assert found(repository) == (commit, False)


def test_without_a_repository_there_is_no_commit(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text("version = 1\n")
    assert found(tmp_path) == (None, None)


def test_a_repository_that_git_cannot_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "uv.lock").write_text("version = 1\n")
    (tmp_path / ".git").write_text(f"gitdir: {tmp_path / 'gone'}\n")
    with pytest.raises(BuildError, match="git does not tell which commit") as caught:
        found(tmp_path)
    assert "safe.directory" in caught.value.fix


def test_a_missing_git_is_refused(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(BuildError, match="there is no git") as caught:
        provenance._git(repository)
    assert caught.value.fix.startswith("Install git")
