"""Writing schedules: one, or all that an application's code has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Literal, get_args

from schedq.errors import Conflict, SchedqError
from schedq.model.ids import new_request
from schedq.model.records import whole
from schedq.model.settings import Settings
from schedq.schedules.control import drop
from schedq.schedules.definition import DEFINITION_FIELDS, Definition
from schedq.schedules.records import (
    MOST_TRIES,
    ScheduleScan,
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
"""What became of a definition; kept: a higher version of the application wrote what is there."""
Registered = Literal["created", "changed", "unchanged", "kept", "superseded"]
"""What became of a definition of a worker's code; superseded: live workers have what replaced it."""
_UPSERT: Final = Binding("upsert", "schedule", "request", "id", "seen", "slot", "count", "words")
PAGE: Final = 250
"""Schedules that one round trip looks at."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What became of the schedules of an application's code; ids, in order.

    Attributes:
        created: new ones.
        changed: written anew; the next slot is another one only if what says when is another.
        unchanged: as they were.
        kept: a higher version of the application wrote what is there.
        missing: stored by this application's code once, which does not have them any more.
        removed: of these, the ones that were deleted, since that was asked for.
        superseded: replaced by another release before, whose workers are alive: left as they wrote it.
    """

    created: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    kept: tuple[str, ...]
    missing: tuple[str, ...]
    removed: tuple[str, ...]
    superseded: tuple[str, ...] = ()


def upsert(queue: Settings, definition: Definition) -> RoundTrips[Upserted]:
    """Write a definition, if it says anything new; the next slot stays, unless what says when is another."""
    request = new_request()
    word: Upserted = yield from retry_on_conflict(
        queue, definition.id, lambda it: _written(queue, definition, it.seen, it.now_ms, request)
    )
    return word


def register(
    queue: Settings,
    definitions: Sequence[Definition],
    owners: Collection[str],
    *,
    prune: bool = False,
    unless_superseded: bool = False,
) -> RoundTrips[Registration]:
    """Write the definitions of an application's code; report, or delete, those that it no longer has.

    Args:
        queue: its settings.
        definitions: of the code.
        owners: whose schedules the code may call missing.
        prune: delete those.
        unless_superseded: the code may be of an older release, see `upsert_some`.
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
    """Upsert several in two round trips; again those that other clients write at the same time.

    With `unless_superseded` leave alone what has replaced one of them before and is the code of a live worker. That one
    is of a newer release, so that this is an older one's worker which was started again. When the workers of the newer
    release have gone, as after a rollback, the older one's definition is written. A higher version decides at once.
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
    raise Conflict(f"schedules of queue {queue.name} are changed by others all the time")


def replaced(queue: Settings, definitions: Sequence[Definition]) -> RoundTrips[list[tuple[Definition, str, str]]]:
    """Those in whose place another definition stands: with the digest of that, and when it has slots, in words."""
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
    """Write definitions again for which an older release of schedq has put a former one back; replies which.

    Its workers write what their code has when they start, whatever has replaced that, and leave its digest among those
    of former definitions, where no newer release leaves it. While one of them lives nothing is written: what it has may
    be what is meant, as after a rollback.
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
    """Digests of the definitions that the code of live workers has."""
    records = yield from workers(queue)
    return frozenset(digest for worker in records if not worker.is_stopping for digest in worker.definitions)


def _seen(queue: Settings, definitions: Sequence[Definition]) -> RoundTrips[ScheduleScan]:
    (reply,) = yield [scan_schedules(queue, "these", ids=[definition.id for definition in definitions])]
    found: ScheduleScan = unwrap(reply)
    return found


def _written(
    queue: Settings, definition: Definition, seen: ScheduleStatus, now_ms: int, request: str
) -> Operation[Any] | Upserted:
    """What to send for a definition, or what has become of it already."""
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
    """How all schedules stand, by pages."""
    found: dict[str, ScheduleStatus] = {}
    for offset in count(0, PAGE):
        (reply,) = yield [scan_schedules(queue, "all", offset, PAGE)]
        page: ScheduleScan = unwrap(reply)
        found |= {seen.id: seen for seen in page.found}
        if len(page.found) < PAGE:
            break
    return list(found.values())
