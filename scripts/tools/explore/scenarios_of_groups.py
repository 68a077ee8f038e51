"""The scenarios with groups: each end of a child counts once, and each group ends once."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from schedq.model.groups import GroupDefinition, call_line
from schedq.model.placeholder import MARKER
from schedq.model.settings import Settings
from schedq.transitions import groups
from scripts.tools.explore.actors import (
    Plan,
    RequestGenerator,
    cancels,
    deletes,
    foreign_worker,
    promotes,
    purges,
    reclaims,
    requeues,
    time_passes,
    works,
)
from scripts.tools.explore.search import Actor, Scenario
from scripts.tools.explore.world import LEASE_S

_SUM: Final = call_line((), '{"task":"sum","args":[' + MARKER + "]}")
_ALERT: Final = call_line((), '{"task":"alert"}')
_ONCE: Final = ("max_attempts", 1)


def _definition(**given: Any) -> GroupDefinition:
    return GroupDefinition(
        "b", "g1", **{"head": '{"task":"t"', "tail": "}", "then": _SUM, "otherwise": _ALERT, **given}
    )


def fills(count: int, *, pages: int = 1, closes: bool = True, **given: Any) -> Plan:
    """A producer makes a group of `count` children, in pages, and closes it."""
    made = _definition(**given)
    items = [f',"args":[{n}]' for n in range(count)]
    if made.is_chained:
        items = [call_line((), '{"task":"t","args":[' + (MARKER if n else "0") + "]}") for n in range(count)]

    def steps(queue: Settings) -> RequestGenerator:
        size = max(1, -(-count // pages))
        for at in range(0, max(count, 1), size):
            is_last = at + size >= count
            yield [groups.fill(queue, made, items[at : at + size], at, close=closes and is_last)]

    return steps


def advances(times: int = 1) -> Plan:
    """A promoter does a page of what is left of groups, `times` times."""

    def steps(queue: Settings) -> RequestGenerator:
        for _ in range(times):
            yield [groups.advance(queue)]

    return steps


def calls_off() -> Plan:
    """An operator cancels the group."""

    def steps(queue: Settings) -> RequestGenerator:
        yield [groups.cancel(queue, "b")]

    return steps


def retries() -> Plan:
    """An operator retries what failed."""

    def steps(queue: Settings) -> RequestGenerator:
        yield from groups.retry(queue, "b")

    return steps


def drops() -> Plan:
    """An operator deletes the record of the group."""

    def steps(queue: Settings) -> RequestGenerator:
        yield from groups.drop(queue, "b")

    return steps


_worker: Final = partial(Actor, "worker")
_other: Final = partial(Actor, "other")
_person: Final = partial(Actor, "person")
_second: Final = partial(Actor, "second person")
_clock: Final = Actor("clock", time_passes(LEASE_S + 1), may_die=False, may_lose=False)
_reclaimer: Final = Actor("reclaimer", reclaims(), may_lose=False)
_promoter: Final = Actor("promoter", advances(), may_lose=False)

GROUP_SCENARIOS: Final = (
    Scenario(
        "groups: two children, one fails ∥ promoter",
        (fills(2),),
        (_worker(works("w", "complete")), _other(works("o", "discard")), _promoter),
    ),
    Scenario(
        "groups: one place, three children",
        (fills(3, concurrency=1),),
        (_worker(works("w", "complete", claims=2)), _other(works("o", "fail", "discard")), _promoter),
    ),
    Scenario(
        "groups: the last child ∥ reclaim ∥ late end",
        (fills(2, options=_ONCE), works("before", "complete")),
        (_worker(works("w", "complete")), _clock, _reclaimer, _other(works("o", "complete"))),
    ),
    Scenario(
        "groups: the last child ∥ cancel of the group",
        (fills(3, concurrency=2),),
        (_worker(works("w", "complete", claims=2)), _person(calls_off()), _promoter),
    ),
    Scenario(
        "groups: pages ∥ children end",
        (),
        (Actor("producer", fills(4, pages=2, concurrency=1)), _worker(works("w", "complete", claims=2)), _promoter),
    ),
    Scenario(
        "groups: cancel of a child ∥ delete of another",
        (fills(3, tolerate=3),),
        (
            _worker(works("w", "complete")),
            _person(cancels("b-1-g1")),
            Actor("second person", deletes("b-2-g1")),
            _promoter,
        ),
    ),
    Scenario(
        "groups: a failed child is requeued ∥ the last one ends",
        (fills(2), works("before", "discard")),
        (_worker(works("w", "complete", claims=2)), _person(requeues("b-0-g1")), _promoter),
    ),
    Scenario(
        "groups: retry ∥ promoter ∥ requeue",
        (fills(2), works("before", "discard", claims=2)),
        (
            _person(retries()),
            _worker(works("w", "complete", claims=2)),
            _second(requeues("b-0-g1")),
            _promoter,
        ),
    ),
    Scenario(
        "groups: a worker written from the guide ∥ audit",
        (fills(2),),
        (
            Actor("guide", foreign_worker("f"), may_lose=False),
            _worker(works("w", "complete")),
            _clock,
            _reclaimer,
            _promoter,
        ),
        allowed=("leases", "tokens", "status", "totals", "ttl", "places", "groups"),
        allowed_after=("places", "status", "tokens", "totals", "ttl"),
        foreign=("b-0-g1", "b-1-g1"),
    ),
    Scenario(
        "groups: purge ∥ promoter ∥ end",
        (fills(3, concurrency=2),),
        (_person(purges(), may_die=False), _worker(works("w", "complete")), _promoter),
    ),
    Scenario(
        "groups: delete of the record ∥ end",
        (fills(2),),
        (_person(drops()), _worker(works("w", "complete", claims=2)), _promoter),
    ),
    Scenario(
        "groups: a chain ∥ promoter",
        (fills(3, is_chained=True, head="", tail=""),),
        (_worker(works("w", "complete", claims=2)), _other(works("o", "complete")), _promoter),
    ),
    Scenario(
        "groups: a chain ∥ cancel ∥ reclaim",
        (fills(2, is_chained=True, head="", tail=""),),
        (_worker(works("w", "complete")), _person(calls_off()), _clock, _reclaimer, _promoter),
    ),
    Scenario(
        "groups: children that expire ∥ claim",
        (fills(2, options=("expires", "+5000"), tolerate=2, concurrency=1),),
        (_clock, _worker(works("w", "complete")), _promoter, Actor("due", promotes("p"))),
    ),
)
