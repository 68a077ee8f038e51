"""Every private part of redis-py that this package touches.

redis-py opens connections, does TLS and logs in. From then on schedq reads and writes the socket itself, because the
library's own layers cost more than the rest of a request. A release of redis-py may change these parts:
`tests/connection/test_redis_internals.py` names the releases they were seen to work with.
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
"""The exception for an error reply, given its text."""


def socket_of(connection: RedisConnection) -> socket.socket:
    """The socket of a blocking connection that is open."""
    return cast(socket.socket, connection._sock)


def transport_of(connection: AsyncRedisConnection) -> asyncio.Transport:
    """The transport of an asyncio connection that is open."""
    assert connection._writer is not None
    return cast(asyncio.Transport, connection._writer.transport)


def abort(connection: AsyncRedisConnection) -> None:
    """Close a connection at once. A graceful end takes a reply with TLS, for which an ending loop has no time."""
    if connection._writer is not None:
        connection._writer.transport.abort()
        connection._close()


async def abandon(connection: AsyncRedisConnection) -> None:
    """Close a connection that could not be opened, or whose opening was cancelled.

    Until it is open only asyncio has its transport, and with TLS ends it gracefully. A socket that is shut down leaves
    it no choice; it takes a few turns of the loop, and an ending loop has no more than are waited for here.
    """
    abort(connection)
    opened: socket.socket | None = getattr(connection, "_opened", None)
    if opened is None:
        return
    with suppress(OSError):  # it is closed already
        opened.shutdown(socket.SHUT_RDWR)
    for _ in range(_MOST_TURNS):
        if opened.fileno() == -1:
            return
        await asyncio.sleep(0)


class TcpConnection(AsyncRedisConnection):
    """A connection of the client library that reaches its host by `open_socket`."""

    _opened: socket.socket

    async def _connect(self) -> None:
        super()._connection_arguments()  # reads the certificates, which may fail: there is no socket yet to be lost
        assert self.socket_connect_timeout is not None
        self._opened = await open_socket(self.host, self.port, self.socket_connect_timeout)
        await super()._connect()  # type: ignore[no-untyped-call]

    def _connection_arguments(self) -> dict[str, Any]:
        given = dict(super()._connection_arguments())
        host = given.pop("host")
        del given["port"]
        if "ssl" in given:
            given["server_hostname"] = host  # whom the certificate must name, whatever the address is
        return {**given, "sock": self._opened}


class TlsConnection(TcpConnection, AsyncTlsConnection):
    """The same with TLS."""
