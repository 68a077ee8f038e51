"""Servers at Redis's address that are not Redis."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from schedq import StoreUnavailable
from tests.conftest import MakeQueue
from tests.servers import Server

ALERT = b"\x15\x03\x01\x00\x02\x02\x46"
"""What a TLS server sends when it did not understand the request."""
Stranger = Callable[[bytes], str]


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    """Starts a server that replies with these bytes to any request and then closes; returns its address."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def make(answer: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threads.append(threading.Thread(target=_answer, args=(listener, answer), daemon=True))
        threads[-1].start()
        return f"127.0.0.1:{listener.getsockname()[1]}/0"

    yield make
    for listener in listeners:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join(5)


def _answer(listener: socket.socket, answer: bytes) -> None:
    with suppress(OSError):
        while True:
            wire, _ = listener.accept()
            with wire, suppress(OSError):
                wire.recv(1 << 16)
                wire.sendall(answer)
                wire.shutdown(socket.SHUT_WR)
                wire.recv(1 << 16)


@pytest.mark.parametrize(
    "answer", [ALERT, b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\0"], ids=["TLS", "HTTP", "zeros"]
)
def test_a_reply_that_is_not_redis_protocol_is_reported_in_one_line(
    make_queue: MakeQueue, stranger: Stranger, answer: bytes
):
    place = stranger(answer)
    queue = make_queue(url=f"redis://{place}", retry_for=0.2)
    began = time.monotonic()

    with pytest.raises(StoreUnavailable, match=f"enqueue: redis://{place} does not speak Redis's protocol .*rediss://"):
        queue.enqueue(1)

    assert time.monotonic() - began < 25


def test_a_server_that_closes_the_connection_is_reported(make_queue: MakeQueue, stranger: Stranger):
    place = stranger(b"")

    with pytest.raises(StoreUnavailable, match=f"redis://{place} does not respond: Connection "):
        make_queue(url=f"redis://{place}", retry_for=0.2).enqueue(1)


def test_tls_with_a_server_without_tls_ends_in_one_line(
    make_queue: MakeQueue, server: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("schedq.connection.endpoint.REPLY_S", 0.3)
    monkeypatch.setattr("schedq.connection.async_connection.REPLY_S", 0.3)
    queue = make_queue(url=f"rediss://127.0.0.1:{server.port}/0", retry_for=0)

    with pytest.raises(StoreUnavailable) as refused:
        queue.enqueue(1)

    assert str(refused.value).startswith(f"enqueue: rediss://127.0.0.1:{server.port}/0 does not respond: ")
    assert len(str(refused.value).partition("respond: ")[2]) > 5
