import json
import zlib
from pathlib import Path

import pytest

from trainer.data import reading
from trainer.data.reading import read_jsonl, read_text, zlib_bits_per_byte
from trainer.errors import UserError


def texts(path: Path) -> list[str]:
    return [str(piece.content) for piece in read_text([str(path)], decode=True)]


def test_bytes_need_no_encoding(tmp_path: Path) -> None:
    path = tmp_path / "any"
    path.write_bytes(bytes(range(256)) * 3)
    pieces = list(read_text([str(path)], decode=False, binary=True))
    assert b"".join(piece.content for piece in pieces if isinstance(piece.content, bytes)) == path.read_bytes()
    assert [piece.last for piece in pieces] == [False, True]
    assert sum(piece.text for piece in pieces) == sum(piece.read for piece in pieces) == 768


def test_text_of_a_long_document_is_cut_between_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LONGEST_PIECE", 50)
    monkeypatch.setattr(reading, "CHUNK", 7)  # also inside characters
    path = tmp_path / "long.txt"
    text = "".join(f"line {number} é☃\n    indented {number}\n" for number in range(40))
    path.write_text(text)
    pieces = list(read_text([str(path)], decode=True))
    contents = [str(piece.content) for piece in pieces]
    assert "".join(contents) == text and len(contents) > 10
    assert all(content.endswith("\n") and not content[0].isspace() for content in contents)
    assert sum(piece.text for piece in pieces) == path.stat().st_size
    assert [piece.last for piece in pieces].index(True) == len(pieces) - 1

    path.write_text(json.dumps({"text": text}) + "\n")
    lines = list(read_jsonl([str(path)], "text", ids=False, decode=True))
    assert "".join(str(piece.content) for piece in lines) == text
    assert sum(piece.text for piece in lines) == len(text.encode()) and lines[-1].last and not lines[0].last


def test_text_without_lines_or_blanks_is_cut_anyway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LONGEST_PIECE", 50)
    monkeypatch.setattr(reading, "CHUNK", 20)
    for text in ("x" * 300, "word " * 60, "\n" * 300, " " * 300):
        (tmp_path / "t").write_text(text)
        assert "".join(texts(tmp_path / "t")) == text


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b"\xef\xbb\xbfhello")
    assert texts(tmp_path / "t") == ["hello"]


def test_what_is_no_utf8_is_named(tmp_path: Path) -> None:
    for content in (b"good \xff bad", b"cut \xc3"):
        (tmp_path / "t").write_bytes(content)
        with pytest.raises(UserError, match="is not UTF-8 text") as error:
            texts(tmp_path / "t")
        assert error.value.status == 2 and "bytes" in error.value.fix


@pytest.mark.parametrize(
    ("line", "said", "fix"),
    [
        ('{"text": "a"', "line 3: not a line of JSON", "Correct or remove"),
        ('["a"]', "line 3: holds a list, not an object", '{"text"'),
        ('{"txt": "a", "n": 1}', r"line 3: no field 'text' \(fields: 'txt', 'n'\)", "data.field"),
        ('{"text": 5}', "holds a number, not text", "data.field"),
        ('{"text": [1, 2]}', "holds a list, not text", 'data.tokenizer to "ids"'),
        ('{"text": null}', "holds null, not text", "data.field"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, said: str, fix: str) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"text": "fine"}\n\n' + line + "\n")
    with pytest.raises(UserError, match=said) as error:
        list(read_jsonl([str(path)], "text", ids=False, decode=False))
    assert error.value.status == 2 and str(path) in error.value.what and fix in error.value.fix


@pytest.mark.parametrize("value", ["-1", "1.5", "true", '"7"', "4294967296"])
def test_what_is_no_id_is_named(tmp_path: Path, value: str) -> None:
    (tmp_path / "d.jsonl").write_text(f'{{"ids": [3, {value}]}}\n')
    with pytest.raises(UserError, match=r"line 1: .* is not a token id"):
        list(read_jsonl([str(tmp_path / "d.jsonl")], "ids", ids=True, decode=False))


def test_half_a_surrogate_pair(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"text": "a\\ud800"}\n')
    assert [p.content for p in read_jsonl([str(path)], "text", ids=False, decode=False)] == [b"a\xed\xa0\x80"]
    with pytest.raises(UserError, match="line 1: half of a surrogate pair at character 1"):
        list(read_jsonl([str(path)], "text", ids=False, decode=True))


def test_zlib_as_one_call_would(tmp_path: Path) -> None:
    text = Path(reading.__file__).read_bytes() * 5
    parts = [text[start : start + 1000] for start in range(0, len(text), 1000)]
    assert zlib_bits_per_byte(parts) == 8 * len(zlib.compress(text, 9)) / len(text)
    assert zlib_bits_per_byte([]) == 0.0
