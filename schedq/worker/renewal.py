"""Renews leases from a thread of its own, so that a handler that blocks the event loop does not lose its job.

Progress reports of handlers are sent with the renewals, and in between at most twice a second.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

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
from schedq.transitions import Operation, renew
from schedq.worker.attempt import LOST, Attempt, InFlight

MOST_RENEWED: Final = 250
REPORT_S: Final = 0.5
"""The minimum seconds between two requests with reports, however often handlers report."""
_LEAST_REPLY_S: Final = 0.25
SENT_AT_ONCE: Final = 10
"""The most scripts in one round trip."""


class Held(NamedTuple):
    """The attempts of one queue whose leases are renewed."""

    queue: QueueBase
    in_flight: InFlight


class RenewalBatch(NamedTuple):
    """What one script renews: attempts of one queue, the first of which have reports."""

    held: Held
    attempts: list[Attempt]
    reports: Sequence[ProgressReport] = ()

    @property
    def operation(self) -> Operation[list[str]]:
        pairs = [(attempt.job.id, attempt.job.claim_token) for attempt in self.attempts[len(self.reports) :]]
        return renew.renew(self.held.queue.settings, pairs, self.reports)


class Renewal(threading.Thread):
    """Renews leases every third of their length; sleeps while there are none.

    Args:
        held: queues that share a server, and have leases of the same length.
        accepted: see `Handshake`.
    """

    def __init__(self, held: Sequence[Held], loop: asyncio.AbstractEventLoop, accepted: set[str] | None = None) -> None:
        queue = held[0].queue
        super().__init__(name=f"schedq-renewal-{queue.name}", daemon=True)
        self._held = held
        self._loop = loop
        self._stopping = threading.Event()
        self._begun = threading.Event()
        self._reported = threading.Event()
        for each in held:
            each.in_flight.listen(self._begun)
            each.in_flight.reporters.changed = self._reported
        self._interval_s = queue.settings.renewal_s
        # Half of an interval for a reply: a connection that hangs leaves time for another before the leases end.
        self._reply_s = min(REPLY_S, max(_LEAST_REPLY_S, self._interval_s / 2))
        self._connection = Connection(
            queue.address, *(each.queue.settings for each in held), reply_s=self._reply_s, accepted=accepted
        )
        self._throttle = LogThrottle()
        self._renewed_at = 0.0
        self._due_at = 0.0
        self._report_at = 0.0  # not before then
        self._failures = 0

    def stop(self) -> None:
        """Stop the thread soon."""
        self._stopping.set()
        self._begun.set()
        self._reported.set()

    def run(self) -> None:
        """Renew and report until stopped."""
        self._rest()
        while not self._stopping.is_set():
            if not self._holds_any():
                self._begun.clear()
                if not self._holds_any() and not self._stopping.is_set():
                    self._begun.wait()
                self._rest()
            self._wait()
            if not self._stopping.is_set():
                self._send()
        self._close()

    def _close(self) -> None:
        self._connection.close()

    def _holds_any(self) -> bool:
        return any(each.in_flight for each in self._held)

    def _rest(self) -> None:
        self._renewed_at = monotonic()
        self._due_at = self._renewed_at + self._interval_s

    def _wait(self) -> None:
        """Wait until a renewal is due, or a report may be sent."""
        if self._reported.wait(max(0.0, self._due_at - monotonic())):
            pause_s = min(self._report_at, self._due_at) - monotonic()
            if pause_s > 0:
                self._stopping.wait(pause_s)

    def _send(self) -> None:
        began = monotonic()
        self._reported.clear()
        self._report_at = began + REPORT_S
        found = [(each, *_open_attempts(each.in_flight)) for each in self._held]
        has_reports = any(each[2] for each in found)
        # A request may hang for `_reply_s`, which must not delay a renewal. One that is due by then is sent with it.
        is_due = began >= self._due_at - (self._reply_s if has_reports else 0.0)
        batches = [batch for each in found for batch in _batches(*each, is_due=is_due)]
        if not is_due and not batches:
            return
        if self._are_renewed(batches, is_due=is_due):
            self._failures = 0
            if is_due:
                self._renewed_at, self._due_at = monotonic(), began + self._interval_s
            return
        # Retry at once after the first failure, because an idle connection breaks unnoticed, for example when Redis is
        # restarted. After more failures wait a little; there is time for it before the leases end.
        wait_s = min(self._interval_s / 4, 1.0) if self._failures else 0.0
        self._due_at, self._failures = monotonic() + wait_s, self._failures + 1

    def _are_renewed(self, batches: Sequence[RenewalBatch], *, is_due: bool) -> bool:  # noqa: ARG002
        """Renew the leases of all batches, a few scripts at a time; return whether Redis renewed all of them.

        Args:
            batches: all leases if `is_due`, else those of the attempts that report.
            is_due: renewals are due, not only reports.
        """
        refused = 0
        for first in range(0, len(batches), SENT_AT_ONCE):
            some = batches[first : first + SENT_AT_ONCE]
            try:
                answers = self._ask(some)
            except (SchedqError, *redis_errors.CONNECTION_LOST) as error:
                self._failed(some[0], error)
                return False
            for batch, answer in zip(some, answers, strict=True):
                if isinstance(answer, SchedqError):  # this queue may be damaged; the others are renewed
                    refused += 1
                    self._failed(batch, answer)
                else:
                    self._take(batch, answer)
        if refused:
            self._connection.close()  # the credential provider may have a new user or password for the next one
        return not refused

    def _failed(self, batch: RenewalBatch, error: Exception) -> None:
        if monotonic() - self._last_at(batch) > 2 * self._interval_s:
            self._throttle.log(f"queue {batch.held.queue.name}: leases can't be renewed", error)

    def _last_at(self, _batch: RenewalBatch) -> float:
        """When the leases of this queue were last renewed."""
        return self._renewed_at

    def _ask(self, batches: Sequence[RenewalBatch]) -> list[list[str] | SchedqError]:
        """Send the scripts of some batches together; return what Redis replied to each."""
        queue = batches[0].held.queue
        request = Request([batch.operation for batch in batches], queue.address, queue.settings, 0)
        while request.left:
            request.on_replies(self._connection.ask(request.commands()))
        return request.answers

    def _take(self, batch: RenewalBatch, words: Sequence[str]) -> None:
        """Handle the replies to a batch."""
        in_flight = batch.held.in_flight
        in_flight.reporters.confirm(batch.reports, words)
        told = [(attempt, word) for attempt, word in zip(batch.attempts, words, strict=True) if word != "OK"]
        if told:
            self._call(in_flight, told)  # in one call: with a busy loop, each one would take milliseconds

    def _call(self, in_flight: InFlight, told: list[tuple[Attempt, str]]) -> None:
        try:
            self._loop.call_soon_threadsafe(_hear, in_flight, told)
        except RuntimeError:
            self._stopping.set()  # the loop is closed


def _open_attempts(in_flight: InFlight) -> tuple[dict[str, Attempt], list[ProgressReport]]:
    """The attempts whose leases count, by claim token, and their reports that are to be sent."""
    # The reports first: an attempt that begins in between would otherwise seem to have ended, with its report.
    reports = in_flight.reporters.waiting()
    attempts = {it.job.claim_token: it for it in in_flight.all() if it.state is not LOST}
    for late in [report for report in reports if report.token not in attempts]:
        in_flight.reporters.forget(late.token)
        reports.remove(late)
    return attempts, reports


def _batches(
    held: Held, attempts: dict[str, Attempt], reports: Sequence[ProgressReport], *, is_due: bool
) -> Iterator[RenewalBatch]:
    """The attempts that report and, if renewals are due, all others, for one script each."""
    reporting = [attempts.pop(report.token) for report in reports]
    others = list(attempts.values()) if is_due else []
    for chunk in renew.chunks(reports):
        rest, others = others[: MOST_RENEWED - len(chunk)], others[MOST_RENEWED - len(chunk) :]
        those, reporting = reporting[: len(chunk)], reporting[len(chunk) :]
        yield RenewalBatch(held, [*those, *rest], chunk)
    for start in range(0, len(others), MOST_RENEWED):
        yield RenewalBatch(held, others[start : start + MOST_RENEWED])


def _hear(in_flight: InFlight, told: Sequence[tuple[Attempt, str]]) -> None:
    """Handle, on the loop, the replies for leases that were not simply renewed."""
    for attempt, word in told:
        if word == "LOST":
            in_flight.lose(attempt)
        elif word == "STOP" and in_flight.request_stop(attempt):
            log.info("job %s: asked to stop", attempt.job.id, extra=attempt.fields())
