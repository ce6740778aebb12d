"""The first instruction of the built file: find the code for this Python, install the Finder, hand over.

Python 3.6 must be able to parse this file, so that old ones can say what they need. The numbers are those of `layout`,
which lies in the archive and can't be imported yet; a test compares them.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  # who starts the file may well have an older one
    found = ".".join(map(str, sys.version_info[:3]))
    sys.stderr.write(f"error: this file needs Python 3.11 or newer; {sys.executable} is Python {found}\n")
    sys.stderr.write(f"fix: start it with a newer one, as in: python3.11 {' '.join(sys.argv)}\n")
    sys.exit(3)

import marshal
import os
from _imp import _fix_co_filename, source_hash  # type: ignore[attr-defined]  # importlib's own; no public name
from importlib.util import MAGIC_NUMBER
from time import monotonic_ns
from types import ModuleType

BEGAN = monotonic_ns()  # for the start report; what is imported above is loaded already
SIGNATURE = b"TRNRPYZ\x01"
SIGNATURE_AT, HEADER_SIZE, FIRST_SLOT, SLOT_SIZE, SLOTS = 24, 496, 96, 64, 6
BOOT_MODULES = ("trainer_boot", "trainer_boot.layout", "trainer_boot.finder")
FIX = "copy it again, or build it again (python -m build)"


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
    head = os.pread(descriptor, HEADER_SIZE, 0)
    if head[SIGNATURE_AT : SIGNATURE_AT + 8] != SIGNATURE:
        fail(f"{archive} is not as it was built: its header is missing", FIX)
    offset, index = 0, None
    for at in range(FIRST_SLOT, FIRST_SLOT + SLOTS * SLOT_SIZE, SLOT_SIZE):
        if head[at : at + 4] == MAGIC_NUMBER:
            offset, *sizes = [int.from_bytes(head[i : i + 8], "little") for i in range(at + 8, at + 48, 8)]
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

    from trainer_boot.finder import BundleError, install  # of the section, or else compiled by zipimport

    try:
        install(place, descriptor, head, index, offset, __name__ == "__mp_main__")
    except BundleError as error:
        fail(error.what, error.fix)
    return archive


def fail(what: str, fix: str) -> None:
    """Ends the process with one line about what is wrong and one about what to do."""
    sys.exit(f"error: {what}\nfix: {fix}")


# Children by spawn and forkserver run `__file__` again, as __mp_main__; with a __spec__ they would run nothing. The
# loader knows the minified text only, whose lines are others.
__file__, __spec__, __loader__ = boot(os.path.dirname(__file__)), None, None
if __name__ == "__main__":
    from trainer_boot.finder import hand_over

    hand_over(BEGAN)
