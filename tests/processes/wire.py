"""A TCP line to a server that can lose the reply to one request."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.servers import Server


class Wire:
    """Passes everything on, until it is told to lose the reply to the next request that contains a word.

    Attributes:
        lost: set when the server has carried that request out and its reply is lost; that connection is silent then.
    """

    def __init__(self, server: Server) -> None:
        self.lost = threading.Event()
        self._server = server
        self._word: bytes | None = None
        self._silent: list[socket.socket] = []
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._door = socket.create_server(("127.0.0.1", 0))
        self._spawn(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._door.shutdown(socket.SHUT_RDWR)
        for end in self._sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for end in (self._door, *self._sockets):
            end.close()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._door.getsockname()[1]}/0"

    def lose_reply_to(self, word: str) -> None:
        """From the next request on that contains it."""
        self._word = word.encode()

    def cut(self) -> None:
        """Close the silent connection."""
        for end in self._silent:
            end.shutdown(socket.SHUT_RDWR)

    def _spawn(self, function: object, *arguments: object) -> None:
        thread = threading.Thread(target=function, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._door.accept()
                far = socket.create_connection(("127.0.0.1", self._server.port))
                self._sockets += [near, far]
                is_silent = threading.Event()
                self._spawn(self._requests, near, far, is_silent)
                self._spawn(self._replies, near, far, is_silent)

    def _requests(self, near: socket.socket, far: socket.socket, is_silent: threading.Event) -> None:
        with suppress(OSError):
            while chunk := near.recv(65536):
                if self._word is not None and self._word in chunk:
                    self._word = None
                    is_silent.set()
                far.sendall(chunk)
            far.shutdown(socket.SHUT_RDWR)

    def _replies(self, near: socket.socket, far: socket.socket, is_silent: threading.Event) -> None:
        with suppress(OSError):
            while chunk := far.recv(65536):
                if is_silent.is_set():
                    self._silent.append(near)
                    self.lost.set()
                else:
                    near.sendall(chunk)
            near.shutdown(socket.SHUT_RDWR)
