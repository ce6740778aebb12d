"""Documents read piece by piece, so that memory does not grow with the size of a file. No torch, no numpy."""

import codecs
import json
import os
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
_HEAD_BYTES = 8192
_LEAVE_OUT = "Leave the file out of data.text, or set data.binary to true to train on its bytes as they are."
_NO_TEXT = {
    b"\x1f\x8b": ("gzip-compressed", "Decompress it first (`gunzip`)."),
    b"BZh": ("bzip2-compressed", "Decompress it first (`bunzip2`)."),
    b"\xfd7zXZ\0": ("xz-compressed", "Decompress it first (`unxz`)."),
    b"\x28\xb5\x2f\xfd": ("zstd-compressed", "Decompress it first (`unzstd`)."),
    b"PK\x03\x04": ("a zip archive", "Unpack it first."),
    b"PAR1": ("a Parquet file", "Convert it to JSON lines and set data.jsonl."),
    b"\x89PNG": ("a PNG image", _LEAVE_OUT),
    b"\xff\xd8\xff": ("a JPEG image", _LEAVE_OUT),
    b"GIF8": ("a GIF image", _LEAVE_OUT),
    b"%PDF": ("a PDF document", "Extract its text first (`pdftotext`)."),
    b"\x7fELF": ("a binary program", _LEAVE_OUT),
}


class Piece(NamedTuple):
    """A part of a document; `last` ends it.

    `content` is bytes, text or ids as the reader was asked; `text` the bytes of text in it (0 for ids); `read` the
    bytes of the file it took.
    """

    content: bytes | str | list[int]
    text: int
    read: int
    last: bool


def read_text(paths: Iterable[str], *, decode: bool, binary: bool = False) -> Iterator[Piece]:
    """Text files, a document each: as bytes, or decoded from UTF-8.

    Raises UserError (status 2) for a file that cannot be read, is no text (unless `binary`) or, with `decode`, is no
    UTF-8.
    """
    for path in paths:
        try:
            with open(path, "rb", buffering=0) as file:
                if not binary:
                    _require_text(file.read(_HEAD_BYTES), path)
                    file.seek(0)
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


def read_pieces(
    kind: str, files: list[str], field: str, *, ids: bool = False, decode: bool = False, binary: bool = False
) -> Iterator[Piece]:
    """Documents of `files` of a kind ("text" or "jsonl"): as bytes, as text with `decode`, or as `ids`."""
    if kind == "text":
        return read_text(files, decode=decode, binary=binary)
    return read_jsonl(files, field, ids=ids, decode=decode)


def tail_is_held_out(data: Data, sources: Sources) -> bool:
    """Return whether validation is the last part of a single text, which has no other document to hold out."""
    return sources.kind == "text" and len(sources.train) == 1 and not data.validation and data.holdout > 1


def divided(pieces: Iterable[Piece], data: Data, size: int) -> Iterator[tuple[Piece, bool]]:
    """Yield the pieces of one document of `size` bytes in two: the last 1/`data.holdout`, from the begin of a line on
    where there is one near, is True (held out) and a document of its own."""
    left = size - size // data.holdout
    before = True
    for piece in pieces:
        content = piece.content
        assert not isinstance(content, list), "a text"
        if before and piece.text > left:
            raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
            cut = _line_near(raw, left)
            first, rest = raw[:cut], raw[cut:]
            text = isinstance(content, str)
            yield Piece(_as(first, text), len(first), piece.read, True), False
            before = False
            piece = Piece(_as(rest, text), len(rest), 0, piece.last)
        elif before:
            left -= piece.text
            if piece.last:  # it was shorter than its size said
                yield piece, False
                return
        yield piece, not before


def held_out(number: int, data: Data) -> bool:
    """Whether document `number` (from 0, in order) is validation: the last of every `holdout`, where no validation
    files are named."""
    return not data.validation and data.holdout > 0 and number % data.holdout == data.holdout - 1


def held_out_text(data: Data, sources: Sources) -> Iterator[bytes]:
    """The text of all validation documents, in order."""
    if sources.validation:
        for piece in read_pieces(sources.kind, sources.validation, data.field, binary=True):
            assert isinstance(piece.content, bytes)
            yield piece.content
        return
    files = sources.train
    if tail_is_held_out(data, sources):
        size = os.stat(files[0]).st_size  # noqa: PTH116
        for piece, held in divided(read_pieces(sources.kind, files, data.field, binary=True), data, size):
            if held:
                assert isinstance(piece.content, bytes)
                yield piece.content
        return
    if sources.kind == "text":  # a file is a document, so the others need not be read
        files = [path for number, path in enumerate(files) if held_out(number, data)]
    number = 0
    for piece in read_pieces(sources.kind, files, data.field, binary=True):
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


def _require_text(head: bytes, path: str) -> None:
    """Raise a UserError for a file that begins as no text does."""
    for magic, (kind, fix) in _NO_TEXT.items():
        if head.startswith(magic):
            raise UserError(f"{path} is {kind}, not text", fix, 2)
    if b"\0" in head:
        raise UserError(
            f"{path} is not text: byte {head.index(0)} is NUL",
            "Leave the file out, convert it to UTF-8, or set data.binary to true to train on its bytes as they are.",
            2,
        )


def _line_near(raw: bytes, position: int, reach: int = 1 << 16) -> int:
    """Return where the next line begins; where none does soon, the next character."""
    end = raw.find(b"\n", max(0, position - 1), position + reach)
    if end >= 0 and end + 1 < len(raw):
        return end + 1
    while 0 < position < len(raw) and raw[position] & 0xC0 == 0x80:
        position += 1
    return position


def _as(raw: bytes, text: bool) -> bytes | str:
    return raw.decode("utf-8", "surrogatepass") if text else raw


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
            'Save it as UTF-8, or set data.tokenizer to "bytes".',
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
    except (ValueError, RecursionError) as error:  # a decoding error is one as well
        why = "nested too deeply" if isinstance(error, RecursionError) else error
        raise UserError(f"{where}: not a line of JSON ({why})", "Correct or remove that line.", 2) from error
    if not isinstance(record, dict):
        raise UserError(f"{where}: holds {_named(record)}, not an object", f'Write each line as {{"{field}": ...}}.', 2)
    if field not in record:
        there = ", ".join(repr(name) for name in list(record)[:8]) or "none"
        raise UserError(f"{where}: no field {field!r} (fields: {there})", "Set data.field to the one to read.", 2)
    return record[field]


def _checked_text(value: object, field: str, where: str) -> str:
    if isinstance(value, str):
        return value
    fix = "Set data.field to a field that holds text."
    if isinstance(value, list):
        fix = 'Set data.tokenizer to "ids" for lists of token ids.'
    raise UserError(f"{where}: field {field!r} holds {_named(value)}, not text", fix, 2)


def _checked_ids(value: object, field: str, where: str) -> list[int]:
    if not isinstance(value, list):
        raise UserError(
            f"{where}: field {field!r} holds {_named(value)}, not a list of token ids",
            'Set data.field to a field that holds ids, or data.tokenizer to "bytes" or a tokenizer.json.',
            2,
        )
    for i in value:
        if type(i) is not int or not 0 <= i <= LARGEST_ID:
            raise UserError(
                f"{where}: {i!r} in field {field!r} is not a token id", f"Use whole numbers from 0 to {LARGEST_ID}.", 2
            )
    return value


def _whole_characters(text: str, where: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{where}: half of a surrogate pair at character {error.start}, which a tokenizer cannot read",
            'Correct that line, or set data.tokenizer to "bytes".',
            2,
        ) from error
    return text


def _named(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _unreadable(path: str, error: OSError) -> UserError:
    return UserError(
        f"{path} cannot be read: {error.strerror or error}", "Check that it exists and that you can read it.", 2
    )
