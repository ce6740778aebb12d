"""Pages of shared objects that a start touches are read by many threads at once, before they are touched one by one.

A start touches three hundred of the three thousand mebibytes that torch's libraries have, in thousands of page faults,
each of which waits for the disk or for a server. `prefetch_making` has recorded which pages. Whether they are in memory
already is asked first, by samples: then nothing is read and no thread is started.

Threads: none is left after `finish`, which whoever forks has to call before; the import of torch calls it too, since
opening its libraries holds the interpreter's lock.
"""

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainer_boot.layers import Note

    # path, time of change in nanoseconds, size, (offset, length) of what is touched
    Pages = tuple[str, int, int, tuple[tuple[int, int], ...]]

THREADS = 16
PIECE = 1 << 20
PAGE = 4096
SAMPLES = 3
ASKED_FILES = 2  # the largest, for all
WAIT_SECONDS = 60.0
# a page that comes from memory takes two microseconds, from a disk a hundred
SLOW_NS = 50_000

_running: "Prefetch | None" = None


class _File:
    """One that is being read; closed with its last piece."""

    def __init__(self, descriptor: int, pieces: int) -> None:
        self.descriptor = descriptor
        self.left = pieces


class Prefetch:
    """Reads pages of files, in the background. `share`: number and count of the processes that share the work."""

    def __init__(self, files: "list[Pages]", share: tuple[int, int], note: "Note") -> None:
        import threading

        self._note = note
        self._share = share
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._stop = False
        self._bytes = 0
        # taken from the end: the largest first, so that its pieces keep all threads busy
        files = sorted(files, key=_touched)
        self._work: list[Pages | tuple[_File, int, int]] = list(files)
        self._threads = [threading.Thread(target=self._run, name="prefetch", daemon=True) for _ in range(THREADS)]
        self._started: list[threading.Thread] = []
        for thread in self._threads:
            try:
                thread.start()
            except RuntimeError:  # no more threads allowed
                break
            self._started.append(thread)

    def finish(self, timeout: float, stop: bool) -> bool:
        """Waits; whether no thread is left. `stop`: what is not read yet is left unread, now or after the time."""
        end = time.monotonic() + timeout
        self._stop = stop
        for thread in self._started:
            thread.join(max(0.0, end - time.monotonic()))
        left = any(thread.is_alive() for thread in self._started)
        seconds = round(time.monotonic() - self._began, 3)
        self._note.update(bytes=self._bytes, seconds=self._note.get("seconds", seconds))
        return not left

    def _run(self) -> None:
        buffer = memoryview(bytearray(PIECE))
        while True:
            try:
                work = self._work.pop()
            except IndexError:
                return
            if len(work) == 4:
                self._open(work)
            else:
                self._read(*work, buffer)

    def _open(self, pages: "Pages") -> None:
        path, changed, size, ranges = pages
        if self._stop:
            return
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            status = os.fstat(descriptor)
            wanted = (status.st_mtime_ns, status.st_size) == (changed, size) and _is_cold(descriptor, ranges)
        except OSError:
            wanted = False
        number, count = self._share
        pieces = _pieces(ranges)[number::count] if wanted else []
        if not pieces:
            os.close(descriptor)
            return
        file = _File(descriptor, len(pieces))
        self._work += [(file, offset, length) for offset, length in reversed(pieces)]

    def _read(self, file: _File, offset: int, length: int, buffer: memoryview) -> None:
        read = 0
        if not self._stop:
            try:
                read = os.preadv(file.descriptor, [buffer[:length]], offset)
            except OSError:
                read = 0  # whoever touches the page will be told
        with self._lock:
            self._bytes += read
            file.left -= 1
            if not file.left:
                os.close(file.descriptor)


def start() -> "Note":
    """Begins to read what the snapshot names. The layer's note: layer, state, why; bytes, seconds once it is done."""
    global _running
    from trainer_boot.snapshot_serving import running

    note: Note = {"layer": "prefetch", "state": "aside", "why": ""}
    finder = running()
    if finder is None:
        note["why"] = "there is no snapshot that says what to read"
        return note
    reader = finder.reader
    files = list(reader.index.pages)
    if not files:
        note["why"] = "the snapshot does not say what to read"
        return note
    if _running is not None and not finish():
        note["why"] = "it is running already"
        return note
    if not any(map(_is_cold_file, sorted(files, key=_touched)[-ASKED_FILES:])) and not reader.is_cold():
        note.update(state="on", why="all is in memory already", bytes=0)
        return note
    status = os.stat(reader.path)
    files.append((reader.path, status.st_mtime_ns, status.st_size, ((0, status.st_size),)))
    note.update(state="on", why="reading")
    _running = Prefetch(files, _share(os.environ), note)
    finder.before.append(_before)
    return note


def finish(timeout: float = WAIT_SECONDS, stop: bool = False) -> bool:
    """Waits until all is read; whether no thread is left. `stop`: leaves unread what is not read yet."""
    global _running
    if _running is None:
        return True
    done = _running.finish(timeout, stop)
    if done:
        _running._note["why"] = ""
        _running = None
    return done


def _before(module: str) -> None:
    if module == "torch":
        finish()


def _share(environ: "os._Environ[str]") -> tuple[int, int]:
    """The ranks of a machine share its memory: each reads its part."""
    try:
        number, count = int(environ["LOCAL_RANK"]), int(environ["LOCAL_WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1
    return (number, count) if 0 <= number < count else (0, 1)


def _touched(pages: "Pages") -> int:
    return sum(length for _, length in pages[3])


def _pieces(ranges: "tuple[tuple[int, int], ...]") -> list[tuple[int, int]]:
    return [
        (start, min(PIECE, offset + length - start))
        for offset, length in ranges
        for start in range(offset, offset + length, PIECE)
    ]


def _is_cold_file(pages: "Pages") -> bool:
    try:
        descriptor = os.open(pages[0], os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _is_cold(descriptor, pages[3])
    finally:
        os.close(descriptor)


def _is_cold(descriptor: int, ranges: "tuple[tuple[int, int], ...]") -> bool:
    """Whether one of a few pages is not in memory."""
    step = max(1, len(ranges) // SAMPLES)
    return any(is_absent(descriptor, offset + length // 2 // PAGE * PAGE) for offset, length in ranges[::step])


def is_absent(descriptor: int, offset: int) -> bool:
    """Whether the page of a file is not in memory; where the file system does not tell, by the time that it takes."""
    buffer = bytearray(1)
    try:
        os.preadv(descriptor, [buffer], offset, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    except OSError:
        began = time.monotonic_ns()
        try:
            os.preadv(descriptor, [buffer], offset)
        except OSError:
            return False
        return time.monotonic_ns() - began > SLOW_NS
    return False
