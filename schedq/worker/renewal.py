"""Renews leases from a thread of its own, so that a handler that blocks the event loop does not lose its job."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

from schedq.background.reconnecting_client import LogThrottle
from schedq.connection import redis_errors
from schedq.connection.client import Connection
from schedq.connection.endpoint import REPLY_S
from schedq.connection.request import Request
from schedq.errors import SchedqError
from schedq.logs import log
from schedq.model.times import monotonic
from schedq.queue.queue import QueueBase
from schedq.transitions import renew
from schedq.worker.attempt import LOST, Attempt, InFlight

MOST_RENEWED: Final = 250
_LEAST_REPLY_S: Final = 0.25


class Renewal(threading.Thread):
    """Renews what one queue's fetcher holds, every third of a lease; quiet while nothing is held.

    Args:
        accepted: see `Handshake`.
    """

    def __init__(
        self,
        queue: QueueBase,
        in_flight: InFlight,
        loop: asyncio.AbstractEventLoop,
        accepted: set[str] | None = None,
    ) -> None:
        super().__init__(name=f"schedq-renewal-{queue.name}", daemon=True)
        self._queue = queue
        self._in_flight = in_flight
        self._loop = loop
        self._stopping = threading.Event()
        # Half of an interval for a reply: a connection that hangs leaves time for another before the leases end.
        reply_s = min(REPLY_S, max(_LEAST_REPLY_S, queue.settings.renewal_s / 2))
        self._connection = Connection(queue.address, queue.settings, reply_s, accepted)
        self._throttle = LogThrottle()
        self._renewed_at = 0.0

    def stop(self) -> None:
        """Let the thread end."""
        self._stopping.set()
        self._in_flight.changed.set()

    def run(self) -> None:
        """Renew until stopped."""
        wait = interval = self._queue.settings.renewal_s
        failures = 0
        while not self._stopping.is_set():
            if not self._in_flight:
                self._in_flight.changed.clear()
                if not self._in_flight and not self._stopping.is_set():
                    self._in_flight.changed.wait()
                wait, self._renewed_at = interval, monotonic()
            if self._stopping.wait(wait):
                break
            began = monotonic()
            if self._renew():
                wait, failures = max(0.0, interval - (monotonic() - began)), 0
            else:
                # At once the first time: an idle connection breaks unnoticed, as when Redis was restarted. Then soon:
                # there is time for it before the leases end.
                wait, failures = min(interval / 4, 1.0) if failures else 0.0, failures + 1
        self._connection.close()

    def _renew(self) -> bool:
        """One round; returns whether Redis answered."""
        in_flight = [attempt for attempt in self._in_flight.all() if attempt.state is not LOST]
        for start in range(0, len(in_flight), MOST_RENEWED):
            batch = in_flight[start : start + MOST_RENEWED]
            try:
                words = self._ask(batch)
            except (SchedqError, *redis_errors.CONNECTION_LOST) as error:
                if monotonic() - self._renewed_at > 2 * self._queue.settings.renewal_s:
                    self._throttle.log(f"queue {self._queue.name}: leases can't be renewed", error)
                return False
            told = [(attempt, word) for attempt, word in zip(batch, words, strict=True) if word != "OK"]
            if told:
                self._call(told)  # together: a busy loop lets this thread go on only after milliseconds, each time
        self._renewed_at = monotonic()
        return True

    def _ask(self, batch: list[Attempt]) -> list[str]:
        pairs = [(attempt.job.id, attempt.job.claim_token) for attempt in batch]
        queue = self._queue
        request = Request([renew.renew(queue.settings, pairs)], queue.address, queue.settings, 0)
        while request.left:
            request.on_replies(self._connection.ask(request.commands()))
        answer = request.answers[0]
        if isinstance(answer, SchedqError):
            self._connection.close()  # there may be another user or password to come back with
            raise answer
        words: list[str] = answer
        return words

    def _call(self, told: list[tuple[Attempt, str]]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._hear, told)
        except RuntimeError:
            self._stopping.set()  # the loop is closed

    def _hear(self, told: list[tuple[Attempt, str]]) -> None:
        """On the loop: what Redis said of leases that are not simply renewed."""
        for attempt, word in told:
            if word == "LOST":
                self._in_flight.lose(attempt)
            elif word == "STOP" and self._in_flight.request_stop(attempt):
                log.info("job %s: asked to stop", attempt.job.id, extra=attempt.fields())
