"""Writing schedules: one, or all that an application's code has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from schedq import lua
from schedq.errors import Conflict, SchedqError
from schedq.ids import new_request
from schedq.job import whole
from schedq.operations import Argument, Flow, Operation, firm
from schedq.operations.directory import workers
from schedq.operations.firing import Glance, Peeked, peek, read, sendable
from schedq.operations.steering import drop
from schedq.operations.timetable import until_unseen
from schedq.schedule import DEFINITION_FIELDS, Definition
from schedq.settings import Settings

Upserted = Literal["created", "changed", "unchanged", "kept"]
"""What an upsert came to; kept: a higher version of the application wrote what is there."""
Registered = Literal["created", "changed", "unchanged", "kept", "superseded"]
"""What a worker's registration came to; superseded: live workers have what replaced it."""
Write = Callable[[Settings, Sequence[Definition]], Flow[list[Any]]]
_MOST_TRIES: Final = 20
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


def upsert(queue: Settings, definition: Definition) -> Flow[Upserted]:
    """Write a definition, if it says anything new; the next slot stays, unless what says when is another."""
    request = new_request()
    word: Upserted = yield from until_unseen(
        queue, definition.id, lambda it: _written(queue, definition, it.seen, it.now_ms, request)
    )
    return word


def register_again(queue: Settings, definitions: Sequence[Definition], owners: Collection[str]) -> Flow[Registration]:
    """Write the definitions of an application's code as a worker does, which may be one of an older release."""
    return (yield from register(queue, definitions, owners, prune=False, write=upsert_unless_superseded))


def register(
    queue: Settings,
    definitions: Sequence[Definition],
    owners: Collection[str],
    *,
    prune: bool,
    write: Write | None = None,
) -> Flow[Registration]:
    """Write the definitions of an application's code; report, or delete, those that it has no more.

    Args:
        queue: its settings.
        definitions: of the code.
        owners: whose schedules the code may call missing.
        prune: delete those.
        write: what writes some of them; `upsert_some` if not given.
    """
    write = write or upsert_some
    became: dict[str, list[str]] = {word: [] for word in get_args(Registered)}
    for first in range(0, len(definitions), PAGE):
        some = definitions[first : first + PAGE]
        for definition, word in zip(some, (yield from write(queue, some)), strict=True):
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
    peeked = yield from _seen(queue, definitions)
    words = yield from _sent(_planned(queue, definitions, peeked))
    for number, word in enumerate(words):
        if word == "AGAIN":
            words[number] = yield from upsert(queue, definitions[number])
    return words


def upsert_unless_superseded(queue: Settings, definitions: Sequence[Definition]) -> Flow[list[Registered]]:
    """Upsert several, but leave alone what has replaced one of them before and is the code of a live worker.

    That one is of a newer release, so that this is an older one's worker which was started again. When the workers of
    the newer release have gone, as after a rollback, the older one's definition is written. A higher version decides at
    once.
    """
    words: list[Any] = ["AGAIN"] * len(definitions)
    for _ in range(_MOST_TRIES):
        left = [number for number, word in enumerate(words) if word == "AGAIN"]
        if not left:
            return words
        some = [definitions[number] for number in left]
        peeked = yield from _seen(queue, some)
        is_former = [_was_replaced(it, seen) for it, seen in zip(some, peeked.found, strict=True)]
        living = (yield from _living(queue)) if any(is_former) else frozenset()
        plans = _planned(queue, some, peeked)
        for n, seen in enumerate(peeked.found):
            if is_former[n] and isinstance(plans[n], Operation) and seen.definition in living:
                plans[n] = "superseded"
        for number, word in zip(left, (yield from _sent(plans)), strict=True):
            words[number] = word
    raise Conflict(f"schedules of queue {queue.name} are changed by others all the time")


def replaced(queue: Settings, definitions: Sequence[Definition]) -> Flow[list[tuple[Definition, str, str]]]:
    """Those in whose place another definition stands: with the digest of that, and when it has slots, in words."""
    found: list[tuple[Definition, str, str]] = []
    for first in range(0, len(definitions), PAGE):
        some = definitions[first : first + PAGE]
        peeked = yield from _seen(queue, some)
        others = [
            (mine, seen.definition)
            for mine, seen in zip(some, peeked.found, strict=True)
            if seen.definition not in ("", mine.digest)
        ]
        answers = (yield [read(queue, mine.id) for mine, _ in others]) if others else ()
        for (mine, digest), answer in zip(others, answers, strict=True):
            try:
                words = Definition.from_fields(mine.id, firm(answer)).words()
            except SchedqError:
                words = "damaged"
            found.append((mine, digest, words))
    return found


def restore(queue: Settings, definitions: Sequence[Definition]) -> Flow[list[Definition]]:
    """Write definitions again for which an older release of schedq has put a former one back; answers which.

    Its workers write what their code has when they start, whatever has replaced that, and leave its digest among those
    of former definitions, where no newer release leaves it. While one of them lives nothing is written: what it has may
    be what is meant, as after a rollback.
    """
    peeked = yield from _seen(queue, definitions)
    lost = [
        mine
        for mine, seen in zip(definitions, peeked.found, strict=True)
        if seen.owner == mine.owner != ""
        and seen.definition in seen.replaced
        and mine.digest not in (seen.definition, *seen.replaced)
    ]
    if not lost or not all(worker.tells_definitions for worker in (yield from workers(queue))):
        return []
    words = yield from upsert_some(queue, lost)
    return [mine for mine, word in zip(lost, words, strict=True) if word == "changed"]


def _was_replaced(definition: Definition, seen: Glance) -> bool:
    return definition.digest in seen.replaced and definition.version <= whole(seen.version)


def _living(queue: Settings) -> Flow[frozenset[str]]:
    """Digests of the definitions that the code of live workers has."""
    crew = yield from workers(queue)
    return frozenset(digest for worker in crew if not worker.is_stopping for digest in worker.definitions)


def _seen(queue: Settings, definitions: Sequence[Definition]) -> Flow[Peeked]:
    (answer,) = yield [peek(queue, "these", 0, 0, [definition.id for definition in definitions])]
    found: Peeked = firm(answer)
    return found


def _planned(queue: Settings, definitions: Sequence[Definition], peeked: Peeked) -> list[Any]:
    """Per definition what to send for it, or the word for what it came to already."""
    return [
        _written(queue, definition, seen, peeked.now_ms, new_request())
        for definition, seen in zip(definitions, peeked.found, strict=True)
    ]


def _sent(plans: Sequence[Any]) -> Flow[list[Any]]:
    """Send what is to be sent; a word per plan, AGAIN where somebody else was faster."""
    words = list(plans)
    writes = [number for number, word in enumerate(words) if isinstance(word, Operation)]
    answers = (yield [words[number] for number in writes]) if writes else ()
    for number, answer in zip(writes, answers, strict=True):
        words[number] = firm(answer)
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
        (answer,) = yield [peek(queue, "all", offset, PAGE)]
        page: Peeked = firm(answer)
        found |= {seen.id: seen for seen in page.found}
        offset += len(page.found)
        has_more = len(page.found) == PAGE
    return list(found.values())
