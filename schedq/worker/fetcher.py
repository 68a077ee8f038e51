"""Fetches jobs of one queue: every round trip settles all that has ended and claims for all that is free.

While one is under way finished jobs gather, so under load a job costs a fraction of a command.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from schedq.background.reconnecting_client import REFUSED_S, Availability, LogThrottle, ReconnectingClient
from schedq.connection import redis_errors
from schedq.connection.async_connection import AsyncConnection
from schedq.errors import SchedqError, StoreUnavailable, UsageError
from schedq.model.ids import new_request
from schedq.model.times import monotonic
from schedq.observer import Observer
from schedq.queue.queue import QueueBase
from schedq.transitions import Operation, claim, promote
from schedq.worker.attempt import IllegalTransition, StateName, Transition, targets
from schedq.worker.capacity import Capacity, Reservation
from schedq.worker.dispatcher import Dispatcher
from schedq.worker.worker_context import WorkerContext

MOST_CLAIMED: Final = 100
"""Jobs in one claim, which keeps everybody else waiting, for about 20 µs a job."""


class FetchState(StateName):
    """Whether a fetcher claims jobs, and if not, why.

    Attributes:
        READY: `pending` may hold jobs that were not looked for yet.
        CLAIMING: a claim is on its way, and nothing was heard since it was sent.
        IDLE: `pending` held no more jobs when it was last looked at.
        AWAY: Redis does not answer.
        REFUSED: Redis has refused a claim a moment ago.
        BEHIND: Redis did not take the ends of some jobs; more jobs would only add to them.
        CLOSED: the worker stops.
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
"""What stops claims for a while ends in `READY`: nobody listened for the queue's marker in between."""
_LEGAL: Final = targets(TRANSITIONS)


class Fetcher:
    """Brings jobs of one queue in and their ends out.

    Attributes:
        dispatcher, in_flight: run what is fetched, and hold it.
        is_ready: `pending` may hold jobs that can be claimed now: the queues after this one wait.
        notify: to be called when something changed: it looks whether there is something to do.
    """

    def __init__(self, queue: QueueBase, client: ReconnectingClient, context: WorkerContext) -> None:
        self._settings = queue.settings
        self._client = client
        self._capacity = context.capacity
        self._worker_id = context.worker_id
        self._observers = context.observers
        self._notified = asyncio.Event()
        self.notify = self._notified.set
        self.dispatcher = Dispatcher(queue, context, self, self.notify)
        self.in_flight = self.dispatcher.in_flight
        self.state = READY
        self.is_ready = True
        self._throttle = LogThrottle()
        self._claims = 0  # on their way
        self._unanswered = 0  # claims in a row
        self._owes_marker = False
        self._flooded = asyncio.Event()  # the last claim left jobs behind
        # Handlers on the event loop need no second process to run at the same time.
        self._siblings = context.siblings if queue.registry.has_plain_functions else None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._loop = asyncio.get_running_loop()
        if context.siblings is not None:
            context.siblings.join(self.in_flight)
        self._capacity.join(self)

    @property
    def is_idle(self) -> bool:
        """Nothing is held, nothing is to be sent, nothing is to be looked for."""
        return self.is_settled and self.state is IDLE

    @property
    def is_settled(self) -> bool:
        """Nothing is left to be sent, and no claim is on its way that could bring jobs."""
        return not (self.dispatcher.waiting or self._claims or self.in_flight)

    def mark_ready(self) -> None:
        """The queue may hold jobs. The caller also sees to it that everybody is notified."""
        if self.state is IDLE or self.state is CLAIMING:
            self._become(READY)

    def look(self) -> None:
        """The queue may hold jobs: look now."""
        self.mark_ready()
        self._capacity.notify_all()

    def on_wake(self) -> None:
        """The wake marker was taken for this queue: a claim is owed."""
        self._owes_marker = True
        self.look()

    def close(self) -> None:
        """Stop claiming."""
        if self.state is not CLOSED:
            self._become(CLOSED)
        self._notified.set()

    async def run(self) -> None:
        """Fetch until cancelled.

        Raises:
            UsageError: Redis refuses for a reason that does not pass with time.
        """
        second = asyncio.create_task(self._fetch_more())
        try:
            while True:
                self._notified.clear()
                if self._observers.is_watched:
                    self._observers.notify(Observer.went_round, self._settings.name)
                if not self._client.is_connected:
                    # A claim is sent on a connection only: of one that fails before, no job can have come.
                    await self._client.connect(self._lost)
                    self._resume(AWAY)
                reservation = self._reserve() if self.is_ready else None
                # While claims are refused the debt waits for the next one: a marker put back would come again at once.
                is_due = self._owes_marker and self.state is not REFUSED
                if self.dispatcher.waiting or reservation is not None or is_due:
                    await self._round_trip(reservation)
                else:
                    await self._notified.wait()
        finally:
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)

    async def _fetch_more(self) -> None:
        """While more jobs wait than are claimed: a round trip of its own, so that Redis works while these jobs run.

        What ends it for good ends the first one as well.
        """
        while True:
            await self._flooded.wait()
            self._notified.clear()
            reservation = self._reserve() if self.is_ready and self._client.is_connected else None
            if reservation is None:
                await self._notified.wait()
            else:
                await self._round_trip(reservation)

    def _reserve(self) -> Reservation | None:
        """Slots for a claim; half of all at most while two claims are sent at a time."""
        if self._siblings is not None:
            # Another process that holds fewer jobs has the first go at the few that wait.
            wait_s = 0.0 if self._flooded.is_set() else self._siblings.wait_s()
            self._call_later("first go", wait_s, self.notify)
            if wait_s > 0:
                return None
        return self._capacity.reserve(self, share=0.5 if self._flooded.is_set() else 1.0)

    async def _round_trip(self, reservation: Reservation | None) -> None:
        """One round trip: settle, and fill the reserved slots or put the marker back."""
        parcel = self.dispatcher.take()
        owes, self._owes_marker = self._owes_marker, False
        if reservation is None:
            wake = [promote.wake(self._settings)] if owes else []
            answers = await self._client.execute([*parcel.operations, *wake], self._lost)
            self._resume(AWAY)
        else:
            answers = await self._claim(parcel.operations, reservation)
        if not parcel.attempts:
            return
        refused = self.dispatcher.read(parcel, answers)
        if self.state is not CLOSED and (self.state is BEHIND) != self.dispatcher.is_behind:
            self._become(BEHIND if self.dispatcher.is_behind else READY)
            self._capacity.notify_all()
        if self._siblings is not None:
            self._siblings.tell()
        if refused is not None:
            self._throttle.log(f"queue {self._settings.name}: the ends of jobs", refused)
            await asyncio.sleep(REFUSED_S)

    async def _claim(self, operations: Sequence[Operation[Any]], reservation: Reservation) -> list[Any]:
        """Send operations and a claim together; start what it got, and return the answers to the other operations."""
        request = new_request()
        limit, share = min(reservation.free, MOST_CLAIMED), None
        if self._siblings is not None:
            self._siblings.claimed()
            share = self._siblings.share()
        asked = claim.claim(
            self._settings, request, limit, self._worker_id, suspects=reservation.has_suspect, share=share
        )

        def lost() -> None:
            self._lost()
            reservation.let_go()

        self._become(CLAIMING)
        self._claims += 1
        began = monotonic()
        try:
            *answers, answer = await self._client.execute([*operations, asked], lost)
            if isinstance(answer, StoreUnavailable):
                lost()
                self._unanswered += 1
                await self._recover(request)
                if self._unanswered > 1:
                    self._refused(answer)
            elif isinstance(answer, SchedqError):
                self._refused(answer)
            elif answer.jobs and monotonic() - began >= self._settings.visibility_ms / 1000:
                # The process was frozen, or a handler blocked the loop: the leases may have ended since, and other
                # workers may have completed the jobs.
                reservation.let_go()
                await self._recover(request)
            else:
                self._claimed(answer, reservation, is_full=len(answer.jobs) == limit)
        finally:
            self._claims -= 1
            reservation.let_go()
        return answers

    def _claimed(self, claimed: claim.Claim, reservation: Reservation, *, is_full: bool) -> None:
        """A claim was answered."""
        self._unanswered = 0
        if self.state is CLAIMING or self.state is IDLE:
            more = READY if self._claims == 1 else CLAIMING
            self._become(more if claimed.has_more else IDLE)
        self._flooded.set() if claimed.has_more and is_full else self._flooded.clear()
        if self._observers.is_watched:
            self._observers.notify(Observer.claim_answered, self._settings.name, len(claimed.jobs), claimed.has_more)
        self.dispatcher.start(claimed.jobs, reservation, is_closed=self.state is CLOSED)
        if claimed.left_suspects:
            self._capacity.passed_over(self)
        if self._siblings is not None:
            self._siblings.tell()

    async def _recover(self, request: str) -> None:
        """Start what a claim still holds whose answer was lost, or came late."""
        while True:
            try:
                jobs = await self._client.drive(claim.recover(self._settings, request))
                break
            except UsageError:
                raise
            except SchedqError as problem:
                self._throttle.log(f"queue {self._settings.name}", problem)
                await asyncio.sleep(REFUSED_S)
        self._resume(AWAY)
        self.mark_ready()
        reservation = self._capacity.take(self, len(jobs))
        self.dispatcher.start(jobs, reservation, is_closed=self.state is CLOSED)
        reservation.let_go()
        self._capacity.notify_all()

    def _refused(self, error: SchedqError) -> None:
        """Claims are refused: log it, and try again in a while.

        Raises:
            UsageError: it does not pass with time.
        """
        if isinstance(error, UsageError):
            raise error
        self._throttle.log(f"queue {self._settings.name}", error)
        self._observers.notify(Observer.claim_refused, self._settings.name, str(error))
        if self.state not in (REFUSED, BEHIND, CLOSED):
            self._become(REFUSED)
        self._call_later("retry", REFUSED_S, partial(self._resume, REFUSED))

    def _lost(self) -> None:
        """It may be a long time: other queues, perhaps on other servers, need not wait for this one's turn."""
        if self.state not in (AWAY, BEHIND, CLOSED):
            self._become(AWAY)
        self._capacity.notify_all()

    def _resume(self, stopped_by: FetchState) -> None:
        """What had stopped claims is over."""
        if self.state is stopped_by:
            self._become(READY)
            self._capacity.notify_all()

    def _become(self, state: FetchState) -> None:
        """Go on to another state; raises IllegalTransition if the table has no way there."""
        if state not in _LEGAL[self.state]:
            raise IllegalTransition(f"fetcher of queue {self._settings.name}: {self.state} can't become {state}")
        self.state = state
        self.is_ready = state is READY or state is CLAIMING

    def _call_later(self, what: str, seconds: float, callback: Callable[[], None]) -> None:
        """Call something after a while, in place of what was to be called for the same reason; 0: call nothing."""
        if (timer := self._timers.pop(what, None)) is not None:
            timer.cancel()
        if seconds:
            self._timers[what] = self._loop.call_later(seconds, callback)


_BLOCK_S: Final = 10
_NOTICED_S: Final = 0.02
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 2.0


class WakeListener:
    """Blocks while no queue is ready and slots are free; a marker makes its queue ready.

    Args:
        queue: any of the queues, for its connection.
        fetchers: wake key → fetcher, of all queues on that server.
    """

    def __init__(
        self, queue: QueueBase, availability: Availability, capacity: Capacity, fetchers: Mapping[str, Fetcher]
    ) -> None:
        self._connection = AsyncConnection(queue.address, queue.settings, availability.accepted)
        self._availability = availability
        self._capacity = capacity
        self._throttle = LogThrottle()
        self._fetchers = fetchers
        self._wait_s = _FIRST_WAIT_S
        self._changed = asyncio.Event()
        capacity.listen(self._changed.set)

    async def run(self) -> None:
        """Wait for markers until cancelled."""
        try:
            while True:
                self._changed.clear()
                if self._capacity.free <= 0 or self._capacity.is_any_ready:
                    self._availability.rest(self)
                    await self._changed.wait()
                else:
                    await self._block()
        finally:
            self._availability.forget(self)
            await self._connection.aclose()

    async def _block(self) -> None:
        command: tuple[str | int, ...] = ("BZPOPMIN", *self._fetchers, _BLOCK_S)
        began = monotonic()
        try:
            if not self._connection.is_connected:
                await self._connection.connect()
                self._availability.back(self)  # the reply may be long in coming
            # The server may never end the block (its clock may step): our own time is a little longer.
            (reply,) = await self._connection.ask([command], reply_s=_BLOCK_S + 1)
        except (SchedqError, *redis_errors.CONNECTION_LOST) as error:
            is_early = monotonic() - began < _BLOCK_S
            if is_early:
                if (
                    redis_errors.is_transient(error) or self._availability.has_answered
                ):  # else it is a mistake, which a fetcher raises
                    self._availability.lost(self, error)
                # If the server has gone the other connections notice in a moment: a claim that is sent on one of them
                # before that would have to be looked for until the server is back.
                await asyncio.sleep(_NOTICED_S)
            self._look_everywhere()
            if is_early:
                await asyncio.sleep(self._wait_s * random.uniform(0.5, 1))  # noqa: S311 - spreads load
                self._wait_s = min(_LONGEST_WAIT_S, 2 * self._wait_s)
            return
        self._wait_s = _FIRST_WAIT_S
        if isinstance(reply, list):
            self._fetchers[reply[0]].on_wake()
        elif isinstance(reply, Exception):
            if not redis_errors.is_moved(reply):
                self._throttle.log(f"{', '.join(self._fetchers)}: can't be waited for", reply)
                self._connection.close()  # after a failover the address may lead to another server
                await asyncio.sleep(REFUSED_S)
            self._look_everywhere()

    def _look_everywhere(self) -> None:
        """A marker may have been lost with the connection: every queue is looked at once."""
        for fetcher in self._fetchers.values():
            fetcher.look()
