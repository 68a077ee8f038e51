"""The keys of a queue: their types, the scores of `delayed`, and how long histories last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from schedq.doctor.checks import Check, Finding, asked, few, findings, known, plain
from schedq.errors import SchedqError
from schedq.inspect.display import approximate, count
from schedq.model.keys import QUEUES_KEY, QueueKeys
from schedq.model.lifecycle import COMPLETED, FAILED
from schedq.model.records import score_ms, whole
from schedq.model.settings import HIGH_MEMORY_HISTORY, PROMISED_S, Settings
from schedq.model.times import LAST_INSTANT_MS
from schedq.transitions import RoundTrips

_REFUSED: Final = "every operation that needs this key fails with an error that names it"
_KEYS: Final = {
    "pending": ("list", _REFUSED),
    "processing": ("list", _REFUSED),
    "completed": ("list", _REFUSED),
    "failed": ("list", _REFUSED),
    "cancelled": ("list", _REFUSED),
    "broken": ("list", _REFUSED),
    "task_stats": ("hash", "figures of tasks are missing"),
    "samples": ("list", "rates and charts have no data"),
    "delayed": ("zset", _REFUSED),
    "held": ("zset", "claims fail, so no job of the queue starts"),
    "lanes": ("hash", "claims fail while a task is paused or has held jobs"),
    "gates": ("hash", "claims and promoters fail, so no job of the queue starts"),
    "open_gates": ("zset", "claims fail while the queue has gates"),
    "resting": ("zset", "claims fail while the queue has gates"),
    "gate_holds": ("zset", "claims fail while the queue has gates"),
    "gate_turns": ("hash", "claims fail while the queue has gates"),
    "unique_keys": ("hash", "jobs with a unique key can't be enqueued"),
    "paused_tasks": ("hash", "claims fail, so no job of the queue starts"),
    "leases": ("zset", _REFUSED),
    "suspects": ("zset", "jobs that lost two leases wait a few seconds longer than necessary"),
    "wake": ("zset", "idle workers are not woken: jobs wait until a worker polls"),
    "wake_held": ("zset", "idle workers are not woken for jobs that a pause or a limited worker passed over"),
    "workers": ("zset", "workers can't send heartbeats"),
    "schedules": ("zset", "no schedule creates jobs any more"),
    "groups": ("zset", "batches and chains can't be made, and those that there are do not end"),
    "undos": ("zset", "steps that can be undone fail"),
    "stats": ("hash", "totals are not counted, and stats fail"),
    "settings": ("hash", "tools and promoters use the library's default settings"),
    "tasks": (
        "hash",
        "when a worker dies, a job enqueued by name follows the queue's settings instead of its task's",
    ),
    "standbys": ("hash", "standby promoters lose their order and delete the key"),
    "asleep": ("hash", "the promoter does not rest while the queue is unused"),
    "promoter": ("string", "no process can become the promoter: delayed jobs wait for claims"),
    "paused": ("string", "the queue counts as paused"),
    "log": ("stream", "moves and actions are no longer recorded"),
}
"""Key of a queue -> its type, and the consequence if it has another type."""
_RARE: Final = (
    *(
        "cancelled",
        "broken",
        "held",
        "lanes",
        "gates",
        "open_gates",
        "resting",
        "gate_holds",
        "gate_turns",
        "unique_keys",
    ),
    *(
        "paused_tasks",
        "suspects",
        "wake_held",
        "schedules",
        "groups",
        "undos",
        "tasks",
        "standbys",
        "asleep",
        "promoter",
        "paused",
    ),
)
_WAKES: Final = ("zset", "idle workers that are limited to some tasks are not woken: they look for jobs once a second")
"""The same for the wake marker of a task."""
_OF_A_GATE: Final = ("ready", "running", "tags", "rates")
"""The keys of a gate, all zsets."""
_SECONDS_END: Final = 100_000_000_000
"""As Unix seconds the year 5138, as milliseconds March 1973: a smaller score can't be a real due time."""
_LATE_MS: Final = 5000
_MOST_READ: Final = 200
_FOREIGN_LIMIT: Final = 50
_OWN_ENDS: Final = ("complete", "fail", "reclaim", "refuse")
"""The `settled_move` of a job that schedq finished."""
_HIGH_FOR_MS: Final = 60_000
_NEARLY_FULL: Final = 0.8
_RECENT_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class WrongType:
    """A key whose type is not the one that schedq uses."""

    key: str
    kind: str
    right: str
    means: str


def read_types(keys: QueueKeys, tasks: Iterable[str], gates: Iterable[str] = ()) -> RoundTrips[list[WrongType]]:
    """The keys of the wrong type; `tasks` are those that workers take."""
    # Of most queues, none of these exists.
    (found,) = yield [plain("EXISTS", *[getattr(keys, name) for name in _RARE])]
    rows = [(getattr(keys, name), *row) for name, row in _KEYS.items() if known(found, 1) or name not in _RARE]
    rows += [(keys.wakes + task, *_WAKES) for task in sorted(tasks)[:_MOST_READ]]
    rows += [
        (f"{keys.gate_keys}{name}:{part}", "zset", "nothing of the gate starts")
        for name in sorted(gates)[:_MOST_READ]
        for part in _OF_A_GATE
    ]
    if not keys.tagged:
        rows.append((QUEUES_KEY, "set", _REFUSED))
    replies = yield [plain("TYPE", key) for key, _, _ in rows]
    return [
        WrongType(key, kind, right, means)
        for (key, right, means), kind in zip(rows, replies, strict=True)
        if not isinstance(kind, SchedqError) and kind not in (right, "none")
    ]


WRONG_TYPE: Final[Check[WrongType]] = Check(
    "wrong-type",
    "error",
    lambda _: True,
    lambda it: f"{it.key} is a {it.kind}, not a {it.right}",
    lambda it: it.means,
    lambda it: f"another program wrote it: inspect it, then move it away: redis-cli RENAME {it.key} {it.key}.aside",
    lambda it: (it.key,),
    about=lambda it: it.key,
)


@dataclass(frozen=True, slots=True)
class DueTimes:
    """The scores of `delayed`.

    Attributes:
        in_seconds: number of scores that look like Unix seconds, or are negative.
        never: number of scores beyond the last time that schedq supports: micro- or nanoseconds, or infinity.
        overdue: number of jobs that were due more than 5 s ago.
        overdue_ms: how long ago the earliest of them was due.
        first_in_seconds: the first ids of `in_seconds`.
        first_never: the first ids of `never`.
        is_promoted: a promoter is alive.
    """

    in_seconds: int
    never: int
    overdue: int
    overdue_ms: int
    first_in_seconds: tuple[str, ...] = ()
    first_never: tuple[str, ...] = ()
    is_promoted: bool = True


def read_due_times(keys: QueueKeys, now_ms: int, *, is_promoted: bool) -> RoundTrips[DueTimes]:
    """Count by score; the cost does not grow with the length of the queue."""
    key = keys.delayed
    replies = yield [
        plain("ZCOUNT", key, "-inf", f"({_SECONDS_END}"),
        plain("ZCOUNT", key, f"({LAST_INSTANT_MS}", "+inf"),
        plain("ZCOUNT", key, _SECONDS_END, now_ms - _LATE_MS),
        plain("ZRANGE", key, _SECONDS_END, now_ms - _LATE_MS, "BYSCORE", "LIMIT", 0, 1, "WITHSCORES"),
        plain("ZRANGE", key, "-inf", f"({_SECONDS_END}", "BYSCORE", "LIMIT", 0, 5),
        plain("ZRANGE", key, f"({LAST_INSTANT_MS}", "+inf", "BYSCORE", "LIMIT", 0, 5),
    ]
    in_seconds, never, overdue = (known(reply, 0) for reply in replies[:3])
    oldest, early, late = (tuple(known(reply, ())) for reply in replies[3:])
    overdue_ms = now_ms - score_ms(oldest[1]) if oldest else now_ms
    return DueTimes(in_seconds, never, overdue, overdue_ms, early, late, is_promoted)


DUE_TIMES: Final[tuple[Check[DueTimes], ...]] = (
    Check(
        "due-in-seconds",
        "error",
        lambda it: it.in_seconds,
        lambda it: (
            count(it.in_seconds, "delayed job has a score that looks=delayed jobs have scores that look")
            + " like seconds"
        ),
        "scores are milliseconds since the epoch: such a job counts as long overdue and starts at once instead of on "
        "time",
        "make its producer multiply by 1000: ZADD queue:{queue}:delayed MS ID; fix these with schedq reschedule ID",
        lambda it: it.first_in_seconds,
    ),
    Check(
        "due-never",
        "warning",
        lambda it: it.never,
        lambda it: f"{count(it.never, 'delayed job has a score=delayed jobs have scores')} beyond the year 9999",
        "the producer wrote micro- or nanoseconds, or infinity: such a job never starts",
        "make its producer write milliseconds: ZADD queue:{queue}:delayed MS ID; fix these with schedq reschedule ID",
        lambda it: it.first_never,
    ),
    Check(
        "overdue",
        lambda it: "warning" if it.is_promoted else "error",
        lambda it: it.overdue,
        lambda it: (
            f"{count(it.overdue, 'delayed job was=delayed jobs were')} due more than 5 s ago, the first one "
            f"{approximate(it.overdue_ms)}"
        ),
        lambda it: (
            "the promoter does not keep up" if it.is_promoted else "no promoter is running to move due jobs to pending"
        ),
        lambda it: (
            "check the log of the promoter's process and the server's load"
            if it.is_promoted
            else "start a worker, or schedq promoter {queue}"
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class History:
    """`completed` or `failed`: the histories that other programs may trim.

    Attributes:
        state: `completed` or `failed`.
        length: number of entries.
        total: all-time number of jobs that ended in this state, from `stats`.
        limit: number of entries that the application keeps; -1 if it keeps all or this is unknown.
        foreign: ids of records that another program finished, not schedq.
        expiring: ids of records with a TTL that schedq did not set.
    """

    state: str
    length: int
    total: int
    limit: int
    foreign: tuple[str, ...]
    expiring: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Histories:
    """The histories of a queue, from their newest records.

    Attributes:
        completed: jobs that completed.
        failed: jobs that failed for good.
        trimmed: all-time number of completed records that were deleted before they expired.
        kept_ms: age of the oldest completed record that is left.
        ttl_s: how long completed records should be kept.
        is_memory_high: Redis was nearly full within the last minute.
        dropped: all-time number of failed records that `failed_history` deleted.
        dropped_ago_ms: how long ago the last of them was deleted.
    """

    completed: History
    failed: History
    trimmed: int
    kept_ms: int
    ttl_s: float
    is_memory_high: bool
    dropped: int = 0
    dropped_ago_ms: int = _RECENT_MS

    @property
    def failed_used(self) -> float:
        """The share of `failed_history` that is used; 0 if all are kept, or none."""
        return self.failed.length / self.failed.limit if self.failed.limit > 0 else 0

    @property
    def has_dropped(self) -> bool:
        """Failed jobs were deleted within the last day."""
        return bool(self.dropped) and self.dropped_ago_ms < _RECENT_MS

    @property
    def foreign(self) -> tuple[str, ...]:
        """Records that another program finished."""
        return self.completed.foreign + self.failed.foreign

    @property
    def is_cut_by_memory(self) -> bool:
        """Fewer results are kept than configured, because Redis is nearly full."""
        return self.is_memory_high and self.completed.limit > HIGH_MEMORY_HISTORY

    @property
    def limit(self) -> int:
        """How many results are kept at the moment."""
        return HIGH_MEMORY_HISTORY if self.is_cut_by_memory else self.completed.limit

    @property
    def is_trimmed_early(self) -> bool:
        """Results are deleted before their TTL has passed."""
        is_full = self.completed.limit > 0 and self.completed.length >= self.limit
        return bool(self.trimmed) and is_full and self.kept_ms < 1000 * self.ttl_s


def read_histories(queue: Settings, now_ms: int) -> RoundTrips[Histories]:
    """Read the newest records, at most 200 of each history, and the oldest completed one."""
    keys = queue.keys
    completed = yield from _history(keys, COMPLETED, queue.completed_history)
    failed = yield from _history(keys, FAILED, queue.failed_history)
    totals, oldest = yield [
        plain(
            "HMGET", keys.stats, "trimmed_total", "memory_high_at_ms", "failed_dropped_total", "failed_dropped_at_ms"
        ),
        plain("LRANGE", keys.completed, -1, -1),
    ]
    kept_ms = 0
    if known(oldest, []):
        (completed_at,) = yield [plain("HGET", keys.job(oldest[0]), "completed_at_ms")]
        kept_ms = max(0, now_ms - whole(known(completed_at, "0")))
    trimmed, high_at, dropped, dropped_at = map(whole, known(totals, [0] * 4))
    is_memory_high = now_ms - high_at < _HIGH_FOR_MS
    ago_ms = now_ms - dropped_at
    return Histories(completed, failed, trimmed, kept_ms, queue.completed_ttl, is_memory_high, dropped, ago_ms)


def _history(keys: QueueKeys, state: str, limit: int) -> RoundTrips[History]:
    key = getattr(keys, state)
    length, total, ids = yield [
        plain("LLEN", key),
        plain("HGET", keys.stats, f"{state}_total"),
        plain("LRANGE", key, 0, _MOST_READ - 1),
    ]
    names: list[str] = list(dict.fromkeys(known(ids, [])))
    records = yield from asked([plain("HMGET", keys.job(name), "status", "settled_move") for name in names])
    ttls = yield from asked([plain("PTTL", keys.job(name)) for name in names])
    foreign = tuple(name for name, record in zip(names, records, strict=True) if record == [state, None])
    expiring = tuple(
        name
        for name, record, ttl in zip(names, records, ttls, strict=True)
        if known(ttl, -1) >= 0 and known(record, [""])[-1] not in _OWN_ENDS
    )
    return History(state, known(length, 0), whole(known(total, "0")), limit, foreign, expiring)


HISTORIES: Final[tuple[Check[Histories], ...]] = (
    Check(
        "foreign-workers",
        "note",
        lambda it: it.foreign,
        lambda it: (
            count(len(it.foreign), "of the newest finished jobs was=of the newest finished jobs were")
            + " ended by a program other than schedq"
        ),
        "workers of other programs hold no leases, ignore a pause, and count attempts in their own way: see "
        "schedq help other-languages",
        "set visibility_ms long enough for the longest job that they run",
        lambda it: few(it.foreign),
    ),
    Check(
        "failed-expire",
        "warning",
        lambda it: it.failed.expiring,
        lambda it: f"{count(len(it.failed.expiring), 'failed record')} will expire",
        "another program's EXPIRE deletes failed jobs with their payloads, usually after 300 s",
        "remove that EXPIRE from its fail script; schedq requeue ID --queue {queue} rescues a job",
        lambda it: few(it.failed.expiring),
    ),
    Check(
        "failed-nearly-full",
        lambda it: "error" if it.has_dropped else "warning",
        lambda it: it.failed_used >= _NEARLY_FULL,
        lambda it: (
            f"{it.failed.length:,} failed jobs are kept, {min(100, 100 * it.failed_used):.0f} % of failed_history"
            + (
                f"; {it.dropped:,} were deleted so far, the last one {approximate(it.dropped_ago_ms)} ago"
                if it.has_dropped
                else ""
            )
        ),
        lambda it: (
            f"of more than {it.failed.limit:,} failed jobs, the oldest are deleted with their payloads and errors, and "
            "can't be requeued any more"
        ),
        "requeue or purge them: schedq requeue --failed --queue {queue}, schedq purge {queue} --state failed; or raise "
        "failed_history (None keeps all)",
        value=lambda it: it.failed.length,
    ),
    Check(
        "results-trimmed",
        lambda it: "warning" if it.kept_ms < 1000 * min(it.ttl_s, PROMISED_S) else "note",
        lambda it: it.is_trimmed_early,
        lambda it: (
            f"results are deleted after {approximate(it.kept_ms)}, before completed_ttl ({it.ttl_s:g} s) is over: "
            f"{it.trimmed:,} so far"
        ),
        lambda it: (
            f"the queue keeps {it.limit:,} results, "
            + ("because Redis uses over 80 % of maxmemory" if it.is_cut_by_memory else "its completed_history")
            + "; Job.result() of an older job raises JobGone"
        ),
        lambda it: f"raise {'maxmemory' if it.is_cut_by_memory else 'completed_history'}, or lower completed_ttl",
    ),
)
HISTORY_CUT: Final[Check[History]] = Check(
    "history-cut",
    "warning",
    lambda it: it.length == _FOREIGN_LIMIT < it.total and it.limit != _FOREIGN_LIMIT,
    lambda it: f"{it.state} lists only 50 of {it.total:,} jobs",
    "another program's LTRIM cuts the history to 50 entries; older records can be found only by id",
    lambda it: f"change its LTRIM to your {it.state}_history" + (f" ({it.limit:,})" if it.limit >= 0 else ""),
)


def check_histories(found: Histories, queue: str) -> Iterator[Finding]:
    """The findings about histories."""
    yield from findings(HISTORIES, found, queue)
    for history in (found.completed, found.failed) if found.foreign else ():
        yield from findings([HISTORY_CUT], history, queue)
