"""Shared objects are opened where they were found the last time, without a search.

The dynamic linker looks for each library that another one needs in all folders of that one's RPATH, with a variant for
each kind of processor: some seven hundred look-ups for torch's. Here a tiny object without code or symbols, made in
memory, is opened first. It needs the same libraries, in the same order, by their paths: the linker finds them at once,
and finds them loaded when the real one asks for them by name.

Which symbol is bound to which stays the same. The linker goes through the libraries of what was opened, breadth first:
the tiny object has nothing to bind to, and after it come the real one and all that it needs, in just that order, those
too that were loaded before. `libraries_making` records the order; any doubt, and a library is not recorded. Where this
process has not loaded before what that one had, or has another library of the same name, all is left to the linker.
"""

import os
import sys

from trainer_boot.snapshot_format import Aside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer_boot.layers import Note

    # the path of the object that a module opens, and of all that this needs, as the linker had them
    Chain = tuple[str, ...]
    # /etc/ld.so.cache: time, size; e_machine and e_flags of the objects; by module, and what of it was there before;
    # the own name of each library
    Libraries = tuple[tuple[int, int], bytes, bytes, dict[str, tuple[Chain, Chain]], dict[str, str]]

CACHE = "/etc/ld.so.cache"
# each changes what the linker finds
VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD", "LD_AUDIT", "GLIBC_TUNABLES", "LD_BIND_NOT", "LD_DYNAMIC_WEAK")
NOTHING: "Libraries" = ((0, 0), b"", b"", {}, {})
NEEDED, STRTAB, SYMTAB, STRSZ, SYMENT = 1, 5, 6, 10, 11
LOAD, DYNAMIC, STACK = 1, 2, 0x6474E551
READ, READ_WRITE = 4, 6
HEADER, PROGRAM, SYMBOL, PAGE = 64, 56, 24, 0x10000

_note: "Note" = {}


class Opener:
    """Opens what a module's library needs, right before the module is loaded."""

    def __init__(self, libraries: "Libraries", note: "Note") -> None:
        _, self._machine, self._flags, chains, self._names = libraries
        self._chains = dict(chains)
        self._note = note
        self._opened = 0

    def before(self, module: str) -> None:
        """Does nothing for a module of which nothing was recorded. A failure leaves all to the linker, and is noted."""
        found = self._chains.pop(module, None)
        if found is None:
            return
        chain, given = found
        try:
            self._require_fitting(chain, given)
            self._open(stub(chain, self._machine, self._flags))
        except Aside as aside:
            self._note["why"] = f"{module}: {aside.why}"
        except (OSError, ImportError, AttributeError) as error:
            self._note.update(state="aside", why=str(error))
            self._chains.clear()
        else:
            self._note["opened"] = self._opened = self._opened + 1

    def _require_fitting(self, chain: "Chain", given: "Chain") -> None:
        from trainer_boot.libraries_making import loaded, own_name

        paths = loaded()
        missing = next((path for path in given if path not in paths), "")
        if missing:
            raise Aside(f"{missing} is not loaded yet")
        names = {self._names.get(path, os.path.basename(path)) for path in chain}
        for path in paths:
            if path not in chain and (self._names.get(path) or own_name(path)) in names:
                raise Aside(f"{path} has the name of another library")

    def _open(self, content: bytes) -> None:
        from _ctypes import dlopen  # torch imports ctypes in any case

        descriptor = os.memfd_create("trainer-libraries", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, content)
            # the linker knows what it has opened by the path: each gets one of its own
            dlopen(f"/proc/self/fd/{'./' * self._opened}{descriptor}", os.RTLD_NOW | os.RTLD_LOCAL)
        finally:
            os.close(descriptor)


def serve() -> "Note":
    """From now on what was recorded is opened by its path. The layer's note: layer, state, why, opened."""
    from trainer_boot.snapshot_serving import running

    _note.clear()
    _note.update(layer="libraries", state="aside", why="")
    finder = running()
    try:
        if finder is None:
            raise Aside("there is no snapshot that says where they are")
        libraries = finder.reader.index.libraries
        _require_same(libraries)
    except Aside as aside:
        _note["why"] = aside.why
        return _note
    _note.update(state="on", opened=0)
    finder.before.append(Opener(libraries, _note).before)
    return _note


def unusual() -> str:
    """Why the linker of this process may find other things than that of another process; or ""."""
    variable = next((name for name in VARIABLES if os.environ.get(name)), "")
    if variable:
        return f"{variable} is set"
    if sys.platform != "linux" or not os.confstr_names.get("CS_GNU_LIBC_VERSION"):
        return "the C library is not glibc"
    return ""


def linker_cache() -> tuple[int, int]:
    """Time and size of the system's list of libraries."""
    try:
        status = os.stat(CACHE)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def stub(needed: "Chain", machine: bytes, flags: bytes) -> bytes:
    """An ELF object (64 bits, little-endian) that needs these, in this order, and has nothing else."""
    text, offsets = b"\0", []
    for name in needed:
        offsets.append(len(text))
        text += os.fsencode(name) + b"\0"
    entries = len(needed) + 5
    dynamic_at = HEADER + 3 * PROGRAM
    symbols_at = dynamic_at + 16 * entries
    text_at = symbols_at + SYMBOL
    pairs = [(NEEDED, offset) for offset in offsets]
    pairs += [(STRTAB, text_at), (SYMTAB, symbols_at), (STRSZ, len(text)), (SYMENT, SYMBOL), (0, 0)]
    size = text_at + len(text)
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + _short(3) + machine + _int(1)
    head += _long(0) + _long(HEADER) + _long(0) + flags + b"".join(map(_short, (HEADER, PROGRAM, 3, 64, 0, 0)))
    head += _segment(LOAD, READ_WRITE, 0, size, PAGE)  # older linkers write into it
    head += _segment(DYNAMIC, READ_WRITE, dynamic_at, 16 * entries, 8)
    head += _segment(STACK, READ_WRITE, 0, 0, 16)  # without it the stack would become executable
    return head + b"".join(_long(word) for pair in pairs for word in pair) + bytes(SYMBOL) + text


def _require_same(libraries: "Libraries") -> None:
    why = unusual()
    if why:
        raise Aside(why)
    if not libraries[3]:
        raise Aside("the snapshot has none")
    if libraries[0] != linker_cache():
        raise Aside(f"{CACHE} has changed")


def _segment(kind: int, flags: int, at: int, size: int, align: int) -> bytes:
    return _int(kind) + _int(flags) + b"".join(map(_long, (at, at, at, size, size, align)))


def _short(value: int) -> bytes:
    return value.to_bytes(2, "little")


def _int(value: int) -> bytes:
    return value.to_bytes(4, "little")


def _long(value: int) -> bytes:
    return value.to_bytes(8, "little")
