"""What keeps a queue going by itself: promote, reclaim, wake, and the signs of life of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final, NamedTuple

from schedq import backoff as plans
from schedq import lua
from schedq.errors import SchedqError
from schedq.instants import duration_ms
from schedq.job import score_ms, whole
from schedq.keys import QUEUES_KEY
from schedq.lifecycle import FAILED
from schedq.operations import Argument, Flow, Operation, firm
from schedq.registry import task_name
from schedq.settings import Settings
from schedq.task import NO_OPTIONS, TaskOptions

HEARTBEAT_S: Final = 10
"""Seconds between two signs of life of a worker; three times that, and it does not count."""
PROMOTER_LEASE_MS: Final = 1500
"""How long a silent promoter is still the one; it looks every second at the least."""
MOST_PROMOTED: Final = 250
"""Jobs that one script promotes: it keeps everybody else waiting, for about 7 µs a job."""
MOST_RECLAIMED: Final = 50
_FORGOTTEN_S: Final = 30 * HEARTBEAT_S
"""Seconds until a silent worker is forgotten: see beat.lua."""
_MOST_PAGES: Final = 20
_NO_TASKS: Final[Mapping[str, TaskOptions]] = {}


class Part(IntEnum):
    """What a process is to a queue's promoter lease, the best first. `NONE`: there is nothing to be."""

    NONE = 0
    HOLDER = 1
    FIRST = 2
    SECOND = 3
    RESERVE = 4


@dataclass(frozen=True, slots=True)
class Promotion:
    """What a promoter learned.

    Attributes:
        is_holder: it is the one that does the waking; else nothing was done.
        now_ms: Redis's clock.
        moved: jobs that came to `pending`.
        has_more: the limit was reached, more are due.
        next_due_ms: the earliest due instant left, or None.
        first_lease_end_ms: when the first lease ends, or None.
        unleased: entries of `processing` without a lease.
        workers: live workers.
        next_slot_ms: the earliest slot of a schedule, or None.
        woken_for: the next job in line, if the wake marker was gone though jobs waited, and was set again; else ''.
        part: what the caller is.
        wait_ms: until one that stands by looks again.
    """

    is_holder: bool
    now_ms: int
    moved: int
    has_more: bool
    next_due_ms: int | None
    first_lease_end_ms: int | None
    unleased: int
    workers: int
    next_slot_ms: int | None
    woken_for: str = ""
    part: Part = Part.HOLDER
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one pass of the reclaimer did.

    Attributes:
        now_ms: Redis's clock.
        taken_back: ids of jobs whose lease had ended.
        failed: those of them that have failed for good, as no attempt is left.
        has_more: more leases have ended, or a history has more to trim.
        next_offset: page of `processing` to look at next, or -1.
        trimmed: completed records that were trimmed before they expired, since the queue began.
        kept_ms: how long the oldest completed record that is left has been completed; 0 if none was ever trimmed.
        is_memory_high: Redis was nearly full in the last minute, so that fewer completed records are kept.
    """

    now_ms: int
    taken_back: tuple[str, ...]
    failed: tuple[str, ...]
    has_more: bool
    next_offset: int
    trimmed: int
    kept_ms: int
    is_memory_high: bool


class Beat(NamedTuple):
    """What a worker hears when it says that it lives.

    Attributes:
        is_asked: somebody asked it to stop.
        has_settings: the queue's settings are written down.
        last_ms: when it said so last, by what Redis holds; None if Redis holds nothing of it.
        now_ms: Redis's clock.
        tasks: tasks whose options are written down.
        vacancy: the part in the queue's promotion that whoever promotes is to take at once.
    """

    is_asked: bool
    has_settings: bool
    last_ms: int | None
    now_ms: int
    tasks: int = 0
    vacancy: Part = Part.NONE

    def is_of_another_store(self, before: Beat) -> bool:
        """Whether what the beat `before` wrote is gone: Redis was emptied, or holds older data than it did then."""
        return self.last_ms is None or self.last_ms < before.now_ms

    def is_in_time(self, before: Beat) -> bool:
        """Whether the beat `before` can't have been forgotten as too old, nor for a clock that went back."""
        return 0 <= self.now_ms - before.now_ms < _FORGOTTEN_S * 1000


def promote(queue: Settings, limit: int, holder: str = "") -> Operation[Promotion]:
    """Move up to `limit` due jobs; `holder` is the id of a promoter that takes or keeps the lease."""
    keys = queue.keys
    return Operation(
        "promote",
        lua.load("promote"),
        (
            keys.pending,
            keys.delayed,
            keys.processing,
            keys.leases,
            keys.broken,
            keys.stats,
            keys.wake,
            keys.paused,
            keys.promoter,
            keys.workers,
            keys.schedules,
            keys.standbys,
        ),
        (keys.jobs, queue.now_argument(), limit, holder, PROMOTER_LEASE_MS, 3000 * HEARTBEAT_S),
        _read_promotion,
    )


def promote_due(queue: Settings, limit: int) -> Flow[int]:
    """Move up to `limit` due jobs, for who has no promoter; answers how many came to `pending`."""
    moved = 0
    while limit > 0:
        count = min(limit, MOST_PROMOTED)
        (answer,) = yield [promote(queue, count)]
        found: Promotion = firm(answer)
        moved += found.moved
        limit = limit - count if found.has_more else 0
    return moved


def _read_promotion(reply: list[Any]) -> Promotion:
    answer, now, moved, more, due, end, unleased, workers, slot, woken, part, wait = reply
    return Promotion(
        answer == "HELD",
        int(now),
        int(moved),
        more == 1,
        score_ms(due) if due else None,
        score_ms(end) if end else None,
        int(unleased),
        int(workers),
        score_ms(slot) if slot else None,
        woken,
        Part(part),
        int(wait),
    )


def sweep(
    queue: Settings,
    offset: int = -1,
    *,
    shorten: bool = False,
    looked_at_ms: int | None = None,
    tasks: Mapping[str, TaskOptions] = _NO_TASKS,
) -> Flow[Sweep]:
    """One bounded pass: take back what has expired, adopt what has no lease, trim.

    Who has looked at Redis's clock says what it showed: leases that end later are left to the next look, which
    notices if the clock has jumped in between.

    The script names the jobs that come back with a wait, or may have their task's options. These are decided here
    and sent in a second round: a job's own options count first, then what is written down of its task, what the caller
    knows of it (`tasks`), and the queue's settings.
    """
    found: Sweep
    knows_tasks = any(said != NO_OPTIONS for said in tasks.values())
    request = _reclaim(queue, offset, (), shorten=shorten, looked_at_ms=looked_at_ms, knows_tasks=knows_tasks)
    (answer,) = yield [request]
    found, undecided = firm(answer)
    if not undecided:
        return found
    asked_for = {job.job_id: task_name(job.payload) for job in undecided}
    names = sorted(set(asked_for.values()) - {""})
    written: dict[str, TaskOptions] = {}
    if names:
        (answer,) = yield [read_task_options(queue, names)]
        # A key of another type must keep nobody's job from coming back.
        written = {} if isinstance(answer, SchedqError) else answer
    decisions: list[Argument] = []
    for job in undecided:
        name = asked_for[job.job_id]
        said = written.get(name) or tasks.get(name) or NO_OPTIONS
        most = job.max_attempts or said.max_attempts or queue.max_attempts
        wait = plans.delay_ms(plans.from_text(job.backoff) or said.backoff or queue.backoff, job.attempts)
        decisions += (job.job_id, job.attempts, most, wait)
    request = _reclaim(queue, -1, decisions, shorten=False, looked_at_ms=looked_at_ms, knows_tasks=knows_tasks)
    (answer,) = yield [request]
    rest: Sweep
    rest, _ = firm(answer)
    return replace(
        rest,
        taken_back=found.taken_back + rest.taken_back,
        failed=found.failed + rest.failed,
        has_more=found.has_more or rest.has_more,
        next_offset=found.next_offset,
    )


def take_back(queue: Settings, tasks: Mapping[str, TaskOptions] = _NO_TASKS) -> Flow[list[str]]:
    """One bounded pass for who has no reclaimer: a sweep, and the pages of `processing` if claims have no lease."""
    taken_back: list[str] = []
    offset = -1
    for _ in range(_MOST_PAGES):
        found = yield from sweep(queue, offset, tasks=tasks)
        taken_back += found.taken_back
        offset = found.next_offset
        if offset < 0:
            break
    return taken_back


class _Undecided(NamedTuple):
    """A job whose lease has ended and that the script does not judge by itself; `max_attempts` is its own, or None."""

    job_id: str
    attempts: int
    max_attempts: int | None
    backoff: str
    payload: str


def _reclaim(
    queue: Settings,
    offset: int,
    decisions: Sequence[Argument],
    *,
    shorten: bool,
    looked_at_ms: int | None = None,
    knows_tasks: bool = False,
) -> Operation[tuple[Sweep, list[_Undecided]]]:
    keys = queue.keys
    return Operation(
        "reclaim",
        lua.load("reclaim"),
        (
            keys.processing,
            keys.leases,
            keys.pending,
            keys.delayed,
            keys.completed,
            keys.failed,
            keys.cancelled,
            keys.broken,
            keys.stats,
            keys.wake,
            keys.paused,
            keys.promoter,
            keys.log,
            keys.tasks,
        ),
        (
            keys.jobs,
            queue.now_argument(),
            keys.events,
            queue.log_size,
            keys.due,
            MOST_RECLAIMED,
            queue.visibility_ms,
            queue.max_attempts,
            queue.completed_history,
            queue.failed_history,
            duration_ms(queue.min_keep, "min_keep"),
            offset,
            int(shorten),
            "" if looked_at_ms is None else looked_at_ms,
            int(knows_tasks),
            *decisions,
        ),
        _read_sweep,
    )


def _read_sweep(reply: list[Any]) -> tuple[Sweep, list[_Undecided]]:
    now, more, offset, trimmed, kept_ms, is_high, count = (int(value) for value in reply[:7])
    jobs, rest = reply[7 : 7 + 2 * count], reply[7 + 2 * count :]
    taken_back = tuple(jobs[::2])
    failed = tuple(job_id for job_id, place in zip(taken_back, jobs[1::2], strict=True) if place == FAILED)
    undecided = [
        _Undecided(job_id, whole(attempts), whole(most) or None, plan, payload)
        for job_id, attempts, most, plan, payload in (rest[n : n + 5] for n in range(0, len(rest), 5))
    ]
    return Sweep(now, taken_back, failed, more == 1, offset, trimmed, kept_ms, is_high == 1), undecided


def wake(queue: Settings) -> Operation[bool]:
    """Put the wake marker back if jobs wait; answers whether they do."""
    keys = queue.keys
    return Operation("wake", lua.load("wake"), (keys.pending, keys.wake, keys.paused, keys.leases), (), bool)


def beat(queue: Settings, worker_id: str, facts: Mapping[str, Argument]) -> Operation[Beat]:
    """Say that a worker lives."""
    keys = queue.keys
    flat = [word for pair in facts.items() for word in pair]
    return Operation(
        "beat",
        lua.load("beat"),
        (keys.workers, keys.worker(worker_id), keys.settings, keys.tasks, keys.promoter, keys.standbys),
        (queue.now_argument(), worker_id, 3000 * HEARTBEAT_S, *flat),
        _read_beat,
    )


def _read_beat(reply: list[Any]) -> Beat:
    asked, settings, last, now, tasks, vacancy = reply
    last_ms = score_ms(last) if last else None
    return Beat(bool(asked), bool(settings), last_ms, int(now), int(tasks), Part(vacancy))


def enlist(queue: Settings) -> Operation[bool]:
    """Put the queue's name on the list of queues; where that is another node's, see `Address.enlist`."""
    return Operation("enlist", None, (), ("SADD", QUEUES_KEY, queue.name), bool)


def policy() -> Operation[str]:
    """What Redis does when its memory is full: `maxmemory-policy`, or '' if it does not say."""
    return Operation("policy", None, (), ("INFO", "memory"), _read_policy)


def _read_policy(reply: object) -> str:
    lines = reply.splitlines() if isinstance(reply, str) else []
    return next((line.partition(":")[2] for line in lines if line.startswith("maxmemory_policy:")), "")


def leave(queue: Settings, worker_id: str, promoter_id: str) -> Operation[bool]:
    """Forget a worker that goes, and its promoter lease or its place among those that stand by."""
    keys = queue.keys
    return Operation(
        "leave",
        lua.load("leave"),
        (keys.workers, keys.worker(worker_id), keys.promoter, keys.standbys),
        (worker_id, promoter_id),
        bool,
    )


def announce(queue: Settings, tasks: Mapping[str, TaskOptions] = _NO_TASKS) -> Operation[bool]:
    """Write the settings, and the options of the application's tasks, down for processes that lack them."""
    keys = queue.keys
    flat = [word for pair in queue.to_fields().items() for word in pair]
    options = [word for name, said in tasks.items() for word in (name, said.to_text())]
    return Operation("announce", lua.load("announce"), (keys.settings, keys.tasks), (len(flat), *flat, *options), bool)


def read_task_options(queue: Settings, names: Sequence[str]) -> Operation[dict[str, TaskOptions]]:
    """What is written down of some tasks; those of which nothing is are left out."""
    key = queue.keys.tasks

    def read(reply: list[str | None]) -> dict[str, TaskOptions]:
        return {name: TaskOptions.from_text(text) for name, text in zip(names, reply, strict=True) if text}

    return Operation(f"read {key}", None, (), ("HMGET", key, *names), read)


def read_settings(queue: Settings) -> Operation[dict[str, str]]:
    """What the `settings` hash says; empty if no worker has written it."""
    key = queue.keys.settings
    return Operation(f"read {key}", None, (), ("HGETALL", key), pairs)


def pairs(reply: Sequence[str]) -> dict[str, str]:
    """A flat reply of names and values as a dict."""
    return dict(zip(reply[::2], reply[1::2], strict=True))
