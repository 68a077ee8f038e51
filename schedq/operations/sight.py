"""What was seen of one job and of what it waits for, at one instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schedq.job import JobRecord, whole
from schedq.lifecycle import DELAYED, FINISHED, NOWHERE, PENDING, PROCESSING
from schedq.operations.directory import WorkerRecord
from schedq.operations.views import BrokenNote
from schedq.registry import is_task_call
from schedq.task import NO_OPTIONS, TaskOptions, is_task_name

SEARCHED: Final = 50_000
"""Entries of a list that are searched from each of its ends: that takes about 1.5 ms."""
_SUSPECT: Final = 2


@dataclass(frozen=True, slots=True)
class Sight:
    """What `why.lua` saw, and who is there to run the job; instants are ms on Redis's clock.

    Attributes:
        record: what is stored of the job; None if nothing is, or no hash.
        kind: type of what is at its key, "none" if nothing is.
        due_ms: its score in `delayed`, or None.
        lease_ms: end of its lease, or None; 0 while a move of it is under way, or was cut short.
        is_claimed: `processing` holds it.
        ahead: entries of `pending` that are before its own; None if its own was not seen.
        pending: entries of `pending`.
        processing: entries of `processing`.
        paused_since_ms: or None.
        promoter: id of the process that does the waking, or ''.
        promoter_left_ms: until it is not the one any more, if it stays silent.
        alive: workers that have shown life.
        is_marked: a wake-up is there for the next idle worker.
        ended: jobs that completed or failed of late.
        ended_ms: the time in which they did.
        ended_by: worker of the last of them; '' if it did not give its name, as who claims by hand.
        history: `completed`, `failed` or `cancelled` if that holds the id of a job of which nothing is stored, else ''.
        note: about the id in `broken`, or None.
        crew: the workers that are alive, if the job waits for one.
        suspects: jobs that lost two leases or more, among those that the crew runs.
        is_passed_over: claims that might not have it, as it lost two leases, put it aside in `delayed`.
        task_options: what is written down of the task that it asks for.
    """

    queue: str
    id: str
    now_ms: int
    record: JobRecord | None
    kind: str
    due_ms: int | None
    lease_ms: int | None
    is_claimed: bool
    ahead: int | None
    pending: int
    processing: int
    paused_since_ms: int | None
    promoter: str
    promoter_left_ms: int
    alive: int
    is_marked: bool
    ended: int
    ended_ms: int
    ended_by: str
    history: str
    note: BrokenNote | None
    crew: tuple[WorkerRecord, ...] = ()
    suspects: int = 0
    is_passed_over: bool = False
    task_options: TaskOptions = NO_OPTIONS

    @property
    def status(self) -> str:
        """What its record names, '' without one."""
        return self.record.status if self.record else NOWHERE

    @property
    def fields(self) -> Mapping[str, str]:
        """Its record as it is stored; empty without one."""
        return self.record.fields if self.record else {}

    @property
    def place(self) -> str:
        """Where it is, as a claim would judge it."""
        if self.status in FINISHED:
            return self.status
        if self.is_claimed:
            return PROCESSING
        if self.due_ms is not None:
            return DELAYED
        if self.ahead is not None or (self.record and self.status == PENDING and self.pending > 2 * SEARCHED):
            return PENDING
        return NOWHERE

    @property
    def entry(self) -> str:
        """The place where an entry of it stands, whatever is stored of it; '' if none does."""
        if self.is_claimed:
            return PROCESSING
        return DELAYED if self.due_ms is not None else PENDING if self.ahead is not None else NOWHERE

    @property
    def attempts(self) -> int:
        """How often it was claimed."""
        return self.record.attempts if self.record else 0

    @property
    def max_attempts(self) -> int | None:
        """How often it may be claimed, by its own word or its task's; None if neither says so."""
        own = self.record.max_attempts if self.record else None
        return own or self.task_options.max_attempts

    def instant(self, field: str) -> int:
        """An instant that its record has, 0 without one."""
        return whole(self.fields.get(field))

    @property
    def is_due(self) -> bool:
        """It waits for nothing but to be taken."""
        return self.place == PENDING or (
            self.due_ms is not None and self.place == DELAYED and self.due_ms <= self.now_ms
        )

    @property
    def task(self) -> str:
        """The task that it asks for by name, or ''."""
        return self.record.payload["task"] if self.record and is_task_call(self.record.payload) else ""

    @property
    def needs_task_options(self) -> bool:
        """Whether what its task says may count for it."""
        return self.record is not None and self.record.max_attempts is None and is_task_name(self.task)

    @property
    def per_second(self) -> float:
        """Jobs of this queue that end in a second, of late. Few of them are no rate, so they count for a second."""
        return self.ended * 1000 / max(self.ended_ms, 1, 1000 if self.ended < 100 else 1)

    @property
    def is_suspect(self) -> bool:
        """It lost so many leases that a process takes only one of its kind at a time."""
        return self.record is not None and self.record.crashes >= _SUSPECT

    @property
    def staying(self) -> tuple[WorkerRecord, ...]:
        """The workers that were not asked to stop."""
        return tuple(worker for worker in self.crew if not worker.is_stopping)

    @property
    def able(self) -> tuple[WorkerRecord, ...]:
        """Those of them that have its task."""
        task = self.task
        return tuple(worker for worker in self.staying if (task in worker.tasks if task else worker.has_handler))

    @property
    def works_unseen(self) -> bool:
        """Jobs end, though no worker shows life: somebody claims by hand, or another program does."""
        return not self.alive and self.ended > 0 and not self.ended_by

    @property
    def slots(self) -> int:
        """Jobs that the workers that have its task take at a time."""
        return sum(worker.concurrency for worker in self.able)

    @property
    def are_stuck(self) -> bool:
        """No slot of these is left: handlers that do not end hold them all."""
        return bool(self.able) and all(worker.is_stuck for worker in self.able)

    @property
    def is_busy(self) -> bool:
        """All of these are taken, as far as this queue's jobs are known to take them."""
        held = max(self.processing, sum(worker.running for worker in self.able))
        return bool(self.able) and held >= self.slots
