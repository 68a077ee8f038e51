"""A worker's signs of life: what it is, what it runs, and whether somebody asked it to stop."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable
from importlib import metadata
from typing import Final

from schedq.application import Application
from schedq.clocks import wall
from schedq.errors import SchedqError
from schedq.ids import new_request
from schedq.link import Link, steadily
from schedq.observer import NOBODY, Observers
from schedq.operations import firm, upkeep
from schedq.worker.held import Held

_MOST_NAMED: Final = 100


def worker_id() -> str:
    """A fresh id for a worker of this process: host, pid, and something random."""
    host = re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())[:40] or "host"
    return f"{host}-{os.getpid()}-{new_request()[:6]}"


def _version() -> str:
    """Of schedq as it is installed here, or ''."""
    try:
        return metadata.version("schedq")
    except metadata.PackageNotFoundError:
        return ""


class Heartbeat:
    """Says every 10 s that the worker lives; also writes the queue's settings down for processes that lack them.

    Args:
        stop: called once, when somebody asked the worker to stop.
    """

    def __init__(
        self,
        queue: Application,
        link: Link,
        name: str,
        held: Held,
        concurrency: int,
        stop: Callable[[], None],
        observers: Observers = NOBODY,
    ) -> None:
        self._settings = queue.settings
        self._registry = queue.registry
        self._link = link
        self._name = name
        self._held = held
        self._stop = stop
        self._observers = observers
        self._was_asked = False
        self._announced_at = -1
        self._facts: dict[str, str | int] = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started_at_ms": int(wall() * 1000),
            "concurrency": concurrency,
            "version": _version(),
            "settings": json.dumps(queue.settings.to_fields(), separators=(",", ":")),
        }

    async def run(self) -> None:
        """Beat until cancelled."""
        await steadily(f"queue {self._settings.name}: heartbeat", self._beat)

    async def _beat(self) -> float:
        beat = upkeep.beat(self._settings, self._name, self._facts | self._now())
        losses = self._link.outage.losses
        (answer,) = await self._link.exchange([beat])
        is_refused = isinstance(answer, SchedqError)
        if not is_refused and answer.is_asked and not self._was_asked:
            self._was_asked = True
            self._stop()
        # What one key's damage prevents must not prevent the other; either is said, and tried again.
        if self._announced_at != losses or not (is_refused or answer.has_settings):
            await self._link.ask(upkeep.announce(self._settings))
            self._announced_at = losses
        firm(answer)
        self._observers.beat_answered(self._settings.name)
        return upkeep.HEARTBEAT_S

    async def leave(self, promoter_id: str) -> None:
        """Go, in order. The marker that a cancelled wait may have taken is put back, if jobs wait.

        Two round trips: when the first is answered Redis has noticed that nobody waits on the old connection.
        """
        await self._link.ask(upkeep.leave(self._settings, self._name, promoter_id))
        await self._link.ask(upkeep.wake(self._settings))

    def _now(self) -> dict[str, str | int]:
        held = self._held.all()
        jobs = [
            {
                "id": attempt.job.id,
                "task": attempt.name,
                "started_at_ms": attempt.job.claimed_at_ms,
                "attempts": attempt.job.attempts,
            }
            for attempt in held[:_MOST_NAMED]
        ]
        return {
            "running": len(held),
            "jobs": json.dumps(jobs, separators=(",", ":")),
            "tasks": json.dumps(self._registry.names, separators=(",", ":")),
            "has_handler": int(self._registry.has_handler),
        }
