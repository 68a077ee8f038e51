"""Store schedules: one, or all that are declared in an application's code."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Literal, get_args

from schedq.errors import Conflict, SchedqError, UsageError
from schedq.model.ids import new_request
from schedq.model.records import whole
from schedq.model.settings import Settings
from schedq.schedules.control import drop
from schedq.schedules.definition import DEFINITION_FIELDS, Definition
from schedq.schedules.records import (
    MOST_TRIES,
    ScheduleScan,
    ScheduleSnapshot,
    ScheduleStatus,
    as_argument,
    as_bytes_if_needed,
    read,
    retry_on_conflict,
    scan_schedules,
)
from schedq.transitions import Argument, Binding, Operation, RoundTrips, unwrap
from schedq.transitions.heartbeat import workers

Upserted = Literal["created", "changed", "unchanged", "kept"]
"""The result of storing a definition; kept: the stored one has a higher version."""
Registered = Literal["created", "changed", "unchanged", "kept", "superseded"]
"""The result for a definition in a worker's code; superseded: live workers have what replaced it."""
_UPSERT: Final = Binding("upsert", "schedule", "request", "id", "seen", "slot", "count", "words")
PAGE: Final = 250
"""The most schedules in one round trip."""


@dataclass(frozen=True, slots=True)
class Registration:
    """The result of registering the schedules in an application's code; sorted ids.

    Attributes:
        created: new schedules.
        changed: changed schedules; the next slot changes only if the timing does.
        unchanged: schedules that were stored already.
        kept: schedules whose stored definition has a higher version.
        missing: stored schedules of this application that are no longer in its code.
        removed: missing schedules that were deleted with `prune`.
        superseded: schedules left alone because live workers of another release have the stored definition.
    """

    created: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    kept: tuple[str, ...]
    missing: tuple[str, ...]
    removed: tuple[str, ...]
    superseded: tuple[str, ...] = ()


def upsert(queue: Settings, definition: Definition) -> RoundTrips[Upserted]:
    """Store a definition if it has changed; the next slot changes only if the timing does."""
    request = new_request()

    word: Upserted = yield from retry_on_conflict(
        queue, definition.id, lambda it: _written(queue, definition, it.seen, it.now_ms, request)
    )
    return word


def update(queue: Settings, schedule_id: str, change: Callable[[Definition], Definition]) -> RoundTrips[Upserted]:
    """Change what is stored, also if other clients change it at the same time.

    Raises:
        UsageError: the schedule does not exist or is damaged.
    """
    request = new_request()

    def decide(it: ScheduleSnapshot) -> Operation[Any] | Upserted:
        if not it.fields:
            raise UsageError(f"queue {queue.name} has no schedule {schedule_id}")
        return _written(queue, change(it.definition()), it.seen, it.now_ms, request)

    word: Upserted = yield from retry_on_conflict(queue, schedule_id, decide)
    return word


def register(
    queue: Settings,
    definitions: Sequence[Definition],
    owners: Collection[str],
    *,
    prune: bool = False,
    unless_superseded: bool = False,
) -> RoundTrips[Registration]:
    """Store the definitions in an application's code; report or delete schedules that are no longer in it.

    Args:
        queue: its settings.
        definitions: the definitions in the code.
        owners: owners whose schedules the code may report as missing.
        prune: delete missing schedules.
        unless_superseded: the code may be an older release; see `upsert_some`.
    """
    became: dict[str, list[str]] = {word: [] for word in get_args(Registered)}
    for first in range(0, len(definitions), PAGE):
        some = definitions[first : first + PAGE]
        words = yield from upsert_some(queue, some, unless_superseded=unless_superseded)
        for definition, word in zip(some, words, strict=True):
            became[word].append(definition.id)
    newest = {owner: max((d.version for d in definitions if d.owner == owner), default=0) for owner in owners}
    listed = yield from _listed(queue)
    ours = {definition.id for definition in definitions}
    missing = [
        seen
        for seen in listed
        if seen.id not in ours and whole(seen.version) <= newest.get(seen.owner, -1) and seen.owner
    ]
    removed = []
    for seen in missing if prune else ():
        (reply,) = yield [drop(queue, seen.id, seen.definition)]
        if unwrap(reply):
            removed.append(seen.id)
    sorted_ids = {word: tuple(sorted(ids)) for word, ids in became.items()}
    return Registration(
        **sorted_ids, missing=tuple(sorted(seen.id for seen in missing)), removed=tuple(sorted(removed))
    )


def upsert_some(
    queue: Settings, definitions: Sequence[Definition], *, unless_superseded: bool = False
) -> RoundTrips[list[Registered]]:
    """Upsert several in two round trips; repeat for those that other clients change at the same time.

    With `unless_superseded`, a stored definition that replaced one of these is left alone while a live worker has it in
    its code: that worker runs a newer release, and this one an older release that was started again. Once the workers
    of the newer release are gone, as after a rollback, the older definition is stored. A higher version always wins.
    """
    words: dict[int, Any] = dict.fromkeys(range(len(definitions)), "AGAIN")
    for _ in range(MOST_TRIES):
        left = [number for number, word in words.items() if word == "AGAIN"]
        if not left:
            return [*words.values()]
        scan = yield from _seen(queue, [definitions[number] for number in left])
        seen = dict(zip(left, scan.found, strict=True))
        words |= {n: _written(queue, definitions[n], seen[n], scan.now_ms, new_request()) for n in left}
        writes = [n for n in left if isinstance(words[n], Operation)]
        former = [n for n in writes if unless_superseded and _was_replaced(definitions[n], seen[n])]
        living = (yield from _living(queue)) if former else frozenset()
        words |= {n: "superseded" for n in former if seen[n].definition in living}
        writes = [n for n in writes if words[n] != "superseded"]
        replies = (yield [words[n] for n in writes]) if writes else ()
        words |= {n: unwrap(reply) for n, reply in zip(writes, replies, strict=True)}
    raise Conflict(f"schedules of queue {queue.name} keep being changed by other clients")


def replaced(queue: Settings, definitions: Sequence[Definition]) -> RoundTrips[list[tuple[Definition, str, str]]]:
    """The definitions for which another one is stored, with its digest and its timing in words."""
    found: list[tuple[Definition, str, str]] = []
    for first in range(0, len(definitions), PAGE):
        some = definitions[first : first + PAGE]
        scan = yield from _seen(queue, some)
        others = [
            (mine, seen.definition)
            for mine, seen in zip(some, scan.found, strict=True)
            if seen.definition not in ("", mine.digest)
        ]
        replies = (yield [read(queue, mine.id) for mine, _ in others]) if others else ()
        for (mine, digest), reply in zip(others, replies, strict=True):
            try:
                words = Definition.from_fields(mine.id, unwrap(reply)).describe()
            except SchedqError:
                words = "damaged"
            found.append((mine, digest, words))
    return found


def restore(queue: Settings, definitions: Sequence[Definition]) -> RoundTrips[list[Definition]]:
    """Store definitions again that an older release of schedq replaced by former ones; returns them.

    Workers of such a release always store their code's definitions when they start, and leave the digest among those of
    former definitions, from which newer releases remove it. While one of them is alive nothing is written, because its
    definition may be the intended one, as after a rollback.
    """
    scan = yield from _seen(queue, definitions)
    lost = [
        mine
        for mine, seen in zip(definitions, scan.found, strict=True)
        if seen.owner == mine.owner != ""
        and seen.definition in seen.replaced
        and mine.digest not in (seen.definition, *seen.replaced)
    ]
    if not lost or not all(worker.tells_definitions for worker in (yield from workers(queue))):
        return []
    words = yield from upsert_some(queue, lost)
    return [mine for mine, word in zip(lost, words, strict=True) if word == "changed"]


def _was_replaced(definition: Definition, seen: ScheduleStatus) -> bool:
    return definition.digest in seen.replaced and definition.version <= whole(seen.version)


def _living(queue: Settings) -> RoundTrips[frozenset[str]]:
    """Digests of the definitions in the code of live workers."""
    records = yield from workers(queue)
    return frozenset(digest for worker in records if not worker.is_stopping for digest in worker.definitions)


def _seen(queue: Settings, definitions: Sequence[Definition]) -> RoundTrips[ScheduleScan]:
    (reply,) = yield [scan_schedules(queue, "these", ids=[definition.id for definition in definitions])]
    found: ScheduleScan = unwrap(reply)
    return found


def _written(
    queue: Settings, definition: Definition, seen: ScheduleStatus, now_ms: int, request: str
) -> Operation[Any] | Upserted:
    """The operation that stores a definition, or the result if nothing need be sent."""
    fields = definition.to_fields()
    if whole(seen.version) > definition.version:
        return "kept"
    is_whole = bool(seen.slot) and not seen.error
    if is_whole and seen.definition == fields["definition"]:
        return "unchanged"
    slot: Argument = "keep"
    if not is_whole or seen.timing != fields["timing"] or (seen.slot == "inf" and not seen.is_paused):
        slot = as_argument(definition.next_after(now_ms))
    return Operation(
        "upsert",
        *_UPSERT(
            queue,
            schedule=queue.keys.schedule(definition.id),
            request=request,
            id=definition.id,
            seen=as_bytes_if_needed(seen.definition),
            slot=slot,
            count=len(DEFINITION_FIELDS),
            words=[*DEFINITION_FIELDS, *(word for pair in fields.items() for word in pair)],
        ),
        lambda reply: reply,
    )


def _listed(queue: Settings) -> RoundTrips[list[ScheduleStatus]]:
    """The status of all schedules, read page by page."""
    found: dict[str, ScheduleStatus] = {}
    for offset in count(0, PAGE):
        (reply,) = yield [scan_schedules(queue, "all", offset, PAGE)]
        page: ScheduleScan = unwrap(reply)
        found |= {seen.id: seen for seen in page.found}
        if len(page.found) < PAGE:
            break
    return list(found.values())
