"""The first instruction of the built file: find the code for this Python, install the Finder, hand over.

Python 3.6 must be able to parse this file, so that old ones can say what they need. The numbers are those of `layout`,
which lies in the archive and can't be imported yet; a test compares them.
"""

import os
import sys

if sys.version_info < (3, 11) or sys.implementation.name != "cpython":  # who starts it may have another
    with open(os.path.dirname(os.path.abspath(__file__)), "rb") as file:
        head = file.read(512)
    served = [head[at - 8 : at].rstrip(b"\0").decode() for at in range(192, 576, 64)]
    found = "%s %s" % (sys.implementation.name, ".".join(map(str, sys.version_info[:3])))  # noqa: UP031
    sys.stderr.write(
        f"error: this file needs CPython 3.11 or newer (it has code for {', '.join(filter(None, served))}); "
        f"{sys.executable} is {found}\n"
        f"fix: start it with a newer one, as in: python{served[0]} {' '.join(sys.argv)}\n"
    )
    sys.exit(3)

import marshal
from _imp import _fix_co_filename, source_hash  # type: ignore[attr-defined]  # importlib's own; no public name
from importlib.util import MAGIC_NUMBER
from time import monotonic_ns
from types import ModuleType

BEGAN = monotonic_ns()  # for the start report; what is imported above is loaded already
SIGNATURE = b"TRNRPYZ\x02"
SIGNATURE_AT, HEADER_SIZE, FIRST_SLOT, SLOT_SIZE, SLOTS, START_SIZE = 24, 592, 128, 64, 6, 16384
MAIN_SIZE, SOURCES_SIZE, SOURCES_CHECK = 40, 56, 64
BOOT_MODULES = ("trainer_boot", "trainer_boot.layout", "trainer_boot.finder")
FIX = "Copy or build the file again (python -m build)."


def boot(place: str) -> str:
    """Installs the Finder of the archive at `place`, unless this process has it; its path."""
    archive = os.path.abspath(place)
    if place.startswith("/proc/"):  # the parent process has it open, and no file is it any more
        archive = os.environ.get("TRAINER_PYZ_BUILD", "").partition(" ")[2] or archive
    # in tracebacks; as it was compiled, it would be a path that begins nowhere
    _fix_co_filename(sys._getframe(1).f_code, archive + "/trainer_boot/__main__.py")
    for each in sys.meta_path:
        if getattr(getattr(each, "archive", None), "path", None) == archive:
            return archive
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    start = os.pread(descriptor, START_SIZE, 0)
    head = start[:HEADER_SIZE]
    if head[SIGNATURE_AT : SIGNATURE_AT + 8] != SIGNATURE:
        fail(f"{archive} is not as it was built: its header is missing", FIX)
    if source_hash(0, head[:-8]) != head[-8:]:
        fail(f"the header of {archive} is damaged", FIX)
    offset, index = 0, None
    for at in range(FIRST_SLOT, FIRST_SLOT + SLOTS * SLOT_SIZE, SLOT_SIZE):
        if head[at : at + 4] == MAGIC_NUMBER:
            offset, *sizes = [number(head, i) for i in range(at + 8, at + 48, 8)]
            section = os.pread(descriptor, sum(sizes), offset)
            offset += len(section)
            if source_hash(0, section) != head[at + 48 : at + 56]:
                fail(f"{archive} is damaged", FIX)
            for name in BOOT_MODULES:
                size = sizes.pop(0)
                code, section = marshal.loads(section[:size]), section[size:]
                _fix_co_filename(code, archive + "/" + code.co_filename)
                module = sys.modules[name] = ModuleType(name)
                module.__package__, module.__path__ = "trainer_boot", []
                exec(code, module.__dict__)
            index = section
    if index is None:  # what zipimport will load now, which looks at no checksum
        sources = os.pread(descriptor, number(head, SOURCES_SIZE), HEADER_SIZE + number(head, MAIN_SIZE))
        if source_hash(0, sources) != head[SOURCES_CHECK : SOURCES_CHECK + 8]:
            fail(f"{archive} is damaged", FIX)

    from trainer_boot.finder import BundleError, install  # of the section, or else compiled by zipimport

    try:
        install(place, descriptor, start, index, offset, __name__ == "__mp_main__")
    except BundleError as error:
        fail(error.what, error.fix)
    return archive


def number(head: bytes, at: int) -> int:
    """The header's word there."""
    return int.from_bytes(head[at : at + 8], "little")


def fail(what: str, fix: str) -> None:
    """Ends the process with one line about what is wrong and one about what to do."""
    sys.exit(f"error: {what}\nfix: {fix}")


# Children by spawn and forkserver run `__file__` again, as __mp_main__; with a __spec__ they would run nothing. The
# loader knows the minified text only, whose lines are others.
__file__, __spec__, __loader__ = boot(os.path.dirname(__file__)), None, None
if __name__ == "__main__":
    from trainer_boot.finder import hand_over

    hand_over(BEGAN)
