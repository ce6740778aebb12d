import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.data.made import flat, ids_config, text_config, write_documents, write_ids
from tests.trainer.data.test_tokenize import write_tokenizer
from trainer.data import Datasets, digests, open_data, verified
from trainer.data.datasets import place_of
from trainer.data.description import Damaged, Prepared, fingerprint_of, read_description, write_description
from trainer.data.prepare import prepare
from trainer.data.tokenize import open_tokenizer
from trainer.errors import UserError
from trainer.schema import Config


def made_in(data: Path) -> Path:
    """The one folder of token files in a run's folder `data`."""
    [found] = [path for path in data.iterdir() if path.is_dir()]
    return found


def place(data: Datasets) -> Path:
    assert data.files is not None
    return data.files.folder


def prepare_for(config: Config, folder: Path, keep: str = "") -> Prepared:
    return prepare(config.data, folder, open_tokenizer(config.data.tokenizer), keep=keep)


def stored(folder: Path, name: str = "train") -> list[int]:
    folder = folder if (folder / "data.json").exists() else made_in(folder)
    dtype = json.loads((folder / "data.json").read_text())[name]["dtype"]
    return [int(i) for i in np.fromfile(folder / f"{name}.bin", dtype)]


def touched(path: Path) -> None:
    """A changed modification time, whatever the file system's clock resolves."""
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 10**9))


def test_what_is_written(tmp_path: Path) -> None:
    corpus = write_documents(tmp_path / "c", ["ab", "c", "", b"\xff\0", "e"])
    config = text_config(corpus, holdout=2)
    config.data.binary = True
    data = open_data(config, tmp_path / "run")
    folder = made_in(tmp_path / "run" / "data")
    assert stored(folder) == [97, 98, 256, 101, 256]
    assert stored(folder, "validation") == [99, 256, 255, 0, 256]
    assert np.fromfile(folder / "train.documents", "<u8").tolist() == [0, 3, 5]
    assert np.fromfile(folder / "validation.documents", "<u8").tolist() == [0, 2, 5]
    assert (data.vocabulary, data.validation_bytes, data.validation_tokens) == (257, 3, 5)
    assert data.info["train_documents"] == 2 and data.info["train_bytes"] == 3
    assert sorted(path.name for path in folder.iterdir()) == [
        "data.json", "train.bin", "train.documents", "validation.bin", "validation.documents", "verified.json",
    ]  # fmt: skip


def test_every_nth_document_is_held_out_the_last_of_each_n(tmp_path: Path) -> None:
    lines = [[number] for number in range(1, 26)]
    config = ids_config(write_ids(tmp_path / "d.jsonl", lines))
    config.data.holdout = 10
    open_data(config, tmp_path / "run")
    assert stored(tmp_path / "run" / "data", "validation") == [10, 20]
    assert len(stored(tmp_path / "run" / "data")) == 23


@pytest.mark.parametrize("tokenizer", ["bytes", "json"])
def test_of_a_single_text_the_end_is_held_out(tmp_path: Path, tokenizer: str) -> None:
    """From the begin of a line on; the figure of zlib is of the same text."""
    lines = [f"line {number} ä\n" for number in range(100)]
    config = text_config(write_documents(tmp_path / "c", ["".join(lines)]), holdout=4)
    if tokenizer == "json":
        config.data.tokenizer = str(write_tokenizer(tmp_path / "tokenizer.json"))
    data = open_data(config, tmp_path / "run", zlib=True)
    held = next(number for number in range(100) if len("".join(lines[number:]).encode()) == data.validation_bytes)
    assert 74 <= held <= 76
    assert data.info["train_documents"] == data.info["validation_documents"] == 1
    if tokenizer == "bytes":
        assert bytes(stored(tmp_path / "run" / "data", "validation")[:-1]).decode() == "".join(lines[held:])
        assert bytes(stored(tmp_path / "run" / "data")[:-1]).decode() == "".join(lines[:held])
    import zlib

    text = "".join(lines[held:]).encode()
    assert data.zlib_bits_per_byte == 8 * len(zlib.compress(text, 9)) / len(text)


@pytest.mark.parametrize("text", ["ä" * 100, "x", "", "abc\n", "\n" * 40])
def test_a_single_text_without_lines_is_cut_between_characters(tmp_path: Path, text: str) -> None:
    config = text_config(write_documents(tmp_path / "c", [text]), holdout=3)
    made = prepare_for(config, tmp_path / "run")
    found = [bytes(i for i in stored(made.folder, name) if i < 256).decode() for name in ("train", "validation")]
    assert "".join(found) == text


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\x1f\x8b\x08\x00", "is gzip-compressed, not text"),
        (b"\x89PNG\r\n", "is a PNG image, not text"),
        (b"abc\0def", "is not text: byte 3 is NUL"),
    ],
)
def test_files_that_are_no_text_are_refused(tmp_path: Path, content: bytes, what: str) -> None:
    config = text_config(write_documents(tmp_path / "c", ["abc", content]))
    with pytest.raises(UserError, match=what) as refused:
        prepare_for(config, tmp_path / "run")
    assert refused.value.status == 2 and "001.txt" in refused.value.what and refused.value.fix
    config.data.binary = True
    assert prepare_for(config, tmp_path / "run").train.text_bytes == 3 + len(content)


def test_named_validation_files_replace_the_holdout(tmp_path: Path) -> None:
    corpus = write_documents(tmp_path / "c", ["ab", "cd"])
    other = write_documents(tmp_path / "v", ["xyz"])
    config = text_config(corpus, holdout=2)
    config.data.validation = [str(other)]
    data = open_data(config, tmp_path / "run")
    assert stored(tmp_path / "run" / "data") == [97, 98, 256, 99, 100, 256]
    assert stored(tmp_path / "run" / "data", "validation") == [120, 121, 122, 256]
    assert data.validation is not None and data.validation_bytes == 3


def test_numbers_are_as_wide_as_the_largest_id_needs(tmp_path: Path) -> None:
    for largest, dtype in ((65535, "<u2"), (65536, "<u4"), (2**32 - 1, "<u4")):
        path = write_ids(tmp_path / "d.jsonl", [[1, 2, 3], [4, largest, 0]])
        data = open_data(ids_config(path), tmp_path / f"run{largest}")
        assert data.info["train_dtype"] == dtype
        assert data.vocabulary == largest + 1
        assert stored(tmp_path / f"run{largest}" / "data") == [1, 2, 3, 4, largest, 0]


def test_a_vocabulary_too_small_is_refused(tmp_path: Path) -> None:
    config = ids_config(write_ids(tmp_path / "d.jsonl", [[5, 69999], [1]]))
    config.model.vocabulary = 60000
    with pytest.raises(UserError, match="holds token id 69999") as error:
        open_data(config, tmp_path / "run")
    assert error.value.status == 2 and "Set model.vocabulary to 70000" in error.value.fix
    config.model.vocabulary = 70000
    assert open_data(config, tmp_path / "run").vocabulary == 70000


def test_the_end_of_a_document_counts_as_an_id(tmp_path: Path) -> None:
    config = text_config(write_documents(tmp_path / "c", ["abc"]))
    config.model.vocabulary = 256
    with pytest.raises(UserError, match="token id 256"):
        open_data(config, tmp_path / "run")


def test_a_tokenizer_file_is_used(tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path / "tokenizer.json")
    config = text_config(write_documents(tmp_path / "c", ["abb", "ab"]))
    config.data.tokenizer = str(path)
    data = open_data(config, tmp_path / "run")
    assert data.tokenizer is not None and data.tokenizer.end is not None
    letter = data.tokenizer.encode("b")
    assert stored(tmp_path / "run" / "data") == [300, *letter, data.tokenizer.end, 300, data.tokenizer.end]


def test_prepared_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = text_config(write_documents(tmp_path / "c", ["abc", "def"]))
    first = open_data(config, tmp_path / "run")
    written = made_in(tmp_path / "run" / "data").joinpath("train.bin").stat()
    config.data.sequence, config.model.vocabulary = 4, 300  # what does not change tokens
    again = open_data(config, tmp_path / "run")
    assert made_in(tmp_path / "run" / "data").joinpath("train.bin").stat() == written
    assert again.fingerprint == first.fingerprint
    assert capfd.readouterr().err == ""


def test_other_sources_and_settings_are_prepared_beside_what_is_there(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    corpus = write_documents(tmp_path / "c", ["abc", "def"])
    config = text_config(corpus)
    first = open_data(config, tmp_path / "run")
    before = contents(made_in(tmp_path / "run" / "data"))

    touched(corpus / "000.txt")
    again = open_data(config, tmp_path / "run")
    assert again.fingerprint == first.fingerprint  # the same tokens

    (corpus / "000.txt").write_text("ABC")
    touched(corpus / "000.txt")
    third = open_data(config, tmp_path / "run")
    assert third.fingerprint != first.fingerprint
    assert stored(place(third))[0] == ord("A")
    config.data.holdout = 2
    fourth = open_data(config, tmp_path / "run")
    assert len({first.info["folder"], again.info["folder"], third.info["folder"], fourth.info["folder"]}) == 4
    assert contents(place(first)) == before
    assert capfd.readouterr().err == ""


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_a_run_goes_on_with_its_own_tokens(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    corpus = write_documents(tmp_path / "c", ["abc", "def"])
    config = text_config(corpus)
    first = open_data(config, tmp_path / "run").fingerprint
    (corpus / "000.txt").write_text("ABC")
    touched(corpus / "000.txt")
    again = prepare_for(config, tmp_path / "run", keep=first)
    assert again.fingerprint == first and stored(tmp_path / "run" / "data")[0] == ord("a")
    assert "goes on with the tokens" in capfd.readouterr().err
    for path in corpus.iterdir():
        path.unlink()
    assert prepare_for(config, tmp_path / "run", keep=first).fingerprint == first
    with pytest.raises(UserError, match="no \\* files"):
        open_data(config, tmp_path / "run")


def cut(path: Path) -> str:
    path.write_bytes(path.read_bytes()[:-1])
    return "instead of"


def flip(path: Path) -> str:
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    return "its content does not match its digest"


def lose(path: Path) -> str:
    path.unlink()
    return "is missing"


def link(path: Path) -> str:
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to(path.parent.parent / "elsewhere")
    return "is a symbolic link"


def make_a_pipe(path: Path) -> str:
    path.unlink()
    os.mkfifo(path)
    return "is a named pipe"


def make_huge(path: Path) -> str:
    os.truncate(path, 4 << 40)
    return "4,398,046,511,104 bytes"


@pytest.mark.parametrize("damage", [cut, flip, lose, link, make_a_pipe, make_huge])
@pytest.mark.parametrize("name", ["train.bin", "train.documents", "validation.bin", "data.json"])
def test_damaged_files_are_made_anew_or_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], damage: Callable[[Path], str], name: str
) -> None:
    corpus = write_documents(tmp_path / "c", ["abc", "def"])
    config = text_config(corpus, holdout=2)
    first = open_data(config, tmp_path / "run")
    path = place(first) / name
    path.chmod(0o644)
    why = damage(path)
    if name == "data.json" and damage in (cut, flip):
        why = "is damaged: it is not what was written"
    again = prepare_for(config, tmp_path / "run", keep=first.fingerprint)  # of the same sources
    told = capfd.readouterr().err
    assert (name in told and why in told and "preparing it again" in told) or (name == "data.json" and damage is lose)
    assert again.fingerprint == first.fingerprint
    assert stored(tmp_path / "run" / "data") == [97, 98, 99, 256]

    if name != "data.json":
        path.chmod(0o644)
        if path.parent.joinpath("..", "elsewhere").exists():
            (path.parent.parent / "elsewhere").unlink()
        why = damage(path)
        touched(corpus / "000.txt")
        (corpus / "000.txt").write_text("ABC")
        with pytest.raises(UserError, match=re.escape(why)) as refused:
            prepare_for(config, tmp_path / "run", keep=first.fingerprint)
        assert name in refused.value.what and refused.value.fix


def test_files_are_verified_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = text_config(write_documents(tmp_path / "c", ["abc", "def"]))
    open_data(config, tmp_path / "run")
    read: list[Path] = []
    digest = digests.digest

    def noting(path: Path, *rest: Any) -> str:
        read.append(path)
        return digest(path, *rest)

    monkeypatch.setattr(digests, "digest", noting)
    open_data(config, tmp_path / "run")
    assert read == []
    touched(made_in(tmp_path / "run" / "data") / "train.bin")
    open_data(config, tmp_path / "run")
    assert len(read) == 4
    open_data(config, tmp_path / "run")
    assert len(read) == 4


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("train.bin", np.array([97, 98, 999, 256], "<u2"), "has id 999 from position 2 on, above 256"),
        ("train.documents", np.array([0, 9], "<u8"), "has positions that do not rise to the number of tokens"),
        ("train.documents", np.array([1, 4], "<u8"), "has positions that do not rise from 0"),
    ],
)
def test_tokens_and_positions_out_of_bounds_are_refused(
    tmp_path: Path, name: str, content: "np.ndarray[Any, Any]", why: str
) -> None:
    """Also where somebody has made the digests anew."""
    config = text_config(write_documents(tmp_path / "c", ["abc", "def"]), holdout=2)
    made = prepare_for(config, tmp_path / "run")
    path = made.folder / name
    path.chmod(0o644)
    path.write_bytes(content.tobytes())
    if name == "train.bin":
        train = made.train._replace(tokens_digest=digests.digest(path))
    else:
        train = made.train._replace(documents_digest=digests.digest(path))
    forged = made._replace(train=train, fingerprint=fingerprint_of(train, made.validation))
    write_description(made.folder, forged)
    with pytest.raises(Damaged, match=why):
        verified.require_verified(read_description(made.folder), tmp_path / "run")


def test_a_run_of_the_version_before_goes_on(tmp_path: Path) -> None:
    """Its token files lay in the folder `data` itself, with a digest of bodies as bytes, ends as uint32, positions."""
    config = text_config(write_documents(tmp_path / "c", ["abc", "def"]))
    made = prepare_for(config, tmp_path / "run")
    old = tmp_path / "run" / "data"
    for path in list(made.folder.iterdir()):
        path.rename(old / path.name)
    made.folder.rmdir()
    (old / "verified.json").unlink()
    asked = [1, config.data.text, [], "text", [], config.data.holdout, "bytes"]
    body: dict[str, Any] = {
        "version": 1,
        "settings": hashlib.sha256(json.dumps(asked).encode()).hexdigest(),
        "sources": made.sources,
        "fingerprint": "f" * 32,
        "tokenizer": "bytes",
        "zlib_bits_per_byte": None,
    }
    end = (256).to_bytes(4, "little")
    digests = {
        "train": hashlib.sha256(b"abc" + end + b"def" + end + np.array([0, 4, 8], "<u8").tobytes()).hexdigest(),
        "validation": hashlib.sha256(bytes(8)).hexdigest(),
    }
    for name, split in made.splits():
        values = split._asdict()
        del values["tokens_digest"], values["documents_digest"]
        body[name] = {**values, "digest": digests[name]}
    (old / "data.json").write_text(json.dumps(body))
    again = prepare_for(config, tmp_path / "run", keep="f" * 32)
    assert again.folder == old and again.fingerprint == "f" * 32
    here = place_of(config.data, tmp_path / "run", again)
    assert flat(open_data(config, tmp_path / "run", prepare=False, place=here).train.fetch([0]), "tokens")[0] == 97

    (old / "verified.json").unlink()
    flip(old / "train.bin")
    (tmp_path / "c" / "000.txt").write_text("ABC")
    with pytest.raises(UserError, match=r"train\.bin is damaged: its content does not match its digest"):
        prepare_for(config, tmp_path / "run", keep="f" * 32)


def test_others_open_what_one_has_prepared(tmp_path: Path) -> None:
    corpus = write_documents(tmp_path / "c", ["abc", "def"])
    for cache in ("", str(tmp_path / "cache")):
        folder = tmp_path / f"run{bool(cache)}"
        config = text_config(corpus)
        config.data.cache = cache
        with pytest.raises(UserError, match="there is no prepared data"):
            open_data(config, folder, prepare=False)
        mine = open_data(config, folder)
        theirs = open_data(config, folder, prepare=False)
        assert theirs.fingerprint == mine.fingerprint and theirs.info == mine.info
        assert flat(theirs.train.fetch([0]), "tokens") == flat(mine.train.fetch([0]), "tokens")


def test_a_cache_is_shared_by_runs(tmp_path: Path) -> None:
    corpus = write_documents(tmp_path / "c", ["abc", "def"])
    config = text_config(corpus)
    config.data.cache = str(tmp_path / "cache")
    first = open_data(config, tmp_path / "one")
    second = open_data(config, tmp_path / "two")
    assert first.info["folder"] == second.info["folder"]
    config.data.holdout = 2
    third = open_data(config, tmp_path / "three")
    assert third.info["folder"] != first.info["folder"]
    assert len(list((tmp_path / "cache").iterdir())) == 2
    assert open_data(config, tmp_path / "one", prepare=False).fingerprint == first.fingerprint


def test_zlib_on_the_held_out_text(tmp_path: Path) -> None:
    import zlib

    documents = [f"document {number} " * number for number in range(20)]
    config = text_config(write_documents(tmp_path / "c", documents), holdout=10)
    assert open_data(config, tmp_path / "run").zlib_bits_per_byte is None
    held_out = (documents[9] + documents[19]).encode()
    expected = 8 * len(zlib.compress(held_out, 9)) / len(held_out)
    assert open_data(config, tmp_path / "run", zlib=True).zlib_bits_per_byte == expected
    assert open_data(config, tmp_path / "run", prepare=False).zlib_bits_per_byte == expected

    lines = tmp_path / "d.jsonl"
    lines.write_text("".join(json.dumps({"text": document}) + "\n" for document in documents))
    other = Config()
    other.data.jsonl = [str(lines)]
    assert open_data(other, tmp_path / "run2", zlib=True).zlib_bits_per_byte == expected


def test_too_little_text(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="0 documents with 0 tokens") as error:
        open_data(text_config(write_documents(tmp_path / "c", ["", ""])), tmp_path / "run")
    assert error.value.status == 2
    with pytest.raises(UserError, match="1 document with 1 token,"):
        open_data(ids_config(write_ids(tmp_path / "d.jsonl", [[7]])), tmp_path / "run2")
    data = open_data(text_config(write_documents(tmp_path / "one", ["text"]), holdout=10), tmp_path / "run3")
    assert data.validation is None and data.validation_bytes == 0
    assert "no validation data: 1 document" in capfd.readouterr().err


def test_ids_are_not_read_from_text(tmp_path: Path) -> None:
    config = text_config(write_documents(tmp_path / "c", ["1 2 3"]))
    config.data.tokenizer = "ids"
    with pytest.raises(UserError, match="text files do not hold"):
        open_data(config, tmp_path / "run")


def test_a_line_nested_too_deeply_is_named(tmp_path: Path) -> None:
    lines = tmp_path / "d.jsonl"
    lines.write_text('{"ids": [1, 2]}\n{"ids": [1], "more": ' + "[" * 200_000 + "]" * 200_000 + "}\n")
    with pytest.raises(UserError, match=r"d\.jsonl, line 2: not a line of JSON \(nested too deeply\)") as refused:
        open_data(ids_config(lines), tmp_path / "run")
    assert refused.value.status == 2


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    lines = tmp_path / "d.jsonl"
    lines.write_text('{"ids": [1, 2]}\nnot json\n')
    with pytest.raises(UserError, match="line 2"):
        open_data(ids_config(lines), tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    config = text_config(write_documents(tmp_path / "c", ["abc"]))
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="prepared data cannot be written to") as error:
        open_data(config, tmp_path / "file")
    assert error.value.status == 1 and "data.cache" in error.value.fix


def test_what_a_killed_preparation_left_is_removed(tmp_path: Path) -> None:
    config = text_config(write_documents(tmp_path / "c", ["abc"]))
    name = f"0123.partial-{os.uname().nodename}-"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = [tmp_path / "run" / "data" / f"{name}{pid}" for pid in (gone.pid, os.getpid(), os.getppid())]
    for path in left:
        path.mkdir(parents=True)
    open_data(config, tmp_path / "run")
    assert [path.exists() for path in left] == [False, False, True]  # the last is of a process that lives


_PREPARE = """
import sys, threading, time
from pathlib import Path
from trainer.data import open_data
from trainer.schema import Config

config = Config()
config.data.text = [sys.argv[1]]
config.data.holdout = 0
import numpy, trainer.data.encode, trainer.data.packing, trainer.data.tokenize
peak = 0
def watch():
    global peak
    while running:
        status = Path("/proc/self/status").read_text()
        peak = max(peak, sum(int(status.split(key)[1].split()[0]) for key in ("RssAnon:", "RssShmem:")))
        time.sleep(0.002)
running = True
watcher = threading.Thread(target=watch)
watcher.start()
data = open_data(config, Path(sys.argv[2]))
for start in range(0, len(data.train), 1000):
    data.train._windows[start:start + 1000].astype("int64")
running = False
watcher.join()
print(peak, "torch" in sys.modules)
"""


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    peaks = []
    for megabytes in (3, 60):
        corpus = tmp_path / f"{megabytes}.txt"
        with corpus.open("wb") as file:
            for number in range(megabytes):
                file.write(b"%09d\n" % number * 100_000)
        done = subprocess.run(
            [sys.executable, "-c", _PREPARE, str(corpus), str(tmp_path / f"run{megabytes}")],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        peak, torch = done.stdout.split()
        assert torch == "False"
        peaks.append(int(peak))
    assert peaks[1] < 1.2 * peaks[0], peaks


def test_control_c_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "slow.txt"
    source.write_text("x" * 1000)
    script = (
        "import sys, time; from pathlib import Path; from trainer.data import open_data, encode; "
        "from trainer.schema import Config; c = Config(); c.data.text = [sys.argv[1]]\n"
        "def slow(*_, **__):\n    print('writing', flush=True); time.sleep(60)\n"
        "encode.TokenWriter.append = slow\n"
        "open_data(c, Path(sys.argv[2]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(source), str(tmp_path / "run")],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    with process.stdout as out:
        assert out.readline() == "writing\n"
        assert len(list((tmp_path / "run").iterdir())) == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(20) != 0
    assert list((tmp_path / "run").iterdir()) == []


def test_long_work_is_told(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    from trainer.data import progress

    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    short, long = (progress.Progress("preparing data", 100_000_000) for _ in range(2))
    short.add(10)
    short.close()
    assert capfd.readouterr().err == ""
    for second in range(1, 16):
        clock[0] = float(second)
        long.add(5_000_000)
    long.close()
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "preparing data: 10% of 100 MB, 5.0 MB/s"
    assert lines[-1] == "preparing data: 75% of 100 MB, 5.0 MB/s" and len(lines) == 3
