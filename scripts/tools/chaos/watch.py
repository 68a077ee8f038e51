"""Observes a run from outside: the machine's clock, Redis's audit log, memory, and Redis's response times."""

from __future__ import annotations

import re
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import redis

from scripts.tools.chaos.app import NAMES, SPARED
from scripts.tools.chaos.record import STILL_S, now
from scripts.tools.chaos.stage import Stage
from scripts.tools.chaos.timetable import Timetable

_EVERY_S: Final = 0.25
_MEMORY_EVERY_S: Final = 5.0
_PAGE: Final = 5000
_RECORD: Final = re.compile(r"queue:[^:]+:job:")


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes at an instant: RSS in KiB by process, and the number of keys in Redis other than job records.

    The number of job records depends on the histories' limits, the memory and the machine's speed.
    """

    at: float
    rss: dict[str, int]
    keys: int


class Watch(threading.Thread):
    """Observes until stopped.

    Attributes:
        samples: instants with the machine's Unix time, in ms.
        audit_log: job id → transitions in Redis's audit log.
        stills: (from, to) intervals in which the server did not respond.
        sizes: in chronological order.
    """

    def __init__(self, stage: Stage, timetable: Timetable) -> None:
        super().__init__(name="chaos-watch", daemon=True)
        self.samples: list[tuple[float, float]] = [(time.monotonic(), time.time() * 1000)]
        self.audit_log: dict[str, list[str]] = {}
        self.stills: list[tuple[float, float]] = []
        self.sizes: list[Size] = []
        self._stage = stage
        self._timetable = timetable
        self._stopping = threading.Event()
        self._read = dict.fromkeys(NAMES, "0-0")
        self._sized_at = 0.0

    def stop(self) -> None:
        """Observe once more, and end."""
        self._stopping.set()
        self.join(60)
        self._look()

    def run(self) -> None:
        while not self._stopping.wait(_EVERY_S):
            self._look()

    def _look(self) -> None:
        self.samples.append((time.monotonic(), time.time() * 1000))
        began = now()
        with suppress(redis.RedisError, OSError), self._stage.server.client(socket_timeout=20) as client:
            self._read_logs(client)
            self._timetable.read(client)
            if began - self._sized_at >= _MEMORY_EVERY_S:
                self._sized_at = began
                self.sizes.append(Size(began, self._rss(), _counted(client)))
        if now() - began > STILL_S:
            self.stills.append((began, now()))

    def _read_logs(self, client: redis.Redis) -> None:
        keys: dict[Any, Any] = {f"queue:{name}:log": self._read[name] for name in NAMES}
        answer: Any = client.xread(keys, count=_PAGE) or []
        for key, entries in answer.items() if isinstance(answer, dict) else answer:
            if isinstance(answer, dict):
                entries = [entry for page in entries for entry in page]
            for number, fields in entries:
                self.audit_log.setdefault(fields["id"], []).append(fields["move"])
                self._read[key.split(":")[1]] = number

    def _rss(self) -> dict[str, int]:
        found = {}
        for name in SPARED:
            if part := self._stage.parts.get(name):
                with suppress(OSError):
                    pages = int(Path(f"/proc/{part.popen.pid}/statm").read_text().split()[1])
                    found[part.key] = pages * 4
        return found


def _counted(client: redis.Redis) -> int:
    """Number of keys other than job records."""
    return sum(_RECORD.match(key) is None for key in client.scan_iter(count=_PAGE))
