"""Every private part of redis-py that this package uses.

redis-py opens connections, sets up TLS and logs in. From then on schedq reads and writes the socket itself, because
redis-py's own layers cost more than the rest of a request. A release of redis-py may change these parts:
`tests/connection/test_redis_internals.py` lists the releases that they were tested with.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from redis._parsers import BaseParser
from redis.asyncio.connection import Connection as AsyncRedisConnection
from redis.asyncio.connection import SSLConnection as AsyncTlsConnection
from redis.connection import Connection as RedisConnection

from schedq.connection.resolver import open_socket

_MOST_TURNS: Final = 20
parse_error: Final[Callable[[str], Exception]] = BaseParser.parse_error
"""Returns the exception for the text of an error reply."""


def socket_of(connection: RedisConnection) -> socket.socket:
    """Return the socket of an open blocking connection."""
    return cast(socket.socket, connection._sock)


def transport_of(connection: AsyncRedisConnection) -> asyncio.Transport:
    """Return the transport of an open asyncio connection."""
    assert connection._writer is not None
    return cast(asyncio.Transport, connection._writer.transport)


def abort(connection: AsyncRedisConnection) -> None:
    """Close a connection immediately. With TLS a graceful close waits for a reply, which a closing loop can't do."""
    if connection._writer is not None:
        connection._writer.transport.abort()
        connection._close()


async def abandon(connection: AsyncRedisConnection) -> None:
    """Close a connection that failed to open, or whose opening was cancelled.

    Until it is open only asyncio has its transport, and with TLS asyncio would close it gracefully, which takes too
    long on a loop that is closing. Shutting the socket down makes asyncio close it within a few iterations of the loop.
    This function waits for them, because a closing loop runs no others.
    """
    abort(connection)
    opened: socket.socket | None = getattr(connection, "_opened", None)
    if opened is None:
        return
    with suppress(OSError):  # already closed
        opened.shutdown(socket.SHUT_RDWR)
    for _ in range(_MOST_TURNS):
        if opened.fileno() == -1:
            return
        await asyncio.sleep(0)


class TcpConnection(AsyncRedisConnection):
    """A redis-py connection that opens its socket with `open_socket`."""

    _opened: socket.socket

    async def _connect(self) -> None:
        super()._connection_arguments()  # reads the certificates; if this fails later, an open socket would be leaked
        assert self.socket_connect_timeout is not None
        self._opened = await open_socket(self.host, self.port, self.socket_connect_timeout)
        await super()._connect()  # type: ignore[no-untyped-call]

    def _connection_arguments(self) -> dict[str, Any]:
        given = dict(super()._connection_arguments())
        host = given.pop("host")
        del given["port"]
        if "ssl" in given:
            given["server_hostname"] = host  # the certificate is checked against the name, not the address
        return {**given, "sock": self._opened}


class TlsConnection(TcpConnection, AsyncTlsConnection):
    """The same with TLS."""
