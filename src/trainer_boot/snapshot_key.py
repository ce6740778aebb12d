"""What a snapshot was made for, and whether that still is so.

Fast: one stat a folder. Installing, upgrading and removing a distribution makes and removes its .dist-info, which the
folder's time shows. A time in whole seconds was set by a tool (an image, an archive), maybe to the same for all: then
the names are compared too. Full: the RECORD of every distribution, and time and size of every source. An edit inside a
package is seen by the full check only.
"""

import os
import sys
from importlib.util import MAGIC_NUMBER

from trainer_boot.snapshot_format import Aside

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_boot.snapshot_format import Index, Place

SITE_NAMES = ("site-packages", "dist-packages")
SECOND = 1_000_000_000


def site_folders() -> list[str]:
    """Where distributions are installed, as `sys.path` has it."""
    return [path for path in sys.path if os.path.isabs(path) and os.path.basename(path) in SITE_NAMES]


def library_folders() -> list[str]:
    """The standard library's: Python modules, extension modules."""
    library = os.path.dirname(os.__file__)
    return [path for path in (library, library + "/lib-dynload") if os.path.isabs(path)]


def identity(sites: "Sequence[str]") -> str:
    """Which Python, platform, folders and build of the trainer: sixteen hex digits that name the file."""
    from trainer_boot.layout import HEADER_CHECK, check

    archive = sys.modules.get("trainer_boot.finder")
    bundle = archive.running() if archive else None
    build = bundle.archive.head[HEADER_CHECK:].hex() if bundle else "checkout"
    facts = (
        sys.version,
        sys.implementation.cache_tag,
        MAGIC_NUMBER.hex(),
        sys.platform,
        os.uname().machine,
        sys.flags.optimize,
        build,
        *sites,
    )
    return check(repr(facts).encode()).hex()


def places(sites: "Sequence[str]") -> "tuple[Place, ...]":
    """The folders whose change ends a snapshot: `sites` and the standard library's, as they follow each other on
    `sys.path`."""
    order = {path: number for number, path in reversed(list(enumerate(sys.path)))}
    found = sorted((*library_folders(), *sites), key=lambda path: order.get(path, len(order)))
    return tuple(place(path) for path in found if os.path.isdir(path))


def place(path: str, names: str | None = None) -> "Place":
    """A folder as it is now. `names`: taken as they are where the time is of such precision that it says enough."""
    status = os.stat(path)
    if names is None or status.st_mtime_ns % SECOND == 0:
        from trainer_boot.layout import check

        names = check(repr(sorted(os.listdir(path))).encode()).hex()
    return path, status.st_mtime_ns, status.st_size, status.st_nlink, names


def compare(index: "Index", sites: "Sequence[str]", check: str) -> None:
    """Aside with the first difference between the recorded environment and this one; `check`: fast or full."""
    if index.identity != identity(sites):
        raise Aside("it was made for another Python or other folders")
    for recorded in index.places:
        path, _, _, _, names = recorded
        try:
            now = place(path, names)
        except OSError as error:
            raise Aside(f"{path}: {error.strerror}") from None
        if now != recorded:
            raise Aside(f"{path} has changed: something was installed, upgraded or removed")
    if check == "full":
        _compare_fully(index, sites)


def records(sites: "Sequence[str]") -> tuple[str, dict[str, set[str]]]:
    """A digest (hex) over every distribution's RECORD, or METADATA without one; the .py files that they list, a set
    for each of `sites`, without those of editable distributions."""
    import hashlib

    from trainer_boot import parallel

    total = hashlib.sha256()
    listed: dict[str, set[str]] = {}
    for site in sites:
        files = listed.setdefault(site, set())
        names = [name for name in sorted(os.listdir(site)) if name.endswith((".dist-info", ".egg-info"))]
        contents = parallel.each(_listing, [f"{site}/{name}" for name in names])
        for number, name in enumerate(names):
            content, is_record = contents[number]
            total.update(repr((site, name, len(content))).encode())
            total.update(content)
            if is_record:
                # a path with a comma or a quote in it is quoted, and is no module's
                files.update(line.partition(",")[0] for line in content.decode(errors="replace").splitlines())
    return total.hexdigest(), listed


def source_path(site: str, name: str, is_package: bool) -> str:
    """Where in that folder a module's source lies."""
    return f"{site}/{name.replace('.', '/')}" + ("/__init__.py" if is_package else ".py")


def _compare_fully(index: "Index", sites: "Sequence[str]") -> None:
    if records(sites)[0] != index.records:
        raise Aside("the RECORD of a distribution has changed")
    from trainer_boot import snapshot_entry_points

    if snapshot_entry_points.record(sites) != index.texts:
        raise Aside("the entry points of a distribution have changed")
    for name, (number, _, _, _, is_package, *facts) in index.modules.items():
        _require_same(source_path(index.places[number][0], name, is_package), *facts)
    for number, file, *facts in index.extensions.values():
        _require_same(f"{index.places[number][0]}/{file}", *facts)


def _require_same(path: str, time: int, size: int) -> None:
    try:
        status = os.stat(path)
    except OSError as error:
        raise Aside(f"{path}: {error.strerror}") from None
    if (status.st_mtime_ns, status.st_size) != (time, size):
        raise Aside(f"{path} was edited")


def _listing(information: str) -> tuple[bytes, bool]:
    """What says most about a distribution; whether it is the RECORD of one that is not editable."""
    for inside in ("RECORD", "METADATA", "PKG-INFO", ""):
        content = _content(f"{information}/{inside}".rstrip("/"))
        if content:
            return content, inside == "RECORD" and not _editable(information)
    return b"", False


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _editable(information: str) -> bool:
    return b'"editable": true' in _content(information + "/direct_url.json").replace(b'":true', b'": true')
