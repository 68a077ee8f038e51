"""Health of a worker or of its processes: the event loop and the fetch loops run, and Redis responds."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any, Final

from schedq.metrics.config import LIMIT_S
from schedq.metrics.web import JSON, Page, Response
from schedq.model.times import monotonic
from schedq.observer import Observer, QueueHealth
from schedq.worker import Worker, stuck

_SILENCE_S: Final = 30.0
"""The length of three heartbeat intervals, which are 10 s each."""
_PROBE_S: Final = 0.5
_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a worker or of all its processes.

    Attributes:
        failures: problems that a restart would fix: a blocked event loop, a stalled fetch loop, or all slots stuck.
        degraded: other problems: the worker is starting or stopping, or Redis is unreachable or refuses claims.
        facts: details for the JSON.
    """

    failures: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def is_healthy(self) -> bool:
        return not (self.failures or self.degraded)

    def response(self, *, live: bool) -> Response:
        """HTTP 200 if there is no problem, else 503; with `live`, only problems that a restart would fix count."""
        reasons = self.failures if live else (*self.failures, *self.degraded)
        body = {"status": "failing" if reasons else "ok", "reasons": list(reasons), **self.facts}
        return Response(503 if reasons else 200, JSON, json.dumps(body).encode() + b"\n")


def pages(check: Callable[[], Health]) -> dict[str, Page]:
    """`/healthz` reports all problems, `/livez` those that a restart would fix."""
    return {
        "/healthz": lambda _: check().response(live=False),
        "/livez": lambda _: check().response(live=True),
    }


def _slot_facts(slot: stuck.StuckSlot) -> dict[str, str | float]:
    for_s = round(slot.for_s, 3)
    return {"queue": slot.queue, "task": slot.task, "job_id": slot.job_id, "why": slot.why, "for_s": for_s}


class HealthProbe(Observer):
    """Watches one worker from a thread: it schedules a callback on the event loop and measures when that runs.

    The callback wakes every fetch loop, even an idle one, so that a stalled loop is detected. It sends nothing to
    Redis: the replies to claims and heartbeats show whether Redis responds.

    Args:
        limit_s: seconds for which the loop may be blocked, or Redis unreachable, before that counts as a problem.
    """

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = threading.Event()
        self._is_stopping = False
        self._began_at = 0.0
        self._scheduled_at: float | None = None
        self._ran_at = 0.0
        self._rounds: dict[str, float] = {}
        self._claims: dict[str, float] = {}
        self._beats: dict[str, float] = {}
        self._refusals: dict[str, tuple[float, str]] = {}

    def attach(self, worker: Worker) -> None:
        """Watch this worker; call it before the worker runs."""
        self._worker = worker

    def worker_started(self, worker: str, queues: Sequence[str]) -> None:  # noqa: ARG002 - of Observer
        """Start watching."""
        self._loop = asyncio.get_running_loop()
        self._began_at = self._ran_at = monotonic()
        threading.Thread(target=self._run, args=(self._loop,), name="schedq-health", daemon=True).start()

    def worker_stopping(self, worker: str) -> None:  # noqa: ARG002
        """Record that the worker takes no more jobs."""
        self._is_stopping = True

    def worker_stopped(self, worker: str) -> None:  # noqa: ARG002
        """Stop watching."""
        self._ended.set()

    def claim_answered(self, queue: str, jobs: int, has_more: bool) -> None:  # noqa: ARG002, FBT001
        """Record the time of the reply to a claim."""
        self._claims[queue] = monotonic()
        self._refusals.pop(queue, None)

    def claim_refused(self, queue: str, why: str) -> None:
        """Record since when claims have been refused."""
        since, _ = self._refusals.get(queue, (monotonic(), ""))
        self._refusals[queue] = (since, why)

    def beat_answered(self, queue: str) -> None:
        """Record the time of the reply to a heartbeat."""
        self._beats[queue] = monotonic()

    def went_round(self, queue: str) -> None:
        """Record the time of a round of the fetch loop."""
        self._rounds[queue] = monotonic()

    @property
    def stuck(self) -> list[stuck.StuckSlot]:
        """The worker's slots with handlers that do not end."""
        return [] if self._worker is None else self._worker.stuck

    @property
    def blocked_s(self) -> float:
        """Seconds for which a scheduled callback has not run; 0 if none is waiting."""
        scheduled_at = self._scheduled_at  # once, because it changes in another thread
        return 0.0 if scheduled_at is None else monotonic() - scheduled_at

    def health(self) -> Health:
        """The worker's health now."""
        worker = self._worker
        if worker is None or self._loop is None:
            return Health(degraded=("the worker has not started yet",))
        queues, held, now = worker.health(), worker.stuck, monotonic()
        facts = {
            "worker": worker.id,
            "pid": os.getpid(),
            "uptime_s": round(now - self._began_at, 3),
            "slots": {"size": worker.concurrency, "stuck": [_slot_facts(slot) for slot in held]},
            "loop": {"blocked_s": round(self.blocked_s, 3), "turned_s_ago": round(now - self._ran_at, 3)},
            "queues": {health.queue: self._facts(health, now) for health in queues},
        }
        if self.blocked_s > self._limit_s:
            # Nothing else is known in this case, because all events arrive on the loop.
            return Health((f"the event loop has been blocked for {self.blocked_s:.1f} s",), (), facts)
        if self._is_stopping:
            return Health((), ("the worker is stopping",), facts)
        failures = [self._failure(health, now) for health in queues]
        if worker.is_stuck:
            failures.append(stuck.summary(held, worker.concurrency))
        degraded = (self._degradation(health, now) for health in queues)
        return Health(tuple(filter(None, failures)), tuple(filter(None, degraded)), facts)

    def _failure(self, health: QueueHealth, now: float) -> str:
        still_s = now - self._rounds.get(health.queue, self._began_at)
        if health.lost_for_s or still_s <= self._limit_s + _SILENCE_S:
            return ""
        return f"queue {health.queue}: its fetch loop has been stalled for {still_s:.1f} s"

    def _degradation(self, health: QueueHealth, now: float) -> str:
        if health.lost_for_s > self._limit_s:
            return f"queue {health.queue}: Redis has been unreachable for {health.lost_for_s:.1f} s"
        since, why = self._refusals.get(health.queue, (now, ""))
        if now - since > self._limit_s:
            return f"queue {health.queue}: Redis has refused claims for {now - since:.1f} s: {why}"
        silent_s = now - max(self._began_at, self._beats.get(health.queue, 0), self._claims.get(health.queue, 0))
        if silent_s > self._limit_s + _SILENCE_S:
            return f"queue {health.queue}: Redis has not replied for {silent_s:.1f} s"
        return ""

    def _facts(self, health: QueueHealth, now: float) -> dict[str, float | int | None]:
        def ago(instants: dict[str, float]) -> float | None:
            at = instants.get(health.queue)
            return None if at is None else round(now - at, 3)

        return {
            "in_flight": health.in_flight,
            "round_s_ago": ago(self._rounds),
            "claim_s_ago": ago(self._claims),
            "beat_s_ago": ago(self._beats),
            "redis_away_s": round(health.lost_for_s, 3),
        }

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._ended.wait(_PROBE_S):
            if self._scheduled_at is None:
                self._scheduled_at = monotonic()
                try:
                    loop.call_soon_threadsafe(self._on_loop)
                except RuntimeError:
                    return  # the loop is closed

    def _on_loop(self) -> None:
        """Record that the loop runs, and wake the fetch loops."""
        self._scheduled_at, self._ran_at = None, monotonic()
        if self._worker is not None:
            self._worker.wake()


# -- several processes: the parent fetches the health of each and combines them


@dataclass(frozen=True, slots=True)
class Reply:
    """The response of one process; if there was none, `code` is 0 and `text` is the reason."""

    code: int
    text: str

    @property
    def page(self) -> str | None:
        """The body of a 200 response."""
        return self.text if self.code == HTTPStatus.OK else None


_ABSENT: Final = Reply(0, "it is not running")


def fetch(host: str, port: int, path: str, timeout_s: float = _TIMEOUT_S) -> Reply:
    """GET a page; connection and protocol errors become a `Reply` with code 0."""
    try:
        with closing(HTTPConnection(host, port, timeout=timeout_s)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            return Reply(response.status, response.read().decode(errors="replace"))
    except (OSError, HTTPException) as error:
        return Reply(0, str(error) or type(error).__name__)


class Children:
    """The web servers of all worker processes.

    Args:
        ports: returns each process's number and its port on the loopback, None while it is not running.
    """

    def __init__(self, ports: Callable[[], Mapping[int, int | None]]) -> None:
        self._ports = ports

    def fetch(self, path: str) -> dict[int, Reply]:
        """The page of each process, fetched concurrently."""
        ports = self._ports()

        def ask(port: int | None) -> Reply:
            return _ABSENT if port is None else fetch("127.0.0.1", port, path)

        with ThreadPoolExecutor(max_workers=max(1, min(32, len(ports)))) as pool:
            return dict(zip(ports, pool.map(ask, ports.values()), strict=True))

    def health(self) -> Health:
        """The combined health: a multi-process worker is healthy only if every process is."""
        failures: list[str] = []
        degraded: list[str] = []
        facts: dict[str, Any] = {}
        live = self.fetch("/livez")
        for number, reply in self.fetch("/healthz").items():
            health = _read(reply)
            facts[str(number)] = health
            reasons = [f"process {number}: {reason}" for reason in health.get("reasons", [])]
            # The parent replaces a process that died, but not one that hangs.
            is_failing = live[number].code != HTTPStatus.OK and live[number] != _ABSENT
            (failures if is_failing else degraded).extend(reasons)
        return Health(tuple(failures), tuple(degraded), {"processes": facts})


def _read(reply: Reply) -> dict[str, Any]:
    try:
        health = json.loads(reply.text)
    except ValueError:
        health = None
    if reply.code in (200, 503) and isinstance(health, dict):
        return health
    return {"status": "failing", "reasons": [f"does not respond: {reply.text.strip()[:200]}"]}
