"""Many small reads at once: on a file system where each is a message to a server, the waits overlap."""

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    Item = TypeVar("Item")
    Result = TypeVar("Result")

THREADS = 16


def each(
    function: "Callable[[Item], Result]", items: "Sequence[Item]", end: float | None = None
) -> "dict[int, Result]":
    """What the function makes of the items, by their number. Begun in their order, and none after `end` on the
    monotonic clock. Raises what it raises; no thread is left."""
    import threading

    results: dict[int, Result] = {}
    failures: list[BaseException] = []
    numbers = iter(range(len(items)))
    lock = threading.Lock()

    def work() -> None:
        while not failures and (end is None or time.monotonic() < end):
            with lock:
                number = next(numbers, -1)
            if number < 0:
                return
            try:
                results[number] = function(items[number])
            except BaseException as failure:
                failures.append(failure)

    threads = []
    for _ in range(min(THREADS, len(items)) - 1):
        thread = threading.Thread(target=work, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # no more threads allowed: this one does it
            break
        threads.append(thread)
    work()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results
