import sysconfig
from pathlib import Path

import pytest

from trainer.data.sources import find_files, resolve_files, standard_library_files
from trainer.errors import UserError
from trainer.schema import Data


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("b.txt", "a.txt", "deep/er/c.txt", "deep/d.md", ".hidden/e.txt", "deep/.f.txt", "odd[1].txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(corpus: Path, *entries: str) -> list[str]:
    return [Path(path).relative_to(corpus).as_posix() for path in find_files(entries, "data.text")]


def test_globs_are_sorted_and_leave_hidden_files_out(corpus: Path) -> None:
    assert names(corpus, "*.txt") == ["a.txt", "b.txt", "odd[1].txt"]
    assert names(corpus, "**/*.txt") == ["a.txt", "b.txt", "deep/er/c.txt", "odd[1].txt"]
    assert names(corpus, f"{corpus}/deep/**") == ["deep/d.md", "deep/er/c.txt"]


def test_folders_are_searched(corpus: Path) -> None:
    assert names(corpus, "deep") == ["deep/d.md", "deep/er/c.txt"]


def test_a_run_folder_that_the_corpus_lies_in(corpus: Path) -> None:
    for name in ("metrics.jsonl", "resolved.toml", "checkpoints/step-00000001/x", "start/rank.json", "data/train.bin"):
        (corpus / name).parent.mkdir(parents=True, exist_ok=True)
        (corpus / name).touch()
    (corpus / "data" / "own.txt").write_text("own")
    expected = ["a.txt", "b.txt", "data/own.txt", "deep/d.md", "deep/er/c.txt", "odd[1].txt"]
    for entry in (".", f"{corpus}", "**/*"):
        for folder in (Path(), corpus, Path("deep/..")):
            found = resolve_files(Data(text=[entry]), folder).train
            assert [Path(path).relative_to(corpus).as_posix() for path in found] == expected, (entry, folder)
    assert [Path(path).name for path in resolve_files(Data(text=["data"]), Path()).train] == ["own.txt"]
    # elsewhere all of the run folder is left out
    assert not any("/deep/" in path for path in resolve_files(Data(text=["."]), Path("deep")).train)


def test_entries_keep_their_order_and_a_file_counts_once(corpus: Path) -> None:
    assert names(corpus, "b.txt", "*.txt", "b.txt") == ["b.txt", "a.txt", "odd[1].txt"]


def test_a_name_with_brackets_is_a_file_first(corpus: Path) -> None:
    assert names(corpus, "odd[1].txt") == ["odd[1].txt"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("missing.txt", "'missing.txt' does not exist"),
        ("*.xyz", "no file matches '\\*.xyz'"),
        ("empty", "no \\* files in the folder"),
        ("/dev/null", "no regular file"),
    ],
)
def test_what_leads_nowhere_is_named(corpus: Path, entry: str, said: str) -> None:
    (corpus / "empty").mkdir()
    with pytest.raises(UserError, match=said) as error:
        find_files([entry], "data.text")
    assert error.value.status == 2 and error.value.fix and "data.text" in error.value.what


def test_a_folder_of_json_lines_is_searched_for_them(corpus: Path) -> None:
    (corpus / "deep" / "x.jsonl").write_text("{}\n")
    data = Data(jsonl=["deep"])
    assert [Path(path).name for path in resolve_files(data).train] == ["x.jsonl"]


def test_what_the_run_writes_is_not_its_data(corpus: Path) -> None:
    (corpus / "runs" / "one").mkdir(parents=True)
    (corpus / "runs" / "one" / "sample.txt").write_text("made by the run")
    found = resolve_files(Data(text=["**/*.txt"], validation=["runs/one/sample.txt"]), Path("runs/one"))
    assert not any("sample" in path for path in found.train)
    assert [Path(path).name for path in found.validation] == ["sample.txt"]  # by name it may be


def test_one_kind_of_source(corpus: Path) -> None:
    with pytest.raises(UserError, match="no training data"):
        resolve_files(Data())
    with pytest.raises(UserError, match="both set"):
        resolve_files(Data(text=["a.txt"], jsonl=["x"]))


def test_the_standard_library() -> None:
    root = Path(sysconfig.get_path("stdlib"))
    found = [Path(path).relative_to(root) for path in standard_library_files()]
    assert len(found) > 300
    assert Path("argparse.py") in found and Path("json/decoder.py") in found
    assert [path.as_posix() for path in found] == sorted(path.as_posix() for path in found)
    assert not any({"site-packages", "test"} & set(path.parts) for path in found)
    assert all(path.suffix == ".py" for path in found)
    assert find_files(["python:stdlib"], "data.text") == standard_library_files()
