"""The one reason that a job is not running now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from schedq import lua
from schedq.errors import SchedqError
from schedq.job import JobRecord, score_ms, whole
from schedq.keys import checked_id
from schedq.lifecycle import PENDING
from schedq.operations import Flow, Operation, firm
from schedq.operations.directory import WorkerRecord, workers
from schedq.operations.reasons import REASONS
from schedq.operations.sight import SEARCHED, Sight
from schedq.operations.upkeep import HEARTBEAT_S, pairs, read_task_options
from schedq.operations.views import broken_note
from schedq.settings import Settings
from schedq.task import NO_OPTIONS

_MOST_LOOKED_AT: Final = 200


@dataclass(frozen=True, slots=True)
class Why:
    """The one reason that a job is not running now.

    Attributes:
        queue: where it was looked for.
        id: the job.
        now_ms: when, on Redis's clock.
        reason: a word of README's table, for programs.
        text: the same in a sentence.
        is_known: something is stored of the job, or stands in a place.
        facts: what the reason rests on; durations and instants in ms.
        max_attempts: how often the job may be claimed, by its own word or its task's; None if neither says so.
    """

    queue: str
    id: str
    now_ms: int
    reason: str
    text: str
    is_known: bool
    facts: Mapping[str, Any]
    max_attempts: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """One object for programs, the facts beside the rest."""
        head = {"reason": self.reason, "text": self.text, "queue": self.queue, "id": self.id, "now_ms": self.now_ms}
        return {**head, **self.facts}


def why(queue: Settings, job_id: str) -> Flow[Why]:
    """The one reason that a job is not running now; reads, and writes nothing."""
    seen = yield from look(queue, job_id)
    reason = next(reason for reason in REASONS if reason.holds(seen))
    text, facts = reason.tell(seen)
    return Why(queue.name, job_id, seen.now_ms, reason.name, text, reason.is_known, facts, seen.max_attempts)


def look(queue: Settings, job_id: str) -> Flow[Sight]:
    """See the job; if it waits for a worker, also who is there. Workers speak every 10 s, so they are asked apart."""
    (answer,) = yield [see(queue, job_id)]
    seen: Sight = firm(answer)
    if seen.needs_task_options:
        (answer,) = yield [read_task_options(queue, [seen.task])]
        said = {} if isinstance(answer, SchedqError) else answer  # a damaged key is the doctor's to tell of
        seen = replace(seen, task_options=said.get(seen.task, NO_OPTIONS))
    if seen.place != PENDING or not seen.alive:
        return seen
    crew = yield from workers(queue)
    suspects = (yield from _suspects(queue, crew)) if seen.is_suspect else 0
    return replace(seen, crew=tuple(crew), suspects=suspects)


def see(queue: Settings, job_id: str) -> Operation[Sight]:
    """What there is of a job in all places, and what it may wait for, at one instant."""
    keys = queue.keys
    named = (keys.pending, keys.processing, keys.leases, keys.delayed, keys.completed, keys.failed, keys.cancelled)
    return Operation(
        "why",
        lua.load("why"),
        (*named, keys.broken, keys.paused, keys.promoter, keys.workers, keys.wake, keys.suspects),
        (keys.jobs, queue.now_argument(), checked_id(job_id), 3000 * HEARTBEAT_S, SEARCHED),
        lambda reply: _sight(queue.name, job_id, reply),
    )


def _sight(queue: str, job_id: str, reply: list[Any]) -> Sight:
    now, due, lease, runs, ahead, pending, processing, since, holder, left, alive, marked = reply[:12]
    ended, ended_ms, ended_by, history, note, kind, flat, rests = reply[12:]
    fields = pairs(flat)
    if due:
        fields["run_at_ms"] = str(score_ms(due))
    return Sight(
        queue=queue,
        id=job_id,
        now_ms=int(now),
        record=JobRecord.from_fields(job_id, fields) if kind == "hash" else None,
        kind=kind,
        due_ms=score_ms(due) if due else None,
        lease_ms=score_ms(lease) if lease else None,
        is_claimed=runs == 1,
        ahead=int(ahead) if int(ahead) >= 0 else None,
        pending=int(pending),
        processing=int(processing),
        paused_since_ms=whole(since) if since else None,
        promoter=holder,
        promoter_left_ms=int(left),
        alive=int(alive),
        is_marked=marked == 1,
        is_passed_over=rests == 1,
        ended=int(ended),
        ended_ms=int(ended_ms),
        ended_by=ended_by,
        history=history,
        note=broken_note(note) if note else None,
    )


def _suspects(queue: Settings, crew: list[WorkerRecord]) -> Flow[int]:
    """How many of the jobs that workers say they run have lost two leases or more."""
    ids = [str(job.get("id", "")) for worker in crew for job in worker.jobs][:_MOST_LOOKED_AT]
    if not ids:
        return 0
    answers = yield [Operation("why", None, (), ("HGET", queue.keys.job(name), "crashes"), whole) for name in ids]
    return sum(isinstance(lost, int) and lost >= 2 for lost in answers)
