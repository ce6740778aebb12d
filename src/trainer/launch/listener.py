"""What listens at the address where the ranks should meet. torch's own client waits for ever for a listener that never
answers, and prints stack traces about every other one that is no store."""

import contextlib
import os
import socket

ANSWER_SECONDS = 1.0
SHOWN = 40
STORE = "the store"
# what a client of torch's TCPStore sends first: a magic number, and a ping, which comes back
HELLO = bytes([0]) + (0x3C85F7CE).to_bytes(4, "little")
PING = bytes([13])


class Found:
    """What was found. `what`: in a few words, for messages. `never`: it can't be rank 0's store even later.
    `answers`: something has accepted the connection."""

    def __init__(self, what: str, *, never: bool = False, answers: bool = True) -> None:
        self.what = what
        self.never = never
        self.answers = answers


def look(host: str, port: int) -> Found:
    """What is found at the address, within three seconds."""
    try:
        connection = socket.create_connection((host, port), timeout=ANSWER_SECONDS)
    except socket.gaierror as error:
        return Found(f"the name {host} can't be resolved ({error.strerror})", answers=False)
    except UnicodeError:
        return Found(f"{host!r} is not a host name and can't be resolved", answers=False)
    except ConnectionRefusedError:
        what = "nothing listens there: rank 0 has not started, still prepares data, has ended, or runs on another host"
        return Found(what, answers=False)
    except OSError as error:
        reason = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        return Found(f"it can't be reached ({reason})", answers=False)
    ping = os.urandom(4)
    with connection:
        said = _answer(connection, HELLO + PING + ping)
        if said is None:
            said = _answer(connection, b"\r\n\r\n")  # what is read by the line answers now
    if said == ping:
        return Found(STORE)
    if said is None:
        return Found("something listens there, accepts connections and never answers: it is no rank")
    if not said:
        return Found("something listens there and closes the connection: it is no rank")
    if said.startswith(b"HTTP/") or b"<html" in said.lower():
        return Found("a web server listens there, not rank 0", never=True)
    return Found(f"a program that is no rank listens there; it says {said[:SHOWN]!r}", never=True)


def in_use(port: int) -> bool:
    """Whether a store could not be opened at this port of this machine, because something listens there."""
    for family, anywhere in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):
        with contextlib.suppress(OSError), socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.bind((anywhere, port))
            return False
    return True


def _answer(connection: socket.socket, question: bytes) -> bytes | None:
    """What comes back; empty where the connection is closed; None: nothing comes."""
    connection.settimeout(ANSWER_SECONDS)
    with contextlib.suppress(OSError):
        connection.sendall(question)
    try:
        return connection.recv(1024)
    except TimeoutError:
        return None
    except OSError:
        return b""
