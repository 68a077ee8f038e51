"""A batch's or a chain's history, as far as its record and those of its jobs have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from schedq.errors import JobGone
from schedq.model.checks import whole_number
from schedq.model.groups import ENDED, ChildFailure
from schedq.model.records import whole
from schedq.model.settings import Settings
from schedq.transitions import Operation, RoundTrips, groups, identity, unwrap

MOST_FAILURES: Final = 200
_FIELDS: Final = ("enqueued_at_ms", "started_at_ms", "last_error_at_ms", "cancelled_at_ms", "completed_at_ms", "status")
_ORDER: Final = ("began", "last children added", "first child started", "child failed", "last progress", "called off")


@dataclass(frozen=True, slots=True)
class BatchEvent:
    """One event of a batch or a chain.

    Attributes:
        at_ms: when, ms on Redis's clock.
        what: began, first child started, last children added, child failed, last progress (to 10 s), called off,
            completed, failed, cancelled, call enqueued, call completed, call failed, call cancelled.
        number: of the child that failed; None for other events.
        note: its error, why the batch failed, the id of the job of the call at the end, or ''.
    """

    at_ms: int
    what: str
    number: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class BatchTimeline:
    """The history of a batch or a chain.

    Attributes:
        id: its id.
        status: running, cancelling, completed, failed or cancelled, as stored.
        now_ms: when this was read, on Redis's clock.
        events: earliest first.
        failures: how many children have failed. Of those without an event, the record is gone, or they failed before a
            retry, or they are too many.
    """

    id: str
    status: str
    now_ms: int
    events: tuple[BatchEvent, ...]
    failures: int

    def to_dict(self) -> dict[str, Any]:
        """Return the timeline as one dict."""
        return asdict(self)


def batch_timeline(queue: Settings, name: str, failures: int = 20) -> RoundTrips[BatchTimeline]:
    """A batch's history, with the first children that failed.

    Raises:
        UsageError: `failures` is not 0 to 200.
        JobGone: there is no such batch.
    """
    whole_number("failures", failures, 0, MOST_FAILURES)
    listed = _plain("LRANGE", f"{queue.keys.group(name)}:failed", -max(1, failures), -1)
    replies = yield [*groups.reading(queue, name), listed, _plain("TIME")]
    fields = groups.of_replies(replies, needs_status=False)
    if not fields:
        raise JobGone(f"queue {queue.name} has no batch {name}: it was deleted, or never existed")
    lines = unwrap(replies[2]) if failures else []
    found = {it.number: it for line in reversed(lines) for it in _failed(line, fields)}
    generation = fields.get("generation", "")
    ids = [f"{name}-{number}-{generation}" for number in (0, *found)] + [f"{name}-then-{generation}"]
    read = yield [_plain("HMGET", queue.keys.job(job_id), *_FIELDS) for job_id in ids]
    first, *failed, then = [dict(zip(_FIELDS, reply, strict=True)) if isinstance(reply, list) else {} for reply in read]
    events = [
        *_of_batch(fields, first),
        *(_failure(it, record) for it, record in zip(found.values(), failed, strict=True)),
        *_of_call(ids[-1], then),
    ]
    count = max(0, whole(fields.get("ended")) - whole(fields.get("succeeded")))
    in_order = sorted((event for event in events if event.at_ms), key=_place_in_time)
    now_ms = int(queue.clock() * 1000) if queue.clock is not None else _ms(unwrap(replies[-1]))
    return BatchTimeline(name, fields.get("status", ""), now_ms, tuple(in_order), count)


def _failed(line: str, fields: Mapping[str, str]) -> list[ChildFailure]:
    """A child that failed; nothing if the line is damaged."""
    try:
        return [ChildFailure.from_line(line, fields)]
    except ValueError:
        return []


def _plain(*words: str | int) -> Operation[Any]:
    return Operation("timeline", None, (), words, identity)


def _ms(time: Sequence[Any]) -> int:
    return int(time[0]) * 1000 + int(time[1]) // 1000


def _of_batch(fields: Mapping[str, str], first: Mapping[str, Any]) -> Iterator[BatchEvent]:
    status = fields.get("status", "")
    yield BatchEvent(whole(fields.get("began_at_ms")), "began")
    yield BatchEvent(whole(first.get("started_at_ms")), "first child started")
    yield BatchEvent(whole(fields.get("filled_at_ms")), "last children added")
    if status not in ENDED:
        yield BatchEvent(whole(fields.get("moved_at_ms")), "last progress")
    yield BatchEvent(whole(fields.get("cancelled_at_ms")), "called off")
    if status in ENDED:
        yield BatchEvent(whole(fields.get("ended_at_ms")), status, note=fields.get("error", ""))


def _failure(it: ChildFailure, record: Mapping[str, Any]) -> BatchEvent:
    at_ms = whole(record.get("last_error_at_ms")) or whole(record.get("cancelled_at_ms"))
    return BatchEvent(at_ms, "child failed", it.number, it.error)


def _of_call(job_id: str, record: Mapping[str, Any]) -> Iterator[BatchEvent]:
    """The call at the end."""
    yield BatchEvent(whole(record.get("enqueued_at_ms")), "call enqueued", note=job_id)
    ends = {"completed": "completed_at_ms", "failed": "last_error_at_ms", "cancelled": "cancelled_at_ms"}
    status = str(record.get("status"))
    if status in ends:
        yield BatchEvent(whole(record.get(ends[status])), f"call {status}", note=job_id)


def _place_in_time(event: BatchEvent) -> tuple[int, int]:
    """Sort by time; within a millisecond, in the order of a batch's life."""
    is_of_call = event.what.startswith("call ") and event.what != "call enqueued"
    place = _ORDER.index(event.what) if event.what in _ORDER else len(_ORDER)
    return event.at_ms, place + (event.what == "call enqueued") + 2 * is_of_call
