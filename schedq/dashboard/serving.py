"""Serves the dashboard alone, on one address, until it is told to stop."""

from __future__ import annotations

import socket
from collections.abc import Callable
from types import FrameType

import uvicorn

from schedq.dashboard.application import Dashboard
from schedq.dashboard.hosts import is_loopback, resolved
from schedq.errors import StoreUnavailable, UsageError

_GRACE_S = 3
"""Seconds that answers under way get to end."""


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
