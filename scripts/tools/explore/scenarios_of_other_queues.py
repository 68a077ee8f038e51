"""The scenarios of runs in queue "a" that wait for a job of queue "b"."""

from __future__ import annotations

from functools import partial
from typing import Final

from schedq.model.settings import Settings
from schedq.transitions import groups
from scripts.tools.explore.actors import RequestGenerator, cancels, enqueues, reclaims, requeues, time_passes, works
from scripts.tools.explore.failover import fails_over
from scripts.tools.explore.other_queue_actors import (
    NAME,
    carries,
    dies_after,
    fills_late,
    rescues,
    runs_elsewhere,
    there,
)
from scripts.tools.explore.scenarios_of_groups import advances
from scripts.tools.explore.search import Actor, Scenario
from scripts.tools.explore.world import LEASE_S

_JOB: Final = enqueues("j1")
_RUN: Final = runs_elsewhere("before")
_BEGUN: Final = dies_after(_RUN, 4)
"""It has made the stand-in, and no job."""
_UNFILLED: Final = dies_after(_RUN, 5)
"""It has made the job, and not said that there are no others."""
_scenario: Final = partial(Scenario, rescue=rescues)
_worker: Final = Actor("worker", runs_elsewhere("w"))
_twice: Final = Actor("worker", runs_elsewhere("w", claims=2))
_theirs: Final = Actor("their worker", works("t", "complete"), queue=1)
_carrier: Final = Actor("carrier", carries())
_promoter: Final = Actor("their promoter", advances(), queue=1, may_lose=False)
_clock: Final = Actor("clock", time_passes(LEASE_S + 1), may_die=False, may_lose=False)
_reclaimer: Final = Actor("reclaimer", reclaims(), may_lose=False)


def _drops(queue: Settings) -> RequestGenerator:
    yield from groups.drop(queue, NAME)


OTHER_QUEUE_SCENARIOS: Final = (
    _scenario(
        "other queues: a call ∥ its job ends ∥ carriers",
        (_JOB,),
        (_twice, _theirs, _carrier, Actor("other carrier", carries(), may_die=False, may_lose=False)),
    ),
    _scenario(
        "other queues: zombie ∥ reclaim ∥ carrier",
        (_JOB,),
        (_worker, _clock, _reclaimer, Actor("other", runs_elsewhere("o", claims=2)), _theirs, _carrier),
    ),
    _scenario(
        "other queues: cancel of the run ∥ carrier",
        (_JOB, _RUN),
        (Actor("person", cancels("j1")), Actor("carrier", carries(2)), _promoter, _theirs),
    ),
    _scenario(
        "other queues: cancel of a run whose attempt died ∥ carrier",
        (_JOB, _UNFILLED, time_passes(LEASE_S + 1), reclaims()),
        (Actor("person", cancels("j1")), Actor("carrier", carries(2)), _promoter, _worker),
    ),
    _scenario(
        "other queues: zombie of a cancelled run ∥ carrier",
        (_JOB, _BEGUN, time_passes(LEASE_S + 1), reclaims(), cancels("j1")),
        (
            Actor("zombie", fills_late(), may_lose=False),
            Actor("carrier", carries(2)),
            Actor("their promoter", advances(2), queue=1, may_lose=False),
        ),
    ),
    _scenario(
        "other queues: requeue of a cancelled run ∥ carrier",
        (_JOB, _RUN, cancels("j1")),
        (Actor("person", requeues("j1")), _twice, Actor("carrier", carries(2)), _promoter, _theirs),
    ),
    _scenario(
        "other queues: requeue of a failed run ∥ carrier",
        (_JOB, _RUN, there(works("before", "discard")), carries(), runs_elsewhere("again")),
        (Actor("person", requeues("j1")), _twice, _carrier, _theirs),
    ),
    _scenario(
        "other queues: delete of the batch ∥ carrier",
        (_JOB, _RUN),
        (Actor("person", _drops, queue=1), _worker, _carrier, _theirs),
    ),
    _scenario(
        "other queues: failover of the jobs' queue",
        (_JOB,),
        (_twice, _theirs, _carrier, Actor("server", fails_over(), queue=1, may_die=False, may_lose=False)),
        faults=0,
        allowed=("unclosed",),  # it fails within a day
    ),
    _scenario(
        "other queues: failover of the run's queue",
        (_JOB,),
        (_twice, _theirs, _carrier, Actor("server", fails_over(), may_die=False, may_lose=False)),
        faults=0,
    ),
)
