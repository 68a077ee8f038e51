"""A small web server in threads of its own: a blocked event loop does not keep it from answering."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final

from schedq.clocks import monotonic
from schedq.errors import UsageError
from schedq.logger import log

_PATIENCE_S: Final = 10.0
"""Seconds that a client may take in all to say what it wants, and then to read the answer."""
_MOST_SLOW: Final = 128
"""Connections that wait for their client, at the same time; for one more the oldest of them is cut."""
_MOST_SLOW_OF_ONE: Final = 64
"""The same of one address."""
_AT_ONCE: Final = 8
"""Requests for the same page that are worked on at the same time."""
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a page answers: status code, type and body."""

    code: int
    kind: str
    body: bytes


Page = Callable[[str], Answer]
"""Makes a page; it is given the request's Accept header."""


class Web:
    """Serves pages, GET and HEAD only, until closed.

    Args:
        pages: path → what makes the page. Read anew for each request.
        host: where to listen.
        port: 0 for any that is free.
        listener: a socket that listens already, in place of host and port.

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
        """Where it is."""
        host, port = self._server.server_address[:2]
        return f"http://[{host!s}]:{port}" if ":" in str(host) else f"http://{host!s}:{port}"

    @property
    def paths(self) -> list[str]:
        """What is there."""
        return list(self._server.pages)

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def close(self) -> None:
        """Listen no more."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Patience:
    """The connections that wait for their client, and until when.

    A client that sends a byte now and then is never silent, so what counts is the time in all. And however many of
    those there are, a new one gets in: it takes the place of the one that has been waited for the longest.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits: dict[socket.socket, tuple[str, float]] = {}
        """Oldest first: whose connection it is, and the end of patience with it."""

    def begin(self, connection: socket.socket, host: str) -> None:
        """From now on this one waits for its client."""
        with self._lock:
            self._waits.pop(connection, None)
            same = [other for other, (whose, _) in self._waits.items() if whose == host]
            if len(same) >= _MOST_SLOW_OF_ONE:
                self._cut(same[0])
            elif len(self._waits) >= _MOST_SLOW:
                self._cut(next(iter(self._waits)))
            self._waits[connection] = (host, monotonic() + _PATIENCE_S)

    def end(self, connection: socket.socket) -> bool:
        """It does not wait any more; False if it was cut."""
        with self._lock:
            return self._waits.pop(connection, None) is not None

    def cut_the_late(self) -> None:
        """Cut those whose time is over."""
        now = monotonic()
        with self._lock:
            for connection in [found for found, (_, until) in self._waits.items() if until <= now]:
                self._cut(connection)

    def _cut(self, connection: socket.socket) -> None:
        """Wake its thread, which closes it."""
        del self._waits[connection]
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


class _Server(socketserver.ThreadingMixIn, HTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, pages: Mapping[str, Page], host: str, port: int, listener: socket.socket | None) -> None:
        self.pages = pages
        self.rooms = {path: threading.BoundedSemaphore(_AT_ONCE) for path in pages}
        self.patience = _Patience()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler, bind_and_activate=listener is None)
        if listener is not None:
            self.socket.close()
            self.socket = listener
            self.server_address = listener.getsockname()

    def server_bind(self) -> None:
        """Bind without asking the name service who we are, as the standard one does."""
        socketserver.TCPServer.server_bind(self)

    def service_actions(self) -> None:
        """Several times a second, and after each new connection."""
        self.patience.cut_the_late()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.patience.begin(request, client_address[0])
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self.patience.end(request)
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.patience.end(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver's signature
        log.debug("web: a client has gone", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "schedq"
    sys_version = ""
    timeout = _PATIENCE_S

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        if not self.server.patience.end(self.connection):
            return
        answer = self._made()
        self.server.patience.begin(self.connection, self.client_address[0])
        self.send_response(answer.code)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if with_body:
            self.wfile.write(answer.body)

    def _made(self) -> Answer:
        path = self.path.partition("?")[0]
        page = self.server.pages.get(path)
        if page is None:
            known = " ".join(self.server.pages)
            return Answer(404, TEXT, f"nothing is here; there is: {known}\n".encode())
        room = self.server.rooms[path]
        if not room.acquire(blocking=False):
            return Answer(503, TEXT, f"{_AT_ONCE} others wait for this page already\n".encode())
        try:
            return page(self.headers.get("Accept", ""))
        except Exception:  # noqa: BLE001 - it is in the log; the next request must get an answer
            log.exception("web: %s failed", path)
            return Answer(500, TEXT, b"failed; the log says why\n")
        finally:
            room.release()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's signature
        pass  # a probe every second is no news
