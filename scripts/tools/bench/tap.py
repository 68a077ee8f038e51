"""Counts requests; a script counts as one, whatever it calls."""

from __future__ import annotations

import socket
import threading
import uuid
from types import TracebackType
from typing import Final, Self

_PATIENCE_S: Final = 60


class Tap:
    """Requests that clients send to a local server while this is open, counted with MONITOR.

    Attributes:
        requests: the count; complete once this is closed.
    """

    def __init__(self, port: int) -> None:
        self.requests = 0
        self._port = port
        self._mark = uuid.uuid4().hex.encode()
        self._is_over = threading.Event()

    def __enter__(self) -> Self:
        self._wire = socket.create_connection(("127.0.0.1", self._port), timeout=30)
        self._lines = self._wire.makefile("rb")
        self._wire.sendall(b"MONITOR\r\n")
        assert self._lines.readline() == b"+OK\r\n"
        self._wire.settimeout(None)
        self._thread = threading.Thread(target=self._count, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with socket.create_connection(("127.0.0.1", self._port), timeout=30) as other:
            other.sendall(b"ECHO " + self._mark + b"\r\n")
            self._is_over.wait(_PATIENCE_S)
        self._wire.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._lines.close()
        self._wire.close()

    def _count(self) -> None:
        for line in self._lines:
            if self._mark in line:
                break
            # +1735689600.123456 [0 lua] "HSET" …: commands called by a script are not requests.
            self.requests += b" lua] " not in line[:40]
        self._is_over.set()
