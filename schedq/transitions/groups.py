"""Groups: fill them, call them off, retry what failed, and do what is left of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from schedq.errors import Conflict, UsageError
from schedq.model import groups
from schedq.model.durability import Durability, Wait
from schedq.model.groups import BatchProgress, ChildFailure, GroupDefinition
from schedq.model.ids import new_request
from schedq.model.payload import decoded, size_of
from schedq.model.records import ClaimedJob
from schedq.model.runs import RunLost
from schedq.model.settings import Settings
from schedq.transitions import Binding, Operation, RoundTrips, chunked, identity, unwrap

_FILL: Final = Binding(
    "fill_group", "name", "digest", "definition", "gate_limits", "at", "close", "run", "token", "items"
)
_CANCEL: Final = Binding("cancel_group", "name", "generation")
_RETRY: Final = Binding("retry_group", "name", "generation", "left")
_DROP: Final = Binding("drop_group", "name", "before", "stand_ins")
_WAKE: Final = Binding("wake_runs", "names")
_ADVANCE: Final = Binding("advance", "request", "most_kept")
MOST_ITEMS: Final = 1000
"""The most items that one script adds."""
_MOST_ROUNDS: Final = 1000
_BUCKETS: Final = 10
"""How many buckets of results are read in one round trip."""


class Filled(NamedTuple):
    """The result of adding a page: how many items the group has, and its status."""

    total: int
    status: str


def fill(
    queue: Settings,
    definition: GroupDefinition,
    items: Sequence[str],
    at: int,
    *,
    close: bool = False,
    durability: Durability = "memory",
    digest: str = "",
    holder: ClaimedJob | None = None,
) -> Operation[Filled]:
    """Add one page of items, of which `at` come before it; makes the group if there is none.

    `digest` is that of a group that exists, if it need not be the same as this definition. `holder` is the claimed job
    of the run that it works for: nothing is added once the claim has ended.

    Raises (when read):
        Conflict: a group of this name has another definition.
        UsageError: items are missing before this page.
        QueueFull: Redis's memory is full; nothing was added.
        RunLost: the claim of `holder` has ended.
    """
    waits = () if durability == "memory" else (Wait.of(durability, queue.replicas, queue.retry_for),)
    fields = json.dumps(definition.to_fields(), ensure_ascii=False) if at == 0 else "[]"
    given: dict[str, Any] = {"name": definition.name, "digest": digest or definition.digest, "definition": fields}
    given["gate_limits"] = _limits(queue, definition.gates) if at == 0 and definition.gates else ""

    held = {"run": "", "token": ""} if holder is None else {"run": holder.id, "token": holder.claim_token}
    sent = _FILL(queue, **given, **held, at=at, close=int(close), items=list(items))
    return Operation("fill_group", *sent, partial(_read_filled, queue, definition.name, at), waits=waits)


def _read_filled(queue: Settings, name: str, at: int, reply: list[Any]) -> Filled:
    word, total, status = reply
    if word == "LOST":
        raise RunLost(f"this attempt no longer holds the job of batch {name}")
    if word == "CONFLICT":
        raise Conflict(
            f"batch {name} of queue {queue.name} exists with another task, call or option "
            f"({status}, {total} children); choose another id, or delete it first"
        )
    if word == "GAP":
        raise UsageError(
            f"batch {name} of queue {queue.name} has {total} children, so none can be added at {at}; "
            "begin at batch.total"
        )
    return Filled(int(total), status)


def _limits(queue: Settings, gates: Sequence[str]) -> str:
    """The limits of these gates as the caller knows them, which a queue that does not know them takes over."""
    return json.dumps({name: queue.gates.get(name, "{}") for name in gates})


def pages(items: Sequence[str]) -> list[list[str]]:
    """Split items into pages for one script each."""
    return chunked(items, lambda item: size_of(item) + 16, MOST_ITEMS)


def cancel(queue: Settings, name: str, generation: str = "") -> Operation[bool]:
    """Call a group off; returns False if it has ended, is not of that generation, or there is none."""
    sent = _CANCEL(queue, name=name, generation=generation)
    return Operation("cancel_group", *sent, lambda reply: bool(reply == "cancelling"))


def retry(queue: Settings, name: str, generation: str = "") -> RoundTrips[int]:
    """Run the children that failed again, in a new generation; returns how many.

    With a `generation` of the caller's, a retry that was cut short is continued.

    Raises:
        UsageError: the group has not ended, or was called off before all its items became jobs.
        Conflict: another retry has begun meanwhile.
    """
    generation = generation or new_generation()
    left, count = -1, 0
    while True:
        (reply,) = yield [Operation("retry_group", *_RETRY(queue, name=name, generation=generation, left=left), list)]
        word, left, some = unwrap(reply)
        if word in ("RUNNING", "CUT"):
            why = "has not ended" if word == "RUNNING" else "was called off before all of its children were made"
            raise UsageError(f"batch {name} of queue {queue.name} {why}, so it can't be retried")
        if word == "OTHER":
            raise Conflict(f"batch {name} of queue {queue.name} is being retried by another process")
        count += int(some)
        if left <= 0:
            return count


def drop(queue: Settings, name: str, before: int | str = "", *, stand_ins: bool = False) -> RoundTrips[bool]:
    """Delete the record of a group; False if it began after the instant `before`, in ms.

    One that stands for a group of another queue is only deleted with `stand_ins`; otherwise the result is False.
    """
    while True:
        (reply,) = yield [_drop(queue, name, before, stand_ins=stand_ins)]
        word = unwrap(reply)
        if word != "more":
            return bool(word == "gone")


def drops(queue: Settings, names: Sequence[str]) -> list[Operation[str]]:
    """The operations that delete the records of groups with one child at most."""
    return [_drop(queue, name, "", stand_ins=True) for name in names]


def wake(queue: Settings, names: Sequence[str]) -> Operation[int]:
    """Wake the runs that wait for groups of another queue, for which those of these names stand."""
    return Operation("wake_runs", *_WAKE(queue, names=list(names)), int)


def _drop(queue: Settings, name: str, before: int | str, *, stand_ins: bool) -> Operation[str]:
    sent = _DROP(queue, name=name, before=before, stand_ins=int(stand_ins))
    return Operation("drop_group", *sent, str)


def drop_all(queue: Settings, before: int | str) -> RoundTrips[int]:
    """Delete the records of all groups that began by an instant, in ms; returns how many."""
    gone, kept = 0, 0
    while names := (yield from _names(queue, kept)):
        for name in names:
            if (yield from drop(queue, name, before)):
                gone += 1
            else:
                kept += 1
    return gone


def _names(queue: Settings, offset: int, limit: int = 100) -> RoundTrips[list[str]]:
    words = ("ZRANGE", queue.keys.groups, offset, offset + limit - 1)
    (reply,) = yield [Operation("groups", None, (), words, list)]
    found: list[str] = unwrap(reply)
    return found


def new_generation() -> str:
    """A generation: 6 random characters."""
    return new_request()[-6:].replace("_", "0").replace("-", "1")


# -- what is left to do


class Advance(NamedTuple):
    """What is left to do.

    Attributes:
        has_more: more is left to do now.
        next_ms: when groups need attention next, ms; None for never.
        stand_ins: of the groups that were looked at, those that stand for groups of other queues: the name, that queue,
            how the run is, how often it was requeued, and now in ms; see `stand_ins.py`.
    """

    has_more: bool
    next_ms: int | None
    stand_ins: tuple[tuple[str, str, str, int, int], ...] = ()


def advance(queue: Settings) -> Operation[Advance]:
    """Do what is left of the groups that need attention, a page at a time."""
    return Operation("advance", *_ADVANCE(queue, request=new_request(), most_kept=groups.MOST_KEPT), _read_advance)


def _read_advance(reply: list[Any]) -> Advance:
    found = tuple((name, queue, run, int(requeued), int(now)) for name, queue, run, requeued, now in reply[2])
    return Advance(reply[0] == 1, int(float(reply[1])) if reply[1] else None, found)


def look_at(queue: Settings, names: Sequence[str], at_ms: int = 0) -> Operation[int]:
    """Let those of these groups that there are need attention now, or at an instant."""
    words = [word for name in names for word in (str(at_ms), name)]
    return Operation("groups", None, (), ("ZADD", queue.keys.groups, "XX", *words), int)


def advance_all(queue: Settings) -> RoundTrips[None]:
    """Do all that is left to do now, for a queue without a promoter."""
    for _ in range(_MOST_ROUNDS):
        (reply,) = yield [advance(queue)]
        if not unwrap(reply).has_more:
            return


# -- looking


def read(queue: Settings, name: str) -> RoundTrips[dict[str, str]]:
    """The fields of a group, with the length of its list of items as `waiting`; {} if there is none."""
    return of_replies((yield reading(queue, name)))


def progress_of_these(queue: Settings, names: Sequence[str]) -> RoundTrips[dict[str, BatchProgress]]:
    """How far each of these groups is that there are. Those that are damaged say so, and hide no others."""
    replies = (yield [ask for name in names for ask in reading(queue, name)]) if names else []
    pairs = {name: replies[2 * n : 2 * n + 2] for n, name in enumerate(names)}
    wrong = [name for name, each in pairs.items() if any(isinstance(reply, Conflict) for reply in each)]
    types = (yield [ask for name in wrong for ask in _types(queue, name)]) if wrong else []
    damaged = {name: _damaged(name, *map(unwrap, types[2 * n : 2 * n + 2])) for n, name in enumerate(wrong)}
    found = {
        name: damaged.get(name) or groups.progress_of(name, of_replies(each, needs_status=False))
        for name, each in pairs.items()
    }
    return {name: it for name, it in found.items() if it is not None}


def _types(queue: Settings, name: str) -> list[Operation[str]]:
    key = queue.keys.group(name)
    return [Operation("group", None, (), ("TYPE", each), str) for each in (key, f"{key}:items")]


def _damaged(name: str, record: str, items: str) -> BatchProgress:
    """A group of which a key is of another type."""
    why = f"its record is a {record}, not a hash" if record != "hash" else f"its items are a {items}"
    return BatchProgress(name, groups.DAMAGED, 0, 0, 0, 0, 0, is_closed=False, began_at_ms=0, error=why)


def reading(queue: Settings, name: str) -> list[Operation[Any]]:
    """The operations that read a group."""
    key = queue.keys.group(name)
    return [
        Operation("group", None, (), ("HGETALL", key), dict_of),
        Operation("group", None, (), ("LLEN", f"{key}:items"), int),
    ]


def of_replies(replies: Sequence[Any], *, needs_status: bool = True) -> dict[str, str]:
    """What `read` returns, from the replies to `reading`; a damaged group without a status is none if it needs one."""
    fields: dict[str, str] = unwrap(replies[0])
    is_none = fields.get("status", "deleted" if needs_status or not fields else "") == "deleted"
    return {} if is_none else {**fields, "waiting": str(unwrap(replies[1]))}


def progress(queue: Settings, name: str) -> RoundTrips[BatchProgress | None]:
    """How far a group is; None if there is none."""
    return groups.progress_of(name, of_replies((yield reading(queue, name)), needs_status=False))


class GroupEnd(NamedTuple):
    """What a run has to know of a group that works for it.

    Attributes:
        fields: of its record; {} if there is none.
        first: the result of its first child, as JSON; None if it has none.
        failure: the first child that failed, if one did.
    """

    fields: dict[str, str]
    first: str | None = None
    failure: ChildFailure | None = None

    @property
    def status(self) -> str:
        """Its status, '' if there is none."""
        return self.fields.get("status", "")


def end_of(queue: Settings, name: str) -> RoundTrips[GroupEnd]:
    """How a group stands, and what its first child returned, in one round trip."""
    (found,) = yield from ends_of(queue, [name])
    return found


def ends_of(queue: Settings, names: Sequence[str]) -> RoundTrips[list[GroupEnd]]:
    """The same of some groups, in one round trip."""
    replies = yield [each for name in names for each in _end(queue, name)]
    return [_read_end(*replies[4 * n : 4 * n + 4]) for n in range(len(names))]


def _end(queue: Settings, name: str) -> list[Operation[Any]]:
    key = queue.keys.group(name)
    return [
        *reading(queue, name),
        Operation("results", None, (), ("HGET", f"{key}:results:0", "0"), identity),
        Operation("failures", None, (), ("LRANGE", f"{key}:failed", -1, -1), list),
    ]


def _read_end(fields: Any, items: Any, first: Any, failures: Any) -> GroupEnd:
    found = of_replies((fields, items))
    failed = [ChildFailure.from_line(line, found) for line in unwrap(failures)]
    return GroupEnd(found, unwrap(first), failed[0] if failed else None)


def statuses(queue: Settings, names: Sequence[str]) -> RoundTrips[list[str]]:
    """The status of each group, in one round trip: '' if there is none, `filling` while jobs are still to be added."""
    return [status for status, _ in (yield from generations(queue, names))]


def generations(
    queue: Settings, names: Sequence[str], *, damaged: str | None = None
) -> RoundTrips[list[tuple[str, str]]]:
    """What `statuses` returns, each with the generation; `damaged` is the status of a group of another type.

    Raises:
        Conflict: a group is of another type, and `damaged` is None.
    """
    words = ("status", "closed", "generation")
    replies = yield [Operation("group", None, (), ("HMGET", queue.keys.group(name), *words), list) for name in names]
    bad = [damaged, "1", ""]
    found = [bad if damaged and isinstance(reply, Conflict) else unwrap(reply) for reply in replies]
    return [(_status(status, closed), generation or "") for status, closed, generation in found]


def _status(status: str | None, closed: str | None) -> str:
    return "filling" if status == "running" and closed != "1" else status or ""


def list_groups(queue: Settings, limit: int, offset: int = 0) -> RoundTrips[list[BatchProgress]]:
    """Groups: first those that need attention soonest, which are those that have not ended."""
    names = yield from _names(queue, offset, limit)
    return [*(yield from progress_of_these(queue, names)).values()]


def results(queue: Settings, name: str, start: int) -> RoundTrips[tuple[list[tuple[int, Any]], int]]:
    """A page of results in the order of the children's numbers, and the number at which the next page begins."""
    first, key = start // groups.PER_BUCKET, queue.keys.group(name)
    replies = yield [
        Operation("results", None, (), ("HGETALL", f"{key}:results:{first + n}"), dict_of) for n in range(_BUCKETS)
    ]
    found = [(int(number), decoded(text)) for reply in replies for number, text in unwrap(reply).items()]
    return sorted(each for each in found if each[0] >= start), (first + _BUCKETS) * groups.PER_BUCKET


def failures(queue: Settings, name: str, offset: int, limit: int) -> RoundTrips[list[ChildFailure]]:
    """A page of the children that failed, in the order in which they did.

    An error may have ended a script that noted one, and it was noted again.
    """
    fields = yield from read(queue, name)
    words = ("LRANGE", f"{queue.keys.group(name)}:failed", -offset - limit, -offset - 1)
    (reply,) = yield [Operation("failures", None, (), words, list)]
    found = [ChildFailure.from_line(line, fields) for line in reversed(unwrap(reply))]
    if fields.get("chained") == "1":
        found = yield from _with_calls(queue, name, fields, found)
    return list({failure.number: failure for failure in found}.values())


def _with_calls(
    queue: Settings, name: str, fields: Mapping[str, str], found: Sequence[ChildFailure]
) -> RoundTrips[list[ChildFailure]]:
    """The failed calls of a chain with their tasks and arguments, which only the records of their jobs have."""
    jobs = [queue.keys.job(f"{name}-{failure.number}-{fields.get('generation', '')}") for failure in found]
    payloads = yield [Operation("failures", None, (), ("HGET", job, "payload"), identity) for job in jobs]
    return [
        failure.of_call(decoded(text)) if isinstance(text, str) else failure
        for failure, text in zip(found, payloads, strict=True)
    ]


def dict_of(reply: Any) -> dict[str, str]:
    """A hash as a dict, whether the server sends it as pairs or as a map."""
    return dict(reply) if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
