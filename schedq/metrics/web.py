"""A small web server in its own threads, so that it responds even while the event loop is blocked."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final

from schedq.errors import UsageError
from schedq.logs import log
from schedq.model.times import monotonic

_TIMEOUT_S: Final = 10.0
"""Seconds within which a client must send its request, and the same again to read the response."""
_MOST_WAITING: Final = 128
"""Maximum number of connections that wait for their clients; above it, the oldest one is closed."""
_MOST_WAITING_PER_CLIENT: Final = 64
"""The same per client address."""
_MOST_AT_ONCE: Final = 8
"""Maximum number of concurrent requests for one page."""
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Response:
    """A response: status code, content type and body."""

    code: int
    kind: str
    body: bytes


Page = Callable[[str], Response]
"""Renders a page for the request's Accept header."""


class WebServer:
    """Serves pages until closed; only GET and HEAD.

    Args:
        pages: path -> function that renders the page, called for each request.
        host: address to listen on.
        port: 0 for any free one.
        listener: a listening socket, instead of host and port.

    Raises:
        UsageError: it can't listen there.
    """

    def __init__(
        self,
        pages: Mapping[str, Page],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        listener: socket.socket | None = None,
    ) -> None:
        try:
            self._server = _Server(pages, host, port, listener)
        except (OSError, OverflowError) as error:
            raise UsageError(f"can't listen on {host} port {port}: {error}") from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="schedq-web", daemon=True
        )

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://[{host!s}]:{port}" if ":" in str(host) else f"http://{host!s}:{port}"

    @property
    def paths(self) -> list[str]:
        return list(self._server.pages)

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Connections:
    """The connections that wait for their clients, each with a deadline.

    The deadline limits the total time, because a client that sends one byte at a time is never silent. However many
    such clients there are, a new one is served: it replaces the one that has waited longest.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits: dict[socket.socket, tuple[str, float]] = {}
        """Oldest first: the client's address and the deadline."""

    def begin(self, connection: socket.socket, host: str) -> None:
        """Start to wait for the client of a connection."""
        with self._lock:
            self._waits.pop(connection, None)
            same = [other for other, (whose, _) in self._waits.items() if whose == host]
            if len(same) >= _MOST_WAITING_PER_CLIENT:
                self._close(same[0])
            elif len(self._waits) >= _MOST_WAITING:
                self._close(next(iter(self._waits)))
            self._waits[connection] = (host, monotonic() + _TIMEOUT_S)

    def end(self, connection: socket.socket) -> bool:
        """Stop waiting for the client; False if the connection was closed in the meantime."""
        with self._lock:
            return self._waits.pop(connection, None) is not None

    def close_late(self) -> None:
        """Close the connections whose deadline has passed."""
        now = monotonic()
        with self._lock:
            for connection in [found for found, (_, until) in self._waits.items() if until <= now]:
                self._close(connection)

    def _close(self, connection: socket.socket) -> None:
        """Shut down a connection, which wakes its thread."""
        del self._waits[connection]
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


class _Server(socketserver.ThreadingMixIn, HTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, pages: Mapping[str, Page], host: str, port: int, listener: socket.socket | None) -> None:
        self.pages = pages
        self.slots = {path: threading.BoundedSemaphore(_MOST_AT_ONCE) for path in pages}
        self.waiting = _Connections()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler, bind_and_activate=listener is None)
        if listener is not None:
            self.socket.close()
            self.socket = listener
            self.server_address = listener.getsockname()

    def server_bind(self) -> None:
        """Bind without looking up the machine's host name, unlike HTTPServer: that may take seconds."""
        socketserver.TCPServer.server_bind(self)

    def service_actions(self) -> None:
        """Close late connections; called several times a second and after each new connection."""
        self.waiting.close_late()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.waiting.begin(request, client_address[0])
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self.waiting.end(request)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.waiting.end(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver's signature
        log.debug("web: a client disconnected", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "schedq"
    sys_version = ""
    timeout = _TIMEOUT_S

    def do_GET(self) -> None:
        if not self.server.waiting.end(self.connection):
            return
        response = self._response()
        self.server.waiting.begin(self.connection, self.client_address[0])
        self.send_response(response.code)
        self.send_header("Content-Type", response.kind)
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

    def _response(self) -> Response:
        path = self.path.partition("?")[0]
        page = self.server.pages.get(path)
        if page is None:
            known = " ".join(self.server.pages)
            return Response(404, TEXT, f"not found; the pages are: {known}\n".encode())
        slot = self.server.slots[path]
        if not slot.acquire(blocking=False):
            return Response(503, TEXT, f"{_MOST_AT_ONCE} other requests are already waiting for this page\n".encode())
        try:
            return page(self.headers.get("Accept", ""))
        except Exception:  # noqa: BLE001 - it is logged; the next request must still get a response
            log.exception("web: %s failed", path)
            return Response(500, TEXT, b"failed; see the log\n")
        finally:
            slot.release()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's signature
        pass  # a probe every second would flood the log
