"""Marshalled code in one spelling, whatever process it was made in.

`marshal.dumps` marks every object that had more than one reference at that moment, so that what is written depends on
what else the process did before. Here the marks stay only where the stream refers back to them, and the numbers of the
references follow from that. Standard library only: this runs in the interpreters that bytecode is made for.
"""

_FLAG = 0x80
_REFERENCE = ord("r")
_SINGLES = b"0NFTS."
_FIXED = {ord("i"): 4, ord("I"): 8, ord("g"): 8, ord("y"): 16}
_BYTES_LONG = b"stuaA"  # four bytes of length, then that many
_BYTES_SHORT = b"zZ"  # one byte of length
_ITEMS_LONG = b"([<>"
_ITEMS_SHORT = b")"
_CODE = ord("c")
# What a code object holds, in Python 3.11 to 3.14: numbers of four bytes, objects, one number, objects.
_CODE_NUMBERS, _CODE_OBJECTS, _CODE_TAIL_OBJECTS = 5, 8, 2


def canonical(data: bytes) -> bytes:
    """The same objects in the canonical spelling. ValueError for a stream that is not understood to its end."""
    scan = _Scan(data)
    scan.value()
    if scan.at != len(data):
        raise ValueError(f"{len(data) - scan.at} bytes behind the marshalled value")
    used = {scan.marks[number] for _, number in scan.references}
    kept = {mark: number for number, mark in enumerate(mark for mark in scan.marks if mark in used)}
    result = bytearray(data)
    for mark in scan.marks:
        if mark not in kept:
            result[mark] &= ~_FLAG & 0xFF
    for at, number in scan.references:
        result[at : at + 4] = kept[scan.marks[number]].to_bytes(4, "little")
    return bytes(result)


class _Scan:
    """Walks over one value; notes where marks and references are."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.marks: list[int] = []
        self.references: list[tuple[int, int]] = []

    def skip(self, size: int) -> None:
        self.at += size
        if self.at > len(self.data):
            raise ValueError("the marshalled value is cut off")

    def number(self, size: int) -> int:
        self.skip(size)
        return int.from_bytes(self.data[self.at - size : self.at], "little")

    def value(self) -> bool:
        """Walks over one value; False if it was the end mark of a dictionary."""
        start = self.at
        head = self.number(1)
        kind = head & ~_FLAG
        if head & _FLAG:
            self.marks.append(start)
        if kind == _REFERENCE:
            number = self.number(4)
            if number >= len(self.marks):
                raise ValueError("a reference to nothing")
            self.references.append((self.at - 4, number))
        elif kind in _FIXED:
            self.skip(_FIXED[kind])
        elif kind in _BYTES_LONG:
            self.skip(self.number(4))
        elif kind in _BYTES_SHORT:
            self.skip(self.number(1))
        elif kind == ord("l"):
            digits = self.number(4)
            self.skip(2 * min(digits, (1 << 32) - digits))  # negative for a negative number
        elif kind in _ITEMS_LONG:
            self.values(self.number(4))
        elif kind in _ITEMS_SHORT:
            self.values(self.number(1))
        elif kind == ord("{"):
            while self.value():
                self.value()
        elif kind == ord(":"):
            self.values(3)
        elif kind == _CODE:
            self.skip(4 * _CODE_NUMBERS)
            self.values(_CODE_OBJECTS)
            self.skip(4)
            self.values(_CODE_TAIL_OBJECTS)
        elif kind not in _SINGLES:
            raise ValueError(f"a marshalled value of unknown kind {chr(kind)!r}")
        return kind != ord("0")

    def values(self, count: int) -> None:
        for _ in range(count):
            self.value()
