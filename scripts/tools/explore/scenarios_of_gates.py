"""The scenarios with gates: limits that claims obey, whatever else happens meanwhile."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final

from scripts.tools.explore.actors import (
    Plan,
    cancels,
    deletes,
    enqueues,
    foreign_worker,
    gives_a_gate,
    holds,
    limits,
    loses_a_record,
    promotes,
    purges,
    reclaims,
    removes,
    time_passes,
    waits_then_works,
    works,
)
from scripts.tools.explore.search import Actor, Scenario
from scripts.tools.explore.world import BACKOFF_S, LEASE_S

ONE: Final = {"key_concurrency": 1}
IN_ORDER: Final = {"serial": True}
LOST: Final = (works("dead"), time_passes(LEASE_S), reclaims())
LOST_AGAIN: Final = (works("dead again"), time_passes(LEASE_S), reclaims())


def job_of(job_id: str, *, key: str = "a", gate: str = "g") -> Plan:
    """A producer of a job with this key in a gate."""
    return enqueues(job_id, gate=gate, key=key)


def in_gate(*ids: str, key: str = "a") -> tuple[Plan, ...]:
    """Producers of one job each, all with the same key."""
    return tuple(job_of(job_id, key=key) for job_id in ids)


def gate(**limits: Any) -> dict[str, Any]:
    """The settings of a queue whose code has one gate."""
    return {"gates": {"g": json.dumps(limits)}}


def _clock(*seconds: float) -> Actor:
    return Actor("clock", time_passes(*seconds), may_die=False, may_lose=False)


_worker: Final = partial(Actor, "worker")
_other: Final = partial(Actor, "other")
_person: Final = partial(Actor, "person")
_promoter: Final = Actor("promoter", promotes("p"), may_lose=False)
_reclaimer: Final = Actor("reclaimer", reclaims(), may_lose=False)

GATE_SCENARIOS: Final = (
    Scenario(
        "gates: two claims at a key with one place",
        (*in_gate("j1", "j2"), *in_gate("j3", key="b"), *in_gate("j4", key="c")),
        (_worker(works("w", "complete", most=2)), _other(works("o", "complete")), _clock(LEASE_S), _reclaimer),
        settings=gate(concurrency=2, **ONE),
    ),
    Scenario(
        "gates: complete ∥ reclaim in order",
        in_gate("j1", "j2"),
        (_worker(works("w", "complete")), _clock(LEASE_S), _reclaimer, _other(works("o", "complete", claims=2))),
        settings=gate(**IN_ORDER),
    ),
    Scenario(
        "gates: release ∥ enqueue ∥ claim in order",
        in_gate("j1", "j2"),
        (
            _worker(works("w", "release", claims=2)),
            Actor("producer", job_of("j3")),
            _other(works("o", "complete", claims=2)),
        ),
        settings=gate(**IN_ORDER),
    ),
    Scenario(
        "gates: enqueue ∥ complete of a full key",
        in_gate("j1"),
        (
            _worker(works("w", "complete")),
            Actor("producer", job_of("j2")),
            _other(waits_then_works("o", times=2)),
        ),
        settings=gate(**ONE),
        wakes=True,
    ),
    Scenario(
        "gates: rouse ∥ claim ∥ enqueue at a rate",
        in_gate("j1", "j2") + in_gate("j3", key="b"),
        (
            _worker(works("w", "complete", claims=2, most=3)),
            _clock(0.5, 0.6),
            _promoter,
            Actor("producer", job_of("j4", key="c")),
        ),
        settings=gate(rate=[[4, 1000, 2]], key_rate=[[1, 1000, 1]]),
    ),
    Scenario(
        "gates: cancel ∥ claim ∥ complete in order",
        (*in_gate("j1", "j2"), works("before", "fail"), *in_gate("j3", key="b")),
        (
            _person(cancels("j1")),
            Actor("other person", cancels("j3")),
            _worker(works("w", "complete", claims=2)),
            _promoter,
            _clock(BACKOFF_S),
        ),
        settings=gate(**IN_ORDER),
    ),
    Scenario(
        "gates: limits lowered ∥ raised ∥ claim ∥ complete",
        in_gate("j1", "j2", "j3"),
        (
            _person(limits("g", key_concurrency=1)),
            Actor("other person", limits("g", key_concurrency=0)),
            _worker(works("w", "complete", claims=2)),
            _other(works("o", "complete", most=2)),
        ),
        settings=gate(key_concurrency=2),
    ),
    Scenario(
        "gates: pause of a key ∥ claim ∥ resume",
        in_gate("j1", "j2"),
        (
            _person(holds("g", "a", "pause", "hold")),
            Actor("other person", holds("g", "a", "resume")),
            _worker(works("w", "complete", claims=2)),
            _promoter,
        ),
        settings=gate(**ONE),
    ),
    Scenario(
        "gates: a limited job ∥ another one of its key ∥ rouse",
        in_gate("j1", "j2"),
        (
            _worker(works("w", "limit")),
            _clock(5),
            _promoter,
            _other(works("o", "complete", claims=2)),
        ),
        settings=gate(key_concurrency=2),
    ),
    Scenario(
        "gates: retry ∥ promote ∥ enqueue in order",
        in_gate("j1"),
        (
            _worker(works("w", "fail")),
            _clock(BACKOFF_S),
            _promoter,
            Actor("producer", job_of("j2")),
            _other(works("o", "complete", claims=2)),
        ),
        settings=gate(**IN_ORDER),
    ),
    Scenario(
        "gates: a job of a gate in pending ∥ foreign worker ∥ claim",
        (*in_gate("j1"), enqueues("j2"), gives_a_gate("j2", "g", "a")),
        (
            Actor("guide", foreign_worker("f"), may_lose=False),
            _worker(works("w", "complete", claims=2)),
            Actor("reclaimer", reclaims(2)),
            _clock(LEASE_S),
        ),
        allowed=("leases", "tokens", "status", "totals", "ttl", "places", "gates"),
        allowed_after=("places", "status", "tokens", "totals", "ttl"),
        foreign=("j2",),
        settings=gate(**ONE),
    ),
    Scenario(
        "gates: purge ∥ enqueue ∥ claim",
        in_gate("j1", "j2"),
        (
            _person(purges(), may_die=False),
            Actor("producer", job_of("j3")),
            _worker(works("w", "complete")),
            Actor("other person", deletes("j2")),
            _clock(1),
        ),
        settings=gate(**ONE),
    ),
    Scenario(
        "gates: a record vanishes while its job runs",
        (*in_gate("j1", "j2"), works("dead"), loses_a_record("j1")),
        (
            _clock(LEASE_S),
            Actor("reclaimer", reclaims(2)),
            _worker(works("w", "complete")),
            Actor("producer", job_of("j3")),
            _other(works("o", "complete", claims=2)),
        ),
        allowed=("broken", "gates", "status"),
        allowed_after=("broken",),
        settings=gate(**ONE),
    ),
    Scenario(
        "gates: two gates and plain jobs",
        (),
        (
            Actor("producer", job_of("j1")),
            Actor("second producer", job_of("j2", gate="h")),
            Actor("third producer", enqueues("j3")),
            _worker(waits_then_works("w", times=2)),
            _other(waits_then_works("o")),
        ),
        faults=0,
        settings=gate(**ONE),
        wakes=True,
    ),
    Scenario(
        "gates: a full queue ∥ foreign end ∥ promote",
        (limits("", concurrency=1), enqueues("j1")),
        (
            Actor("guide", foreign_worker("f"), may_lose=False),
            Actor("producer", job_of("j2")),
            Actor("other producer", enqueues("j3")),
            _promoter,
            _worker(works("w", "complete", claims=2)),
        ),
        allowed=("leases", "tokens", "status", "totals", "ttl", "places", "gates"),
        allowed_after=("places", "status", "tokens", "totals", "ttl"),
        foreign=("j1",),
    ),
    Scenario(
        "gates: one suspect, two holders",
        (*in_gate("j1", "j2"), *LOST, *LOST_AGAIN, time_passes(BACKOFF_S)),
        (
            _worker(works("w", "complete", suspects=False)),
            _other(works("o", "complete", suspects=False)),
            Actor("third", works("t", "complete", claims=2)),
            _promoter,
            _clock(1),
        ),
        settings=gate(**IN_ORDER),
    ),
    Scenario(
        "gates: a definition whose writer dies ∥ complete",
        in_gate("j1", "j2", "j3"),
        (
            _person(limits("g", key_concurrency=0, concurrency=2)),
            _worker(works("w", "complete")),
            _other(works("o", "complete", most=3)),
            _promoter,
        ),
        settings=gate(**ONE),
    ),
    Scenario(
        "gates: enqueue before any definition ∥ plain claim",
        (enqueues("j1"),),
        (
            Actor("producer", job_of("j2")),
            _worker(waits_then_works("w", times=2)),
            _other(waits_then_works("o")),
        ),
        wakes=True,
    ),
    Scenario(
        "gates: removal of the last gate ∥ enqueue",
        in_gate("j1"),
        (
            _person(removes("g")),
            Actor("producer", job_of("j2")),
            _worker(works("w", "complete", claims=2)),
            _reclaimer,
        ),
        settings=gate(**ONE),
    ),
    Scenario(
        "gates: the clock goes back between two in order",
        in_gate("j1"),
        (
            _clock(-5, 1),
            Actor("producer", job_of("j2")),
            Actor("other producer", job_of("j3")),
            _worker(works("w", "complete", claims=3)),
        ),
        settings=gate(**IN_ORDER),
    ),
    Scenario(
        "gates: the second lost lease of the first in order",
        (*in_gate("j1", "j2"), *LOST, works("dead again"), time_passes(LEASE_S)),
        (
            _reclaimer,
            _worker(works("w", "complete", claims=2)),
            _clock(BACKOFF_S),
            _promoter,
        ),
        settings=gate(**IN_ORDER),
    ),
    Scenario(
        "gates: keys that enter ∥ claim",
        in_gate("j1", key="z"),
        (
            Actor("producer", job_of("j2", key="y")),
            Actor("other producer", job_of("j3", key="x")),
            _worker(works("w", "complete", claims=2)),
        ),
        settings=gate(concurrency=1),
    ),
)
