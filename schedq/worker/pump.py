"""The pump of one queue: every round trip settles all that has ended and claims for all that is free.

While one is under way finished jobs gather, so under load a job costs a fraction of a command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from schedq import outcome
from schedq.application import Application
from schedq.errors import SchedqError, StoreUnavailable, UsageError
from schedq.ids import new_request
from schedq.job import ClaimedJob, Settlement
from schedq.link import REFUSED_S, Complaint, Link
from schedq.logger import log
from schedq.observer import Observers
from schedq.operations import Operation, attempts, upkeep
from schedq.worker.held import Attempt, Held
from schedq.worker.job_log import JobLog
from schedq.worker.runner import Runner
from schedq.worker.siblings import Siblings
from schedq.worker.slots import Reservation, Slots
from schedq.worker.stuck import StuckSlots
from schedq.worker.threads import Threads

MOST_CLAIMED: Final = 100
"""Jobs in one claim, which keeps everybody else waiting, for about 20 µs a job."""
End = tuple[Attempt, Settlement]


class Pump:
    """Brings jobs of one queue in and their ends out; `held` is what the worker holds of this queue."""

    def __init__(
        self,
        queue: Application,
        link: Link,
        slots: Slots,
        threads: Threads,
        worker_id: str,
        observers: Observers,
        stuck: StuckSlots,
        job_log: JobLog,
        siblings: Siblings | None = None,
    ) -> None:
        self._queue = queue
        self._settings = queue.settings
        self._link = link
        self._slots = slots
        self._worker_id = worker_id
        self._observers = observers
        self._runner = Runner(queue, threads, self._ended, self._freed, observers, stuck, job_log)
        self.held = Held(self._runner.interrupt)
        self.unknown = self._runner.unknown
        self._outgoing: list[End] = []
        self._complaint = Complaint()
        self._wants = True  # `pending` may hold jobs that were not looked for yet
        self._wants_again = False  # and that was heard while a claim was on its way
        self._is_away = False  # Redis does not answer
        self._is_refused = False  # it has refused a claim a moment ago
        self._is_behind = False  # ends could not be told; more jobs would only add to them
        self._claims = 0  # on their way
        self._unanswered = 0  # claims in a row
        self._owes_marker = False
        self._is_closing = False
        self._stirred = asyncio.Event()
        self._flooded = asyncio.Event()  # the last claim left jobs behind
        # Handlers on the event loop need no second process to run beside each other.
        self._siblings = siblings if queue.registry.has_plain_functions else None
        self._next_go: asyncio.TimerHandle | None = None
        if siblings is not None:
            siblings.join(self.held)
        slots.join(self)

    @property
    def is_hungry(self) -> bool:
        """`pending` may hold jobs, and they can be claimed now: the queues after this one wait."""
        return self._wants and not (self._is_away or self._is_refused or self._is_behind or self._is_closing)

    @property
    def is_idle(self) -> bool:
        """Nothing is held, nothing is to be sent, nothing is to be looked for."""
        return self.is_settled and not self._wants

    @property
    def is_settled(self) -> bool:
        """Nothing is left to be sent, and no claim is on its way that could bring jobs."""
        return not (self._outgoing or self._claims or self.held)

    def want(self) -> None:
        """The queue may hold jobs; who says so also sees to it that everybody is told."""
        self._wants = self._wants_again = True

    def look(self) -> None:
        """The queue may hold jobs: look now."""
        self.want()
        self._slots.changed()

    def stir(self) -> None:
        """Something changed: look whether there is something to do."""
        self._stirred.set()

    def marker(self) -> None:
        """The wake marker was taken for this queue: a claim is owed."""
        self._owes_marker = True
        self.look()

    def close(self) -> None:
        """Claim no more."""
        self._is_closing = True
        self.stir()

    def release(self) -> list[asyncio.Task[None]]:
        """Tell all that still runs to end, to be given back; answers the tasks of handlers that have yet to end."""
        return self.held.release()

    def release_rest(self) -> None:
        """Give back also what did not end when it was told to."""
        for attempt in self.held.all():
            self._runner.settle(attempt, outcome.released(attempt.job))

    def abandon(self) -> list[asyncio.Task[None]]:
        """Wait for no handler any more, not even for a plain one that can't be stopped; answers their tasks."""
        return self._runner.abandon()

    async def run(self) -> None:
        """Pump until cancelled.

        Raises:
            UsageError: Redis refuses for a reason that does not pass by itself.
        """
        second = asyncio.create_task(self._second_lane())
        try:
            await self._lane()
        finally:
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)

    async def _second_lane(self) -> None:
        """While more jobs wait than are claimed: a round trip of its own, so that Redis works while these jobs run.

        What ends it for good ends the first lane as well.
        """
        while True:
            await self._flooded.wait()
            self._stirred.clear()
            reservation = self._reserve() if self._link.is_connected else None
            if reservation is None:
                await self._stirred.wait()
            else:
                await self._round(reservation)

    async def _lane(self) -> None:
        while True:
            self._stirred.clear()
            self._observers.went_round(self._settings.name)
            if not self._link.is_connected:
                # A claim is sent on a connection only: of one that fails before, no job can have come.
                await self._link.connect(self._lost)
                self._is_away = False
            reservation = self._reserve()
            # While claims are refused the debt waits for the next one: a marker put back would come again at once.
            is_due = self._owes_marker and (self._is_closing or not self._is_refused)
            if self._outgoing or reservation is not None or is_due:
                await self._round(reservation)
            else:
                await self._stirred.wait()

    def _reserve(self) -> Reservation | None:
        """Slots for a claim; half of all at most while both lanes are in use."""
        if not self.is_hungry or (self._siblings is not None and self._leaves_it_to_others(self._siblings)):
            return None
        return self._slots.reserve(self, share=0.5 if self._flooded.is_set() else 1.0)

    def _leaves_it_to_others(self, siblings: Siblings) -> bool:
        """Whether another process, which holds fewer jobs, has the first go at the few that wait."""
        wait = 0.0 if self._flooded.is_set() else siblings.wait_s()
        if self._next_go is not None:
            self._next_go.cancel()
        self._next_go = asyncio.get_running_loop().call_later(wait, self.stir) if wait else None
        return wait > 0

    async def _round(self, reservation: Reservation | None) -> None:
        """One round trip: settle, and fill the reserved slots or put the marker back."""
        going, self._outgoing = self._outgoing, []
        owes, self._owes_marker = self._owes_marker, False
        batches = attempts.batches([settlement for _, settlement in going])
        operations: list[Operation[Any]] = [attempts.settle(self._settings, batch) for batch in batches]
        if reservation is None:
            if owes:
                operations.append(upkeep.wake(self._settings))
            answers = await self._link.exchange(operations, self._lost)
            self._is_away = False
        else:
            answers = await self._exchange_and_claim(operations, reservation)
        refused = self._take_answers(going, batches, answers)
        if going and self._siblings is not None:
            self._siblings.tell()
        if refused is not None:
            self._complaint.say(f"queue {self._settings.name}: the ends of jobs", refused)
            await asyncio.sleep(REFUSED_S)

    async def _exchange_and_claim(self, operations: list[Operation[Any]], reservation: Reservation) -> list[Any]:
        """Send operations and a claim together; begin what it got, and answer the other operations' answers."""
        request = new_request()
        limit, suspects = min(reservation.free, MOST_CLAIMED), reservation.has_suspect
        share = None
        if self._siblings is not None:
            self._siblings.claimed()
            share = self._siblings.share()
        claim = attempts.claim(self._settings, request, limit, self._worker_id, suspects=suspects, share=share)

        def lost() -> None:
            self._lost()
            reservation.let_go()

        self._claims, self._wants_again = self._claims + 1, False
        try:
            *answers, answer = await self._link.exchange([*operations, claim], lost)
            if isinstance(answer, StoreUnavailable):
                lost()
                await self._recover(request, answer)
            elif isinstance(answer, SchedqError):
                self._refused(answer)
            else:
                self._unanswered = 0
                self._wants = answer.has_more or self._wants_again
                is_flooded = answer.has_more and len(answer.jobs) == limit
                self._flooded.set() if is_flooded else self._flooded.clear()
                self._observers.claim_answered(self._settings.name, len(answer.jobs), answer.has_more)
                self._begin(answer.jobs, reservation)
                if answer.left_suspects:
                    self._slots.passed_over(self)
                if self._siblings is not None:
                    self._siblings.tell()
        finally:
            self._claims -= 1
            reservation.let_go()
        return answers

    async def _recover(self, request: str, error: StoreUnavailable) -> None:
        """A claim was not answered; it may have got jobs all the same."""
        self._unanswered += 1
        while True:
            try:
                jobs = await self._link.drive(attempts.recover(self._settings, request))
                break
            except UsageError:
                raise
            except SchedqError as problem:
                self._complaint.say(f"queue {self._settings.name}: recover", problem)
                await asyncio.sleep(REFUSED_S)
        self._is_away = False
        self._wants = True
        reservation = self._slots.take(self, len(jobs))
        self._begin(jobs, reservation)
        reservation.let_go()
        if self._unanswered > 1:
            self._refused(error)
        self._slots.changed()

    def _refused(self, error: SchedqError) -> None:
        """Claims are refused: say so, and try again in a while.

        Raises:
            UsageError: it does not pass by itself.
        """
        if isinstance(error, UsageError):
            raise error
        self._complaint.say(f"queue {self._settings.name}: claim", error)
        self._observers.claim_refused(self._settings.name, str(error))
        self._is_refused = True
        asyncio.get_running_loop().call_later(REFUSED_S, self._try_again)

    def _try_again(self) -> None:
        self._is_refused = False
        self.look()

    def _lost(self) -> None:
        """It may be a long time: other queues, perhaps on other servers, need not wait for this one's turn."""
        self._is_away = True
        self._slots.changed()

    def _begin(self, jobs: Sequence[ClaimedJob], reservation: Reservation) -> None:
        """Start jobs in reserved slots; what there is no slot for, or no time, goes back to be next in line."""
        for job in jobs:
            attempt = Attempt(job, self._settings.name, self._worker_id)
            self.held.add(attempt)
            if self._is_closing or not reservation.fill(suspect=attempt.is_suspect):
                attempt.is_settled = True
                self._outgoing.append((attempt, outcome.released(job)))
            else:
                self._runner.start(attempt)

    def _take_answers(
        self, going: Sequence[End], batches: list[list[Settlement]], answers: list[Any]
    ) -> SchedqError | None:
        """Forget what was settled; what was not looked at, or refused for now, goes out again. Answers the refusal."""
        sent = iter(going)
        again: list[End] = []
        refused: SchedqError | None = None
        for batch, answer in zip(batches, answers, strict=False):
            words = ["REFUSED"] * len(batch) if isinstance(answer, SchedqError) else answer
            refused = answer if isinstance(answer, SchedqError) else refused
            for word in words:
                attempt, settlement = next(sent)
                if word in ("AGAIN", "REFUSED"):
                    again.append((attempt, settlement))
                    continue
                self.held.remove(attempt)
                if word == "LOST":
                    text = "job %s: %s came too late, the job is another's or its data is gone"
                    log.warning(text, settlement.job_id, settlement.move, extra=attempt.fields())
                    self._observers.lease_lost(self._settings.name, settlement.job_id)
        self._outgoing = again + self._outgoing
        if self._is_behind != bool(again):
            self._is_behind = bool(again)
            self._slots.changed()
        return refused

    def _ended(self, attempt: Attempt, settlement: Settlement | None) -> None:
        if settlement is None:
            self.held.remove(attempt)
        else:
            self._outgoing.append((attempt, settlement))
        self.stir()

    def _freed(self, attempt: Attempt) -> None:
        self._slots.freed(self, suspect=attempt.is_suspect)
