"""A TLS proxy in front of a server without TLS, and its certificates."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from types import TracebackType
from typing import Self

import trustme

from tests.doors import Loop
from tests.servers import Server


class Front:
    """Accepts TLS connections on a loopback port and forwards their data to a server.

    Attributes:
        port: the port it listens on, at 127.0.0.1 whatever names are in its certificate.
        knocks: the number of connections, including those that ended because of the certificate.
    """

    def __init__(self, server: Server, certificate: trustme.LeafCert) -> None:
        self.port = 0
        self.knocks = 0
        self._server = server
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        certificate.configure_cert(self._context)
        self._loop = Loop()
        self._carriers: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._loop.run(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._close())
        self._loop.close()

    @property
    def is_idle(self) -> bool:
        """It has had a connection, and nothing of any connection is left."""
        return self.knocks > 0 and not self._carriers

    def present(self, certificate: trustme.LeafCert) -> None:
        """Use another certificate from now on, as after a renewal."""
        certificate.configure_cert(self._context)

    async def _open(self) -> None:
        self._listener = await asyncio.start_server(self._knocked, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._listener.close()
        for carrier in self._carriers:
            carrier.cancel()
        await asyncio.gather(*self._carriers, return_exceptions=True)
        await self._listener.wait_closed()
        await asyncio.sleep(0)  # aborted transports close their sockets in the next turn of the loop

    async def _knocked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.knocks += 1
        task = asyncio.current_task()
        assert task
        self._carriers.add(task)
        task.add_done_callback(self._carriers.discard)
        with suppress(OSError, asyncio.CancelledError):
            await self._carry(reader, writer)
        writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await writer.start_tls(self._context)
        opening = asyncio.create_task(asyncio.open_connection("127.0.0.1", self._server.port))
        try:
            up_reader, up_writer = await asyncio.shield(opening)
        except asyncio.CancelledError:  # a cancelled open_connection may leave its socket open
            await _abort((await opening)[1])
            raise
        ways = [asyncio.create_task(_pour(reader, up_writer)), asyncio.create_task(_pour(up_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            await _abort(up_writer)


async def _abort(writer: asyncio.StreamWriter) -> None:
    """Close a connection at once; its socket is closed when this returns."""
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
