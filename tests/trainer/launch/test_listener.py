"""What is said of an address where no rank 0 listens, against real listeners."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # public, but not in its __all__

from trainer.launch import listener

HOST = "127.0.0.1"


@contextmanager
def listening(greeting: bytes | None) -> Iterator[int]:
    """A port whose listener says that to everybody; None: it hangs up. Accepted by the kernel alone while it is b""."""
    with socket.socket() as server:
        server.bind((HOST, 0))
        server.listen(5)

        def serve() -> None:
            with server.accept()[0] as connection:
                if greeting:
                    connection.sendall(greeting)

        if greeting != b"":
            threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_store_is_known() -> None:
    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    found = listener.look(HOST, store.port)
    assert (found.what, found.never, found.answers) == (listener.STORE, False, True)
    assert listener.in_use(store.port)
    store.set("key", "value")
    assert store.get("key") == b"value"


def test_a_web_server_is_known() -> None:
    server = HTTPServer((HOST, 0), BaseHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found = listener.look(HOST, server.server_address[1])
    server.shutdown()
    server.server_close()
    assert found.never and "web server" in found.what


def test_one_that_speaks_first_is_quoted() -> None:
    with listening(b"SSH-2.0-OpenSSH_9.9\r\n") as port:
        found = listener.look(HOST, port)
    assert found.never and "SSH-2.0-OpenSSH_9.9" in found.what


def test_one_that_never_answers_may_still_be_slow() -> None:
    with listening(b"") as port:
        found = listener.look(HOST, port)
        assert listener.in_use(port)
    assert not found.never and found.answers and "never answers" in found.what


def test_one_that_hangs_up() -> None:
    with listening(None) as port:
        assert "closes the connection" in listener.look(HOST, port).what


def test_nobody_is_there() -> None:
    port = free_port()
    found = listener.look(HOST, port)
    assert not found.answers and "nothing listens there" in found.what
    assert not listener.in_use(port)


@pytest.mark.parametrize("name", ["no-such-host.invalid", "x" * 100, "..", "é" * 70])
def test_a_name_that_is_none(name: str) -> None:
    assert "can't be resolved" in listener.look(name, 1).what
