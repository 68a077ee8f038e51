"""The pump of one queue: every round trip settles all that has ended and claims for all that is free.

While a round trip is under way finished jobs gather, so under load a job costs a fraction of a command; when little is
going on a finished job is settled at once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from schedq.application import Application
from schedq.errors import SchedqError, StoreUnavailable, UsageError
from schedq.job import ClaimedJob, Settlement, new_request
from schedq.link import REFUSED_S, Complaint, Link
from schedq.operations import Operation, attempts, upkeep
from schedq.worker.held import Attempt, Held
from schedq.worker.runner import Runner
from schedq.worker.slots import Slots
from schedq.worker.threads import Threads

log: Final = logging.getLogger("schedq")
_MOST_CLAIMED: Final = 1000


class Pump:
    """Brings jobs of one queue in and their ends out.

    Attributes:
        held: what the worker holds of this queue.
        is_hungry: `pending` may hold jobs that were not looked for yet.
    """

    def __init__(self, queue: Application, link: Link, slots: Slots, threads: Threads, worker_id: str) -> None:
        self.held = Held()
        self.is_hungry = True
        self._queue = queue
        self._settings = queue.settings
        self._link = link
        self._slots = slots
        self._worker_id = worker_id
        self._runner = Runner(queue, threads, self._ended, self._freed)
        self._outgoing: list[tuple[Attempt, Settlement]] = []
        self._complaint = Complaint()
        self._owes_marker = False
        self._is_closing = False
        self._stirred = asyncio.Event()
        slots.join(self)

    @property
    def is_idle(self) -> bool:
        """Nothing is held, nothing is to be sent, nothing is to be looked for."""
        return not self.held and not self._outgoing and not self.is_hungry

    @property
    def is_settled(self) -> bool:
        """Nothing is left to be sent."""
        return not self._outgoing and not self.held

    def stir(self) -> None:
        """Something changed: look whether there is something to do."""
        self._stirred.set()

    def marker(self) -> None:
        """The wake marker was taken for this queue: a claim is owed."""
        self.is_hungry = self._owes_marker = True
        self._slots.changed()

    def close(self) -> None:
        """Claim no more."""
        self._is_closing = True
        self.stir()

    def release(self) -> list[asyncio.Task[None]]:
        """Give back all that still runs; answers the tasks of handlers that have yet to end."""
        running = []
        for attempt in self.held.all():
            if not attempt.is_settled:
                attempt.is_released = True
                attempt.interrupt()
                if attempt.task is not None:
                    running.append(attempt.task)
        return running

    def abandon(self) -> None:
        """Wait for no handler any more, not even for a plain one that can't be stopped."""
        self._runner.abandon()

    def release_rest(self) -> None:
        """Give back also what did not end when it was told to."""
        for attempt in self.held.all():
            self._runner.settle(attempt, Settlement("release", attempt.job.id, attempt.job.claim_token))

    async def run(self) -> None:
        """Pump until cancelled.

        Raises:
            UsageError: Redis refuses for a reason that does not pass by itself.
        """
        while True:
            self._stirred.clear()
            free = 0 if self._is_closing or not self.is_hungry else self._slots.reserve(self)
            if self._outgoing or free or self._owes_marker:
                await self._round(free)
            else:
                await self._stirred.wait()

    async def _round(self, free: int) -> None:
        """One round trip: settle, and claim for `free` slots or put the marker back."""
        going, self._outgoing = self._outgoing, []
        owes, self._owes_marker = self._owes_marker, False
        batches = attempts.batches([settlement for _, settlement in going])
        operations: list[Operation[Any]] = [attempts.settle(self._settings, batch) for batch in batches]
        request = new_request()
        suspects = bool(free) and self._slots.take_suspect()
        if free:
            limit = min(free, _MOST_CLAIMED)
            operations.append(attempts.claim(self._settings, request, limit, self._worker_id, suspects=suspects))
        elif owes:
            operations.append(upkeep.wake(self._settings))
        try:
            answers = await self._link.exchange(operations)
            if free:
                free -= self._begin(await self._claimed(answers.pop(), request))
            await self._take_answers(going, batches, answers)
        finally:
            if suspects and not any(attempt.is_suspect for attempt in self.held.all()):
                self._slots.give_back_suspect()
            self._slots.give_back(free)

    async def _claimed(self, answer: attempts.Claim | SchedqError, request: str) -> tuple[ClaimedJob, ...]:
        """The jobs that a claim got; one that was not answered may have got some too."""
        if isinstance(answer, StoreUnavailable):
            return tuple(await self._link.drive(attempts.recover(self._settings, request)))
        if isinstance(answer, UsageError):
            raise answer
        if isinstance(answer, SchedqError):
            self._complaint.say(f"queue {self._settings.name}: claim", answer)
            await asyncio.sleep(REFUSED_S)
            return ()
        self.is_hungry = answer.has_more
        if not answer.has_more:
            self._slots.changed()
        return answer.jobs

    def _begin(self, jobs: tuple[ClaimedJob, ...]) -> int:
        for job in jobs:
            self.held.add(self._runner.start(job))
        return len(jobs)

    async def _take_answers(
        self, going: list[tuple[Attempt, Settlement]], batches: list[list[Settlement]], answers: list[Any]
    ) -> None:
        """Forget what was settled; what was not looked at, or refused for now, goes out again."""
        sent = iter(going)
        again: list[tuple[Attempt, Settlement]] = []
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
                    log.warning("job %s: %s came too late, the job is another's", settlement.job_id, settlement.move)
        self._outgoing = again + self._outgoing
        if refused is not None:
            self._complaint.say(f"queue {self._settings.name}: the ends of jobs", refused)
            await asyncio.sleep(REFUSED_S)

    def _ended(self, attempt: Attempt, settlement: Settlement | None) -> None:
        if settlement is None:
            self.held.remove(attempt)
        else:
            self._outgoing.append((attempt, settlement))
        self.stir()

    def _freed(self, attempt: Attempt) -> None:
        if attempt.is_suspect:
            self._slots.give_back_suspect()
            self.is_hungry = True  # others may have been passed over
        self._slots.give_back(1)
