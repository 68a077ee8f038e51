"""The workers and the promoter of a queue, the settings they use, and what keeps jobs waiting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from schedq.doctor.checks import Check, Finding, asked, few, findings, known, plain
from schedq.errors import SchedqError
from schedq.inspect.display import approximate, count
from schedq.inspect.stats import Stats, broken, outboxes
from schedq.inspect.summary import UnknownTask, soonest, unknown_tasks
from schedq.model.cached_property import cached_property
from schedq.model.payload import loaded
from schedq.model.records import whole
from schedq.model.settings import HEARTBEAT_S, Settings, completed_fields
from schedq.transitions import RoundTrips, heartbeat, pairs, scripts
from schedq.transitions.heartbeat import MOST_WORKERS, WorkerRecord
from schedq.transitions.pause import paused_tasks

_LONG_PAUSE_MS: Final = 3_600_000


@dataclass(frozen=True)
class Liveness:
    """The workers and the promoter of a queue, and the work that waits.

    Attributes:
        now_ms: Redis's clock.
        workers: number of workers with a heartbeat within the last three intervals.
        has_promoter: some process is the promoter.
        paused_since_ms: None if the queue is not paused, 0 if the time is unknown.
        waiting: number of pending jobs.
        delayed: number of entries of `delayed`.
        running: number of entries of `processing`.
        scheduled: number of schedules that have a next slot.
        broken: number of notes about ids that could not be run.
        notes: the last of them, in words.
        records: the workers' records; empty if they can't be read.
        has_script: this release's promoter script is cached, or the server does not say.
        paused_tasks: paused tasks, and since when each is, ms; 0 if the time is unknown.
    """

    now_ms: int
    workers: int
    has_promoter: bool
    paused_since_ms: int | None
    waiting: int
    delayed: int
    running: int
    scheduled: int
    broken: int
    notes: tuple[str, ...] = ()
    records: tuple[WorkerRecord, ...] = ()
    has_script: bool = True
    paused_tasks: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_deserted(self) -> bool:
        """There are no jobs, schedules or workers."""
        return self.is_empty and not self.scheduled and not self.workers

    @property
    def is_empty(self) -> bool:
        """There are no waiting or running jobs."""
        return not (self.waiting or self.delayed or self.running)

    @property
    def stuck(self) -> list[str]:
        """Workers that can take no jobs because unending handlers hold all their slots; each in words."""
        return [
            f"{worker.id}: {', '.join(sorted({str(job.get('task')) for job in worker.stuck_jobs}))}"
            for worker in self.records
            if worker.is_stuck
        ]

    @cached_property
    def tasks(self) -> frozenset[str] | None:
        """The tasks that workers have; None if there is no worker, or not all of them were read."""
        is_known = 0 < len(self.records) < MOST_WORKERS
        return frozenset(task for worker in self.records for task in worker.tasks) if is_known else None

    @property
    def is_paused_long(self) -> bool:
        """It has been paused for more than an hour, or for an unknown time."""
        return self.paused_since_ms is not None and self._is_long(self.paused_since_ms)

    def tasks_paused(self, *, long: bool) -> list[str]:
        """The tasks that have been paused for more than an hour or for an unknown time, or the others."""
        return [task for task, since_ms in self.paused_tasks.items() if self._is_long(since_ms) == long]

    def _is_long(self, since_ms: int) -> bool:
        return not since_ms or self.now_ms - since_ms > _LONG_PAUSE_MS


def read_liveness(queue: Settings) -> RoundTrips[Liveness]:
    """Read the workers, the promoter and the depths of a queue."""
    keys = queue.keys
    (time,) = yield [plain("TIME")]
    seconds, micros = known(time, ("0", "0"))
    now_ms = int(seconds) * 1000 + int(micros) // 1000
    replies = yield [
        plain("ZCOUNT", keys.workers, now_ms - 3000 * HEARTBEAT_S, "+inf"),
        plain("EXISTS", keys.promoter),
        plain("EXISTS", keys.paused),
        plain("GET", keys.paused),
        plain("LLEN", keys.pending),
        plain("ZCARD", keys.delayed),
        plain("LLEN", keys.processing),
        plain("ZCOUNT", keys.schedules, "-inf", "(+inf"),
        plain("LLEN", keys.broken),
        broken(queue, 0, 3),
        plain("SCRIPT", "EXISTS", scripts.of_queue(queue, "promote").sha),
        plain("ZCARD", keys.held),
        paused_tasks(queue),
    ]
    workers, promoter, paused, since, waiting, delayed, running, scheduled, broken_count, last, cached, *rest = replies
    held, tasks = rest
    return Liveness(
        now_ms,
        known(workers, 0),
        bool(known(promoter, 1)),
        whole(known(since, "0")) if known(paused, 0) else None,
        known(waiting, 0) + known(held, 0),
        known(delayed, 0),
        known(running, 0),
        known(scheduled, 0),
        known(broken_count, 0),
        tuple(f"{note.id or '?'}: {note.reason}" for note in known(last, [])),
        (yield from _records(queue)) if known(workers, 0) else (),
        bool(known(cached, [1])[0]),
        known(tasks, {}),
    )


def _records(queue: Settings) -> RoundTrips[tuple[WorkerRecord, ...]]:
    try:
        return tuple((yield from heartbeat.workers(queue)))
    except SchedqError:
        return ()  # other checks report keys that are damaged or may not be read


def _pause(it: Liveness) -> str:
    since_ms = it.paused_since_ms
    since = f"for {approximate(it.now_ms - since_ms)}" if since_ms else "since an unknown time"
    return f"the queue has been paused {since}; {it.waiting:,} pending"


def _pause_of_tasks(it: Liveness, tasks: list[str]) -> str:
    since_ms = min(it.paused_tasks[task] for task in tasks)
    since = f"for {approximate(it.now_ms - since_ms)}" if since_ms else "since an unknown time"
    if len(tasks) == 1:
        return f"the task {tasks[0]} has been paused {since}"
    return f"{len(tasks)} tasks are paused, the first one {since}"


_PAUSED_TASK: Final = (
    "its jobs stay pending, and other jobs pass them; workers of other programs and of earlier releases still take "
    "those that no claim has held yet",
    "schedq resume {queue} --task NAME",
)
_PAUSED: Final = ("schedq's workers take no jobs; those of other programs still do", "schedq resume {queue}")
LIVENESS: Final[tuple[Check[Liveness], ...]] = (
    Check("paused-long", "warning", lambda it: it.is_paused_long, _pause, *_PAUSED, value=lambda it: it.waiting),
    Check(
        "paused",
        "note",
        lambda it: it.paused_since_ms is not None and not it.is_paused_long,
        _pause,
        *_PAUSED,
        value=lambda it: it.waiting,
    ),
    Check(
        "task-paused-long",
        "warning",
        lambda it: it.tasks_paused(long=True),
        lambda it: _pause_of_tasks(it, it.tasks_paused(long=True)),
        *_PAUSED_TASK,
        lambda it: few(it.tasks_paused(long=True)),
    ),
    Check(
        "task-paused",
        "note",
        lambda it: it.tasks_paused(long=False),
        lambda it: _pause_of_tasks(it, it.tasks_paused(long=False)),
        *_PAUSED_TASK,
        lambda it: few(it.tasks_paused(long=False)),
    ),
    Check(
        "no-worker",
        lambda it: "note" if it.is_empty else "warning",
        lambda it: not it.workers,
        lambda it: (
            "no worker is alive"
            + ("" if it.is_empty else f"; {it.waiting:,} pending, {it.delayed:,} delayed, {it.running:,} running")
        ),
        "waiting jobs do not run, unless workers of other programs take them: these send no heartbeat",
        "start one: schedq worker MODULE:QUEUE",
        value=lambda it: it.waiting,
    ),
    Check(
        "stuck-workers",
        "warning",
        lambda it: it.stuck,
        lambda it: f"{count(len(it.stuck), 'worker')} can take no job: handlers that do not end hold all slots",
        "these handlers timed out, were cancelled or lost their lease, but still run; a thread can't be killed",
        "restart these workers; set a timeout on whatever the handlers wait for",
        lambda it: few(it.stuck),
        value=lambda it: len(it.stuck),
    ),
    Check(
        "no-promoter",
        lambda it: "warning" if it.delayed or it.running or it.scheduled else "note",
        lambda it: not it.has_promoter,
        "no promoter is running",
        "delayed jobs wait until a worker claims, schedules create no jobs, and jobs of dead workers are not reclaimed",
        "start a worker (without --no-promoter), or schedq promoter {queue}",
    ),
    Check(
        "broken-notes",
        "warning",
        lambda it: it.broken,
        lambda it: (
            f"{count(it.broken, 'id')} could not be run, because {'its' if it.broken == 1 else 'their'} data is gone "
            "or damaged"
        ),
        "these jobs are lost unless they are enqueued again",
        "schedq jobs {queue} --state broken lists them; when they are dealt with: redis-cli DEL queue:{queue}:broken",
        lambda it: few(it.notes),
        value=lambda it: it.broken,
    ),
    Check(
        "scripts-differ",
        "note",
        lambda it: it.has_promoter and not it.has_script,
        "a promoter is running, but the script that this release would send is not cached",
        "the promoter runs another release of schedq, or some program keeps flushing scripts; both are harmless",
        "finish the deployment; look for SCRIPT FLUSH in INFO commandstats",
    ),
)


_LONG_WAIT_MS: Final = 60_000
OUTBOX: Final[tuple[Check[Stats], ...]] = (
    Check(
        "outbox-held",
        "warning",
        lambda it: it.outbox_held,
        lambda it: f"{count(it.outbox_held, 'row')} of an outbox will not be sent without a decision",
        "a relay was interrupted and can't tell whether the job was stored, or its id exists with another payload; "
        "later rows with the same order key wait",
        "read the column `held` in the database, then send or discard the row: schedq help outbox",
        value=lambda it: it.outbox_held,
    ),
    Check(
        "outbox-late",
        "warning",
        lambda it: it.now_ms - (it.outbox_oldest_ms or it.now_ms) > _LONG_WAIT_MS and it.outbox_unsent > it.outbox_held,
        lambda it: (
            f"{count(it.outbox_unsent, 'row')} of an outbox waited at the last report, the oldest since "
            f"{approximate(it.now_ms - (it.outbox_oldest_ms or it.now_ms))}"
        ),
        "these jobs are committed in the application's database, but not enqueued",
        "start a relay, or read the log of the one that runs",
        value=lambda it: it.outbox_unsent,
    ),
)


def read_outboxes(queue: Settings, now_ms: int) -> RoundTrips[Stats]:
    """What relays reported of outboxes; nothing if the key can't be read, which other checks report."""
    (reply,) = yield [plain("HGETALL", queue.keys.stats)]
    return Stats({**outboxes(pairs(known(reply, []))), "now_ms": now_ms})


def read_unknown_tasks(queue: Settings) -> RoundTrips[tuple[UnknownTask, ...]]:
    """The tasks that no worker had; none if `delayed` can't be read, which other checks report."""
    (reply,) = yield [soonest(queue)]
    return () if isinstance(reply, SchedqError) else unknown_tasks(reply)


def _unknown_task(it: tuple[UnknownTask, int]) -> str:
    row, now_ms = it
    what = f"the task {row.task!r:.100}" if row.task else "a handler for payloads that are not task calls"
    them, since = "it" if row.jobs == 1 else "them", approximate(now_ms - row.since_ms)
    return (
        f"{count(row.jobs, 'job waits=jobs wait')} for {what}, which no worker that took {them} had in the last {since}"
    )


UNKNOWN_TASK: Final[Check[tuple[UnknownTask, int]]] = Check(
    "unknown-task",
    "warning",
    lambda _: True,
    _unknown_task,
    "they are put back without counting an attempt, and fail after the queue's unknown_for",
    "start a worker whose code has the task, or finish the deployment; if the name is wrong, cancel the jobs",
    lambda it: (it[0].job_id,),
    about=lambda it: it[0].task,
)
_MOST_WORKERS: Final = 200
_SHORT_MS: Final = 5000
_AHEAD_MS: Final = 2000


@dataclass(frozen=True, slots=True)
class SettingsInUse:
    """The settings of a queue, and which of them each worker uses.

    Attributes:
        stored: the `settings` hash.
        workers: worker id -> the settings that it reports to use.
        furthest_ms: how far in the future the last lease ends; 0 without a lease.
        visibility_ms: as stored.
        unreadable: stored fields with invalid values.
    """

    stored: Mapping[str, str]
    workers: Mapping[str, Mapping[str, str]]
    furthest_ms: int
    visibility_ms: int
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deviation:
    """One setting for which some workers use another value.

    Attributes:
        name: the setting.
        stored: its value in Redis.
        workers: worker id -> the value that it uses.
    """

    name: str
    stored: str
    workers: Mapping[str, str]


def read_settings_in_use(queue: Settings, now_ms: int) -> RoundTrips[SettingsInUse]:
    """Read the stored settings and those of the workers; `queue` must have loaded its stored settings."""
    keys = queue.keys
    stored, ids, last = yield [
        plain("HGETALL", keys.settings),
        plain("ZREVRANGE", keys.workers, 0, _MOST_WORKERS - 1),
        plain("ZRANGE", keys.leases, -1, -1, "WITHSCORES"),
    ]
    names: list[str] = known(ids, [])
    replies = yield from asked([plain("HGET", keys.worker(name), "settings") for name in names])
    workers = {name: own for name, reply in zip(names, replies, strict=True) if (own := _decoded(known(reply, "")))}
    found, end = pairs(known(stored, [])), known(last, [])
    furthest = int(float(end[1])) - now_ms if end and now_ms else 0
    loaded = Settings(queue.name).with_fields(found).to_fields()
    unreadable = tuple(
        name for name, value in found.items() if name in loaded and value and not _is_same(value, loaded[name])
    )
    return SettingsInUse(completed_fields(found), workers, furthest, queue.visibility_ms, unreadable)


def _decoded(text: str) -> dict[str, str]:
    found = loaded(text)
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _is_same(one: str, other: str) -> bool:
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other


UNREADABLE: Final[Check[tuple[str, str]]] = Check(
    "settings-unreadable",
    "warning",
    lambda _: True,
    lambda it: f"the setting {it[0]} is stored as {it[1]!r:.60}",
    "promoters and tools without application code use the library's default instead",
    lambda it: f"restart a worker, which stores the settings again; or redis-cli HDEL queue:{{queue}}:settings {it[0]}",
    about=lambda it: it[0],
)
DISAGREE: Final[Check[Deviation]] = Check(
    "settings-disagree",
    "warning",
    lambda it: it.workers,
    lambda it: (
        f"{it.name} is stored as {it.stored}, but {count(len(it.workers), 'live worker uses=live workers use')} "
        f"{', '.join(few(set(it.workers.values())))}"
    ),
    "each process applies its own value: how histories are trimmed and attempts counted depends on which one acts last",
    "deploy the same Queue(...) settings everywhere, and restart the workers that differ",
    lambda it: few(it.workers),
    about=lambda it: it.name,
    value=lambda it: len(it.workers),
)
SETTINGS: Final[tuple[Check[SettingsInUse], ...]] = (
    Check(
        "visibility-short",
        "note",
        lambda it: it.stored and it.visibility_ms < _SHORT_MS,
        lambda it: f"visibility_ms is {it.visibility_ms:,}",
        "a stall of the server or the network of that length takes jobs from healthy workers, and they run twice",
        "set it to 5,000 or more, unless a job must not wait that long after a crash",
    ),
    Check(
        "lease-too-long",
        "warning",
        lambda it: it.furthest_ms > 2 * it.visibility_ms + _AHEAD_MS,
        lambda it: f"a lease ends in {approximate(it.furthest_ms)}; visibility_ms is {it.visibility_ms:,}",
        "a worker uses a longer visibility, or Redis's clock went back: the worker's death would go unnoticed for that "
        "long",
        "give all workers of the queue the same settings; after a clock step, a reclaimer shortens such leases",
    ),
)


def check_settings(found: SettingsInUse, queue: str) -> Iterator[Finding]:
    """The findings about settings."""
    for name in found.unreadable:
        yield UNREADABLE.finding((name, found.stored[name]), queue)
    yield from findings(SETTINGS, found, queue)
    for name in sorted({name for own in found.workers.values() for name in own if name in found.stored}):
        stored = found.stored[name]
        others = {
            worker: own[name]
            for worker, own in found.workers.items()
            if name in own and not _is_same(own[name], stored)
        }
        yield from findings([DISAGREE], Deviation(name, stored, others), queue)
