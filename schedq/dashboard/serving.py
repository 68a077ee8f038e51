"""Serves the dashboard with uvicorn on one address until a signal stops it."""

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

_Protocol: Any = AutoHTTPProtocol  # one of two classes, depending on what is installed
_GRACE_S: Final = 3
"""Seconds that responses in progress may take to finish."""
_REQUEST_TIMEOUT_S: Final = 10.0
"""Seconds within which a client must send a whole request, including its form."""
_READ_TIMEOUT_S: Final = 30.0
"""Seconds for which a client may pause reading a response."""


class TimeoutProtocol(_Protocol):  # type: ignore[misc]
    """Uvicorn's HTTP protocol with timeouts.

    Uvicorn itself waits forever for a client that sends nothing, or one byte at a time.
    """

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._request_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Called when a client has connected."""
        super().connection_made(transport)
        self._limit_request_time()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the client has disconnected."""
        super().connection_lost(exc)
        for timer in (self._request_timer, self._read_timer):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Called when the client has sent data."""
        super().data_received(data)
        self._limit_request_time()

    def pause_writing(self) -> None:
        """Called when the client reads more slowly than the server writes."""
        super().pause_writing()
        self._read_timer = self.loop.call_later(_READ_TIMEOUT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Called when the client has caught up."""
        super().resume_writing()
        if self._read_timer is not None:
            self._read_timer.cancel()

    def _limit_request_time(self) -> None:
        """Limit the time between the connection, or the first byte of a request, and the request's last byte."""
        if not self._is_reading_request:
            if self._request_timer is not None:
                self._request_timer.cancel()
            self._request_timer = None
        elif self._request_timer is None:
            self._request_timer = self.loop.call_later(_REQUEST_TIMEOUT_S, self._abort_late_request)

    @property
    def _is_reading_request(self) -> bool:
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body

    def _abort_late_request(self) -> None:
        if self._is_reading_request:
            self.transport.abort()


class DashboardServer(uvicorn.Server):
    """A uvicorn server that reports when it is ready, and ends the live streams when it stops."""

    def __init__(self, config: uvicorn.Config, dashboard: Dashboard, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._dashboard = dashboard
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving, then call `ready`."""
        await super().startup(sockets)
        self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal to stop."""
        super().handle_exit(sig, frame)
        self._dashboard.end_streams()


def bound(host: str, port: int, *, is_protected: bool) -> socket.socket:
    """Bind a socket, without listening yet.

    Args:
        host: a name or an address.
        port: 0 for any free one.
        is_protected: the dashboard requires a token or an auth hook.

    Raises:
        UsageError: other machines could reach it unprotected, or the host has no address.
        StoreUnavailable: the port is taken, or the address is not one of this machine.
    """
    family, address = resolved(host, port)
    if not is_protected and not is_loopback(address):
        raise UsageError(
            f"{host} can be reached from other machines: set a token (--token, or SCHEDQ_DASHBOARD_TOKEN), "
            "or use 127.0.0.1"
        )
    # asyncio sends small writes of a connection at once only if its listener names the protocol.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
    except OSError as error:
        made.close()
        raise StoreUnavailable(f"can't listen on {host} port {port}: {error.strerror or error}") from error
    return made


def address_of(listening: socket.socket) -> str:
    """The URL of a socket."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def server_of(dashboard: Dashboard, ready: Callable[[], object]) -> DashboardServer:
    """Create the server without starting it; it calls `ready` once it serves."""
    config = uvicorn.Config(
        dashboard,
        http=TimeoutProtocol,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        ws="none",
        timeout_graceful_shutdown=_GRACE_S,
    )
    return DashboardServer(config, dashboard, ready)


async def serve(dashboard: Dashboard, listening: socket.socket, ready: Callable[[], object]) -> None:
    """Serve on a bound socket until SIGTERM or SIGINT."""
    await server_of(dashboard, ready).serve(sockets=[listening])
