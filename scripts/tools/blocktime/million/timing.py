"""How long an operator action takes, how long it makes others wait, and which request causes that."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import redis

from schedq.transitions import scripts
from tests.laws.test_scripts import SCRIPTS
from tests.pinging import Pinger, put_off_ms
from tests.servers import Server

MOST_S: Final = 1.0
"""Maximum duration of a page or command, as the median of its tries."""
MOST_DOCTOR_S: Final = 5.0
"""Maximum duration of an examination by doctor."""
MOST_BLOCKED_MS: Final = 10
"""Maximum time for which a request may block other clients."""
AIM_MS: Final = 5
"""The target for scripts."""
_KEPT: Final = 10_000
_NOTED_US: Final = 300
"""Faster commands are not logged: logging every command of every script would cost more than the commands."""


@dataclass
class Row:
    """One action, tried several times. Times are per try and exclude waiting for a CPU.

    Attributes:
        what: the action.
        took_s: from the call to the result.
        raw_s: the same including all waiting.
        worked_s: the caller's CPU time.
        slowest: the request that took the server longest, and its milliseconds.
        scripts: number of scripts run.
        pings_ms: the longest PING.
    """

    what: str
    took_s: list[float] = field(default_factory=list)
    raw_s: list[float] = field(default_factory=list)
    worked_s: list[float] = field(default_factory=list)
    slowest: list[tuple[float, str]] = field(default_factory=list)
    scripts: list[int] = field(default_factory=list)
    pings_ms: list[float] = field(default_factory=list)

    @property
    def over(self) -> list[str]:
        """What exceeds a limit; a request that blocks others does so in every try, and so not by chance."""
        ms, name = min(self.slowest)
        took_s, most_s = statistics.median(self.took_s), MOST_DOCTOR_S if "doctor" in self.what else MOST_S
        found = [f"takes {took_s:.2f} s"] if took_s > most_s else []
        found += [f"{name} runs for {ms:.1f} ms"] if ms > AIM_MS else []
        ping = min(self.pings_ms)
        return found + ([f"others wait for {ping:.1f} ms"] if ping > MOST_BLOCKED_MS else [])

    def line(self) -> str:
        """One line of the printed table."""
        ms, name = min(self.slowest)
        return (
            f"{self.what:58} {_ms(self.took_s):5.0f} ms ({_ms(self.raw_s):5.0f}), own {_ms(self.worked_s):5.0f} ms,"
            f" {max(self.scripts):4,} scripts, slowest {name:9} {ms:5.1f} ms,"
            f" PING {min(self.pings_ms):4.1f} to {max(self.pings_ms):5.1f} ms"
            + (f"   OVER: {'; '.join(self.over)}" if self.over else "")
        )


class Watch:
    """Measures actions on one server."""

    def __init__(self, server: Server, store: redis.Redis, pinger: Pinger) -> None:
        self._server = server
        self._store = store
        self._pinger = pinger
        self._names = {scripts.load(script).sha: script for script in SCRIPTS}
        store.config_set("slowlog-log-slower-than", _NOTED_US)
        store.config_set("slowlog-max-len", _KEPT)

    def time(self, what: str, call: Callable[[], tuple[float, float] | None], tries: int) -> Row:
        """Try an action; one run by another process returns its CPU time and its wait for a CPU, in seconds."""
        row = Row(what)
        for _ in range(tries):
            self._store.slowlog_reset()
            self._pinger.taken()
            before = self._scripts()
            waits, began, worked = self._put_off_ms(), time.perf_counter(), time.process_time()
            elsewhere = call()
            raw, worked = time.perf_counter() - began, time.process_time() - worked
            server_ms, mine_ms = (after - was for was, after in zip(waits, self._put_off_ms(), strict=True))
            pings, _ = self._pinger.taken()
            row.raw_s.append(raw)
            worked, waited = elsewhere or (worked, mine_ms / 1000)
            row.worked_s.append(worked)
            row.took_s.append(max(worked, raw - waited - server_ms / 1000))
            row.pings_ms.append(max(pings))
            row.scripts.append(self._scripts() - before)
            self._look(row, server_ms)
        return row

    def _scripts(self) -> int:
        counted = self._store.info("commandstats")
        return sum(counted.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))

    def _put_off_ms(self) -> tuple[float, float]:
        return put_off_ms(self._server.pid), put_off_ms(os.getpid())

    def _look(self, row: Row, put_off: float) -> None:
        """Read which requests were served; the slowest one's time excludes the server's wait for a CPU."""
        found: list[tuple[float, str]] = []
        for entry in self._store.slowlog_get(_KEPT):
            command = entry["command"]
            words = (command if isinstance(command, str) else command.decode(errors="replace")).split(" ", 2)
            name = words[0].upper()
            if name in ("EVALSHA", "EVAL"):
                found.append((entry["duration"] / 1000, self._names.get(words[1], "eval")))
            elif name not in ("PING", "SLOWLOG", "CONFIG"):
                found.append((entry["duration"] / 1000, name))
        ms, name = max(found, default=(0.0, "-"))
        usual = statistics.median([each for each, other in found if other == name] or [0.0])
        row.slowest.append((max(usual, ms - put_off), name))


def _ms(seconds: Sequence[float]) -> float:
    return statistics.median(seconds) * 1000


def judged(rows: Sequence[Row]) -> list[str]:
    """Everything that exceeds a limit."""
    return [f"{row.what}: {'; '.join(row.over)}" for row in rows if row.over]
