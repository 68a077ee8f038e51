"""How long other clients wait: a process that sends PINGs back to back. Also the time spent waiting for a CPU."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from tests.servers import Server


class Pinger:
    """Sends PINGs from its own process while it is open."""

    def __init__(self, server: Server) -> None:
        context = get_context("spawn")
        self._line, theirs = context.Pipe()
        self._process = context.Process(target=_ping, args=(server.socket_path, server.pid, theirs), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        assert self._line.poll(60), "the process that sends PING does not start"
        self._line.recv()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.send("end")
        self._process.join(10)

    def taken(self) -> tuple[Sequence[float], float]:
        """Durations in ms since the last call, at least one; and the longest including time spent waiting for a CPU."""
        self._line.send("so far")
        found: tuple[Sequence[float], float] = self._line.recv()
        return found


def put_off_ms(pid: int) -> float:
    """Time that a process has been runnable but waiting for a CPU, in ms; 0 where the system does not report it."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e6
    except OSError:
        return 0


def _ping(path: str, server: int, ours: Connection) -> None:
    store = redis.Redis(unix_socket_path=path)
    store.ping()
    ours.send("ready")
    me = os.getpid()
    while True:
        found: list[float] = []
        longest = 0.0
        while not found or not ours.poll():
            began, put_off = time.perf_counter(), put_off_ms(server) + put_off_ms(me)
            store.ping()
            took = (time.perf_counter() - began) * 1000
            put_off = put_off_ms(server) + put_off_ms(me) - put_off
            longest = max(longest, took)
            found.append(max(0, took - put_off))
            time.sleep(0.0005)
        if ours.recv() == "end":
            return
        ours.send((found, longest))
