"""Whether a worker gets on: not that its process lives, but that its loop turns, its pumps go round, Redis answers."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from schedq.clocks import monotonic
from schedq.monitor import LIMIT_S
from schedq.monitor.web import JSON, Answer, Page
from schedq.observer import Observer, Vital
from schedq.worker import Worker, stuck

_SILENCE_S: Final = 30.0
"""Three signs of life that were not answered; those are 10 s apart."""
_POKE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Health:
    """How a worker, or a fleet of them, gets on.

    Attributes:
        ails: why it does not, if it does not, where a new process would help: a blocked loop, a pump that stands still,
            no slot whose handler still ends.
        waits: other reasons: it begins or stops, Redis is away or refuses.
        facts: what is known, for JSON.
    """

    ails: tuple[str, ...] = ()
    waits: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def is_well(self) -> bool:
        """There is no reason against it."""
        return not (self.ails or self.waits)

    def answer(self, *, live: bool) -> Answer:
        """For HTTP: 200 if there is no reason against it, else 503. `live` asks only what a new process would mend."""
        reasons = self.ails if live else (*self.ails, *self.waits)
        body = {"status": "failing" if reasons else "ok", "reasons": list(reasons), **self.facts}
        return Answer(503 if reasons else 200, JSON, json.dumps(body).encode() + b"\n")


def pages(check: Callable[[], Health]) -> dict[str, Page]:
    """`/healthz` for all reasons, `/livez` for those that a new process would mend."""
    return {
        "/healthz": lambda _: check().answer(live=False),
        "/livez": lambda _: check().answer(live=True),
    }


def _no_slot(worker: Worker) -> str:
    """That every slot is held by a handler which does not end, if so."""
    found = worker.stuck
    return stuck.summary(found, worker.concurrency) if len(found) >= worker.concurrency else ""


def _told(slot: stuck.StuckSlot) -> dict[str, str | float]:
    return {
        "queue": slot.queue,
        "task": slot.task,
        "job_id": slot.job_id,
        "why": slot.why,
        "for_s": round(slot.for_s, 3),
    }


class Watch(Observer):
    """Watches one worker from a thread: it pokes the event loop and sees when that answers.

    The poke lets every pump go round, also one that has nothing to do, so that a pump which does not is seen. Redis is
    asked for nothing: claims and signs of life are answered anyway.

    Args:
        limit_s: seconds for which the loop may be blocked, and Redis be away, before that is a reason.
    """

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._worker: Worker | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = threading.Event()
        self._is_stopping = False
        self._began_at = 0.0
        self._poked_at: float | None = None
        self._turned_at = 0.0
        self._rounds: dict[str, float] = {}
        self._claims: dict[str, float] = {}
        self._beats: dict[str, float] = {}
        self._refusals: dict[str, tuple[float, str]] = {}

    def over(self, worker: Worker) -> None:
        """The worker that this one is about; before it is run."""
        self._worker = worker

    def worker_started(self, worker: str, queues: Sequence[str]) -> None:  # noqa: ARG002 - of Observer
        """Begin to poke."""
        self._loop = asyncio.get_running_loop()
        self._began_at = self._turned_at = monotonic()
        threading.Thread(target=self._poke, name="schedq-health", daemon=True).start()

    def worker_stopping(self, worker: str) -> None:  # noqa: ARG002
        """It takes no more jobs."""
        self._is_stopping = True

    def worker_stopped(self, worker: str) -> None:  # noqa: ARG002
        """Poke no more."""
        self._ended.set()

    def claim_answered(self, queue: str, jobs: int, has_more: bool) -> None:  # noqa: ARG002, FBT001
        """Remember when."""
        self._claims[queue] = monotonic()
        self._refusals.pop(queue, None)

    def claim_refused(self, queue: str, why: str) -> None:
        """Remember since when."""
        since, _ = self._refusals.get(queue, (monotonic(), ""))
        self._refusals[queue] = (since, why)

    def beat_answered(self, queue: str) -> None:
        """Remember when."""
        self._beats[queue] = monotonic()

    def went_round(self, queue: str) -> None:
        """Remember when."""
        self._rounds[queue] = monotonic()

    @property
    def stuck(self) -> list[stuck.StuckSlot]:
        """The worker's slots whose handlers do not end."""
        return [] if self._worker is None else self._worker.stuck

    @property
    def blocked_s(self) -> float:
        """Seconds since the loop was poked, if it has not answered that; else 0."""
        poked_at = self._poked_at
        return 0.0 if poked_at is None else monotonic() - poked_at

    def health(self) -> Health:
        """How the worker gets on now."""
        worker = self._worker
        if worker is None or self._loop is None:
            return Health(waits=("the worker has not begun yet",))
        vitals, now = worker.vitals(), monotonic()
        facts = {
            "worker": worker.id,
            "pid": os.getpid(),
            "uptime_s": round(now - self._began_at, 3),
            "slots": {"size": worker.concurrency, "stuck": [_told(slot) for slot in worker.stuck]},
            "loop": {"blocked_s": round(self.blocked_s, 3), "turned_s_ago": round(now - self._turned_at, 3)},
            "queues": {vital.queue: self._facts(vital, now) for vital in vitals},
        }
        if self.blocked_s > self._limit_s:
            # Nothing else can be known then: all that is heard is heard by the loop.
            return Health((f"the event loop has been blocked for {self.blocked_s:.1f} s",), (), facts)
        if self._is_stopping:
            return Health((), ("the worker stops",), facts)
        ails = tuple(filter(None, [*(self._ail(vital, now) for vital in vitals), _no_slot(worker)]))
        waits = tuple(filter(None, (self._wait(vital, now) for vital in vitals)))
        return Health(ails, waits, facts)

    def _ail(self, vital: Vital, now: float) -> str:
        still_s = now - self._rounds.get(vital.queue, self._began_at)
        if vital.lost_for_s or still_s <= self._limit_s + _SILENCE_S:
            return ""
        return f"queue {vital.queue}: its pump has stood still for {still_s:.1f} s"

    def _wait(self, vital: Vital, now: float) -> str:
        if vital.lost_for_s > self._limit_s:
            return f"queue {vital.queue}: Redis has been away for {vital.lost_for_s:.1f} s"
        since, why = self._refusals.get(vital.queue, (now, ""))
        if now - since > self._limit_s:
            return f"queue {vital.queue}: Redis has refused claims for {now - since:.1f} s: {why}"
        silent_s = now - max(self._began_at, self._beats.get(vital.queue, 0), self._claims.get(vital.queue, 0))
        if silent_s > self._limit_s + _SILENCE_S:
            return f"queue {vital.queue}: Redis has answered nothing for {silent_s:.1f} s"
        return ""

    def _facts(self, vital: Vital, now: float) -> dict[str, float | int | None]:
        def ago(instants: dict[str, float]) -> float | None:
            at = instants.get(vital.queue)
            return None if at is None else round(now - at, 3)

        return {
            "in_flight": vital.in_flight,
            "round_s_ago": ago(self._rounds),
            "claim_s_ago": ago(self._claims),
            "beat_s_ago": ago(self._beats),
            "redis_away_s": round(vital.lost_for_s, 3),
        }

    def _poke(self) -> None:
        assert self._loop is not None
        while not self._ended.wait(_POKE_S):
            if self._poked_at is None:
                self._poked_at = monotonic()
                try:
                    self._loop.call_soon_threadsafe(self._turned)
                except RuntimeError:
                    return  # the loop is closed

    def _turned(self) -> None:
        """On the loop."""
        self._poked_at, self._turned_at = None, monotonic()
        if self._worker is not None:
            self._worker.stir()
