"""Firing slots: look what is due, plan, and have the script carry it out, a batch at a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from schedq import lua
from schedq.errors import Conflict, UsageError
from schedq.instants import duration_ms
from schedq.job import score_ms
from schedq.operations import Argument, Flow, Operation, firm
from schedq.operations.upkeep import pairs
from schedq.schedule import Definition
from schedq.settings import Settings
from schedq.slots import Entry, Plan, plan

MOST_FIRED: Final = 60
"""Schedules in one script: it keeps everybody else waiting, for about 40 µs each."""
MOST_BATCHES: Final = 20
"""Batches in one tick: then jobs are promoted and reclaimed again."""
SLOTS_KEPT: Final = 100
_MOST_REMEMBERED: Final = 100_000


@dataclass(frozen=True, slots=True)
class Glance:
    """How one schedule stands.

    Attributes:
        slot: its score as Redis has it, '' without one.
        definition: digest of the definition, '' if there is none.
        timing: digest of what decides when it has slots.
        version: of the application that wrote it, as stored.
        owner: whose it is.
        is_paused: somebody paused it.
        error: what it was parked for, or ''.
        replaced: digests of the definitions that were replaced of late.
    """

    id: str
    slot: str
    definition: str
    timing: str
    version: str
    owner: str
    is_paused: bool
    error: str
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Peeked:
    """What a look at schedules found.

    Attributes:
        now_ms: Redis's clock.
        upcoming_ms: the first slot that is not due, or None.
        found: how those that were asked for stand.
    """

    now_ms: int
    upcoming_ms: int | None
    found: tuple[Glance, ...]


@dataclass(frozen=True, slots=True)
class Fired:
    """What one tick did.

    Attributes:
        jobs: how many were made.
        moved: schedules whose slot went on.
        upcoming_ms: the first slot that is not due, or None.
        has_more: not all that is due was looked at.
        resting: ids that are due and must wait: for the last run, or since they have caught up enough for one tick.
        parked: what can't be fired, and why.
        offset: where the next tick goes on among the same slots; 0 if nothing is left.
        began_ms: Redis's clock when it began.
    """

    jobs: int
    moved: int
    upcoming_ms: int | None
    has_more: bool
    resting: tuple[str, ...]
    parked: tuple[tuple[str, str], ...]
    offset: int
    began_ms: int


class Memory:
    """Definitions that were read before, by the digest that stands beside them; damaged ones as what is wrong."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, Definition | str]] = {}

    def get(self, seen: Glance) -> Definition | str | None:
        """What is known of the definition that was seen."""
        digest, known = self._known.get(seen.id, ("", None))
        return known if digest and digest == seen.definition else None

    def learn(self, seen: Glance, answer: Any) -> Definition | str:
        """Read what is stored, and remember it."""
        found: Definition | str
        try:
            found = Definition.from_fields(seen.id, firm(answer))
        except (UsageError, Conflict) as error:
            found = str(error)
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        self._known[seen.id] = (seen.definition, found)
        return found


def peek(
    queue: Settings, mode: str, offset: int, limit: int, ids: Sequence[str] = (), *, after_ms: int | None = None
) -> Operation[Peeked]:
    """Look at schedules: 'due', those of slots after an instant if it is given, 'all', or 'these'."""
    keys = queue.keys

    def read(reply: list[Any]) -> Peeked:
        rows = [reply[n : n + 9] for n in range(2, len(reply), 9)]
        found = tuple(_glance(*row) for row in rows)
        return Peeked(int(reply[0]), score_ms(reply[1]) if reply[1] else None, found)

    after: Argument = "" if after_ms is None else after_ms
    args: tuple[Argument, ...] = (keys.definitions, queue.now_argument(), mode, offset, limit, after, *ids)
    return Operation("peek", lua.load("peek"), (keys.schedules,), args, read)


def _glance(
    name: str,
    slot: str,
    definition: str,
    timing: str,
    version: str,
    owner: str,
    paused: str,
    error: str,
    replaced: str,
) -> Glance:
    former = tuple(replaced.split())
    return Glance(name, slot, definition, timing, version, owner, is_paused=paused != "", error=error, replaced=former)


def read(queue: Settings, schedule_id: str) -> Operation[dict[str, str]]:
    """All fields of a schedule's hash; empty if there is none."""
    key = queue.keys.schedule(schedule_id)
    return Operation(f"read {key}", None, (), ("HGETALL", sendable(key)), pairs)


def sendable(text: str) -> str:
    """The text, or its bytes if it came from Redis as no UTF-8, which no text can be sent as."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return cast(str, text.encode(errors="surrogateescape"))
    return text


def fire(queue: Settings, batch: Sequence[tuple[Glance, Plan]]) -> Operation[tuple[int, tuple[str, ...]]]:
    """Carry plans out; answers how many jobs were made, and a word per schedule, fewer if it was too much for one."""
    keys = queue.keys
    args: list[Argument] = [
        keys.jobs,
        queue.now_argument(),
        keys.events,
        queue.log_size,
        keys.due,
        keys.definitions,
        queue.failed_history,
        duration_ms(queue.min_keep, "min_keep"),
        SLOTS_KEPT,
    ]
    for seen, made in batch:
        upcoming: Argument = "" if made.next_ms is None else made.next_ms
        args += (sendable(seen.id), seen.slot, sendable(seen.definition), upcoming, len(made.entries))
        for entry in made.entries:
            args += entry.args()
    return Operation(
        "fire",
        lua.load("fire"),
        (
            keys.schedules,
            keys.pending,
            keys.delayed,
            keys.processing,
            keys.leases,
            keys.cancelled,
            keys.broken,
            keys.stats,
            keys.wake,
            keys.paused,
            keys.promoter,
            keys.log,
        ),
        tuple(args),
        lambda reply: (int(reply[0]), tuple(reply[1:])),
    )


def fire_due(
    queue: Settings, memory: Memory, resting: Collection[str] = (), *, after_ms: int | None = None, offset: int = 0
) -> Flow[Fired]:
    """Fire what is due, in so many batches.

    Args:
        queue: whose schedules.
        memory: definitions that were read before.
        resting: ids that are left alone.
        after_ms: only slots later than that.
        offset: where to begin: so many of those slots, the earliest, are passed over.

    Raises:
        QueueFull: Redis's memory is full; the slots stay due.
    """
    tick = _Tick(queue, memory, resting, offset)
    (answer,) = yield [peek(queue, "due", offset, MOST_FIRED, after_ms=after_ms)]
    peeked: Peeked = firm(answer)
    tick.began_ms = peeked.now_ms
    for _ in range(MOST_BATCHES):
        seen = [glance for glance in peeked.found if glance.id not in tick.resting]
        unknown = [glance for glance in seen if memory.get(glance) is None]
        if unknown:
            answers = yield [read(queue, glance.id) for glance in unknown]
            for glance, found in zip(unknown, answers, strict=True):
                tick.learned[glance.id] = memory.learn(glance, found)
        round_ = [peek(queue, "due", tick.passed(peeked), MOST_FIRED, after_ms=after_ms)]
        if seen:
            batch = [(glance, tick.planned(glance, peeked.now_ms)) for glance in seen]
            fired, answer = yield [fire(queue, batch), *round_]
            tick.note(batch, fired, peeked.now_ms)
        elif len(peeked.found) < MOST_FIRED:
            return tick.result(peeked, is_through=True)
        else:
            (answer,) = yield round_
        peeked = firm(answer)
    return tick.result(peeked, is_through=not peeked.found)


class _Tick:
    """What one tick has done so far."""

    def __init__(self, queue: Settings, memory: Memory, resting: Collection[str], offset: int) -> None:
        self.began_ms = 0
        self._queue = queue
        self._memory = memory
        self._offset = offset
        self._jobs = 0
        self._moved = 0
        self._began = frozenset(resting)
        self._parked: list[tuple[str, str]] = []
        self.resting = set(resting)
        self.learned: dict[str, Definition | str] = {}

    def passed(self, peeked: Peeked) -> int:
        """Where to look next: past those at the head of the page that must wait, for they stay there."""
        for glance in peeked.found:
            if glance.id not in self.resting:
                break
            self._offset += 1
        return self._offset

    def planned(self, seen: Glance, now_ms: int) -> Plan:
        """What is to become of a schedule that is due."""
        definition = self._memory.get(seen) or self.learned.get(seen.id, "it was not read")
        if isinstance(definition, Definition):
            try:
                return plan(definition, _slot(seen), now_ms)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one must not stop the others
                definition = f"its slots can't be found: {type(error).__name__}: {error}"
        return park(definition)

    def note(self, batch: Sequence[tuple[Glance, Plan]], answer: Any, now_ms: int) -> None:
        """Take the script's answers in.

        Raises:
            SchedqError: the one that the script ended in.
        """
        jobs, words = firm(answer)
        self._jobs += jobs
        for (seen, made), word in zip(batch, words, strict=False):
            is_behind = made.next_ms is not None and made.next_ms <= now_ms
            if word == "WAITS" or (word == "FIRED" and is_behind):
                self.resting.add(seen.id)
            if word in ("PARKED", "GONE"):
                self._parked.append((seen.id, str(made.entries[0].detail) if word == "PARKED" else "it is gone"))
            self._moved += word == "FIRED"

    def result(self, peeked: Peeked, *, is_through: bool) -> Fired:
        """What came of it."""
        return Fired(
            self._jobs,
            self._moved,
            peeked.upcoming_ms,
            has_more=not is_through,
            resting=tuple(sorted(self.resting - self._began)),
            parked=tuple(self._parked),
            offset=0 if is_through else self._offset,
            began_ms=self.began_ms,
        )


def park(reason: str) -> Plan:
    """Let a schedule that can't be fired rest, until somebody mends it."""
    return Plan((Entry("park", 0, 0, 0, reason[:500]),), None)


def _slot(seen: Glance) -> int:
    """The stored slot as an instant; one before the epoch is none."""
    return -1 if seen.slot.startswith("-") else score_ms(seen.slot)
