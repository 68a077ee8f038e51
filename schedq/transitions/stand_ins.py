"""Runs that wait for jobs of another queue, which on a cluster are in another slot: no script can write both queues.

In the queue of the run a group without jobs stands for theirs, under the same id: the stand-in. It is there before the
first of their jobs is, and until the run has recorded what they came to. If the run may read their results later, it
closes the stand-in then, and their group is kept until the run is over. Nothing is carried from queue to queue:
whoever leads the run's queue looks how their group stands, at once when a message says that it has ended, and otherwise
every 10 s. What follows from that can be done any number of times, by anyone, in any order:

- If the group has ended, or is missing, incomplete or damaged while the run is suspended, the run is woken, reads the
  group, and makes what is missing.
- If the run is over, the group is called off. One that was never made is made, empty, and called off, so that an
  attempt that only seemed dead makes no jobs any more. The stand-in is deleted when the group has ended.

An ended group is kept until the run or its stand-in says that it is not needed any more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple

from schedq.model.groups import DAMAGED, ENDED, GroupDefinition
from schedq.model.settings import Settings
from schedq.transitions import Operation, RoundTrips, groups, identity, unwrap

KEPT_MS: Final = 900_000
"""How long the group of a call is kept after its end: until then an attempt that only seemed dead makes no other."""
CLOSE_WITHIN_MS: Final = 86_400_000
"""After which time a group fails that was not closed: its server may have forgotten that, and its run may be over."""
_RESULTS_KEPT_MS: Final = 31_536_000_000
"""How long results are kept for a run that may read them, unless someone finds that it is over, or looks again."""
ENDED_ELSEWHERE: Final = "ended"
"""On the channel `due` of the run's queue, "ended NAME" says that a group of another queue has ended."""
_AGE: Final = re.compile(r"[0-9a-f]{2}")
_MOST: Final = 1000
_PAGE: Final = 10
_OVER: Final = "over"
_WAITS: Final = "waits"
_WORKS: Final = "works"
_FAILED: Final = "failed"
_SOON_MS: Final = 1000
"""A running attempt checks its jobs itself. Look again after this time, because it may be suspended by then."""


class StandIn(NamedTuple):
    """A group without jobs that stands for one of another queue.

    Attributes:
        name: of both groups.
        queue: the other queue.
        run: over, waits (it is suspended until its jobs have ended), rests (until something else), works, failed, keeps
            (it may still read the results) or done (it may not).
        requeued: how often the run was requeued.
        now_ms: Redis's clock.
    """

    name: str
    queue: str
    run: str
    requeued: int
    now_ms: int


def definition(queue: Settings, name: str, run_id: str, *, generation: str) -> GroupDefinition:
    """The stand-in for a group of this queue, for which a run waits."""
    return GroupDefinition(
        name, generation, stands_for=queue.name, wake=run_id, kept_ms=KEPT_MS, close_within_ms=0, keeps_results=False
    )


def look(home: Settings, queue: Settings, found: Sequence[StandIn]) -> RoundTrips[list[Operation[Any]]]:
    """Look how groups of one queue stand; returns what is to be sent to the queue of the runs now."""
    done = [it.name for it in found if it.run == "done"]
    open_ones = [it for it in found if it.run not in ("keeps", "done")]
    names = [it.name for it in open_ones]
    seen = (yield from groups.generations(queue, names, damaged=DAMAGED)) if names else []
    pairs = [(it, status) for it, (status, _) in zip(open_ones, seen, strict=True)]
    done += [it.name for it, status in pairs if it.run == _OVER and status in ENDED]
    done += [it.name for it, status in pairs if it.run == _FAILED and status == "cancelled"]
    missing = [it.name for it, status in pairs if it.run in (_OVER, _FAILED) and not status]
    called_off = dict.fromkeys(missing, "")
    called_off |= {it.name: each[1] for it, each in zip(open_ones, seen, strict=True) if calls_off(it, *each)}
    asked: list[Operation[Any]] = [keep(queue, it.name, it.now_ms) for it in found if it.run == "keeps"]
    asked += [groups.look_at(queue, done)] if done else []  # they are deleted when their time has come
    for page in (asked, [groups.fill(queue, _empty(name), (), 0) for name in missing]):
        for reply in (yield page) if page else ():
            unwrap(reply)
    for reply in (yield [groups.cancel(queue, *each) for each in called_off.items()]) if called_off else ():
        unwrap(reply)
    wakes = [it.name for it, status in pairs if it.run == _WAITS and status in (*ENDED, "", "filling", DAMAGED)]
    ended = [it for it, status in pairs if status in ENDED]
    soon = {it.name: it.now_ms + _SOON_MS for it in ended if it.run == _WORKS}
    soon |= {it.name: it.now_ms + KEPT_MS for it in ended if it.run in (_FAILED, "rests")}  # it needs them later
    return [
        *groups.drops(home, done),
        *([groups.wake(home, wakes)] if wakes else ()),
        *(groups.look_at(home, [name], at_ms) for name, at_ms in soon.items()),
    ]


def calls_off(it: StandIn, status: str, generation: str) -> bool:
    """Whether a group of this status and generation is to be called off.

    The run may have been requeued since; then a group in which its jobs run again is of a newer generation.
    """
    age = int(generation[:2], 16) if _AGE.match(generation) else it.requeued
    is_newer = 0 < (age - it.requeued) % 256 < 128
    return it.run == _OVER and status in ("running", "filling") and not is_newer


def look_at_all(queue: Settings) -> RoundTrips[None]:
    """Look at all that stand for groups of other queues, for a queue without a promoter that does so, and at those."""
    (reply,) = yield [Operation("groups", None, (), ("ZRANGE", queue.keys.groups, 0, _MOST - 1), list)]
    names: list[str] = unwrap(reply)
    fields = [Operation("groups", None, (), ("HGET", queue.keys.group(name), "stands_for"), identity) for name in names]
    replies = (yield fields) if fields else []
    left = [name for name, other in zip(names, replies, strict=True) if isinstance(other, str)]  # no damaged ones
    while left and not queue.tagged:  # on a cluster this connection leads to this queue alone
        page, left = left[:_PAGE], left[_PAGE:]
        (_, reply) = yield [groups.look_at(queue, page), groups.advance(queue)]
        for name, some in by_queue([StandIn(*each) for each in unwrap(reply).stand_ins]).items():
            other = queue.of_queue(name)
            operations = yield from look(queue, other, some)
            if operations:
                yield operations
            yield from groups.advance_all(other)


def _empty(name: str) -> GroupDefinition:
    generation = "zz" + groups.new_generation()[2:]  # those of runs begin with two hexadecimal digits
    return GroupDefinition(name, generation, kept_ms=KEPT_MS, close_within_ms=0)


def keep(queue: Settings, name: str, now_ms: int) -> Operation[int]:
    """Keep a group that has ended for a run that may read its results."""
    words = ("ZADD", queue.keys.groups, "XX", "GT", str(now_ms + _RESULTS_KEPT_MS), name)
    return Operation("groups", None, (), words, int)


def by_queue(found: Sequence[StandIn]) -> dict[str, list[StandIn]]:
    """These stand-ins by the queues that they stand for."""
    queue = attrgetter("queue")
    return {name: list(some) for name, some in groupby(sorted(found, key=queue), key=queue)}
