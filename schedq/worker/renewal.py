"""Renews leases from a separate thread, so that a handler that blocks the event loop does not lose its job.

Progress reports of handlers are sent with the renewals, and in between at most twice a second.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Final

from schedq.background.reconnecting_client import LogThrottle
from schedq.connection import redis_errors
from schedq.connection.client import Connection
from schedq.connection.endpoint import REPLY_S
from schedq.connection.request import Request
from schedq.errors import SchedqError
from schedq.logs import log
from schedq.model.progress import ProgressReport
from schedq.model.times import monotonic
from schedq.queue.queue import QueueBase
from schedq.transitions import renew
from schedq.worker.attempt import LOST, Attempt, InFlight

MOST_RENEWED: Final = 250
REPORT_S: Final = 0.5
"""The minimum seconds between two requests with reports, however often handlers report."""
_LEAST_REPLY_S: Final = 0.25


class Renewal(threading.Thread):
    """Renews the leases of one queue's fetcher every third of a lease; sleeps while there are none.

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
        self._reporters = in_flight.reporters
        self._loop = loop
        self._stopping = threading.Event()
        self._interval_s = queue.settings.renewal_s
        # Half of an interval for a reply: a connection that hangs leaves time for another before the leases end.
        self._reply_s = min(REPLY_S, max(_LEAST_REPLY_S, self._interval_s / 2))
        self._connection = Connection(queue.address, queue.settings, self._reply_s, accepted)
        self._throttle = LogThrottle()
        self._renewed_at = 0.0
        self._due_at = 0.0
        self._report_at = 0.0  # not before then
        self._failures = 0

    def stop(self) -> None:
        """Stop the thread soon."""
        self._stopping.set()
        self._in_flight.changed.set()
        self._reporters.changed.set()

    def run(self) -> None:
        """Renew and report until stopped."""
        self._rest()
        while not self._stopping.is_set():
            if not self._in_flight:
                self._in_flight.changed.clear()
                if not self._in_flight and not self._stopping.is_set():
                    self._in_flight.changed.wait()
                self._rest()
            self._wait()
            if not self._stopping.is_set():
                self._send()
        self._connection.close()

    def _rest(self) -> None:
        self._renewed_at = monotonic()
        self._due_at = self._renewed_at + self._interval_s

    def _wait(self) -> None:
        """Wait until a renewal is due, or a report may be sent."""
        if self._reporters.changed.wait(max(0.0, self._due_at - monotonic())):
            pause_s = min(self._report_at, self._due_at) - monotonic()
            if pause_s > 0:
                self._stopping.wait(pause_s)

    def _send(self) -> None:
        began = monotonic()
        self._reporters.changed.clear()
        self._report_at = began + REPORT_S
        # The reports first: an attempt that begins in between would otherwise seem to have ended, with its report.
        reports = self._reporters.waiting()
        attempts = {it.job.claim_token: it for it in self._in_flight.all() if it.state is not LOST}
        for late in [report for report in reports if report.token not in attempts]:
            self._reporters.forget(late.token)
            reports.remove(late)
        # A request may hang for `_reply_s`, which must not delay a renewal. One that is due by then is sent with it.
        is_due = began >= self._due_at - (self._reply_s if reports else 0.0)
        if not is_due and not reports:
            return
        reporting = [attempts.pop(report.token) for report in reports]
        if self._are_renewed(list(attempts.values()) if is_due else [], reporting, reports):
            self._failures = 0
            if is_due:
                self._renewed_at, self._due_at = monotonic(), began + self._interval_s
            return
        # Retry at once after the first failure, because an idle connection breaks unnoticed, for example when Redis is
        # restarted. After more failures wait a little; there is time for it before the leases end.
        wait_s = min(self._interval_s / 4, 1.0) if self._failures else 0.0
        self._due_at, self._failures = monotonic() + wait_s, self._failures + 1

    def _are_renewed(
        self, attempts: list[Attempt], reporting: list[Attempt], reports: Sequence[ProgressReport]
    ) -> bool:
        """Renew the leases of these attempts and of those that report; return whether Redis replied."""
        for chunk in renew.chunks(reports):
            rest, attempts = attempts[: MOST_RENEWED - len(chunk)], attempts[MOST_RENEWED - len(chunk) :]
            those, reporting = reporting[: len(chunk)], reporting[len(chunk) :]
            if not self._is_renewed([*those, *rest], chunk):
                return False
        batches = (attempts[start : start + MOST_RENEWED] for start in range(0, len(attempts), MOST_RENEWED))
        return all(self._is_renewed(batch) for batch in batches)

    def _is_renewed(self, attempts: list[Attempt], reports: Sequence[ProgressReport] = ()) -> bool:
        """Send one request for these attempts, the first of which have reports; return whether Redis replied."""
        try:
            words = self._ask(attempts, reports)
        except (SchedqError, *redis_errors.CONNECTION_LOST) as error:
            if monotonic() - self._renewed_at > 2 * self._interval_s:
                self._throttle.log(f"queue {self._queue.name}: leases can't be renewed", error)
            return False
        self._reporters.confirm(reports, words)
        told = [(attempt, word) for attempt, word in zip(attempts, words, strict=True) if word != "OK"]
        if told:
            self._call(told)  # in one call: with a busy loop, each one would take milliseconds
        return True

    def _ask(self, attempts: list[Attempt], reports: Sequence[ProgressReport] = ()) -> list[str]:
        queue = self._queue
        pairs = [(attempt.job.id, attempt.job.claim_token) for attempt in attempts[len(reports) :]]
        operation = renew.renew(queue.settings, pairs, reports)
        request = Request([operation], queue.address, queue.settings, 0)
        while request.left:
            request.on_replies(self._connection.ask(request.commands()))
        answer = request.answers[0]
        if isinstance(answer, SchedqError):
            self._connection.close()  # the credential provider may have a new user or password for the next one
            raise answer
        words: list[str] = answer
        return words

    def _call(self, told: list[tuple[Attempt, str]]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._hear, told)
        except RuntimeError:
            self._stopping.set()  # the loop is closed

    def _hear(self, told: list[tuple[Attempt, str]]) -> None:
        """Handle, on the loop, the replies for leases that were not simply renewed."""
        for attempt, word in told:
            if word == "LOST":
                self._in_flight.lose(attempt)
            elif word == "STOP" and self._in_flight.request_stop(attempt):
                log.info("job %s: asked to stop", attempt.job.id, extra=attempt.fields())
