"""One job, and what it waits for, at one instant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from schedq.errors import SchedqError
from schedq.inspect.gates import GateSnapshot, see_gate
from schedq.inspect.runs import awaited
from schedq.inspect.stats import BrokenNote, broken_note, listed
from schedq.model.groups import BatchProgress
from schedq.model.keys import checked_id
from schedq.model.lifecycle import DELAYED, FINISHED, NOWHERE, PENDING, PROCESSING
from schedq.model.records import JobRecord, score_ms, whole
from schedq.model.settings import Settings
from schedq.model.tasks import NO_OPTIONS, TaskOptions, is_task_call, is_task_name
from schedq.transitions import Binding, Operation, RoundTrips, groups, unwrap
from schedq.transitions.announce import read_task_options
from schedq.transitions.heartbeat import WorkerRecord, workers
from schedq.transitions.pause import paused_tasks

_WHY: Final = Binding("why", "id", "entries")
SEARCHED: Final = 50_000
"""How many entries of a list are searched from each end; this takes about 1.5 ms."""
_SUSPECT: Final = 2
"""After losing this many leases a job is a suspect, of which a process takes only one at a time."""
_MOST_ERROR: Final = 300
_MOST_LOOKED_AT: Final = 200


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """The reply of `why.lua`, and the workers that could run the job; instants are ms on Redis's clock.

    Attributes:
        record: the job's record; empty if nothing, or no hash, is stored under its key.
        kind: the type of what is stored under its key; "none" if nothing is.
        due_ms: its score in `delayed`, or None.
        lease_ms: end of its lease, or None; 0 while it is being moved, or if an error ended the move.
        is_claimed: whether it is in `processing`.
        ahead: number of entries of `pending` before its own; None if its own was not found.
        pending: number of entries of `pending`.
        processing: number of entries of `processing`.
        paused_since_ms: since when the queue is paused, or None.
        promoter: id of the process that holds the promoter lease, or ''.
        alive: number of live workers.
        is_marked: whether a wake-up is waiting for the next idle worker.
        ended: number of jobs that completed or failed recently.
        ended_ms: the length of that time.
        ended_by: worker that finished the most recent one; '' for manual claims, which carry no worker name.
        history: `completed`, `failed` or `cancelled` if that contains the job's id but no record exists; else ''.
        note: the note about the id in `broken`, or None.
        workers: the live workers, if the job waits for one.
        suspects: number of jobs that these workers run that lost two leases or more.
        is_passed_over: whether it is in `delayed` because it lost two leases and claims were not allowed to take it.
        is_held: whether a claim has put it out of the way of others; `ahead` then counts jobs of its task.
        task_paused_since_ms: since when its task is paused, or None.
        task_options: the stored options of its task.
        gate: what its gate and the queue's own limits allow, if it is pending; else None.
        batches: how far the batches are that it waits for, if it is a suspended run.
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
    is_held: bool = False
    task_paused_since_ms: int | None = None
    task_options: TaskOptions = NO_OPTIONS
    gate: GateSnapshot | None = None
    batches: Mapping[str, BatchProgress] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The state it is in, as a claim would see it."""
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
        """The list or zset that contains its id, whatever its record says; '' if none does."""
        if self.is_claimed:
            return PROCESSING
        return DELAYED if self.due_ms is not None else PENDING if self.ahead is not None else NOWHERE

    @property
    def error(self) -> str:
        """The beginning of its last error."""
        lines = self.record.last_error.strip().splitlines()
        return lines[0][:_MOST_ERROR] if lines else "an unknown error"

    @property
    def max_attempts(self) -> int | None:
        """How often it may be claimed, by its own options or its task's; None if neither sets it."""
        return self.record.max_attempts or self.task_options.max_attempts

    def instant(self, field: str) -> int:
        """An instant in its record; 0 if there is none."""
        return whole(self.record.fields.get(field))

    @property
    def is_due(self) -> bool:
        """Whether it could be claimed now."""
        return self.place == PENDING or (
            self.due_ms is not None and self.place == DELAYED and self.due_ms <= self.now_ms
        )

    def waits_after(self, move: str) -> bool:
        """Whether it is delayed and not yet due after this move of a worker or the reclaimer; '' for any move."""
        waits = self.place == DELAYED and not self.is_due
        return waits and (not move or self.record.fields.get("settled_move") == move)

    @property
    def behind_ms(self) -> int:
        """How long it has been due."""
        return self.now_ms - (self.due_ms or 0)

    @property
    def task(self) -> str:
        """The name of the task that it calls, or ''."""
        return self.record.payload["task"] if is_task_call(self.record.payload) else ""

    @property
    def per_second(self) -> float:
        """Jobs of this queue that recently ended per second. Fewer than 100 count over at least a second."""
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
        """The staying workers that have its task."""
        task = self.task
        return tuple(worker for worker in self.staying if (task in worker.tasks if task else worker.has_handler))

    @property
    def works_unseen(self) -> bool:
        """Whether jobs end although no worker is alive: another program or manual claims run them."""
        return not self.alive and self.ended > 0 and not self.ended_by

    @property
    def slots(self) -> int:
        """How many jobs the workers that have its task run at a time."""
        return sum(worker.concurrency for worker in self.able)

    @property
    def are_stuck(self) -> bool:
        """Whether handlers that do not end hold all of these slots."""
        return bool(self.able) and all(worker.is_stuck for worker in self.able)

    @property
    def is_busy(self) -> bool:
        """Whether all of these slots are taken, judging by this queue's jobs."""
        held = max(self.processing, sum(worker.running for worker in self.able))
        return bool(self.able) and held >= self.slots

    @property
    def stuck_tasks(self) -> list[str]:
        """The tasks of the handlers that do not end."""
        return sorted({str(job.get("task", "")) for worker in self.able for job in worker.stuck_jobs} - {""})

    @property
    def ahead_at_least(self) -> int:
        """The number of jobs before it; a lower bound if it is too far from both ends of `pending` to be found."""
        return SEARCHED if self.ahead is None else self.ahead

    @property
    def ahead_facts(self) -> dict[str, Any]:
        """The jobs before it, and how fast jobs end."""
        ahead, is_exact, rate = self.ahead_at_least, self.ahead is not None, round(self.per_second, 3)
        wait = round(ahead * 1000 / rate) if rate else None
        return {"ahead": ahead, "is_exact": is_exact, "pending": self.pending, "per_second": rate, "wait_ms": wait}

    @property
    def claim_facts(self) -> dict[str, Any]:
        """Which worker runs it, since when, and until when its lease lasts."""
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
    """Read the job, and if it waits for a worker, also the workers' latest heartbeats."""
    (reply,) = yield [see(queue, job_id)]
    seen: JobSnapshot = unwrap(reply)
    if is_task_name(seen.task):
        replies = yield [read_task_options(queue, [seen.task]), paused_tasks(queue)]
        options, paused = ({} if isinstance(reply, SchedqError) else reply for reply in replies)  # see `schedq doctor`
        seen = replace(seen, task_paused_since_ms=paused.get(seen.task))
        if seen.record.max_attempts is None:
            seen = replace(seen, task_options=options.get(seen.task, NO_OPTIONS))
    if seen.place == PENDING:
        fields = seen.record.fields
        (found,) = yield [see_gate(queue, fields.get("gate", ""), fields.get("key", ""))]
        seen = replace(seen, gate=None if isinstance(found, SchedqError) else found)
    if seen.place == DELAYED and (names := awaited(seen.record.fields)):
        seen = replace(seen, batches=(yield from groups.progress_of_these(queue, names)))
    if seen.place != PENDING or not seen.alive:
        return seen
    live = yield from workers(queue)
    suspects = (yield from _suspects(queue, live)) if seen.is_suspect else 0
    return replace(seen, workers=tuple(live), suspects=suspects)


def see(queue: Settings, job_id: str) -> Operation[JobSnapshot]:
    """Read a job from all places, and what it may wait for, at one instant."""
    return Operation("why", *_WHY(queue, id=checked_id(job_id), entries=SEARCHED), partial(_snapshot, job_id))


def _snapshot(job_id: str, reply: list[Any]) -> JobSnapshot:
    now, due, lease, runs, ahead, pending, processing, since, promoter, _, alive, marked = reply[:12]
    ended, ended_ms, ended_by, history, note, kind, flat, rests, held = reply[12:]
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
        is_held=held == 1,
        ended=int(ended),
        ended_ms=int(ended_ms),
        ended_by=ended_by,
        history=history,
        note=broken_note(note) if note else None,
    )


def _suspects(queue: Settings, live: list[WorkerRecord]) -> RoundTrips[int]:
    """How many of the jobs that the workers report as running have lost two leases or more."""
    ids = [str(job.get("id", "")) for worker in live for job in worker.jobs][:_MOST_LOOKED_AT]
    if not ids:
        return 0
    replies = yield [Operation("why", None, (), ("HGET", queue.keys.job(name), "crashes"), whole) for name in ids]
    return sum(isinstance(lost, int) and lost >= _SUSPECT for lost in replies)
