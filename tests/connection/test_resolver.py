"""Resolves host names and opens sockets without the event loop's own threads."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from schedq.connection import resolver
from schedq.connection.address import Address
from schedq.connection.client import Connection
from schedq.model.settings import Settings
from tests.servers import Server

REAL = socket.getaddrinfo


class Names:
    """Name resolution with results that the test sets; numeric addresses are resolved by the system."""

    def __init__(self, addresses: list[tuple[str, int]]) -> None:
        self.addresses = addresses
        self.asked = 0
        self.may_answer = threading.Event()
        self.may_answer.set()

    def __call__(self, host: str, port: int, *args: Any, **given: Any) -> Any:
        if given.get("flags"):
            return REAL(host, port, *args, **given)
        self.asked += 1
        assert self.may_answer.wait(30)
        return [found for where in self.addresses for found in REAL(*where, **given)]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Replaces the system's name resolution."""
    names = Names([])
    monkeypatch.setattr(socket, "getaddrinfo", names)
    return names


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port without a listener, reserved so that no other process takes it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def opened(host: str, port: int, within_s: float = 10) -> tuple[str, int]:
    """Open a socket and return the address that it is connected to."""

    async def main() -> tuple[str, int]:
        with await resolver.open_socket(host, port, within_s) as found:
            where: tuple[str, int] = found.getpeername()
            return where

    return asyncio.run(main())


def test_an_address_needs_no_lookup_and_no_thread(server: Server, names: Names):
    assert opened("127.0.0.1", server.port) == ("127.0.0.1", server.port)
    assert names.asked == 0


def test_the_next_address_is_tried_if_one_refuses(server: Server, names: Names, dead_port: int):
    names.addresses = [("::1", dead_port), ("127.0.0.1", dead_port), ("127.0.0.1", server.port)]

    assert opened("redis.internal", 1) == ("127.0.0.1", server.port)


def test_an_address_that_does_not_respond_leaves_time_for_the_next(server: Server, names: Names):
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as silent,
        socket.socket() as first,
        socket.socket() as second,
    ):
        for full in (first, second):  # a listener with a full queue accepts no connection
            full.setblocking(False)
            full.connect_ex(silent.getsockname())
        names.addresses = [silent.getsockname(), *[("127.0.0.1", server.port)] * 9]

        assert opened("redis.internal", 1, within_s=6) == ("127.0.0.1", server.port)


def test_a_host_that_refuses_on_every_address_is_an_error(names: Names, dead_port: int):
    names.addresses = [("127.0.0.1", dead_port)]

    with pytest.raises(ConnectionRefusedError):
        opened("redis.internal", 1)


def test_concurrent_callers_share_a_lookup_and_one_of_them_may_be_cancelled(server: Server, names: Names):
    names.addresses = [("127.0.0.1", server.port)]
    names.may_answer.clear()

    async def main() -> None:
        callers = [asyncio.create_task(resolver.look_up("redis.internal", 1)) for _ in range(3)]
        await asyncio.sleep(0.01)
        callers[0].cancel()
        with pytest.raises(socket.gaierror, match="no name server replied in time"):
            await resolver.open_socket("redis.internal", 1, 0.01)
        names.may_answer.set()
        for caller in callers[1:]:
            assert (await caller)[0][4] == ("127.0.0.1", server.port)
        assert callers[0].cancelled()
        assert names.asked == 1
        await resolver.look_up("redis.internal", 1)
        assert names.asked == 2

    asyncio.run(main())
    assert resolver._lookups == {}


def test_a_loop_that_was_closed_during_a_lookup_leaves_no_trace(names: Names, caplog: pytest.LogCaptureFixture):
    names.may_answer.clear()
    before = set(threading.enumerate())  # the thread of an earlier lookup may be about to end

    async def main() -> None:
        with pytest.raises(socket.gaierror, match="no name server replied in time"):
            await resolver.open_socket("redis.internal", 1, 0.01)

    asyncio.run(main())
    (thread,) = (thread for thread in set(threading.enumerate()) - before if thread.name == "schedq-resolver")
    names.may_answer.set()
    thread.join(60)

    assert caplog.records == []


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_during_a_lookup_makes_its_own(server: Server, names: Names):
    names.addresses = [("127.0.0.1", server.port)]
    names.may_answer.clear()

    async def give_up() -> None:
        with pytest.raises(socket.gaierror, match="no name server replied in time"):
            await resolver.open_socket("redis.internal", 1, 0.01)

    asyncio.run(give_up())
    if not (pid := os.fork()):
        try:
            names.may_answer = threading.Event()
            names.may_answer.set()
            os._exit(0 if opened("redis.internal", 1) == ("127.0.0.1", server.port) else 1)
        finally:
            os._exit(2)
    names.may_answer.set()

    assert os.waitpid(pid, 0)[1] == 0


def test_a_system_that_can_start_no_thread_raises_an_oserror(names: Names, monkeypatch: pytest.MonkeyPatch):
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)

    with pytest.raises(OSError, match="can't start new thread"):
        opened("redis.internal", 1)
    with pytest.raises(OSError, match="can't start new thread"):
        asyncio.run(resolver.in_thread(int))


def test_a_blocking_connection_with_a_timeout_waits_no_longer_for_a_name(names: Names):
    names.may_answer.clear()
    connection = Connection(Address("redis://redis.internal:1/0"), Settings("mail"), reply_s=0.2)

    with pytest.raises(OSError, match="no name server replied in time"):
        connection.connect()

    assert not connection.is_connected
    names.may_answer.set()
