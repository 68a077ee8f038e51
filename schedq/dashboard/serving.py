"""Serves the dashboard alone, on one address, until it is told to stop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from schedq.dashboard.application import Dashboard
from schedq.dashboard.hosts import is_loopback, resolved
from schedq.errors import StoreUnavailable, UsageError

_Protocol: Any = AutoHTTPProtocol  # one of two classes, whichever is there
_GRACE_S: Final = 3
"""Seconds that answers under way get to end."""
_PATIENCE_S: Final = 10.0
"""Seconds that a client may take in all for a request, its form included."""
_READING_S: Final = 30.0
"""Seconds for which a client may read nothing of an answer that waits for it."""


class PatientProtocol(_Protocol):  # type: ignore[misc]
    """Uvicorn's HTTP, which by itself waits for ever for a client that says nothing, or a byte now and then."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._asking: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client has come."""
        super().connection_made(transport)
        self._wait_for_the_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone."""
        super().connection_lost(exc)
        for timer in (self._asking, self._reading):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        """It said something."""
        super().data_received(data)
        self._wait_for_the_request()

    def pause_writing(self) -> None:
        """It does not read as fast as we write."""
        super().pause_writing()
        self._reading = self.loop.call_later(_READING_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read on."""
        super().resume_writing()
        if self._reading is not None:
            self._reading.cancel()

    def _wait_for_the_request(self) -> None:
        """Count the time from the first byte of a request, or from the start, until the request is whole."""
        if not self._is_asking:
            if self._asking is not None:
                self._asking.cancel()
            self._asking = None
        elif self._asking is None:
            self._asking = self.loop.call_later(_PATIENCE_S, self._hang_up)

    @property
    def _is_asking(self) -> bool:
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body

    def _hang_up(self) -> None:
        if self._is_asking:
            self.transport.abort()


class Server(uvicorn.Server):
    """Uvicorn, which says when it answers, and does not wait for the live streams to end by themselves."""

    def __init__(self, config: uvicorn.Config, dashboard: Dashboard, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._dashboard = dashboard
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal says that it is time to stop."""
        super().handle_exit(sig, frame)
        self._dashboard.end_streams()


def bound(host: str, port: int, *, is_guarded: bool) -> socket.socket:
    """The socket to serve on; nobody is answered yet.

    Args:
        host: a name or an address.
        port: 0 for any that is free.
        is_guarded: a token, or an own auth hook, keeps others out.

    Raises:
        UsageError: others could reach it, and nothing keeps them out; or the host has no address.
        StoreUnavailable: the port is taken, or the address is not this machine's.
    """
    family, address = resolved(host, port)
    if not is_guarded and not is_loopback(address):
        raise UsageError(
            f"{host} can be reached from other machines: give a token (--token, or SCHEDQ_DASHBOARD_TOKEN), "
            "or keep to 127.0.0.1"
        )
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
    except OSError as error:
        made.close()
        raise StoreUnavailable(f"can't listen on {host} port {port}: {error.strerror or error}") from error
    return made


def address_of(listening: socket.socket) -> str:
    """The URL under which a socket is reached."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def server_of(dashboard: Dashboard, ready: Callable[[], object]) -> Server:
    """The server, not yet started; `ready` is called once it answers."""
    config = uvicorn.Config(
        dashboard,
        http=PatientProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=_GRACE_S,
    )
    return Server(config, dashboard, ready)


async def serve(dashboard: Dashboard, listening: socket.socket, ready: Callable[[], object]) -> None:
    """Serve on a bound socket until SIGTERM or SIGINT."""
    await server_of(dashboard, ready).serve(sockets=[listening])
