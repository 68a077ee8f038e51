"""How long histories last: results that go early, and what programs written from the guide do to what they share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from schedq.doctor.asking import asked, known, plain
from schedq.doctor.finding import Finding, few, many, span
from schedq.errors import SchedqError
from schedq.job import whole
from schedq.lifecycle import COMPLETED, FAILED
from schedq.operations import Flow
from schedq.settings import HIGH_MEMORY_HISTORY, PROMISED_S, Settings

_LOOKED_AT: Final = 200
_THEIR_CAP: Final = 50
_HIGH_FOR_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Histories:
    """What the newest records of the histories show.

    Attributes:
        foreign: ids of records that another program finished: none of schedq's moves ended them.
        expiring: ids of failed records with a time to live.
        lengths: entries of `completed` and `failed`.
        totals: of stats: jobs that ended so, ever.
        caps: the application's, -1 if it keeps all or none is known.
        trimmed: completed records that were deleted before they expired, ever.
        kept_ms: how long the oldest completed record that is left has been completed.
        ttl_s: how long they are to be kept.
        is_memory_high: Redis was nearly full in the last minute.
    """

    foreign: tuple[str, ...]
    expiring: tuple[str, ...]
    lengths: dict[str, int]
    totals: dict[str, int]
    caps: dict[str, int]
    trimmed: int
    kept_ms: int
    ttl_s: float
    is_memory_high: bool


def look(queue: Settings, now_ms: int) -> Flow[Histories]:
    """Look at the newest records, at most 200 of each history, and at the oldest completed one."""
    keys = queue.keys
    lengths: dict[str, int] = {}
    totals: dict[str, int] = {}
    foreign: list[str] = []
    expiring: list[str] = []
    for place in (COMPLETED, FAILED):
        key = getattr(keys, place)
        length, total, ids = yield [
            plain("LLEN", key),
            plain("HGET", keys.stats, f"{place}_total"),
            plain("LRANGE", key, 0, _LOOKED_AT - 1),
        ]
        lengths[place], totals[place] = known(length, 0), whole(known(total, "0"))
        found: list[str] = list(dict.fromkeys(known(ids, [])))
        answers = yield from asked([plain("HMGET", keys.job(name), "status", "settled_move") for name in found])
        expiries = yield from asked([plain("PTTL", keys.job(name)) for name in found])
        foreign += [name for name, record in zip(found, answers, strict=True) if _is_foreign(record, place)]
        if place == FAILED:
            expiring += [name for name, ttl in zip(found, expiries, strict=True) if known(ttl, -1) >= 0]
    caps = {COMPLETED: queue.completed_history, FAILED: queue.failed_history}
    trimmed, high_at, oldest = yield [
        plain("HGET", keys.stats, "trimmed_total"),
        plain("HGET", keys.stats, "memory_high_at_ms"),
        plain("LRANGE", keys.completed, -1, -1),
    ]
    completed_at = (
        yield [plain("HGET", keys.job(known(oldest, ["-"])[0]), "completed_at_ms")] if known(oldest, []) else []
    )
    kept_ms = max(0, now_ms - whole(known(completed_at[0], "0"))) if completed_at else 0
    is_memory_high = now_ms - whole(known(high_at, "0")) < _HIGH_FOR_MS
    early = (whole(known(trimmed, "0")), kept_ms, queue.completed_ttl, is_memory_high)
    return Histories(tuple(foreign), tuple(expiring), lengths, totals, caps, *early)


def _is_foreign(record: Any, place: str) -> bool:
    return not isinstance(record, SchedqError) and record[0] == place and record[1] is None


def judge(queue: str, found: Histories) -> Iterator[Finding]:
    """The findings about them."""
    if found.foreign:
        yield Finding(
            "foreign-workers",
            "note",
            f"{many(len(found.foreign), 'of the newest finished jobs was=of the newest finished jobs were')} ended "
            "by a "
            "program other than schedq",
            "such workers have no leases, go on while the queue is paused, and have attempts of their own: see the "
            "README, "
            "Sharing a queue",
            "choose visibility_ms for the longest job that they do",
            queue=queue,
            examples=few(found.foreign),
        )
    if found.expiring:
        yield Finding(
            "failed-expire",
            "warning",
            f"{many(len(found.expiring), 'failed record')} will expire",
            "another program's EXPIRE lets failed jobs vanish, payload and all, mostly after 300 s",
            f"take that EXPIRE out of its fail script; schedq requeue ID --queue {queue} saves a job",
            queue=queue,
            examples=few(found.expiring),
        )
    yield from _early(queue, found)
    for place in (COMPLETED, FAILED):
        length, total, cap = found.lengths[place], found.totals[place], found.caps[place]
        if found.foreign and length == _THEIR_CAP and total > _THEIR_CAP and cap != _THEIR_CAP:
            yield Finding(
                "history-cut",
                "warning",
                f"{place} holds 50 entries of {total:,} that ended so",
                "another program's LTRIM cuts the history to 50 for everybody; older records are found by their ids "
                "only",
                f"let it LTRIM to your {place}_history" + (f" ({cap:,})" if cap >= 0 else ""),
                queue=queue,
            )


def _early(queue: str, found: Histories) -> Iterator[Finding]:
    """Whether results are deleted before their time."""
    cap = found.caps[COMPLETED]
    is_by_memory = found.is_memory_high and cap > HIGH_MEMORY_HISTORY
    limit = HIGH_MEMORY_HISTORY if is_by_memory else cap
    if not found.trimmed or cap <= 0 or found.lengths[COMPLETED] < limit or found.kept_ms >= 1000 * found.ttl_s:
        return
    yield Finding(
        "results-trimmed",
        "warning" if found.kept_ms < 1000 * min(found.ttl_s, PROMISED_S) else "note",
        f"results are deleted after {span(found.kept_ms)}, before completed_ttl ({found.ttl_s:g} s) is over: "
        f"{found.trimmed:,} so far",
        f"the queue keeps {limit:,} results, "
        + ("as Redis uses over 80 % of maxmemory" if is_by_memory else "its completed_history")
        + "; Job.result() of an older job raises JobGone",
        "raise maxmemory, or lower completed_ttl"
        if is_by_memory
        else "raise completed_history, or lower completed_ttl",
        queue=queue,
    )
