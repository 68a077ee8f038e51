"""What is seen of one job, and of what it waits for, at one instant."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from schedq.errors import SchedqError
from schedq.inspect.stats import BrokenNote, broken_note, listed
from schedq.model.keys import checked_id
from schedq.model.lifecycle import DELAYED, FINISHED, NOWHERE, PENDING, PROCESSING
from schedq.model.records import JobRecord, score_ms, whole
from schedq.model.settings import Settings
from schedq.model.tasks import NO_OPTIONS, TaskOptions, is_task_call, is_task_name
from schedq.transitions import Binding, Operation, RoundTrips, unwrap
from schedq.transitions.announce import read_task_options
from schedq.transitions.heartbeat import WorkerRecord, workers

_WHY: Final = Binding("why", "id", "entries")
SEARCHED: Final = 50_000
"""Entries of a list that are searched from each of its ends: that takes about 1.5 ms."""
_SUSPECT: Final = 2
"""Leases that a job must have lost before a process takes only one of its kind at a time."""
_MOST_ERROR: Final = 300
_MOST_LOOKED_AT: Final = 200


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """What `why.lua` saw, and which workers could run the job; instants are ms on Redis's clock.

    Attributes:
        record: what is stored of the job; an empty one if nothing is, or no hash.
        kind: type of what is at its key, "none" if nothing is.
        due_ms: its score in `delayed`, or None.
        lease_ms: end of its lease, or None; 0 while a move of it is under way, or was cut short.
        is_claimed: `processing` holds it.
        ahead: entries of `pending` that are before its own; None if its own was not seen.
        pending: entries of `pending`.
        processing: entries of `processing`.
        paused_since_ms: or None.
        promoter: id of the process that is the promoter, or ''.
        alive: workers that have shown life.
        is_marked: a wake-up is there for the next idle worker.
        ended: jobs that completed or failed of late.
        ended_ms: the time in which they did.
        ended_by: worker that finished the most recent one; '' for manual claims, which carry no worker name.
        history: `completed`, `failed` or `cancelled` if that holds the id of a job of which nothing is stored, else ''.
        note: about the id in `broken`, or None.
        workers: the ones that are alive, if the job waits for one.
        suspects: jobs that lost two leases or more, among those that these run.
        is_passed_over: claims that might not have it, as it lost two leases, put it aside in `delayed`.
        task_options: what is written down of the task that it asks for.
    """

    id: str
    now_ms: int
    record: JobRecord
    kind: str
    due_ms: int | None
    lease_ms: int | None
    is_claimed: bool
    ahead: int | None
    pending: int
    processing: int
    paused_since_ms: int | None
    promoter: str
    alive: int
    is_marked: bool
    ended: int
    ended_ms: int
    ended_by: str
    history: str
    note: BrokenNote | None
    workers: tuple[WorkerRecord, ...] = ()
    suspects: int = 0
    is_passed_over: bool = False
    task_options: TaskOptions = NO_OPTIONS

    @property
    def place(self) -> str:
        """Where it is, as a claim would judge it."""
        if self.record.status in FINISHED:
            return self.record.status
        if self.is_claimed:
            return PROCESSING
        if self.due_ms is not None:
            return DELAYED
        if self.ahead is not None or (self.record.status == PENDING and self.pending > 2 * SEARCHED):
            return PENDING
        return NOWHERE

    @property
    def entry(self) -> str:
        """The place where an entry of it stands, whatever is stored of it; '' if none does."""
        if self.is_claimed:
            return PROCESSING
        return DELAYED if self.due_ms is not None else PENDING if self.ahead is not None else NOWHERE

    @property
    def error(self) -> str:
        """How its last error begins."""
        lines = self.record.last_error.strip().splitlines()
        return lines[0][:_MOST_ERROR] if lines else "an error that is not known"

    @property
    def max_attempts(self) -> int | None:
        """How often it may be claimed, by its own word or its task's; None if neither says so."""
        return self.record.max_attempts or self.task_options.max_attempts

    def instant(self, field: str) -> int:
        """An instant that its record has, 0 without one."""
        return whole(self.record.fields.get(field))

    @property
    def is_due(self) -> bool:
        """Whether it could be claimed now."""
        return self.place == PENDING or (
            self.due_ms is not None and self.place == DELAYED and self.due_ms <= self.now_ms
        )

    def waits_after(self, move: str) -> bool:
        """It is delayed, not due yet, and came there by this move of a worker or the reclaimer; '' for any."""
        waits = self.place == DELAYED and not self.is_due
        return waits and (not move or self.record.fields.get("settled_move") == move)

    @property
    def behind_ms(self) -> int:
        """For how long it has been due."""
        return self.now_ms - (self.due_ms or 0)

    @property
    def task(self) -> str:
        """The task that it asks for by name, or ''."""
        return self.record.payload["task"] if is_task_call(self.record.payload) else ""

    @property
    def per_second(self) -> float:
        """Jobs of this queue that end in a second, of late. Few of them are no rate, so they count for a second."""
        return self.ended * 1000 / max(self.ended_ms, 1, 1000 if self.ended < 100 else 1)

    @property
    def is_suspect(self) -> bool:
        """Whether it lost so many leases that a process takes only one such job at a time."""
        return self.record.crashes >= _SUSPECT

    @property
    def staying(self) -> tuple[WorkerRecord, ...]:
        """The workers that were not asked to stop."""
        return tuple(worker for worker in self.workers if not worker.is_stopping)

    @property
    def able(self) -> tuple[WorkerRecord, ...]:
        """Those of them that have its task."""
        task = self.task
        return tuple(worker for worker in self.staying if (task in worker.tasks if task else worker.has_handler))

    @property
    def works_unseen(self) -> bool:
        """Whether jobs end without a live worker: another program or a manual claim runs them."""
        return not self.alive and self.ended > 0 and not self.ended_by

    @property
    def slots(self) -> int:
        """Jobs that the workers that have its task take at a time."""
        return sum(worker.concurrency for worker in self.able)

    @property
    def are_stuck(self) -> bool:
        """Whether handlers that do not end hold all of these slots."""
        return bool(self.able) and all(worker.is_stuck for worker in self.able)

    @property
    def is_busy(self) -> bool:
        """Whether all of these are taken, as far as this queue's jobs show."""
        held = max(self.processing, sum(worker.running for worker in self.able))
        return bool(self.able) and held >= self.slots

    @property
    def stuck_tasks(self) -> list[str]:
        """The tasks of the handlers that do not end."""
        return sorted({str(job.get("task", "")) for worker in self.able for job in worker.stuck_jobs} - {""})

    @property
    def ahead_at_least(self) -> int:
        """Jobs before it, exactly unless it is too far from both ends of `pending` to be seen."""
        return SEARCHED if self.ahead is None else self.ahead

    @property
    def ahead_facts(self) -> dict[str, Any]:
        """The jobs before it, and how fast they go."""
        ahead, is_exact, rate = self.ahead_at_least, self.ahead is not None, round(self.per_second, 3)
        wait = round(ahead * 1000 / rate) if rate else None
        return {"ahead": ahead, "is_exact": is_exact, "pending": self.pending, "per_second": rate, "wait_ms": wait}

    @property
    def claim_facts(self) -> dict[str, Any]:
        """Which worker holds it, since when and until when."""
        return {
            "worker": self.record.worker or None,
            "started_at_ms": self.record.started_at_ms or self.record.claimed_at_ms,
            "lease_ends_at_ms": self.lease_ms,
            "attempts": self.record.attempts,
        }

    @property
    def failure_facts(self) -> dict[str, Any]:
        """How its last attempt failed."""
        return {
            "attempts": self.record.attempts,
            "max_attempts": self.max_attempts,
            "error": self.error,
            "failed_at_ms": self.record.last_error_at_ms,
        }

    @property
    def due_facts(self) -> dict[str, Any]:
        """When it is due."""
        return {"due_at_ms": self.due_ms or 0, "due_in_ms": -self.behind_ms}

    @property
    def late_facts(self) -> dict[str, Any]:
        """Since when it has been due."""
        return {"due_at_ms": self.due_ms or 0, "behind_ms": self.behind_ms}


def look(queue: Settings, job_id: str) -> RoundTrips[JobSnapshot]:
    """Read the job, and if it waits for a worker, the workers too: those report every 10 s, in keys of their own."""
    (answer,) = yield [see(queue, job_id)]
    seen: JobSnapshot = unwrap(answer)
    if seen.record.max_attempts is None and is_task_name(seen.task):
        (answer,) = yield [read_task_options(queue, [seen.task])]
        options = {} if isinstance(answer, SchedqError) else answer  # the doctor reports a damaged key
        seen = replace(seen, task_options=options.get(seen.task, NO_OPTIONS))
    if seen.place != PENDING or not seen.alive:
        return seen
    live = yield from workers(queue)
    suspects = (yield from _suspects(queue, live)) if seen.is_suspect else 0
    return replace(seen, workers=tuple(live), suspects=suspects)


def see(queue: Settings, job_id: str) -> Operation[JobSnapshot]:
    """What there is of a job in all places, and what it may wait for, at one instant."""
    return Operation("why", *_WHY(queue, id=checked_id(job_id), entries=SEARCHED), partial(_snapshot, job_id))


def _snapshot(job_id: str, reply: list[Any]) -> JobSnapshot:
    now, due, lease, runs, ahead, pending, processing, since, promoter, _, alive, marked = reply[:12]
    ended, ended_ms, ended_by, history, note, kind, flat, rests = reply[12:]
    return JobSnapshot(
        id=job_id,
        now_ms=int(now),
        record=listed(job_id, due, flat) if kind == "hash" else JobRecord.from_fields(job_id, {}),
        kind=kind,
        due_ms=score_ms(due) if due else None,
        lease_ms=score_ms(lease) if lease else None,
        is_claimed=runs == 1,
        ahead=int(ahead) if int(ahead) >= 0 else None,
        pending=int(pending),
        processing=int(processing),
        paused_since_ms=whole(since) if since else None,
        promoter=promoter,
        alive=int(alive),
        is_marked=marked == 1,
        is_passed_over=rests == 1,
        ended=int(ended),
        ended_ms=int(ended_ms),
        ended_by=ended_by,
        history=history,
        note=broken_note(note) if note else None,
    )


def _suspects(queue: Settings, live: list[WorkerRecord]) -> RoundTrips[int]:
    """How many of the jobs that workers say they run have lost two leases or more."""
    ids = [str(job.get("id", "")) for worker in live for job in worker.jobs][:_MOST_LOOKED_AT]
    if not ids:
        return 0
    answers = yield [Operation("why", None, (), ("HGET", queue.keys.job(name), "crashes"), whole) for name in ids]
    return sum(isinstance(lost, int) and lost >= _SUSPECT for lost in answers)
