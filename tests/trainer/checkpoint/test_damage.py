"""What a disk, a power cut or a hand can do to the newest checkpoint."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.checkpoint.helpers import save
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


DAMAGES = [cut_in_half, fill_with_zeros, flip, lose, empty_the_manifest, lose_the_manifest, edit_the_manifest]


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
