"""Looking without touching: totals, pages of a place, one job, how a job stands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, Never, TypeVar, overload

from schedq import lua
from schedq.errors import UsageError
from schedq.job import JobRecord, score_ms, whole
from schedq.keys import checked_id
from schedq.operations import Flow, Operation, firm, same
from schedq.operations.upkeep import HEARTBEAT_S, pairs
from schedq.settings import Settings

T = TypeVar("T")


class _Fact(Generic[T]):
    """An attribute that shows the entry of its name, and can't be set."""

    __slots__ = ("_name",)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, facts: Any, owner: type | None = None) -> T:
        if facts is None:
            raise AttributeError(f"{self._name} is an attribute of what Queue.stats() returns, not of its class")
        try:
            found: T = facts[self._name]
        except KeyError:
            raise AttributeError(f"{self._name} was deleted from this dict") from None
        return found

    def __set__(self, facts: Any, value: Never) -> None:
        raise AttributeError(f"{self._name} is read-only; set the entry of the dict, if that is what you want")


class Stats(dict[str, int | None]):
    """Depths and totals of one instant, a dict whose entries are read-only attributes too.

    Instants are ms on Redis's clock. Depths are lengths now; totals have counted since the queue began, inside the
    scripts. `workers` have shown life in the last 30 s. `next_due_ms` is None when nothing is delayed,
    `paused_since_ms` when the queue is not paused.
    """

    __slots__ = ()

    enqueued_total: _Fact[int] = _Fact()
    promoted_total: _Fact[int] = _Fact()
    completed_total: _Fact[int] = _Fact()
    failed_total: _Fact[int] = _Fact()
    retried_total: _Fact[int] = _Fact()
    snoozed_total: _Fact[int] = _Fact()
    released_total: _Fact[int] = _Fact()
    reclaimed_total: _Fact[int] = _Fact()
    adopted_total: _Fact[int] = _Fact()
    cancelled_total: _Fact[int] = _Fact()
    requeued_total: _Fact[int] = _Fact()
    purged_total: _Fact[int] = _Fact()
    broken_total: _Fact[int] = _Fact()
    strays_total: _Fact[int] = _Fact()
    fired_total: _Fact[int] = _Fact()
    trimmed_total: _Fact[int] = _Fact()
    pending_depth: _Fact[int] = _Fact()
    processing_depth: _Fact[int] = _Fact()
    completed_depth: _Fact[int] = _Fact()
    failed_depth: _Fact[int] = _Fact()
    cancelled_depth: _Fact[int] = _Fact()
    broken_depth: _Fact[int] = _Fact()
    delayed_depth: _Fact[int] = _Fact()
    leases_depth: _Fact[int] = _Fact()
    next_due_ms: _Fact[int | None] = _Fact()
    paused_since_ms: _Fact[int | None] = _Fact()
    workers: _Fact[int] = _Fact()
    visibility_ms: _Fact[int] = _Fact()
    now_ms: _Fact[int] = _Fact()

    @overload
    def __getitem__(self, name: Literal["next_due_ms", "paused_since_ms"]) -> int | None: ...  # type: ignore[overload-overlap] # the only ones
    @overload
    def __getitem__(self, name: str) -> int: ...
    def __getitem__(self, name: str) -> int | None:
        """The depth, total or instant of this name."""
        return super().__getitem__(name)


TOTALS: Final = tuple(name for name in Stats.__annotations__ if name.endswith("_total"))
_DEPTHS: Final = tuple(name for name in Stats.__annotations__ if name.endswith("_depth"))
MOST_LISTED: Final = 1000
MOST_PAGED: Final = 200
"""Records that one script reads: it keeps everybody else waiting, for about 8 µs each."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How a job stands, for who waits for its end."""

    status: str
    result: str
    result_error: str
    last_error: str


@dataclass(frozen=True, slots=True)
class BrokenNote:
    """A note about an id that could not be run.

    Attributes:
        id: as it stood in its place; '' if the note itself can't be read.
        reason: what was wrong.
        at_ms: when it was met, ms on Redis's clock.
    """

    id: str
    reason: str
    at_ms: int


def checked_limit(value: object) -> int:
    """Return a `limit` if it is one.

    Raises:
        UsageError: no whole number of 1 to 1000.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_LISTED:
        raise UsageError(f"limit must be a whole number of 1 to {MOST_LISTED}, got {value!r}")
    return value


def reach(queue: Settings) -> Operation[object]:
    """Nothing but an answer, for who is about to listen: a listener hears nothing of a refusal."""
    return Operation("listen", None, (), ("EXISTS", queue.keys.paused), same)


def stats(queue: Settings) -> Operation[Stats]:
    """Depths and totals of one instant."""
    keys = queue.keys

    def read(reply: list[Any]) -> Stats:
        now, due, paused, workers = reply[:4]
        # Also those of a newer release that shares the queue.
        totals = {name: whole(value) for name, value in pairs(reply[12:]).items() if name.endswith("_total")}
        facts: dict[str, int | None] = {
            **dict.fromkeys(TOTALS, 0),
            **totals,
            **dict(zip(_DEPTHS, reply[4:12], strict=True)),
            "next_due_ms": score_ms(due) if due else None,
            "paused_since_ms": whole(paused) if paused else None,
            "workers": int(workers),
            "visibility_ms": queue.visibility_ms,
            "now_ms": int(now),
        }
        return Stats(facts)

    return Operation(
        "stats",
        lua.load("stats"),
        (
            keys.pending,
            keys.processing,
            keys.completed,
            keys.failed,
            keys.cancelled,
            keys.broken,
            keys.delayed,
            keys.leases,
            keys.stats,
            keys.paused,
            keys.workers,
        ),
        (queue.now_argument(), 3000 * HEARTBEAT_S),
        read,
    )


def _check_page(offset: object, limit: object) -> None:
    if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
        raise UsageError(f"offset must be a whole number of at least 0, got {offset!r}")
    checked_limit(limit)


def page(queue: Settings, place: str, order: str, offset: int, limit: int) -> Flow[list[JobRecord]]:
    """Jobs of one place; `order` is newest, oldest or due. Large ones end it early.

    Raises:
        UsageError: offset below 0, or limit not within 1 and 1000.
    """
    _check_page(offset, limit)
    found: list[JobRecord] = []
    seen: set[str] = set()
    while limit > 0:
        count = min(limit, MOST_PAGED)
        (answer,) = yield [_part(queue, place, order, offset, count)]
        part: list[JobRecord] = firm(answer)
        # Jobs come and go meanwhile, so one may stand in two parts.
        found += [job for job in part if job.id not in seen]
        seen.update([job.id for job in part])
        offset += count
        limit = limit - count if len(part) == count else 0
    return found


def _part(queue: Settings, place: str, order: str, offset: int, limit: int) -> Operation[list[JobRecord]]:
    def read(reply: list[tuple[str, str, list[str]]]) -> list[JobRecord]:
        return [listed(job_id, due, fields) for job_id, due, fields in reply]

    return Operation("list", lua.load("page"), (place,), (queue.keys.jobs, order, offset, limit), read)


def broken(queue: Settings, offset: int, limit: int) -> Operation[list[BrokenNote]]:
    """Notes about ids that can't be run, newest first.

    Raises:
        UsageError: as `page`.
    """
    _check_page(offset, limit)
    return Operation(
        "list",
        None,
        (),
        ("LRANGE", queue.keys.broken, offset, offset + limit - 1),
        lambda reply: [*map(broken_note, reply)],
    )


def broken_note(text: str) -> BrokenNote:
    """Read a line of `broken`."""
    try:
        note = json.loads(text)
        return BrokenNote(str(note["id"]), str(note["reason"]), whole(note["at_ms"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return BrokenNote("", text, 0)  # not ours, and still to be seen


def listed(job_id: str, due: str, flat: Sequence[str]) -> JobRecord:
    """A job as a page of a place has it; `due` is its instant, or ''."""
    fields = pairs(flat)
    if due:
        fields["run_at_ms"] = str(score_ms(due))
    return JobRecord.from_fields(job_id, fields)


def get_job(queue: Settings, job_id: str) -> Operation[JobRecord | None]:
    """All that is stored of one job; None if nothing is."""

    def read(reply: list[str]) -> JobRecord | None:
        fields = pairs(reply)
        return JobRecord.from_fields(job_id, fields) if fields and "tombstone" not in fields else None

    key = queue.keys.job(checked_id(job_id))
    return Operation(f"read {key}", None, (), ("HGETALL", key), read)


def watch(queue: Settings, job_id: str) -> Operation[Standing | None]:
    """How a job stands, None if nothing is stored; its end will be told on `keys.waiter(job_id)`."""
    keys = queue.keys

    def read(reply: list[str]) -> Standing | None:
        return Standing(*reply) if reply else None

    return Operation(
        "watch", lua.load("watch"), (keys.leases,), (keys.jobs, checked_id(job_id), keys.waiter(job_id)), read
    )
