"""Fetches the jobs of one queue: every round trip settles all finished attempts and claims jobs for all free slots.

Attempts that finish during a round trip wait for the next one, so under load a job costs a fraction of a command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from schedq.background.reconnecting_client import REFUSED_S, LogThrottle, ReconnectingClient
from schedq.errors import SchedqError, StoreUnavailable, UsageError
from schedq.model.ids import new_request
from schedq.model.settings import Settings
from schedq.model.times import monotonic
from schedq.observer import Observer
from schedq.queue.queue import QueueBase
from schedq.transitions import Operation, claim, gates, promote
from schedq.worker.attempt import IllegalTransition, StateName, Transition, targets
from schedq.worker.backlog import Backlog
from schedq.worker.capacity import Reservation
from schedq.worker.dispatcher import Dispatcher
from schedq.worker.worker_context import Only, WorkerContext

MOST_CLAIMED: Final = 100
"""The maximum of jobs in one claim. A claim blocks all other clients for about 20 µs per job."""


class FetchState(StateName):
    """Whether a fetcher claims jobs, and if not, why.

    Attributes:
        READY: `pending` may contain jobs, because it was not checked since the last notification.
        CLAIMING: a claim was sent, and no notification has arrived since.
        IDLE: `pending` contained no more jobs at the last check.
        AWAY: Redis does not respond.
        REFUSED: Redis has just rejected a claim.
        BEHIND: Redis did not accept some settlements; claiming more jobs would only add to them.
        CLOSED: the worker is stopping.
    """

    READY = "ready"
    CLAIMING = "claiming"
    IDLE = "idle"
    AWAY = "away"
    REFUSED = "refused"
    BEHIND = "behind"
    CLOSED = "closed"


READY, CLAIMING, IDLE, AWAY, REFUSED, BEHIND, CLOSED = FetchState
TRANSITIONS: Final = (
    Transition("mark_ready", (IDLE, CLAIMING), READY),
    Transition("claim", (READY, CLAIMING), CLAIMING),
    Transition("find_more", (IDLE, CLAIMING), READY),
    Transition("find_more_while_claiming", (IDLE, CLAIMING), CLAIMING),
    Transition("find_no_more", (IDLE, CLAIMING), IDLE),
    Transition("lose", (READY, CLAIMING, IDLE, REFUSED), AWAY),
    Transition("reconnect", (AWAY,), READY),
    Transition("refuse", (READY, CLAIMING, IDLE, AWAY), REFUSED),
    Transition("retry", (REFUSED,), READY),
    Transition("fall_behind", (READY, CLAIMING, IDLE, AWAY, REFUSED), BEHIND),
    Transition("catch_up", (BEHIND,), READY),
    Transition("close", (READY, CLAIMING, IDLE, AWAY, REFUSED, BEHIND), CLOSED),
)
"""After an interruption the state is `READY` and not `IDLE`, because nothing waited for the wake marker meanwhile."""
_LEGAL: Final = targets(TRANSITIONS)


class Timers:
    """What is to be called later, one call for each reason."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.TimerHandle] = {}
        self._loop = asyncio.get_running_loop()

    def call_later(self, what: str, seconds: float, callback: Callable[[], None]) -> None:
        """Call something after a while; replaces an earlier call for the same reason. 0 only cancels that one."""
        if (timer := self._waiting.pop(what, None)) is not None:
            timer.cancel()
        if seconds:
            self._waiting[what] = self._loop.call_later(seconds, callback)


class Fetcher:
    """Claims the jobs of one queue and settles their attempts.

    Attributes:
        client: its connection.
        dispatcher, in_flight: run the claimed jobs, and hold their attempts.
        is_ready: `pending` may contain jobs that can be claimed now, so queues of lower priority wait.
        notify: call it after a change; the fetcher then checks whether there is something to do.
        wake_keys: the wake markers to wait for.
        ask: returns the operation of a claim.
        siblings: the processes with which this one shares the jobs evenly, or None.
        later_claims: the claims behind waits of which it is not certain yet which jobs they got.
    """

    def __init__(self, queue: QueueBase, client: ReconnectingClient, context: WorkerContext, only: Only) -> None:
        self._settings = queue.settings
        self.wake_keys = queue.settings.keys.wakes_of(only)
        self.client = client
        self._capacity = context.capacity
        self._takes_all = only is None
        self.ask = partial(claim.claim, queue.settings, worker=context.worker_id, only=only)
        self._observers = context.observers
        self._notified = asyncio.Event()
        self.notify = self._notified.set
        self.dispatcher = Dispatcher(queue, context, self, self.notify)
        self.in_flight = self.dispatcher.in_flight
        self.state = READY
        self.is_ready = True
        self._throttle = LogThrottle()
        self._claims = self.later_claims = 0  # claims whose replies have not arrived
        self._unanswered = 0  # claims in a row without a reply
        self._owes_marker = False
        self._backlog = Backlog(context.capacity, self.notify)
        # Only plain handlers are shared evenly: async handlers run concurrently in a single process.
        self.siblings = context.siblings if queue.registry.has_plain_functions else None
        self._timers = Timers()
        if context.siblings is not None:
            context.siblings.join(self.in_flight)
        self._capacity.join(self)

    @property
    def is_idle(self) -> bool:
        """There are no attempts, no unsent settlements, and no jobs to claim."""
        return self.state is IDLE and not (self.dispatcher.waiting or self._claims or self.in_flight)

    @property
    def is_settled(self) -> bool:
        """There are no attempts, no unsent settlements, and no claims in progress, except behind a wait."""
        return not (self.dispatcher.waiting or self._claims or self.in_flight)

    def mark_ready(self) -> None:
        """Note that the queue may contain jobs. The caller must notify the capacity afterwards."""
        if self.state is IDLE or self.state is CLAIMING:
            self._become(READY)

    def look(self) -> None:
        """Check the queue now, because it may contain jobs."""
        self.mark_ready()
        self._capacity.notify()

    def on_wake(self) -> None:
        """Handle the wake marker that was taken for this queue: it obliges the worker to claim, or to put it back."""
        self._owes_marker = True
        self.notify()
        self.look()

    def close(self) -> None:
        """Stop claiming."""
        if self.state is not CLOSED:
            self._become(CLOSED)
        self._notified.set()
        self._capacity.notify()

    async def run(self) -> None:
        """Fetch until cancelled.

        Raises:
            UsageError: Redis rejects a request for a permanent reason.
        """
        second = asyncio.create_task(self._fetch_more())  # an error that ends it ends this, too
        try:
            while True:
                self._notified.clear()
                if self._observers.is_watched:
                    self._observers.notify(Observer.went_round, self._settings.name)
                if not self.client.is_connected:
                    await _connect(self._settings, self.client, self._lost, self._throttle)
                    self._resume(AWAY)
                if self.state is IDLE and self.dispatcher.frees_places:
                    self._become(READY)  # the place that becomes free is for the next job of its gate
                reservation = self._reserve() if self.is_ready else None
                # While claims are rejected, keep the marker: if it were put back, it would be taken again at once.
                is_due = self._owes_marker and self.state is not REFUSED
                if reservation or ((self.dispatcher.waiting or is_due) and not self._backlog.has_to_wait):
                    await self._round_trip(reservation)
                else:
                    await self._notified.wait()
        finally:
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)

    async def _fetch_more(self) -> None:
        """Make a second round trip in parallel while more jobs wait than were claimed, so that Redis is never idle."""
        while True:
            await self._backlog.is_there.wait()
            self._notified.clear()
            reservation = self._reserve() if self.is_ready and self.client.is_connected else None
            if reservation is None:
                await self._notified.wait()
            else:
                await self._round_trip(reservation)

    def _reserve(self) -> Reservation | None:
        """Reserve slots for a claim; at most half of all slots while two claims are sent in parallel."""
        if self.siblings is not None:
            # Another process that holds fewer jobs may claim first.
            wait_s = 0.0 if self._backlog.is_there.is_set() else self.siblings.wait_s()
            self._timers.call_later("first go", wait_s, self.notify)
            if wait_s > 0:
                return None
        return None if self._backlog.has_to_wait else self._capacity.reserve(self, share=self._backlog.share)

    async def _round_trip(self, reservation: Reservation | None) -> None:
        """Make one round trip: settle finished attempts, and fill the reserved slots or put the wake marker back."""
        parcel = self.dispatcher.take(claims=reservation is not None and self._takes_all)
        owes, self._owes_marker = self._owes_marker, False
        if reservation is None:
            wake = [promote.wake(self._settings)] if owes else []
            answers = await self.client.execute([*parcel.operations, *wake], self._lost)
            self._resume(AWAY)
        else:
            answers = await self._claim(parcel.operations, reservation)
        if not parcel.attempts:
            return
        refused = self.dispatcher.read(parcel, answers)
        if self.state is not CLOSED and (self.state is BEHIND) != self.dispatcher.is_behind:
            self._become(BEHIND if self.dispatcher.is_behind else READY)
            self._capacity.notify()
        if self.siblings is not None:
            self.siblings.tell()
        if refused is not None:
            self._throttle.log(f"queue {self._settings.name}: jobs can't be settled", refused)
            await asyncio.sleep(REFUSED_S)

    async def _claim(self, operations: Sequence[Operation[Any]], reservation: Reservation) -> list[Any]:
        """Send operations and a claim together, start the claimed jobs, and return the other operations' results."""
        request, limit, share = new_request(), min(reservation.free, MOST_CLAIMED), None
        if self.siblings is not None:
            self.siblings.claimed()
            share = self.siblings.share()
        asked = self.ask(request, limit, suspects=reservation.has_suspect, share=share)

        def lost() -> None:
            self._lost()
            reservation.let_go()

        self._become(CLAIMING)
        self._claims += 1
        began = monotonic()
        try:
            with self._backlog.claim():
                *answers, answer = await self.client.execute([*operations, asked], lost)
            if isinstance(answer, StoreUnavailable):
                lost()
                self._unanswered += 1
                await self.recover(request)
                if self._unanswered > 1:
                    self._refused(answer)
            elif isinstance(answer, SchedqError):
                self._refused(answer)
            elif answer.jobs and monotonic() - began >= self._settings.visibility_ms / 1000:
                # The process was frozen, or a handler blocked the loop: the leases may have ended since, and other
                # workers may have completed the jobs, so ask Redis again before starting them.
                reservation.let_go()
                await self.recover(request)
            else:
                self.claimed(answer, reservation, is_full=len(answer.jobs) == limit)
        finally:
            self._claims -= 1
            reservation.let_go()
        return answers

    def claimed(self, claimed: claim.Claim, reservation: Reservation, *, is_full: bool) -> None:
        """Handle the reply to a claim."""
        self._unanswered = 0
        if self.state is CLAIMING or self.state is IDLE:
            more = READY if self._claims < 2 else CLAIMING
            self._become(more if claimed.has_more else IDLE)
            if not claimed.has_more:
                self._capacity.pass_turn()
        self._backlog.is_there.set() if claimed.has_more and is_full else self._backlog.is_there.clear()
        if self._observers.is_watched:
            self._observers.notify(Observer.claim_answered, self._settings.name, len(claimed.jobs), claimed.has_more)
        self.dispatcher.start(claimed.jobs, reservation, is_closed=self.state is CLOSED)
        if claimed.left_suspects:
            self._capacity.passed_over(self)
        if self.siblings is not None:
            self.siblings.tell()

    async def recover(self, request: str, reservation: Reservation | None = None) -> None:
        """Start the jobs that a claim still holds whose reply was lost or came too late."""
        known = self.in_flight.tokens()  # one that ends while pages are read may be on the first of them
        while True:
            try:
                jobs = await self.client.drive(claim.recover(self._settings, request))
                break
            except UsageError:
                raise
            except SchedqError as problem:
                self._throttle.log(f"queue {self._settings.name}", problem)
                await asyncio.sleep(REFUSED_S)
        self._resume(AWAY)
        jobs = self.in_flight.unknown(jobs, known)
        reservation = reservation or self._capacity.take(self, len(jobs))
        self.dispatcher.start(jobs, reservation, is_closed=self.state is CLOSED)
        reservation.let_go()
        self.look()

    def _refused(self, error: SchedqError) -> None:
        """Handle a rejected claim: log it, and try again in a while.

        Raises:
            UsageError: the reason is permanent.
        """
        if isinstance(error, UsageError):
            raise error
        self._throttle.log(f"queue {self._settings.name}", error)
        self._observers.notify(Observer.claim_refused, self._settings.name, str(error))
        if self.state not in (REFUSED, BEHIND, CLOSED):
            self._become(REFUSED)
        self._timers.call_later("retry", REFUSED_S, partial(self._resume, REFUSED))

    def _lost(self) -> None:
        """Handle a lost connection. Other queues, perhaps on other servers, must not wait for this one meanwhile."""
        if self.state not in (AWAY, BEHIND, CLOSED):
            self._become(AWAY)
        self._capacity.notify()

    def _resume(self, stopped_by: FetchState) -> None:
        """Continue claiming if this state had interrupted it."""
        if self.state is stopped_by:
            self._become(READY)
            self._capacity.notify()

    def _become(self, state: FetchState) -> None:
        """Change the state; raises IllegalTransition if the table does not allow it."""
        if state not in _LEGAL[self.state]:
            raise IllegalTransition(f"fetcher of queue {self._settings.name}: {self.state} can't become {state}")
        self.state = state
        self.is_ready = state is READY or state is CLAIMING


async def _connect(
    queue: Settings, client: ReconnectingClient, lost: Callable[[], None], throttle: LogThrottle
) -> None:
    """Connect, and write the limits in the code, so that the first claim obeys them; log those that can't be.

    If a claim fails while connecting, it is certain that it got no jobs.
    """
    await client.connect(lost)
    for found in await client.execute(gates.define(queue)) if queue.gates else ():
        if isinstance(found, SchedqError):
            throttle.log(f"queue {queue.name}: limits can't be written", found)
