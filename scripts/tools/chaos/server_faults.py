"""Faults of Redis: it is killed, slow, full, emptied, at the wrong time, or rejects the password."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Final

import redis

from scripts.tools.chaos.faults import SERVER
from scripts.tools.chaos.record import now
from scripts.tools.chaos.storm_state import StormState

HOUR_S: Final = 3600


class ServerFaults:
    """Faults of Redis; each method is named after its kind of fault."""

    def __init__(self, storm: StormState) -> None:
        self._storm = storm

    def _ask_server(self, *words: str | int) -> bool:
        """Send a command to the server unless a fault is active on it."""
        if self._storm.is_server_busy:
            return False
        with self._storm.stage.server.client() as client, suppress(redis.RedisError):
            client.execute_command(*words)
            return True
        return False

    def client_kill(self) -> None:
        if self._ask_server("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"):
            self._storm.note("client_kill", SERVER, now())

    def script_flush(self) -> None:
        if self._ask_server("SCRIPT", "FLUSH"):
            self._storm.note("script_flush", SERVER, now())

    def memory_squeeze(self) -> None:
        if self._storm.is_server_busy:
            return
        with self._storm.stage.server.client() as client:
            used = client.info("memory")["used_memory"]
        if self._ask_server("CONFIG", "SET", "maxmemory", used):
            since = now()

            def relax() -> None:
                if not self._ask_server("CONFIG", "SET", "maxmemory", 0):
                    self._storm.agenda.last(0.2, relax)
                    return
                self._storm.note("memory_squeeze", SERVER, since)

            self._storm.agenda.last(self._storm.rng.uniform(0.5, 2), relax)

    def redis_kill(self) -> None:
        if self._storm.is_server_busy:
            return
        since, self._storm.is_server_busy = now(), True
        self._storm.stage.kill_server()

        def start() -> None:
            self._storm.stage.server.start()
            self._storm.is_server_busy = False
            self._storm.note("redis_kill", SERVER, since)

        self._storm.agenda.last(self._storm.rng.choice((0.0, 0.3, 1.5)), start)

    def server_slow(self) -> None:
        if self._storm.is_server_busy:
            return
        since, self._storm.is_server_busy = now(), True
        self._storm.stage.server.freeze()

        def thaw() -> None:
            self._storm.stage.server.thaw()
            self._storm.is_server_busy = False
            self._storm.note("server_slow", SERVER, since)

        self._storm.agenda.last(self._storm.rng.choice((0.2, 0.6, 2.5)), thaw)

    def clock_step(self) -> None:
        if self._storm.is_server_busy:
            return
        offset_s = self._storm.rng.choice((HOUR_S, -HOUR_S))
        self._storm.note("clock_step", SERVER, self._storm.stage.set_clock(offset_s).asked)
        self._storm.agenda.last(self._storm.rng.uniform(2, 6), lambda: self._step_back(offset_s))

    def _step_back(self, offset_s: int) -> None:
        if self._storm.is_server_busy:
            self._storm.agenda.last(0.2, lambda: self._step_back(offset_s))
            return
        self._storm.note("clock_step", SERVER, self._storm.stage.set_clock(0).asked)
        if offset_s > 0:
            self._renew()

    def _renew(self) -> None:  # because the schedules' next slots are an hour away
        if self._storm.is_server_busy or not self._storm.timetable.renew():
            self._storm.agenda.last(0.2, self._renew)

    def password_refused(self) -> None:
        if self._storm.is_server_busy:
            return
        since = now()
        with suppress(redis.RedisError):
            self._storm.stage.let_in(is_let_in=False)
            self._storm.refusals.append((since, math.inf))
            self._storm.agenda.last(self._storm.rng.choice((0.5, 1.5, 2.5)), lambda: self._take_password(since))

    def _take_password(self, since: float) -> None:
        if not self._storm.is_server_busy:
            with suppress(redis.RedisError):
                self._storm.stage.let_in(is_let_in=True)
                self._storm.refusals[-1] = (since, now() + 1)
                self._storm.note("password_refused", SERVER, since)
                return
        self._storm.agenda.last(0.2, lambda: self._take_password(since))
