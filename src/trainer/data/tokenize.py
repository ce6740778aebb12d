"""Text to token ids and back. No torch; the `tokenizers` package is imported only for a tokenizer.json."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from trainer.errors import UserError

BYTE_VALUES = 256
# Names under which published tokenizers keep their end of a document, the most telling first.
_END_TOKENS = (
    "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<EOS>", "[EOS]", "<|end|>", "<|im_end|>",
)  # fmt: skip


class Tokenizer(Protocol):
    """What every tokenizer has.

    `vocabulary` is the number of ids (0: only the data can tell), `end` the id written after a document (None: none
    is), `identity` changes whenever the ids of some text would.
    """

    vocabulary: int
    end: int | None
    identity: str

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class ByteTokenizer:
    """The 256 byte values, and 256 for the end of a document."""

    def __init__(self) -> None:
        self.vocabulary = BYTE_VALUES + 1
        self.end: int | None = BYTE_VALUES
        self.identity = "bytes"

    def encode(self, text: str) -> list[int]:
        """The bytes of `text` in UTF-8 (a lone surrogate as its three bytes)."""
        return list(text.encode("utf-8", "surrogatepass"))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the bytes; what is no UTF-8 becomes U+FFFD, the end of a document nothing."""
        return bytes(i for i in ids if i < BYTE_VALUES).decode("utf-8", "replace")


class IdsTokenizer:
    """For data that already consists of ids: no text, no end of document."""

    def __init__(self) -> None:
        self.vocabulary = 0
        self.end: int | None = None
        self.identity = "ids"

    def encode(self, text: str) -> list[int]:
        """Ids written as numbers with spaces between them."""
        try:
            ids = [int(word) for word in text.split()]
        except ValueError:
            ids = [-1]
        if any(i < 0 for i in ids):
            raise UserError(
                'data.tokenizer = "ids" reads only numbers separated by spaces',
                "Write the prompt as ids, or set data.tokenizer to a tokenizer.json.",
                2,
            )
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(str(i) for i in ids)


class JsonTokenizer:
    """A `tokenizer.json` as Hugging Face's `tokenizers` writes it.

    Its own templates (a begin-of-sentence token, ...) are not applied: a document is its text and, where the
    tokenizer has such a token, an end of document.
    """

    def __init__(self, path: Path) -> None:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise UserError(
                f"data.tokenizer: '{path}' cannot be read ({error.strerror})",
                'Give the path of a tokenizer.json, or "bytes" or "ids".',
                2,
            ) from error
        self.content = content
        self._tokenizer = _load(content, path)
        # ids may have gaps, so that the number of tokens would be too small
        self.vocabulary = 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        ends = (self._tokenizer.token_to_id(token) for token in _END_TOKENS)
        self.end: int | None = next((i for i in ends if i is not None), None)
        self.identity = f"json:{hashlib.sha256(content).hexdigest()}:{self.end}"
        self._encode_batch = getattr(self._tokenizer, "encode_batch_fast", self._tokenizer.encode_batch)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        """Ids of each text, on all cores."""
        return [encoding.ids for encoding in self._encode_batch(texts, add_special_tokens=False)]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids; special tokens become nothing."""
        text: str = self._tokenizer.decode(list(ids))
        return text


def open_tokenizer(name: str) -> Tokenizer:
    """The tokenizer that `data.tokenizer` names: "bytes", "ids" or the path of a tokenizer.json."""
    if name == "bytes":
        return ByteTokenizer()
    if name == "ids":
        return IdsTokenizer()
    return JsonTokenizer(Path(name).expanduser())


def check_vocabulary(largest: int, vocabulary: int) -> None:
    """Refuses data whose largest id a model of `vocabulary` tokens does not have (UserError, status 2)."""
    if largest >= vocabulary:
        raise UserError(
            f"the data holds token id {largest}, but model.vocabulary = {vocabulary} ends at {vocabulary - 1}",
            f"Set model.vocabulary to {largest + 1} or more, or to 0 for what the data needs.",
            2,
        )


def _load(content: bytes, path: Path) -> Any:
    try:
        from tokenizers import Tokenizer as Reader
    except ImportError as error:
        raise UserError(
            f"data.tokenizer: reading '{path}' needs the package `tokenizers`, which is not installed",
            "Install the extra `tokenizers` (or `pip install tokenizers`).",
            3,
        ) from error
    try:
        reader = Reader.from_buffer(content)
    except Exception as error:  # the package raises plain Exception
        raise UserError(
            f"data.tokenizer: '{path}' is not a tokenizer.json ({error})",
            "Give the file that the Hugging Face `tokenizers` package saves.",
            2,
        ) from error
    reader.no_truncation()
    reader.no_padding()
    return reader
