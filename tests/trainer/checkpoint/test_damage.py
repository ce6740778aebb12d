"""What a disk, a power cut or a hand can do to the newest checkpoint."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer.checkpoint.helpers import save
from trainer.checkpoint.run_meta import read_run_meta
from trainer.checkpoint.state import load_model, load_rank_state, save_model, save_rank_state
from trainer.checkpoint.store import Damaged, Store, explicit, verify
from trainer.errors import UserError


def cut_in_half(path: Path) -> str:
    file = path / "model.pt"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    return "model.pt is damaged: 2,500 bytes instead of 5,000"


def fill_with_zeros(path: Path) -> str:
    file = path / "model.pt"
    file.write_bytes(bytes(file.stat().st_size))
    return "model.pt is damaged: its content"


def flip(path: Path) -> str:
    file = path / "model.pt"
    data = bytearray(file.read_bytes())
    data[3000:3004] = b"\xff\xff\xff\xff"
    file.write_bytes(data)
    return "model.pt is damaged: its content"


def lose(path: Path) -> str:
    (path / "model.pt").unlink()
    return "model.pt is missing"


def empty_the_manifest(path: Path) -> str:
    (path / "manifest.json").write_bytes(b"")
    return "manifest.json is empty"


def lose_the_manifest(path: Path) -> str:
    (path / "manifest.json").unlink()
    return "manifest.json is missing"


def edit_the_manifest(path: Path) -> str:
    file = path / "manifest.json"
    file.write_bytes(file.read_bytes().replace(b'"cursor": 96', b'"cursor": 97'))
    return "manifest.json is damaged"


def add_a_file(path: Path) -> str:
    (path / "trained.pt").write_bytes((path.parent / "step-00000002" / "model.pt").read_bytes())
    return "trained.pt is not listed in manifest.json"


def rename_a_file(path: Path) -> str:
    (path / "rank-00000.pt").rename(path / "rank-00001.pt")
    return "rank-00001.pt is not listed in manifest.json"


def add_a_directory(path: Path) -> str:
    (path / "shards").mkdir()
    return "shards is an empty directory"


def link_a_file(path: Path) -> str:
    file = path / "model.pt"
    file.rename(path.parent.parent / "model.pt")
    file.symlink_to(path.parent.parent / "model.pt")
    return "model.pt is a symbolic link"


def link_a_directory(path: Path) -> str:
    (path / "parts").rename(path.parent.parent / "parts")
    (path / "parts").symlink_to(path.parent.parent / "parts")
    return "parts is a symbolic link"


def make_it_a_pipe(path: Path) -> str:
    (path / "model.pt").unlink()
    os.mkfifo(path / "model.pt")
    return "model.pt is a named pipe"


def make_the_manifest_a_pipe(path: Path) -> str:
    (path / "manifest.json").unlink()
    os.mkfifo(path / "manifest.json")
    return "manifest.json is a named pipe"


def link_the_manifest(path: Path) -> str:
    file = path / "manifest.json"
    file.rename(path.parent.parent / "manifest.json")
    file.symlink_to(path.parent.parent / "manifest.json")
    return "manifest.json is a symbolic link"


def make_it_a_directory(path: Path) -> str:
    (path / "model.pt").unlink()
    (path / "model.pt").mkdir()
    return "model.pt is an empty directory"


def make_the_manifest_huge(path: Path) -> str:
    os.truncate(path / "manifest.json", 4 << 40)
    return "manifest.json has 4,398,046,511,104 bytes; a manifest has at most"


def make_it_huge(path: Path) -> str:
    os.truncate(path / "model.pt", 4 << 40)
    return "model.pt is damaged: 4,398,046,511,104 bytes instead of 5,000"


def take_that_of_another_step(path: Path) -> str:
    shutil.rmtree(path)
    shutil.copytree(path.parent / "step-00000001", path)
    return "manifest.json is of step 1, not of step 3"


def forge(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], str]:
    """A manifest with a right digest of itself."""

    def damage(path: Path) -> str:
        body = json.loads((path / "manifest.json").read_bytes())["body"]
        change(body)
        text = json.dumps(body, indent=1, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        (path / "manifest.json").write_text(f'{{"sha256": "{digest}", "body":\n{text}\n}}\n')
        return "manifest.json has the right digest, but was not written by this trainer"

    return damage


def list_a_file_elsewhere(path: Path) -> str:
    entry = {"bytes": 5000, "sha256": "0" * 64}
    forge(lambda body: body["files"].update({"../step-00000001/model.pt": entry}))(path)
    return "manifest.json lists '../step-00000001/model.pt', which is no file of a checkpoint"


FORGED = {
    "a step that is text": lambda body: body.update(step="3"),
    "a step below 0": lambda body: body.update(step=-3),
    "a sequence that is true": lambda body: body.update(sequence=True),
    "files in a list": lambda body: body.update(files=[]),
    "a file without a digest": lambda body: body["files"]["model.pt"].pop("sha256"),
    "a size that is text": lambda body: body["files"]["model.pt"].update(bytes="5000"),
    "meta that is a number": lambda body: body.update(meta=3),
    "no time": lambda body: body.pop("saved"),
}
DAMAGES = [
    cut_in_half,
    fill_with_zeros,
    flip,
    lose,
    empty_the_manifest,
    lose_the_manifest,
    edit_the_manifest,
    add_a_file,
    rename_a_file,
    add_a_directory,
    link_a_file,
    link_a_directory,
    make_it_a_pipe,
    make_it_a_directory,
    make_it_huge,
    make_the_manifest_a_pipe,
    link_the_manifest,
    make_the_manifest_huge,
    take_that_of_another_step,
    list_a_file_elsewhere,
    *(pytest.param(forge(change), id=what) for what, change in FORGED.items()),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_is_passed_over_with_the_reason(tmp_path: Path, damage: Callable[[Path], str]) -> None:
    store = Store(tmp_path, 3)
    paths = [save(store, step) for step in (1, 2, 3)]
    why = damage(paths[-1])
    found, passed_over = store.newest()
    assert found == paths[1]
    assert len(passed_over) == 1
    assert str(paths[-1]) in passed_over[0]
    assert why in passed_over[0]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_that_is_asked_for_is_refused_with_the_file(
    tmp_path: Path, damage: Callable[[Path], str]
) -> None:
    path = [save(Store(tmp_path, 3), step) for step in (1, 2, 3)][-1]
    why = damage(path)
    with pytest.raises(Damaged) as found:
        verify(path)
    assert found.value.file in why
    with pytest.raises(UserError, match="is damaged") as raised:
        explicit(path)
    assert why in raised.value.what


def test_all_damaged_gives_none_and_all_the_reasons(tmp_path: Path) -> None:
    store = Store(tmp_path, 3)
    for step in (1, 2):
        flip(save(store, step))
    found, passed_over = store.newest()
    assert found is None
    assert len(passed_over) == 2


def test_an_old_one_with_an_unreadable_manifest_is_no_news(tmp_path: Path) -> None:
    store = Store(tmp_path, 3)
    paths = [save(store, step) for step in (1, 2)]
    empty_the_manifest(paths[0])
    assert store.newest() == (paths[1], [])


def test_a_changed_byte_anywhere_in_a_manifest_is_noticed(tmp_path: Path) -> None:
    path = save(Store(tmp_path, 3), 3)
    file = path / "manifest.json"
    data = file.read_bytes()
    for position in range(0, len(data), 3):
        file.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        with pytest.raises(Damaged, match=r"manifest\.json"):
            verify(path)
    for length in range(0, len(data), 7):
        file.write_bytes(data[:length])
        with pytest.raises(Damaged, match=r"manifest\.json"):
            verify(path)
    file.write_bytes(data)
    verify(path)


def test_saving_over_a_damaged_one_makes_it_whole(tmp_path: Path) -> None:
    store = Store(tmp_path, 3)
    paths = [save(store, step) for step in (1, 2)]
    flip(paths[1])
    assert store.newest()[0] == paths[0]
    assert save(store, 2) == paths[1]
    assert store.newest() == (paths[1], [])


def test_what_is_not_a_regular_file_is_never_saved(tmp_path: Path) -> None:
    store = Store(tmp_path, 3)
    temporary = store.begin(1)
    os.mkfifo(temporary / "model.pt")
    with pytest.raises(UserError, match=r"cannot save a checkpoint .*model\.pt is a named pipe"):
        store.commit(temporary, 1, {})
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_only_listed_files_are_loaded(tmp_path: Path) -> None:
    """Files that were put beside those of a checkpoint after it was verified change nothing."""
    store, model = Store(tmp_path, 3), nn.Linear(2, 2)
    temporary = store.begin(1)
    save_model(temporary, model)
    path = store.commit(temporary, 1, {})
    right = [parameter.detach().clone() for parameter in model.parameters()]
    verify(path)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)
    save_model(path, model, file="trained.pt")
    save_rank_state(path, 0)
    load_model(path, model, training=True)
    assert all(torch.equal(own, saved) for own, saved in zip(model.parameters(), right, strict=True))
    assert not load_rank_state(path, 0)


def test_a_file_that_changes_between_verification_and_loading_is_refused(tmp_path: Path) -> None:
    store, model = Store(tmp_path, 3), nn.Linear(2, 2)
    temporary = store.begin(1)
    save_model(temporary, model)
    path = store.commit(temporary, 1, {})
    verify(path)
    save_model(path, nn.Linear(2, 2))
    with pytest.raises(UserError, match=r"cannot load .*model\.pt: it changed after it was verified"):
        load_model(path, model)


@pytest.mark.parametrize("content", [b"", b"no archive at all", b"PK\x03\x04" + bytes(100)])
def test_a_listed_file_of_another_origin_is_refused(tmp_path: Path, content: bytes) -> None:
    store = Store(tmp_path, 3)
    temporary = store.begin(1)
    (temporary / "model.pt").write_bytes(content)
    path = store.commit(temporary, 1, {})
    verify(path)
    with pytest.raises(UserError, match=r"cannot load .*model\.pt: it is not a file that this trainer wrote") as raised:
        load_model(path, nn.Linear(2, 2))
    assert "trainer checkpoints verify" in raised.value.fix


@pytest.mark.parametrize("value", [[1.0], {"rank": 1}, {"rank": 0, "python": 3}, {"rank": 0}])
def test_a_random_state_of_another_shape_is_refused(tmp_path: Path, value: object) -> None:
    torch.save(value, tmp_path / "rank-00000.pt")
    with pytest.raises(UserError, match=r"rank-00000\.pt"):
        load_rank_state(tmp_path, 0)


def test_a_checkpoint_that_is_not_of_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no valid state and no valid compute and no valid fingerprint"):
        read_run_meta(save(Store(tmp_path, 3), 1))
