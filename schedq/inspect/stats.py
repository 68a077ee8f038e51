"""Statistics of a queue, pages of its jobs, and one job."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, NamedTuple, Never, TypeVar, overload

from schedq.errors import SchedqError
from schedq.model.checks import checked_limit, whole_number
from schedq.model.keys import checked_id
from schedq.model.lifecycle import DELAYED, FINISHED, PENDING
from schedq.model.payload import loaded
from schedq.model.progress import Progress, of_fields
from schedq.model.records import JobRecord, score_ms, whole
from schedq.model.settings import Settings
from schedq.transitions import Binding, Operation, RoundTrips, identity, pairs, unwrap

T = TypeVar("T")
_Instant = Literal["next_due_ms", "paused_since_ms", "outbox_oldest_ms", "outbox_at_ms"]
_STATS: Final = Binding("stats")
_PAGE: Final = Binding("page", "source", "order", "offset", "limit")
_WATCH: Final = Binding("watch", "id", "channel")


class _Fact(Generic[T]):
    """A read-only attribute for the dict entry of the same name."""

    __slots__ = ("_name",)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, facts: Any, owner: type | None = None) -> T:
        if facts is None:
            raise AttributeError(f"{self._name} is an attribute of the result of Queue.stats(), not of its class")
        try:
            found: T = facts[self._name]
        except KeyError:
            raise AttributeError(f"{self._name} was deleted from this dict") from None
        return found

    def __set__(self, facts: Any, value: Never) -> None:
        raise AttributeError(f"{self._name} is read-only; set the entry of the dict, if that is what you want")


class Stats(dict[str, int | None]):
    """Current depths and totals: a dict whose entries are also read-only attributes.

    Instants are ms on Redis's clock. Totals count from the beginning of the queue. `workers` counts those with a
    heartbeat in the last 30 s. `next_due_ms` is None if nothing is delayed, `paused_since_ms` if the queue is not
    paused. `paused_tasks` is the number of paused tasks. `held_depth` counts those of the pending jobs that claims have
    put out of the way of others, because their task is paused. `outbox_unsent` and `outbox_held` count rows of outboxes
    that wait for a relay, as relays reported them; `outbox_oldest_ms` is when the oldest was written, `outbox_at_ms`
    when the first of the reports was made; both are None if there is none. `batches` counts batches and chains, also
    those that have ended and are still stored; `waiting_runs` the suspended runs of workflows that wait for a message
    or for jobs, without a limit.
    """

    __slots__ = ()

    enqueued_total: _Fact[int] = _Fact()
    deduplicated_total: _Fact[int] = _Fact()
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
    limited_total: _Fact[int] = _Fact()
    suspended_total: _Fact[int] = _Fact()
    mended_total: _Fact[int] = _Fact()
    trimmed_total: _Fact[int] = _Fact()
    failed_dropped_total: _Fact[int] = _Fact()
    pending_depth: _Fact[int] = _Fact()
    processing_depth: _Fact[int] = _Fact()
    completed_depth: _Fact[int] = _Fact()
    failed_depth: _Fact[int] = _Fact()
    cancelled_depth: _Fact[int] = _Fact()
    broken_depth: _Fact[int] = _Fact()
    delayed_depth: _Fact[int] = _Fact()
    leases_depth: _Fact[int] = _Fact()
    held_depth: _Fact[int] = _Fact()
    next_due_ms: _Fact[int | None] = _Fact()
    paused_since_ms: _Fact[int | None] = _Fact()
    paused_tasks: _Fact[int] = _Fact()
    batches: _Fact[int] = _Fact()
    waiting_runs: _Fact[int] = _Fact()
    outbox_unsent: _Fact[int] = _Fact()
    outbox_held: _Fact[int] = _Fact()
    outbox_oldest_ms: _Fact[int | None] = _Fact()
    outbox_at_ms: _Fact[int | None] = _Fact()
    workers: _Fact[int] = _Fact()
    visibility_ms: _Fact[int] = _Fact()
    now_ms: _Fact[int] = _Fact()

    @overload
    def __getitem__(self, name: _Instant) -> int | None: ...  # type: ignore[overload-overlap] # the only ones
    @overload
    def __getitem__(self, name: str) -> int: ...
    def __getitem__(self, name: str) -> int | None:
        """The depth, total or instant of this name."""
        return super().__getitem__(name)


TOTALS: Final = tuple(name for name in Stats.__annotations__ if name.endswith("_total"))
_DEPTHS: Final = tuple(name for name in Stats.__annotations__ if name.endswith("_depth"))
_STATUS_FIELDS: Final = ("status", "result", "result_error", "last_error", "cancel_reason", "tombstone")
PROGRESS_FIELDS: Final = ("progress", "attempts")
MOST_PAGED: Final = 200
"""The most records that one script reads; it blocks all other clients for about 8 µs each."""


class JobStatus(NamedTuple):
    """The status and result of a job, for a caller that waits for its end."""

    status: str
    result: str
    result_error: str
    last_error: str
    cancel_reason: str = ""


@dataclass(frozen=True, slots=True)
class BrokenNote:
    """A note about a job that could not be run.

    Attributes:
        id: its id as stored; '' if the note itself can't be read.
        reason: what was wrong.
        at_ms: when it was found, ms on Redis's clock.
    """

    id: str
    reason: str
    at_ms: int


def reach(queue: Settings) -> Operation[object]:
    """A request without effect to send before subscribing, because a failing subscription raises no error."""
    return Operation("listen", None, (), ("EXISTS", queue.keys.paused), identity)


def stats(queue: Settings) -> Operation[Stats]:
    """Current depths and totals."""

    def read(reply: list[Any]) -> Stats:
        now, due, paused, workers = reply[:4]
        # Includes totals of a newer release that uses the same queue.
        stored = pairs(reply[16:])
        totals = {name: whole(value) for name, value in stored.items() if name.endswith("_total")}
        depths = dict(zip(_DEPTHS, reply[4:13], strict=True))
        facts: dict[str, int | None] = {
            **dict.fromkeys(TOTALS, 0),
            **totals,
            **depths,
            "pending_depth": depths["pending_depth"] + depths["held_depth"],
            "next_due_ms": score_ms(due) if due else None,
            "paused_since_ms": whole(paused) if paused else None,
            "paused_tasks": reply[13],
            "batches": reply[14],
            "waiting_runs": reply[15],
            **outboxes(stored),
            "workers": int(workers),
            "visibility_ms": queue.visibility_ms,
            "now_ms": int(now),
        }
        return Stats(facts)

    return Operation("stats", *_STATS(queue), read)


def stats_for_operator(queue: Settings) -> RoundTrips[tuple[Stats, SchedqError | None]]:
    """Depths and totals with the visibility that the queue's workers stored, in one round trip.

    If that can't be read, the error is the second value.
    """
    facts, stored = yield [stats(queue), _visibility(queue)]
    found: Stats = unwrap(facts)
    if isinstance(stored, SchedqError):
        return found, stored
    found["visibility_ms"] = queue.with_fields(stored).visibility_ms
    return found, None


def _visibility(queue: Settings) -> Operation[dict[str, str]]:
    key, names = queue.keys.settings, ("visibility_ms", "failed_history")  # the latter is always stored

    def read(reply: list[str | None]) -> dict[str, str]:
        return {name: text for name, text in zip(names, reply, strict=True) if text is not None}

    return Operation(f"read {key}", None, (), ("HMGET", key, *names), read)


def outboxes(stored: Mapping[str, str]) -> dict[str, int | None]:
    """What relays reported of the rows of outboxes, together, from the fields of the `stats` hash."""
    reports = [loaded(text) for name, text in stored.items() if name.startswith("outbox:")]
    found = [
        {name: whole(report.get(name)) for name in ("unsent", "held", "oldest_ms", "at_ms")}
        for report in reports
        if isinstance(report, dict)
    ]
    return {
        "outbox_unsent": sum(each["unsent"] for each in found),
        "outbox_held": sum(each["held"] for each in found),
        "outbox_oldest_ms": min((each["oldest_ms"] for each in found if each["unsent"]), default=None),
        "outbox_at_ms": min((each["at_ms"] for each in found), default=None),
    }


def page(queue: Settings, state: str, offset: int, limit: int) -> RoundTrips[list[JobRecord]]:
    """Jobs of one state: waiting ones in the order in which they run, others newest first.

    Large jobs shorten the page, and so do finished ones whose records have expired.

    Raises:
        UsageError: `offset` is below 0, or `limit` is not 1 to 1000.
    """
    whole_number("offset", offset, 0)
    checked_limit(limit)
    found: list[JobRecord] = []
    seen: set[str] = set()
    while limit > 0:
        count = min(limit, MOST_PAGED)
        (reply,) = yield [_part(queue, state, offset, count)]
        part: list[JobRecord] = unwrap(reply)
        # The list may shift between two requests, so a job may be in both replies.
        found += [job for job in part if job.id not in seen and (job.status == state or state not in FINISHED)]
        seen.update([job.id for job in part])
        offset += count
        limit = limit - count if len(part) == count else 0
    return found


def _part(queue: Settings, state: str, offset: int, limit: int) -> Operation[list[JobRecord]]:
    source, order = getattr(queue.keys, state), {PENDING: "waiting", DELAYED: "due"}.get(state, "newest")
    sent = _PAGE(queue, source=source, order=order, offset=offset, limit=limit)
    return Operation("list", *sent, lambda reply: [listed(*row) for row in reply])


def broken(queue: Settings, offset: int, limit: int) -> Operation[list[BrokenNote]]:
    """Notes about jobs that can't be run, newest first.

    Raises:
        UsageError: as `page`.
    """
    whole_number("offset", offset, 0)
    checked_limit(limit)
    words = ("LRANGE", queue.keys.broken, offset, offset + limit - 1)
    return Operation("list", None, (), words, lambda reply: [*map(broken_note, reply)])


def broken_note(text: str) -> BrokenNote:
    """Read a line of `broken`."""
    try:
        note = json.loads(text)
        return BrokenNote(str(note["id"]), str(note["reason"]), whole(note["at_ms"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return BrokenNote("", text, 0)  # written by another program; still shown


def listed(job_id: str, due: str, flat: Sequence[str]) -> JobRecord:
    """A job from a row of a page; `due` is its due instant, or ''."""
    fields = pairs(flat)
    if due:
        fields["run_at_ms"] = str(score_ms(due))
    return JobRecord.from_fields(job_id, fields)


def get_job(queue: Settings, job_id: str) -> Operation[JobRecord | None]:
    """Everything stored about one job; None if nothing is."""

    def read(reply: list[str]) -> JobRecord | None:
        fields = pairs(reply)
        return JobRecord.from_fields(job_id, fields) if fields and "tombstone" not in fields else None

    key = queue.keys.job(checked_id(job_id))
    return Operation(f"read {key}", None, (), ("HGETALL", key), read)


def read_progress(queue: Settings, job_id: str) -> Operation[Progress | None]:
    """How far a job's last attempt has come; None if it reported nothing."""
    key = queue.keys.job(checked_id(job_id))

    def read(reply: list[str | None]) -> Progress | None:
        fields = {name: text for name, text in zip(PROGRESS_FIELDS, reply, strict=True) if text is not None}
        return of_fields(fields)[0]

    return Operation(f"read {key}", None, (), ("HMGET", key, *PROGRESS_FIELDS), read)


def watch(queue: Settings, job_id: str) -> Operation[JobStatus | None]:
    """The status of a job; None if nothing is stored. Its end will be published on `keys.waiter(job_id)`."""
    sent = _WATCH(queue, id=checked_id(job_id), channel=queue.keys.waiter(job_id))
    return Operation("watch", *sent, lambda reply: JobStatus(*reply) if reply else None)


def read_status(queue: Settings, job_id: str) -> Operation[JobStatus | None]:
    """The status of a job in one plain command that writes nothing; None if it has none, and `watch` must decide."""
    key = queue.keys.job(checked_id(job_id))

    def read(reply: list[str | None]) -> JobStatus | None:
        *found, tombstone = reply
        return JobStatus(*[text or "" for text in found]) if found[0] and tombstone is None else None

    return Operation(f"read {key}", None, (), ("HMGET", key, *_STATUS_FIELDS), read)
