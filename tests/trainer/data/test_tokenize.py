from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from trainer.data.tokenize import ByteTokenizer, JsonTokenizer, open_tokenizer
from trainer.errors import UserError


def write_tokenizer(path: Path, end: str = "<|endoftext|>") -> Path:
    """A tiny byte-level tokenizer.json with a template that adds a token of its own, and a gap in its ids."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(alphabet)}
    vocabulary["ab"] = 300
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("a", "b")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if end:
        tokenizer.add_special_tokens([end])
        number = tokenizer.token_to_id(end)
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{end} $A", special_tokens=[(end, number)])
    tokenizer.enable_truncation(4)
    tokenizer.save(str(path))
    return path


def test_bytes_round_trip() -> None:
    tokenizer = ByteTokenizer()
    text = "naïve\n\0☃ \ud800"
    ids = tokenizer.encode(text)
    assert ids == list(text.encode("utf-8", "surrogatepass"))
    assert tokenizer.decode(tokenizer.encode("naïve ☃")) == "naïve ☃"
    assert tokenizer.decode([104, 105, 256, 195]) == "hi\ufffd"
    assert (tokenizer.vocabulary, tokenizer.end) == (257, 256)


def test_ids_are_taken_as_they_are() -> None:
    tokenizer = open_tokenizer("ids")
    assert tokenizer.encode(" 5 70000\n") == [5, 70000]
    assert tokenizer.decode([5, 70000]) == "5 70000"
    assert tokenizer.end is None
    with pytest.raises(UserError, match="only numbers"):
        tokenizer.encode("import ")


def test_a_tokenizer_file(tmp_path: Path) -> None:
    tokenizer = open_tokenizer(str(write_tokenizer(tmp_path / "tokenizer.json")))
    assert isinstance(tokenizer, JsonTokenizer)
    text = "abba é long enough not to be cut"
    ids = tokenizer.encode(text)
    assert tokenizer.end is not None and tokenizer.end not in ids  # neither template nor truncation
    assert ids[0] == 300
    assert tokenizer.decode(ids) == text
    assert tokenizer.encode_batch(["ab", "b"]) == [tokenizer.encode("ab"), tokenizer.encode("b")]
    assert tokenizer.vocabulary == 301  # "ab" is 300, though there are but 258 tokens


def test_a_tokenizer_without_an_end_inserts_none(tmp_path: Path) -> None:
    assert open_tokenizer(str(write_tokenizer(tmp_path / "t.json", end=""))).end is None


def test_identity_follows_the_file(tmp_path: Path) -> None:
    path = write_tokenizer(tmp_path / "t.json")
    before = open_tokenizer(str(path)).identity
    assert open_tokenizer(str(path)).identity == before
    write_tokenizer(path, end="</s>")
    assert open_tokenizer(str(path)).identity != before


def test_a_bad_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.json.*cannot be read") as missing:
        open_tokenizer(str(tmp_path / "none.json"))
    assert missing.value.status == 2
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(UserError, match=r"bad\.json.*is not a tokenizer") as bad:
        open_tokenizer(str(tmp_path / "bad.json"))
    assert bad.value.status == 2


def test_the_package_that_reads_it_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tokenizer(tmp_path / "t.json")
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(UserError, match="needs the package `tokenizers`") as error:
        open_tokenizer(str(path))
    assert error.value.status == 3 and "pip install" in error.value.fix
