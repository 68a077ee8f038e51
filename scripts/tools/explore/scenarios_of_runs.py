"""The scenarios of workflows."""

from __future__ import annotations

from typing import Final

from scripts.tools.explore.actors import (
    cancels,
    deletes,
    enqueues,
    promotes,
    purges,
    reclaims,
    requeues,
    reschedules,
    time_passes,
)
from scripts.tools.explore.run_actors import Does, runs, sends
from scripts.tools.explore.scenarios_of_groups import advances, calls_off, drops
from scripts.tools.explore.search import Actor, Scenario
from scripts.tools.explore.world import LEASE_S

_WAIT_S: Final = 20
_ORDER: Final = (Does("step", "charge"), Does("receive", "receive", ms=_WAIT_S * 1000), Does("step", "ship"))
_STEPS: Final = (Does("step", "charge"), Does("step", "ship"))
_RACE: Final = (
    Does("receive", "1.paid/receive", ms=_WAIT_S * 1000),
    Does("first", "first", losers=("1.paid/receive",)),
    Does("receive", "receive", ms=_WAIT_S * 1000),
)
_FAILS: Final = (Does("step", "1.1/charge"), Does("fails", "1.2/ship"))
_AGAIN: Final = (Does("start over"), Does("receive", "receive", ms=_WAIT_S * 1000))
_NAP: Final = (Does("sleep", "sleep", ms=_WAIT_S * 1000),)
_MAP: Final = (Does("step", "list"), Does("map", "map"), Does("step", "sum"))
_UNDOABLE: Final = (Does("undoable", "charge"), Does("receive", "receive", ms=_WAIT_S * 1000))
_JOB: Final = enqueues("j1")


def _clock(*seconds: float) -> Actor:
    return Actor("clock", time_passes(*seconds), may_die=False, may_lose=False)


RUN_SCENARIOS: Final = (
    Scenario(
        "runs: suspend ∥ send ∥ promote",
        (_JOB,),
        (
            Actor("worker", runs("w", *_ORDER, claims=2)),
            Actor("person", sends("j1")),
            Actor("promoter", promotes("p")),
            _clock(_WAIT_S),
        ),
    ),
    Scenario(
        "runs: run ∥ zombie ∥ reclaim",
        (_JOB,),
        (
            Actor("worker", runs("w", *_STEPS)),
            Actor("reclaimer", reclaims()),
            Actor("other", runs("o", *_STEPS)),
            _clock(LEASE_S),
        ),
    ),
    Scenario(
        "runs: a zombie suspends",
        (_JOB,),
        (
            Actor("worker", runs("w", Does("receive", "receive", ms=_WAIT_S * 1000))),
            Actor("reclaimer", reclaims()),
            Actor("other", runs("o", Does("receive", "receive", ms=_WAIT_S * 1000))),
            Actor("person", sends("j1")),
            _clock(LEASE_S),
        ),
    ),
    Scenario(
        "runs: send before run",
        (),
        (
            Actor("producer", _JOB),
            Actor("person", sends("j1")),
            Actor("again", sends("j1")),
            Actor("worker", runs("w", Does("receive", "receive", ms=30_000), Does("receive", "receive#2", ms=1000))),
        ),
        faults=2,
    ),
    Scenario(
        "runs: requeue",
        (_JOB, runs("before", *_FAILS, end="discard")),
        (
            Actor("person", requeues("j1")),
            Actor("worker", runs("w", *_FAILS, end="discard")),
            Actor("other person", requeues("j1")),
            Actor("sender", sends("j1")),
        ),
        faults=2,
    ),
    Scenario(
        "runs: race ∥ send",
        (_JOB, sends("j1", value="first", message_id="m0")),
        (
            Actor("worker", runs("w", *_RACE, claims=2)),
            Actor("person", sends("j1", value="second")),
            Actor("reclaimer", reclaims()),
            _clock(LEASE_S, LEASE_S),
        ),
    ),
    Scenario(
        "runs: start over ∥ send",
        (_JOB, runs("before", Does("step", "charge"), Does("receive", "wait", ms=5000))),
        (
            Actor("worker", runs("w", *_AGAIN, claims=2)),
            Actor("person", sends("j1")),
            Actor("reclaimer", reclaims()),
            _clock(LEASE_S),
        ),
    ),
    Scenario(
        "runs: late or in time",
        (_JOB, runs("before", Does("receive", "receive", ms=_WAIT_S * 1000))),
        (
            Actor("person", sends("j1")),
            Actor("waker", reschedules("j1", 0)),
            Actor("worker", runs("w", Does("receive", "receive", ms=_WAIT_S * 1000), claims=2)),
            Actor("promoter", promotes("p")),
            _clock(_WAIT_S / 2, _WAIT_S / 2 + 1),
        ),
    ),
    Scenario(
        "runs: suspend ∥ cancel ∥ run now",
        (_JOB,),
        (
            Actor("worker", runs("w", *_NAP, claims=2)),
            Actor("person", cancels("j1")),
            Actor("other person", reschedules("j1", 0)),
            Actor("third person", reschedules("j1", 30_000)),
            Actor("promoter", promotes("p")),
            _clock(_WAIT_S),
        ),
    ),
    Scenario(
        "runs: progress ∥ lost leases",
        (
            _JOB,
            runs("a", Does("step", "charge"), Does("receive", "receive", ms=1000)),
            time_passes(1),
            promotes("p"),
        ),
        (
            Actor("worker", runs("w", Does("step", "charge"), Does("step", "ship"), end="release")),
            Actor("reclaimer", reclaims(2)),
            Actor("other", runs("o", *_STEPS)),
            _clock(LEASE_S, LEASE_S),
        ),
    ),
    Scenario(
        "runs: a map ∥ its jobs end ∥ promoter",
        (_JOB,),
        (
            Actor("worker", runs("w", *_MAP, claims=3)),
            Actor("other", runs("o", *_MAP, claims=3)),
            Actor("promoter", advances(), may_lose=False),
        ),
    ),
    Scenario(
        "runs: a map ∥ zombie ∥ reclaim",
        (_JOB,),
        (
            Actor("worker", runs("w", *_MAP)),
            Actor("reclaimer", reclaims()),
            Actor("other", runs("o", *_MAP, claims=3)),
            _clock(LEASE_S),
        ),
    ),
    Scenario(
        "runs: a map ∥ cancel of its jobs ∥ promoter",
        (_JOB, runs("before", *_MAP)),
        (
            Actor("person", calls_off()),
            Actor("worker", runs("w", *_MAP, claims=3)),
            Actor("promoter", advances(), may_lose=False),
        ),
    ),
    Scenario(
        "runs: a map ∥ cancel of the run ∥ requeue",
        (_JOB, runs("before", *_MAP)),
        (
            Actor("person", cancels("j1")),
            Actor("other person", requeues("j1")),
            Actor("worker", runs("w", *_MAP, claims=3)),
            Actor("promoter", advances(), may_lose=False),
        ),
    ),
    Scenario(
        "runs: a map ∥ delete of its batch",
        (_JOB, runs("before", *_MAP)),
        (
            Actor("person", drops()),
            Actor("worker", runs("w", *_MAP, claims=3)),
            Actor("promoter", advances(), may_lose=False),
        ),
    ),
    Scenario(
        "runs: undo ∥ cancel ∥ send",
        (_JOB,),
        (
            Actor("worker", runs("w", *_UNDOABLE, claims=2, end="discard")),
            Actor("person", cancels("j1")),
            Actor("sender", sends("j1")),
            Actor("other", runs("o", *_UNDOABLE, claims=2, end="discard")),
        ),
    ),
    Scenario(
        "runs: undo ∥ zombie ∥ reclaim",
        (_JOB,),
        (
            Actor("worker", runs("w", Does("undoable", "charge"), claims=2, end="discard", timeout_ms=900_000)),
            Actor("reclaimer", reclaims(2)),
            Actor("other", runs("o", Does("undoable", "charge"), claims=2, end="discard")),
            _clock(LEASE_S, LEASE_S),
        ),
    ),
    Scenario(
        "runs: undo ∥ lost leases ∥ stop",
        (_JOB,),
        (
            Actor("worker", runs("w", Does("undoable", "charge"), Does("undoable", "ship"), claims=2, end="discard")),
            Actor("person", cancels("j1")),
            Actor("reclaimer", reclaims(2)),
            Actor("other", runs("o", Does("undoable", "charge"), claims=2, end="discard")),
            _clock(LEASE_S, LEASE_S),
        ),
        faults=2,
        settings={"max_attempts": 1},
    ),
    Scenario(
        "runs: undo ∥ purge ∥ delete",
        (_JOB, runs("before", *_UNDOABLE)),
        (
            Actor("person", purges()),
            Actor("other person", deletes("j1")),
            Actor("worker", runs("w", *_UNDOABLE, claims=2, end="discard")),
            Actor("promoter", promotes("p")),
        ),
    ),
    Scenario(
        "runs: requeue of what was undone",
        (_JOB, runs("before", Does("undoable", "charge"), claims=2, end="discard")),
        (
            Actor("person", requeues("j1")),
            Actor("worker", runs("w", Does("undoable", "charge"), claims=3, end="discard")),
            Actor("other person", requeues("j1")),
        ),
    ),
)
