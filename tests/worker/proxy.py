"""Stands between a client and its server, and loses an answer when it is told to."""

from __future__ import annotations

import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from schedq import lua


class Proxy:
    """Passes bytes between a socket of its own and a server's."""

    def __init__(self, server_path: str) -> None:
        self.lost: list[str] = []
        self._server_path = server_path
        self._folder = tempfile.TemporaryDirectory(prefix="schedq-", dir="/tmp")
        self._path = str(Path(self._folder.name) / "proxy.sock")
        self._ear = socket.socket(socket.AF_UNIX)
        self._sockets: list[socket.socket] = [self._ear]
        self._move = ""

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"unix://{self._path}?db=0"

    def lose_answer(self, move: str) -> None:
        """Let the next request of this script be carried out, and cut the connection before its answer."""
        self._move = move

    def __enter__(self) -> Self:
        self._ear.bind(self._path)
        self._ear.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for wire in self._sockets:
            with suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)
            wire.close()
        self._folder.cleanup()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._ear.accept()
                server = socket.socket(socket.AF_UNIX)
                self._sockets += [client, server]
                server.connect(self._server_path)
                cut = threading.Event()
                threading.Thread(target=self._ask, args=(client, server, cut), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client, cut), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket, cut: threading.Event) -> None:
        with suppress(OSError):
            while words := client.recv(1 << 20):
                move = self._move
                if move and lua.load(move).sha.encode() in words:
                    self._move = ""
                    self.lost.append(move)
                    cut.set()
                server.sendall(words)
            server.shutdown(socket.SHUT_RDWR)

    def _answer(self, server: socket.socket, client: socket.socket, cut: threading.Event) -> None:
        with suppress(OSError):
            while words := server.recv(1 << 20):
                if cut.is_set():
                    break
                client.sendall(words)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
            server.shutdown(socket.SHUT_RDWR)
