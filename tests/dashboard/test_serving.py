"""The dashboard's own server: no client can make it wait forever."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import ExitStack, suppress

import httpx
import pytest

from schedq import Queue
from schedq.dashboard import serving
from tests.dashboard.conftest import NO_TLS, Served, fetched
from tests.dashboard.test_live import STREAM
from tests.waiting import until

FORM = (
    b"POST /login HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\n"
)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_REQUEST_TIMEOUT_S", 0.4)
    monkeypatch.setattr(serving, "_READ_TIMEOUT_S", 0.4)


def connected(served: Served) -> socket.socket:
    host, _, port = served.url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=0.05)


def is_cut_within(client: socket.socket, seconds: float, byte: bytes) -> bool:
    """Whether the server hangs up on a client that sends the byte now and then."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        try:
            if byte:
                client.sendall(byte)
            if client.recv(1) == b"":
                return True
        except TimeoutError:
            pass
        except OSError:
            return True
    return False


def test_a_response_does_not_wait_for_the_clients_acknowledgement_of_its_headers():
    """Which takes 40 ms on a connection that is kept open."""

    async def sends_at_once() -> bool:
        sent_at_once: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sock = writer.get_extra_info("socket")
            sent_at_once.set_result(bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
            writer.close()

        listening = serving.bound("127.0.0.1", 0, is_protected=False)
        async with await asyncio.start_server(answer, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            writer.close()
            return await sent_at_once

    assert asyncio.run(sends_at_once())


@pytest.mark.parametrize(
    ("first", "then"),
    [(b"", b""), (b"GET / HTTP/1.1\r\nX-Slow: ", b"x"), (FORM, b"x")],
    ids=["says nothing", "is slow in its headers", "is slow in its form"],
)
def test_a_client_that_does_not_come_to_the_point_is_cut(
    first: bytes, then: bytes, served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    with connected(served) as client:
        client.sendall(first)

        assert is_cut_within(client, 30, then)

    monkeypatch.setattr(serving, "_REQUEST_TIMEOUT_S", 60)
    assert fetched(served.url).status_code == 200
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_client_that_sends_slowly_after_a_response_is_disconnected_too(
    served: Served, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(serving, "_REQUEST_TIMEOUT_S", 60)
    with connected(served) as client:
        client.settimeout(60)
        client.sendall(b"GET /static/icon.svg HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        client.settimeout(0.05)
        monkeypatch.setattr(serving, "_REQUEST_TIMEOUT_S", 0.4)

        assert is_cut_within(client, 4, b"x")  # sooner than uvicorn's five seconds of silence


def test_so_is_one_that_reads_nothing_of_a_page(served: Served, queue: Queue):
    for _ in range(300):
        queue.enqueue("x" * 10_000)
    with connected(served) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(60)
        ask = b"GET /queues/mail/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n" * 10
        ends_at = time.monotonic() + 60
        try:
            while time.monotonic() < ends_at:
                client.sendall(ask)
                time.sleep(0.05)
        except ConnectionError:
            return
    pytest.fail("it is still connected")


def test_a_stream_outlives_that_patience(served: Served, queue: Queue):
    queue.enqueue(1)
    with ExitStack() as stack:

        def opened() -> httpx.Response | None:
            """None if this thread paused between its connection and its request, so that it was cut."""
            with suppress(httpx.TransportError):
                return stack.enter_context(
                    httpx.stream("GET", f"{served.url}/queues/mail", headers=STREAM, timeout=60, verify=NO_TLS)
                )
            return None

        lines = until(opened).iter_lines()
        ends_at = time.monotonic() + 1.2
        line: str | None = ""
        while line is not None and time.monotonic() < ends_at:
            line = next(lines, None)
        assert line is not None, "the server ended the stream"
