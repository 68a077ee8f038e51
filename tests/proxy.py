"""A connection to a server that can be cut, or lose a reply after the server has executed the request."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.servers import Server


class Proxy:
    """Forwards bytes between clients and a server, on its own loopback port.

    `lose_reply(word)`: the next request that contains the word is executed, its reply discarded, and the connection
    closed. `lose_request(word)`: the same, but the server never gets the request. `hold_reply(word)`: the reply waits
    until `let_go()`. `lose_late_reply(word)` and `hold_late_reply(word)`: the same at the next reply to a request that
    contains the word, which may have been sent before.

    Attributes:
        faults: number of faults so far.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._plan: tuple[str, bytes] | None = None
        self._wires: list[socket.socket] = []
        self._asked: dict[socket.socket, bytes] = {}  # since the last reply
        self._abandoned: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._is_open = threading.Event()
        self._is_open.set()
        self.faults = 0

    def __enter__(self) -> Self:
        self._start(self._accept)
        if self._server.is_cluster:  # clients that ask for a slot's address are sent here
            self._announce(self._port)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open.set()
        if self._server.is_cluster and self._server.is_running:
            self._announce(0)
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(5)

    @property
    def url(self) -> str:
        """The URL for clients."""
        return (
            f"redis+cluster://127.0.0.1:{self._port}"
            if self._server.is_cluster
            else f"redis://127.0.0.1:{self._port}/0"
        )

    @property
    def _port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def _announce(self, port: int) -> None:
        with self._server.client() as client:
            client.config_set("cluster-announce-port", port)

    def lose_reply(self, word: str) -> None:
        """Execute the next request with this word, and lose its reply together with the connection."""
        self._plan = ("reply", word.encode())

    def lose_request(self, word: str) -> None:
        """Lose the next request with this word, and the connection."""
        self._plan = ("request", word.encode())

    def hold_reply(self, word: str) -> None:
        """Execute the next request with this word, and hold its reply until `let_go()`."""
        self._is_open.clear()
        self._plan = ("hold", word.encode())

    def lose_late_reply(self, word: str) -> None:
        """Lose the next reply to a request with this word, and the connection."""
        self._plan = ("late reply", word.encode())

    def hold_late_reply(self, word: str) -> None:
        """Hold the next reply to a request with this word until `let_go()`."""
        self._is_open.clear()
        self._plan = ("late hold", word.encode())

    def is_asked(self, *words: str) -> bool:
        """Whether a connection waits for replies to requests that contain these words."""
        return any(all(word.encode() in data for word in words) for data in [*self._asked.values()])

    def leave(self, word: str) -> None:
        """Cut clients that wait for the reply to a request with this word. The server notices after `let_go()` only."""
        self._is_open.clear()
        for client, data in [*self._asked.items()]:
            if word.encode() in data:
                self._abandoned.add(client)
                client.shutdown(socket.SHUT_RDWR)

    def let_go(self) -> None:
        """Forward the held reply."""
        self._is_open.set()

    def cut(self) -> None:
        """Cut every connection."""
        for wire in self._wires:
            with suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)

    def _start(self, run: object, *args: object) -> None:
        thread = threading.Thread(target=run, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                upstream = socket.create_connection(("127.0.0.1", self._server.port))
                self._wires += (client, upstream)
                self._start(self._carry, client, upstream)

    def _carry(self, client: socket.socket, upstream: socket.socket) -> None:
        with client, upstream, suppress(OSError):
            while True:
                ready, _, _ = select.select([client, upstream], [], [])
                if upstream in ready:
                    data = upstream.recv(1 << 20)
                    if not data or not self._pass_back(data, client):
                        return
                if client in ready:
                    data = client.recv(1 << 20)
                    if client in self._abandoned:
                        self._is_open.wait(30)
                    if not data or not self._pass_on(data, client, upstream):
                        return

    def _pass_back(self, data: bytes, client: socket.socket) -> bool:
        fault, word = self._plan or ("", b"")
        asked = self._asked.pop(client, b"")
        if fault.startswith("late") and word in asked:
            self._plan = None
            self.faults += 1
            if fault == "late reply":
                return False
            self._is_open.wait(30)
        client.sendall(data)
        return True

    def _pass_on(self, data: bytes, client: socket.socket, upstream: socket.socket) -> bool:
        fault, word = self._plan or ("", b"")
        asked = self._asked[client] = self._asked.get(client, b"") + data
        # The reply to a wait, and that to a claim behind it, may take long.
        is_wait = b"BZPOPMIN" in asked and word != b"BZPOPMIN"
        if not fault or fault.startswith("late") or word not in data or is_wait:
            upstream.sendall(data)
            return True
        self._plan = None
        self.faults += 1
        if fault == "request":
            return False
        upstream.sendall(data)
        while upstream not in (ready := select.select([client, upstream], [], [], 5)[0]):
            assert ready, "the server does not respond"
            upstream.sendall(client.recv(1 << 20))  # the rest of a long request
        if fault == "reply":
            return False
        self._is_open.wait(30)
        return True
