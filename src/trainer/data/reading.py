"""Documents read piece by piece, so that memory does not grow with the size of a file. No torch, no numpy."""

import codecs
import json
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trainer.data.sources import Sources
from trainer.errors import UserError
from trainer.schema import Data

CHUNK = 1 << 20
# Text for a tokenizer is cut only in documents longer than this (characters), and there at the end of a line.
LONGEST_PIECE = 4 << 20
LARGEST_ID = 2**32 - 1


class Piece(NamedTuple):
    """A part of a document; `last` ends it.

    `content` is bytes, text or ids as the reader was asked; `text` the bytes of text in it (0 for ids); `read` the
    bytes of the file it took.
    """

    content: bytes | str | list[int]
    text: int
    read: int
    last: bool


def read_text(paths: Iterable[str], *, decode: bool) -> Iterator[Piece]:
    """Text files, a document each: as bytes, or decoded from UTF-8.

    Raises UserError (status 2) for a file that cannot be read or, with `decode`, is no UTF-8.
    """
    for path in paths:
        try:
            with open(path, "rb", buffering=0) as file:
                chunks = iter(lambda: file.read(CHUNK), b"")
                if decode:
                    yield from _decoded(chunks, path)
                else:
                    for chunk in chunks:
                        yield Piece(chunk, len(chunk), len(chunk), False)
                    yield Piece(b"", 0, 0, True)
        except OSError as error:
            raise _unreadable(path, error) from error


def read_jsonl(paths: Iterable[str], field: str, *, ids: bool, decode: bool) -> Iterator[Piece]:
    """JSON-lines files, a document a line (blank lines are skipped): `field` as text (or its bytes), or as ids.

    Raises UserError (status 2) naming file and line: bad JSON, no such field, the wrong type, an id out of range.
    """
    for path in paths:
        try:
            with open(path, "rb") as file:
                for number, line in enumerate(file, 1):
                    if line.isspace():
                        continue
                    where = f"{path}, line {number}"
                    value = _field(line, field, where)
                    if ids:
                        yield Piece(_checked_ids(value, field, where), 0, len(line), True)
                    else:
                        text = _checked_text(value, field, where)
                        content = text.encode("utf-8", "surrogatepass")
                        if decode:
                            yield from _split(_whole_characters(text, where), len(content), len(line))
                        else:
                            yield Piece(content, len(content), len(line), True)
        except OSError as error:
            raise _unreadable(path, error) from error


def read_pieces(kind: str, files: list[str], field: str, *, ids: bool = False, decode: bool = False) -> Iterator[Piece]:
    """Documents of `files` of a kind ("text" or "jsonl"): as bytes, as text with `decode`, or as `ids`."""
    if kind == "text":
        return read_text(files, decode=decode)
    return read_jsonl(files, field, ids=ids, decode=decode)


def held_out(number: int, data: Data) -> bool:
    """Whether document `number` (from 0, in order) is validation: the last of every `holdout`, where no validation
    files are named."""
    return not data.validation and data.holdout > 0 and number % data.holdout == data.holdout - 1


def held_out_text(data: Data, sources: Sources) -> Iterator[bytes]:
    """The text of all validation documents, in order."""
    if sources.validation:
        for piece in read_pieces(sources.kind, sources.validation, data.field):
            assert isinstance(piece.content, bytes)
            yield piece.content
        return
    files = sources.train
    if sources.kind == "text":  # a file is a document, so the others need not be read
        files = [path for number, path in enumerate(files) if held_out(number, data)]
    number = 0
    for piece in read_pieces(sources.kind, files, data.field):
        if sources.kind == "text" or held_out(number, data):
            assert isinstance(piece.content, bytes)
            yield piece.content
        number += piece.last


def zlib_bits_per_byte(stream: Iterable[bytes]) -> float:
    """Bits that zlib at level 9 needs per byte of the stream, in constant memory; 0 for an empty one."""
    compressor = zlib.compressobj(9)
    before = after = 0
    for chunk in stream:
        before += len(chunk)
        after += len(compressor.compress(chunk))
    after += len(compressor.flush())
    return 8 * after / before if before else 0.0


def _decoded(chunks: Iterable[bytes], path: str) -> Iterator[Piece]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    text, size, done = "", 0, 0
    try:
        for chunk in chunks:
            text += decoder.decode(chunk)
            size += len(chunk)
            done += len(chunk)
            if len(text) > LONGEST_PIECE:
                cut = _cut(text)
                rest = text[cut:]
                left = len(rest.encode())
                yield Piece(text[:cut], size - left, size - left, False)
                text, size = rest, left
        text += decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path} is not UTF-8 text (near byte {max(0, done + error.start)}: {error.reason})",
            'save it as UTF-8, or read it as bytes with data.tokenizer = "bytes"',
            2,
        ) from error
    yield Piece(text, size, size, True)


def _split(text: str, size: int, read: int) -> Iterator[Piece]:
    while len(text) > LONGEST_PIECE:
        cut = _cut(text[:LONGEST_PIECE])
        part = len(text[:cut].encode())
        yield Piece(text[:cut], part, part, False)
        text, size, read = text[cut:], size - part, max(0, read - part)
    yield Piece(text, size, read, True)


def _cut(text: str) -> int:
    """Where to cut: behind the last line end that no blank follows, so that no tokenizer sees a word or a blank split;
    else behind the last line end or space."""
    end = len(text)
    for _ in range(10_000):
        end = text.rfind("\n", 1, end)
        if end < 0:
            break
        if end + 1 < len(text) and not text[end + 1].isspace():
            return end + 1
    for separator in "\n ":
        end = text.rfind(separator, 1, len(text) - 1)
        if end > 0:
            return end + 1
    return len(text)


def _field(line: bytes, field: str, where: str) -> object:
    try:
        record = json.loads(line)
    except ValueError as error:  # a decoding error is one as well
        raise UserError(f"{where}: not a line of JSON ({error})", "correct or remove that line", 2) from error
    if not isinstance(record, dict):
        raise UserError(f"{where}: holds {_named(record)}, not an object", f'write each line as {{"{field}": ...}}', 2)
    if field not in record:
        there = ", ".join(repr(name) for name in list(record)[:8]) or "none"
        raise UserError(f"{where}: no field {field!r} (fields: {there})", "set data.field to the one to read", 2)
    return record[field]


def _checked_text(value: object, field: str, where: str) -> str:
    if isinstance(value, str):
        return value
    fix = "set data.field to a field that holds text"
    if isinstance(value, list):
        fix = 'set data.tokenizer = "ids" for lists of token ids'
    raise UserError(f"{where}: field {field!r} holds {_named(value)}, not text", fix, 2)


def _checked_ids(value: object, field: str, where: str) -> list[int]:
    if not isinstance(value, list):
        raise UserError(
            f"{where}: field {field!r} holds {_named(value)}, not a list of token ids",
            'set data.field to a field that holds ids, or data.tokenizer to "bytes" or a tokenizer.json',
            2,
        )
    for i in value:
        if type(i) is not int or not 0 <= i <= LARGEST_ID:
            raise UserError(
                f"{where}: {i!r} in field {field!r} is no token id", f"ids are whole numbers from 0 to {LARGEST_ID}", 2
            )
    return value


def _whole_characters(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{where}: half of a surrogate pair at character {error.start}, which a tokenizer cannot read",
            'correct that line, or read it as bytes with data.tokenizer = "bytes"',
            2,
        ) from error
    return text


def _named(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _unreadable(path: str, error: OSError) -> UserError:
    return UserError(f"{path} cannot be read: {error.strerror or error}", "check that it exists and its permissions", 2)
