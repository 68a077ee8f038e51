"""Renews leases from a thread of its own, so that a handler that blocks the event loop does not lose its job."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Final

from schedq.application import Application
from schedq.clocks import monotonic
from schedq.connection import faults
from schedq.connection.exchange import Exchange
from schedq.connection.line import Line
from schedq.connection.place import REPLY_S
from schedq.errors import SchedqError
from schedq.link import Complaint
from schedq.logger import log
from schedq.operations import attempts
from schedq.worker.held import Attempt, Held

MOST_RENEWED: Final = 250
_LEAST_REPLY_S: Final = 0.25


class Renewal(threading.Thread):
    """Renews what one queue's pump holds, every third of a lease; quiet while nothing is held."""

    def __init__(self, queue: Application, held: Held, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(name=f"schedq-renewal-{queue.name}", daemon=True)
        self._queue = queue
        self._held = held
        self._loop = loop
        self._stopping = threading.Event()
        self._line: Line | None = None
        self._complaint = Complaint()
        self._renewed_at = 0.0

    def stop(self) -> None:
        """Let the thread end."""
        self._stopping.set()
        self._held.changed.set()

    def run(self) -> None:
        """Renew until stopped."""
        wait = interval = self._queue.settings.renewal_s
        failures = 0
        while not self._stopping.is_set():
            if not self._held:
                self._held.changed.clear()
                if not self._held and not self._stopping.is_set():
                    self._held.changed.wait()
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
        if self._line is not None:
            self._line.close()

    def _renew(self) -> bool:
        """One round; answers whether Redis answered."""
        held = [attempt for attempt in self._held.all() if not attempt.is_lost]
        for start in range(0, len(held), MOST_RENEWED):
            batch = held[start : start + MOST_RENEWED]
            try:
                words = self._ask(batch)
            except (SchedqError, *faults.BROKEN_LINE) as error:
                if monotonic() - self._renewed_at > 2 * self._queue.settings.renewal_s:
                    self._complaint.say(f"queue {self._queue.name}: leases can't be renewed", error)
                return False
            told = [(attempt, word) for attempt, word in zip(batch, words, strict=True) if word != "OK"]
            if told:
                self._call(told)  # together: a busy loop lets this thread go on only after milliseconds, each time
        self._renewed_at = monotonic()
        return True

    def _ask(self, batch: list[Attempt]) -> list[str]:
        pairs = [(attempt.job.id, attempt.job.claim_token) for attempt in batch]
        queue = self._queue
        exchange = Exchange([attempts.renew(queue.settings, pairs)], queue.address, queue.settings, 0)
        if self._line is None:
            # The pump's connection has judged the server. Eviction that was switched on since must not cost leases.
            self._line = Line(queue.address, replace(queue.settings, allow_eviction=True), self._reply_s())
        while not exchange.is_done:
            exchange.take(self._line.ask(exchange.commands()))
        answer = exchange.answers[0]
        if isinstance(answer, SchedqError):
            self._line.close()  # there may be another user or password to come back with
            raise answer
        words: list[str] = answer
        return words

    def _reply_s(self) -> float:
        """Half of an interval: a connection that hangs leaves time for another one before the leases end."""
        return min(REPLY_S, max(_LEAST_REPLY_S, self._queue.settings.renewal_s / 2))

    def _call(self, told: list[tuple[Attempt, str]]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._hear, told)
        except RuntimeError:
            self._stopping.set()  # the loop is closed

    def _hear(self, told: list[tuple[Attempt, str]]) -> None:
        """On the loop: what Redis said of leases that are not simply renewed."""
        for attempt, word in told:
            if word == "LOST":
                self._lost(attempt)
            elif word == "STOP":
                self._stop_on_request(attempt)

    def _lost(self, attempt: Attempt) -> None:
        """The job is another's. One that has been settled meanwhile was not lost."""
        if attempt in self._held and not attempt.is_settled:
            attempt.is_lost = True
            self._held.interrupt(attempt)

    def _stop_on_request(self, attempt: Attempt) -> None:
        """Somebody cancelled the job."""
        if attempt in self._held and not (attempt.is_settled or attempt.is_cancelled):
            attempt.is_cancelled = True
            log.info("job %s: asked to stop", attempt.job.id, extra=attempt.fields())
            self._held.interrupt(attempt)
