"""The scenarios: which actors take part, and in what situation."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from schedq.model.unique import Unique
from schedq.schedules.definition import Definition
from scripts.tools.explore.actors import (
    cancels,
    deletes,
    enqueues,
    fires,
    foreign_producer,
    foreign_worker,
    loses_the_promoters_lease,
    pauses_a_task,
    pauses_and_resumes,
    promotes,
    pumps,
    purges,
    reclaims,
    requeues,
    reschedules,
    resumes_a_task,
    schedules,
    takes_the_marker_and_is_full,
    time_passes,
    waits_then_works,
    works,
)
from scripts.tools.explore.scenarios_of_gates import GATE_SCENARIOS
from scripts.tools.explore.scenarios_of_groups import GROUP_SCENARIOS
from scripts.tools.explore.scenarios_of_other_queues import OTHER_QUEUE_SCENARIOS
from scripts.tools.explore.scenarios_of_runs import RUN_SCENARIOS
from scripts.tools.explore.scenarios_of_waits import WAIT_SCENARIOS
from scripts.tools.explore.search import Actor, Scenario
from scripts.tools.explore.world import BACKOFF_S, BEGIN_S, LEASE_S

ONE: Final = Unique(key="one", on_conflict="replace")
ONE_WAITING: Final = Unique(key="one", until="start", on_conflict="replace")
JOB: Final = enqueues("j1")
SECOND: Final = enqueues("j2")
LATER: Final = enqueues("j1", 5)
SEND: Final = enqueues("j1", payload={"task": "send"})
LOST: Final = (works("dead"), time_passes(LEASE_S))
LOST_ONCE: Final = (works("dead before"), time_passes(LEASE_S), reclaims())


EACH_MINUTE: Final = Definition("each", "1", every_ms=60_000, catch_up="all", max_runs=3)
SKIPPING: Final = Definition("each", "1", every_ms=60_000, overlap="skip", end_ms=int(BEGIN_S * 1000) + 240_000)
LATER_SKIPPING: Final = replace(SKIPPING, catch_up="all", version=1)
ONE_TICK: Final = (fires(),)


def clock(*seconds: float) -> Actor:
    """Time passes."""
    return Actor("clock", time_passes(*seconds))


def still_clock(*seconds: float) -> Actor:
    """Time passes, and its steps can't be dropped."""
    return Actor("clock", time_passes(*seconds), may_die=False, may_lose=False)


SCENARIOS: Final = (
    Scenario(
        "unique: enqueue ∥ enqueue ∥ complete",
        (enqueues("j1", is_fresh=True, unique=ONE),),
        (
            Actor("worker", works("w", "complete")),
            Actor("producer", enqueues("j2", payload="two", is_fresh=True, unique=ONE)),
            Actor("other producer", enqueues("j3", payload="three", is_fresh=True, unique=ONE)),
        ),
        faults=2,
    ),
    Scenario(
        "unique until its start: enqueue ∥ retry ∥ enqueue",
        (enqueues("j1", is_fresh=True, unique=ONE_WAITING),),
        (
            Actor("worker", works("w", "fail")),
            Actor("producer", enqueues("j2", payload="two", is_fresh=True, unique=ONE_WAITING)),
            Actor("other producer", enqueues("j3", payload="three", is_fresh=True, unique=ONE_WAITING)),
        ),
        faults=2,
    ),
    Scenario(
        "unique: requeue ∥ enqueue ∥ claim",
        (enqueues("j1", is_fresh=True, unique=ONE), works("dead", "discard")),
        (
            Actor("operator", requeues("j1")),
            Actor("producer", enqueues("j2", payload="two", is_fresh=True, unique=ONE)),
            Actor("worker", works("w", "complete")),
        ),
        faults=2,
    ),
    Scenario(
        "claim ∥ reclaim",
        (JOB, *LOST),
        (
            Actor("worker", works("w", "complete")),
            Actor("reclaimer", reclaims()),
            Actor("other", works("o", "complete")),
        ),
        faults=2,
    ),
    Scenario(
        "claim ∥ promote",
        (LATER, SECOND),
        (
            Actor("worker", works("w", "complete", claims=2)),
            Actor("promoter", promotes("p", 2)),
            clock(5),
        ),
        faults=2,
    ),
    Scenario(
        "complete ∥ reclaim",
        (JOB,),
        (
            Actor("worker", works("w", "complete")),
            clock(LEASE_S),
            Actor("reclaimer", reclaims()),
            Actor("other", works("o", "complete")),
        ),
        faults=2,
    ),
    Scenario(
        "complete ∥ fail ∥ renew",
        (JOB,),
        (
            Actor("worker", works("w", "complete", "fail", renews=1)),
            clock(LEASE_S),
            Actor("reclaimer", reclaims()),
            Actor("other", works("o", "complete")),
        ),
        faults=2,
    ),
    Scenario(
        "fail ∥ promote",
        (JOB,),
        (
            Actor("worker", works("w", "fail")),
            clock(BACKOFF_S),
            Actor("promoter", promotes("p", 2)),
            Actor("other", works("o", "complete")),
        ),
    ),
    Scenario(
        "cancel ∥ claim",
        (JOB, SECOND),
        (
            Actor("worker", works("w", "complete", claims=2)),
            Actor("person", cancels("j1")),
            Actor("again", requeues("j1")),
        ),
        faults=2,
    ),
    Scenario(
        "cancel ∥ complete",
        (JOB,),
        (
            Actor("worker", works("w", "fail", "complete", renews=1)),
            Actor("person", cancels("j1")),
            clock(LEASE_S),
            Actor("reclaimer", reclaims()),
        ),
    ),
    Scenario(
        "expires ∥ claim",
        (enqueues("j1", expires=LEASE_S), SECOND),
        (
            Actor("worker", works("w", "release")),
            still_clock(LEASE_S),
            Actor("reclaimer", reclaims()),
            Actor("other", works("o", "complete")),
            Actor("person", requeues("j1")),
        ),
        faults=2,
    ),
    Scenario(
        "expires ∥ promote",
        (enqueues("j1", 5, expires=10),),
        (
            Actor("promoter", promotes("p")),
            still_clock(5, 5),
            Actor("worker", works("w", "snooze")),
            Actor("person", cancels("j1")),
        ),
    ),
    Scenario(
        "enqueue sent again ∥ claim",
        (),
        (
            Actor("producer", enqueues("j1")),
            Actor("twin", enqueues("j1")),
            Actor("worker", works("w", "complete")),
            Actor("other", works("o", "complete")),
        ),
        faults=2,
    ),
    Scenario(
        "enqueue of a fresh job sent again ∥ claim",
        (),
        (
            Actor("producer", enqueues("j1", is_fresh=True)),
            Actor("twin", enqueues("j1", is_fresh=True)),
            Actor("worker", works("w", "complete")),
        ),
        faults=2,
    ),
    Scenario(
        "claim sent again ∥ reclaim",
        (JOB, SECOND),
        (
            Actor("worker", pumps("w", rounds=2), may_die=False),
            clock(LEASE_S),
            Actor("reclaimer", reclaims()),
        ),
        faults=2,
    ),
    Scenario(
        "two reclaimers",
        (JOB, *LOST_ONCE, *LOST),
        (Actor("one", reclaims()), Actor("two", reclaims()), Actor("worker", works("w", "complete")), clock(BACKOFF_S)),
        faults=2,
    ),
    Scenario(
        "the last attempt ∥ reclaim",
        (JOB, works("a", "fail"), time_passes(BACKOFF_S), works("b", "fail"), time_passes(BACKOFF_S)),
        (
            Actor("worker", works("w", "complete")),
            clock(LEASE_S),
            Actor("reclaimer", reclaims()),
            Actor("other", works("o", "complete")),
            Actor("person", requeues("j1")),
        ),
    ),
    Scenario(
        "two promoters",
        (LATER, enqueues("j2", 6)),
        (
            Actor("one", promotes("p1", 2)),
            Actor("two", promotes("p2")),
            clock(5, 1),
            Actor("lease", loses_the_promoters_lease(), may_die=False),
            Actor("worker", works("w", "complete")),
        ),
    ),
    Scenario(
        "pause ∥ claim",
        (JOB, LATER),
        (
            Actor("person", pauses_and_resumes()),
            Actor("worker", waits_then_works("w")),
            Actor("promoter", promotes("p", 2)),
            clock(5),
        ),
    ),
    Scenario(
        "pause of a task ∥ claim",
        (SEND, SECOND, enqueues("j3", payload={"task": "send"})),
        (
            Actor("person", pauses_a_task("send")),
            Actor("worker", works("w", "release", claims=2)),
            Actor("other", works("o", "complete", claims=2)),
        ),
        faults=1,
    ),
    Scenario(
        "resume of a task ∥ claim ∥ reclaim",
        (
            *(enqueues(job_id, payload={"task": "send"}) for job_id in ("j1", "j2", "j3")),
            works("dead"),
            pauses_a_task("send", resumes=False),
            works("holds"),
        ),
        (
            Actor("person", resumes_a_task("send", most=1)),
            Actor("worker", works("w", "complete", claims=2)),
            clock(LEASE_S),
            Actor("reclaimer", reclaims()),
        ),
        faults=1,
    ),
    Scenario(
        "held jobs ∥ cancel ∥ resume",
        (SEND, pauses_a_task("send", resumes=False), works("holds"), SECOND),
        (
            Actor("person", cancels("j1")),
            Actor("again", requeues("j1")),
            Actor("other person", resumes_a_task("send")),
            Actor("worker", works("w", "complete", claims=2)),
        ),
        faults=1,
    ),
    Scenario(
        "held jobs ∥ delete ∥ resume",
        (SEND, pauses_a_task("send", resumes=False), works("holds")),
        (
            Actor("person", deletes("j1", "pending")),
            Actor("other person", resumes_a_task("send")),
            Actor("worker", works("w", "complete")),
        ),
        faults=1,
    ),
    Scenario(
        "purge ∥ enqueue ∥ claim",
        (JOB, enqueues("j3", 50)),
        (
            Actor("person", purges(), may_die=False),
            Actor("producer", enqueues("j2")),
            Actor("worker", works("w", "fail")),
            clock(1),
        ),
    ),
    Scenario(
        "delete ∥ claim",
        (JOB, enqueues("j3", BACKOFF_S)),
        (
            Actor("person", deletes("j1")),
            Actor("other person", deletes("j3")),
            Actor("worker", works("w", "fail")),
            clock(BACKOFF_S),
            Actor("promoter", promotes("p")),
        ),
    ),
    Scenario(
        "requeue ∥ claim",
        (JOB, works("w", "discard")),
        (
            Actor("person", requeues("j1")),
            Actor("other person", requeues("j1")),
            Actor("worker", works("w1", "discard")),
            Actor("other", works("w2", "complete")),
        ),
        faults=2,
    ),
    Scenario(
        "release ∥ reclaim",
        (JOB,),
        (
            Actor("worker", works("w", "release", "complete")),
            clock(LEASE_S),
            Actor("reclaimer", reclaims()),
            Actor("other", works("o", "snooze")),
        ),
    ),
    Scenario(
        "a job id used again ∥ trim",
        (JOB, works("w", "complete"), time_passes(40), SECOND, works("x", "complete")),
        (
            Actor("producer", enqueues("j1")),
            Actor("worker", works("y", "complete", claims=2)),
            Actor("reclaimer", reclaims()),
            clock(40),
        ),
        allowed=("totals",),
        allowed_after=("totals",),
        settings={"completed_history": 1},
    ),
    Scenario(
        "a job id used again by another program ∥ trim",
        (JOB, works("w", "complete"), SECOND, works("x", "complete"), time_passes(40)),
        (
            Actor("producer", foreign_producer("j1"), may_die=False, may_lose=False),
            Actor("reclaimer", reclaims()),
            Actor("worker", works("y", "complete")),
        ),
        allowed=("places", "status", "totals", "ttl"),
        allowed_after=("places", "totals"),
        foreign=("j1",),
        settings={"completed_history": 1},
    ),
    Scenario(
        "a foreign worker ∥ reclaim",
        (JOB,),
        (
            Actor("guide", foreign_worker("g"), may_lose=False),
            Actor("reclaimer", reclaims(2)),
            clock(LEASE_S),
            Actor("worker", works("w", "complete")),
        ),
        # Other actors act between its commands, so a claim that it writes too late may add a second entry of a job.
        allowed=("leases", "tokens", "status", "totals", "ttl", "places"),
        allowed_after=("places", "status", "tokens", "totals", "ttl"),
        foreign=("j1",),
    ),
    Scenario(
        "reschedule ∥ promote",
        (LATER,),
        (
            Actor("person", reschedules("j1", 8000)),
            Actor("other person", reschedules("j1", 0)),
            Actor("promoter", promotes("p")),
            clock(5, 5),
            Actor("worker", works("w", "complete")),
        ),
    ),
    Scenario(
        "a lost wake",
        (),
        (
            Actor("producer", enqueues("j1")),
            Actor("other producer", enqueues("j2")),
            Actor("worker", waits_then_works("w")),
            Actor("other", waits_then_works("o")),
            Actor("third", waits_then_works("t")),
        ),
        wakes=True,
    ),
    Scenario(
        "a swallowed wake",
        (),
        (
            Actor("producer", enqueues("j1")),
            Actor("other producer", enqueues("j2"), queue=1),
            Actor("full worker", takes_the_marker_and_is_full(), queue=1),
            Actor("worker", waits_then_works("w")),
            Actor("other", waits_then_works("o"), queue=1),
        ),
        wakes=True,
    ),
    Scenario(
        "limited workers",
        (),
        (
            Actor("producer", enqueues("j1", payload={"task": "send"})),
            Actor("other producer", enqueues("j2", payload={"task": "report"})),
            Actor("worker", waits_then_works("w", "send", times=2)),
            Actor("other", waits_then_works("o", "report")),
            Actor("third", waits_then_works("t")),
        ),
        faults=0,
        wakes=True,
    ),
    Scenario(
        "two schedulers, one slot, crash anywhere",
        (schedules(EACH_MINUTE), time_passes(60)),
        # The two are alike, so it is enough if one of them may die, or lose a reply.
        (
            Actor("one", fires(EACH_MINUTE)),
            Actor("two", fires(EACH_MINUTE), may_die=False, may_lose=False),
            still_clock(60),
        ),
        settings={"completed_history": 100},
        must_be_whole=True,
    ),
    Scenario(
        "two schedulers ∥ overlap ∥ deploy",
        (schedules(SKIPPING), time_passes(60), *ONE_TICK),
        (
            Actor("one", fires()),
            Actor("two", fires()),
            clock(60),
            Actor("deploy", schedules(LATER_SKIPPING)),
            Actor("worker", works("w", "complete")),
        ),
        settings={"completed_history": 100},
    ),
    Scenario(
        "two pumps ∥ reclaim",
        (JOB, SECOND, enqueues("j3")),
        (Actor("one", pumps("p1")), Actor("two", pumps("p2")), clock(LEASE_S), Actor("reclaimer", reclaims())),
    ),
    *GATE_SCENARIOS,
    *RUN_SCENARIOS,
    *GROUP_SCENARIOS,
    *OTHER_QUEUE_SCENARIOS,
    *WAIT_SCENARIOS,
)
