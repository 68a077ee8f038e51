"""Reclaim jobs whose lease has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from schedq.errors import SchedqError
from schedq.model import backoff as plans
from schedq.model.lifecycle import FAILED
from schedq.model.records import whole
from schedq.model.settings import Settings
from schedq.model.tasks import NO_OPTIONS, TaskOptions, task_name
from schedq.transitions import Argument, Binding, Operation, RoundTrips, requeue, unwrap
from schedq.transitions.announce import NO_TASKS, read_task_options

_RECLAIM: Final = Binding("reclaim", "limit", "offset", "shorten", "looked_at", "knows_tasks", "decided")
MOST_RECLAIMED: Final = 50
_MOST_PAGES: Final = 20


@dataclass(frozen=True, slots=True)
class Sweep:
    """The result of one pass of the reclaimer.

    Attributes:
        now_ms: Redis's clock.
        taken_back: ids of the reclaimed jobs.
        failed: those of them that failed for good because no attempt was left.
        has_more: whether more leases have ended, or a history has more to trim.
        next_offset: page of `processing` to look at next, or -1.
        trimmed: completed records trimmed before they expired, since the queue began.
        kept_ms: the age of the oldest completed record; 0 if none was ever trimmed.
        is_memory_high: whether Redis was nearly full in the last minute, so that fewer completed records are kept.
        to_undo: runs that an earlier release has ended although they have steps to undo.
    """

    now_ms: int
    taken_back: tuple[str, ...]
    failed: tuple[str, ...]
    has_more: bool
    next_offset: int
    trimmed: int
    kept_ms: int
    is_memory_high: bool
    to_undo: tuple[str, ...] = ()


def sweep(
    queue: Settings,
    offset: int = -1,
    *,
    shorten: bool = False,
    looked_at_ms: int | None = None,
    tasks: Mapping[str, TaskOptions] = NO_TASKS,
) -> RoundTrips[Sweep]:
    """One bounded pass: reclaim jobs whose lease has ended, adopt those without a lease, trim the histories.

    The script returns the jobs that need a wait or their task's options. These are decided here and sent in a second
    round trip.

    Args:
        queue: where to sweep.
        offset: page of `processing` to look at for jobs without a lease, or -1.
        shorten: Redis's clock went back: let no lease end later than one that starts now.
        looked_at_ms: the last Redis time that the caller saw. Leases that end later are left for the next sweep, which
            can detect a clock jump in between.
        tasks: task options known to the caller.
    """
    looked_at = "" if looked_at_ms is None else looked_at_ms
    caller = {"looked_at": looked_at, "knows_tasks": int(any(known != NO_OPTIONS for known in tasks.values()))}
    found: Sweep
    rest: Sweep
    (result,) = yield [_reclaim(queue, offset=offset, shorten=int(shorten), decided=(), **caller)]
    found, undecided = unwrap(result)
    if not undecided:
        return found
    decided = yield from _decide(queue, undecided, tasks)
    (result,) = yield [_reclaim(queue, offset=-1, shorten=0, decided=decided, **caller)]
    rest, _ = unwrap(result)
    return replace(
        rest,
        taken_back=found.taken_back + rest.taken_back,
        failed=found.failed + rest.failed,
        has_more=found.has_more or rest.has_more,
        next_offset=found.next_offset,
        to_undo=found.to_undo,
    )


class _Undecided(NamedTuple):
    """A job with an ended lease that the script can't decide about; `max_attempts` is the job's own, or None."""

    job_id: str
    attempts: int
    max_attempts: int | None
    backoff: str
    payload: str


def _decide(
    queue: Settings, undecided: Sequence[_Undecided], tasks: Mapping[str, TaskOptions]
) -> RoundTrips[list[Argument]]:
    """The max_attempts, waits and ttls of these jobs, in the script's form.

    A job's own options come first, then its task's stored options, those known to the caller, and the queue's.
    """
    names = {job.job_id: task_name(job.payload) for job in undecided}
    written: Any = {}
    if asked := sorted(set(names.values()) - {""}):
        (written,) = yield [read_task_options(queue, asked)]
        if isinstance(written, SchedqError):
            written = {}  # a key of the wrong type must not keep jobs from being reclaimed
    decided: list[Argument] = []
    for job in undecided:
        name = names[job.job_id]
        options: TaskOptions = written.get(name) or tasks.get(name) or NO_OPTIONS
        most = job.max_attempts or options.max_attempts or queue.max_attempts
        wait = plans.delay_ms(plans.from_text(job.backoff) or options.backoff or queue.backoff, job.attempts)
        ttl_ms = "" if options.failed_ttl_ms is None else options.failed_ttl_ms
        decided += (job.job_id, job.attempts, most, wait, ttl_ms)
    return decided


def _reclaim(queue: Settings, **given: Argument | Sequence[Argument]) -> Operation[tuple[Sweep, list[_Undecided]]]:
    return Operation("reclaim", *_RECLAIM(queue, limit=MOST_RECLAIMED, **given), _read_sweep)


def _read_sweep(reply: list[Any]) -> tuple[Sweep, list[_Undecided]]:
    now, more, offset, trimmed, kept_ms, is_high, count, runs = (int(value) for value in reply[:8])
    jobs, rest = reply[8 : 8 + 2 * count], reply[8 + 2 * count :]
    to_undo, rest = tuple(rest[:runs]), rest[runs:]
    taken_back = tuple(jobs[::2])
    failed = tuple(job_id for job_id, place in zip(taken_back, jobs[1::2], strict=True) if place == FAILED)
    undecided = [
        _Undecided(job_id, whole(attempts), whole(most) or None, plan, payload)
        for job_id, attempts, most, plan, payload in (rest[n : n + 5] for n in range(0, len(rest), 5))
    ]
    return Sweep(now, taken_back, failed, more == 1, offset, trimmed, kept_ms, is_high == 1, to_undo), undecided


def take_back(queue: Settings, tasks: Mapping[str, TaskOptions] = NO_TASKS) -> RoundTrips[list[str]]:
    """One bounded pass for a queue without a reclaimer: a sweep, and pages of `processing` if leases are missing."""
    taken_back: list[str] = []
    offset = 0
    for _ in range(_MOST_PAGES):
        found = yield from sweep(queue, offset, tasks=tasks)
        taken_back += found.taken_back
        if found.to_undo:
            yield from requeue.undo_these(queue, found.to_undo)
        offset = found.next_offset
        if offset < 0:
            break
    return taken_back
