"""`trainer checkpoints`: what it shows, and its exit status."""

from pathlib import Path

import pytest

from tests.trainer.checkpoint.helpers import save
from trainer.checkpoint.store import Store
from trainer.commands.checkpoints import run
from trainer.errors import UserError


def test_ls_shows_steps_sizes_ages_and_what_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path, 3)
    paths = [save(store, step) for step in (10, 20, 300)]
    (paths[1] / "model.pt").unlink()
    for place in (tmp_path, tmp_path / "checkpoints"):
        assert run(["ls", str(place)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split() == ["step", "size", "age", "state"]
        assert lines[1].split() == ["300", "5.65", "KiB", "0:00", "complete"]
        assert lines[2].split()[:2] == ["20", "5.65"]
        assert lines[2].endswith("DAMAGED: model.pt is missing")
        assert lines[3].split()[0] == "10"


def test_ls_shows_a_checkpoint_with_an_unreadable_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (save(Store(tmp_path, 3), 10) / "manifest.json").write_bytes(b"")
    assert run(["ls", str(tmp_path)]) == 0
    assert "10  " in capsys.readouterr().out


def test_verify_names_the_damaged_file_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store(tmp_path, 3)
    paths = [save(store, step) for step in (1, 2)]
    assert run(["verify", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("whole (3 files, 5.65 KiB)") == 2
    (paths[1] / "model.pt").write_bytes(bytes(5000))
    assert run(["verify", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert f"{paths[0]}: whole" in shown.out
    assert f"{paths[1]}: DAMAGED: model.pt is damaged: its content does not match its SHA-256" in shown.err
    assert run(["verify", str(paths[0])]) == 0
    assert run(["verify", str(paths[1])]) == 1
    (paths[0] / "manifest.json").unlink()
    assert run(["verify", str(paths[0])]) == 1


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    assert "trainer checkpoints ls runs/default" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([], "an action is missing"),
        (["list", "x"], "no such action: list"),
        (["ls"], "takes one folder, not 0"),
        (["ls", "a", "b"], "takes one folder, not 2"),
        (["verify", "--deep", "x"], "no option --deep"),
        (["ls", "absent"], "there is no folder absent"),
    ],
)
def test_wrong_usage_has_status_2(arguments: list[str], what: str) -> None:
    with pytest.raises(UserError, match=what) as raised:
        run(arguments)
    assert raised.value.status == 2
    assert raised.value.fix


def test_a_folder_without_checkpoints_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there are no checkpoints in"):
        run(["verify", str(tmp_path)])
