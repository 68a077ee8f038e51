"""Writing schedules: one, or all that an application's code has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from schedq import lua
from schedq.ids import new_request
from schedq.job import whole
from schedq.operations import Argument, Flow, Operation, firm
from schedq.operations.firing import Glance, Peeked, peek, sendable
from schedq.operations.steering import drop
from schedq.operations.timetable import until_unseen
from schedq.schedule import DEFINITION_FIELDS, Definition
from schedq.settings import Settings

Upserted = Literal["created", "changed", "unchanged", "kept"]
"""What an upsert came to; kept: a higher version of the application wrote what is there."""
_PAGE: Final = 250


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
    """

    created: tuple[str, ...]
    changed: tuple[str, ...]
    unchanged: tuple[str, ...]
    kept: tuple[str, ...]
    missing: tuple[str, ...]
    removed: tuple[str, ...]


def upsert(queue: Settings, definition: Definition) -> Flow[Upserted]:
    """Write a definition, if it says anything new; the next slot stays, unless what says when is another."""
    request = new_request()
    word: Upserted = yield from until_unseen(
        queue, definition.id, lambda it: _written(queue, definition, it.seen, it.now_ms, request)
    )
    return word


def register(
    queue: Settings, definitions: Sequence[Definition], owners: Collection[str], *, prune: bool
) -> Flow[Registration]:
    """Write the definitions of an application's code; report, or delete, those that it has no more."""
    became: dict[str, list[str]] = {word: [] for word in ("created", "changed", "unchanged", "kept")}
    for first in range(0, len(definitions), _PAGE):
        some = definitions[first : first + _PAGE]
        for definition, word in zip(some, (yield from upsert_some(queue, some)), strict=True):
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
        (answer,) = yield [drop(queue, seen.id, seen.definition)]
        if firm(answer) == "yes":
            removed.append(seen.id)
    words = {word: tuple(sorted(ids)) for word, ids in became.items()}
    return Registration(**words, missing=tuple(sorted(seen.id for seen in missing)), removed=tuple(sorted(removed)))


def upsert_some(queue: Settings, definitions: Sequence[Definition]) -> Flow[list[Upserted]]:
    """Upsert several in two round trips; those that others write at the same time, by themselves."""
    (answer,) = yield [peek(queue, "these", 0, 0, [definition.id for definition in definitions])]
    peeked: Peeked = firm(answer)
    words: list[Any] = [
        _written(queue, definition, seen, peeked.now_ms, new_request())
        for definition, seen in zip(definitions, peeked.found, strict=True)
    ]
    writes = [number for number, word in enumerate(words) if isinstance(word, Operation)]
    answers = (yield [words[number] for number in writes]) if writes else ()
    for number, answer in zip(writes, answers, strict=True):
        word = firm(answer)
        words[number] = (yield from upsert(queue, definitions[number])) if word == "AGAIN" else word
    return words


def _written(
    queue: Settings, definition: Definition, seen: Glance, now_ms: int, request: str
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
        upcoming = definition.next_after(now_ms)
        slot = "" if upcoming is None else upcoming
    keys = queue.keys
    flat = [word for pair in fields.items() for word in pair]
    return Operation(
        "upsert",
        lua.load("upsert"),
        (keys.schedules, keys.schedule(definition.id), keys.log),
        (
            queue.now_argument(),
            queue.log_size,
            keys.due,
            request,
            definition.id,
            sendable(seen.definition),
            slot,
            len(DEFINITION_FIELDS),
            *DEFINITION_FIELDS,
            *flat,
        ),
        lambda reply: reply,
    )


def _listed(queue: Settings) -> Flow[list[Glance]]:
    """How all schedules stand, by pages."""
    found: dict[str, Glance] = {}
    offset, has_more = 0, True
    while has_more:
        (answer,) = yield [peek(queue, "all", offset, _PAGE)]
        page: Peeked = firm(answer)
        found |= {seen.id: seen for seen in page.found}
        offset += len(page.found)
        has_more = len(page.found) == _PAGE
    return list(found.values())
