"""What `scripts/chaos --cluster` counts as a fault, and what a fault of a node or a process explains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from redis.crc import key_slot

from scripts.tools.chaos.cluster_app import NAMES, PRIMARIES
from scripts.tools.chaos.cluster_verdict import FAULTS, Findings, Judge, Outage
from scripts.tools.chaos.faults import Fault
from scripts.tools.chaos.journal import Journal
from tests.stories.topologies.cluster import SLOTS

Line = tuple[str, list[Any]]
JOB = "q0-1"


def accepted(kind: str = "nap", *, delay_ms: int | None = None, at: float = 1.0) -> list[Line]:
    return [
        ("producer-0-1", ["do", at, 0, "enqueue", [[JOB, delay_ms, kind, None]]]),
        ("producer-0-1", ["did", at + 0.1, 0, [JOB]]),
    ]


def begun(at: float, worker: str) -> list[Line]:
    """An attempt; its token is the worker's name."""
    return [
        (worker, ["claim", at, worker]),
        (worker, ["claimed", at + 0.1, worker, [[JOB, worker, 1, 0]]]),
        (worker, ["start", at + 0.2, JOB, 1, worker, JOB, 0.0]),
    ]


def ended(at: float, worker: str, move: str = "complete") -> list[Line]:
    how = "done" if move == "complete" else "raised"
    return [
        (worker, ["end", at, JOB, 1, worker, how]),
        (worker, ["settle", at, 1, [[move, JOB, worker, 300]]]),
        (worker, ["settled", at + 0.1, 1, ["OK"], 1]),
    ]


def renewed(at: float, worker: str) -> list[Line]:
    return [(worker, ["renewed", at, at + 0.1, [[JOB, worker, "OK"]]])]


def killed(since: float, *queues: str) -> Outage:
    return Outage("node_kill", 7001, queues or ("q0",), since, since + 3.2, ((since - 1, since),))


def judged(
    *parts: Sequence[Line], outages: Sequence[Outage] = (), kills: Sequence[Fault] = (), place: str = "completed"
) -> dict[str, Any]:
    """Whatever is found about a job with these records, which ends in this state; its node and processes may die."""
    found = Findings()
    final = {JOB: place} if place else {}
    Judge(Journal.of(line for part in parts for line in part), outages, kills, final, found).judge()
    assert len(found.complaints) == sum(getattr(found, fault) for fault in FAULTS)
    counts = {fault: getattr(found, fault) for fault in FAULTS}
    counts |= {f"unreplicated {what}": count for what, count in found.unreplicated.items()} | dict(found.again)
    return {what: count for what, count in counts.items() if count}


FIRST, SECOND = begun(2, "w-1"), [*begun(9, "w-2"), *ended(10, "w-2")]
RAN = [*begun(2, "w-1"), *ended(3, "w-1")]


def test_two_queues_begin_on_each_node():
    assert [key_slot(f"queue:{{{name}}}:".encode()) * PRIMARIES // SLOTS for name in NAMES] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_job_that_ran_once_passes():
    assert judged(accepted(), RAN) == {}


def test_a_job_that_fails_runs_again():
    assert judged(accepted(), FIRST, ended(3, "w-1", "retry"), begun(3.5, "w-2"), ended(5, "w-2")) == {}


@pytest.mark.parametrize("place", ["", "pending", "failed"])
@pytest.mark.parametrize("outages", [(), (killed(1.5),)])
def test_an_accepted_job_that_is_gone_or_stuck_is_lost_whatever_has_happened(place: str, outages: Sequence[Outage]):
    """A node that is killed explains nothing: its replica had the job."""
    assert judged(accepted(), outages=outages, place=place) == {"lost": 1}
    assert judged(accepted(), RAN, outages=outages, place=place) == {"lost": 1}


def test_a_job_without_an_attempt_that_finished_is_lost():
    assert judged(accepted(), FIRST) == {"lost": 1}


def test_a_job_accepted_by_the_primary_alone_may_be_lost_with_its_node():
    memory = accepted("memory nap")
    assert judged(memory, outages=[killed(1.5)], place="") == {"unreplicated jobs": 1}
    assert judged(memory, outages=[killed(1.5)], place="pending") == {"lost": 1}
    assert judged(memory, outages=[killed(3.5)], place="") == {"lost": 1}  # the replica had time to get it
    assert judged(memory, outages=[killed(1.5, "q1", "q2")], place="") == {"lost": 1}


@pytest.mark.parametrize("outages", [(), (killed(1.5),)])
def test_a_delay_is_kept(outages: Sequence[Outage]):
    late, early = accepted(delay_ms=1000), accepted(delay_ms=1300)
    assert judged(late, RAN, outages=outages) == {}
    assert judged(early, RAN, outages=outages) == {"early": 1}


def test_the_pause_before_a_retry_is_kept():
    retried = [*FIRST, *ended(3, "w-1", "retry")]
    assert judged(accepted(), retried, begun(3.15, "w-2"), ended(5, "w-2")) == {}
    assert judged(accepted(), retried, begun(3.101, "w-2"), ended(5, "w-2"), place="completed") == {}
    hasty = [("w-2", ["claim", 3.11, "w-2"]), ("w-2", ["claimed", 3.15, "w-2", [[JOB, "w-2", 2, 0]]])]
    hasty += [("w-2", ["start", 3.16, JOB, 2, "w-2", JOB, 0.0]), *ended(5, "w-2")]
    assert judged(accepted(), retried, hasty) == {"early": 1}


def test_a_second_start_needs_a_cause():
    assert judged(accepted(), FIRST, SECOND) == {"twice": 1}
    assert judged(accepted(), RAN, SECOND) == {"twice": 1}


def test_a_worker_that_was_killed_is_a_cause():
    dead = Fault("worker_kill", 2.5, math.inf, "w-1")
    assert judged(accepted(), FIRST, SECOND, kills=[dead]) == {"worker_kill": 1}
    assert judged(accepted(), FIRST, begun(4, "w-2"), ended(5, "w-2"), kills=[dead]) == {"twice": 1}  # within the lease
    assert judged(accepted(), RAN, SECOND, kills=[dead]) == {"twice": 1}


def test_a_node_that_was_gone_for_most_of_a_lease_is_a_cause():
    outage = killed(4)
    assert judged(accepted(), FIRST, renewed(3, "w-1"), SECOND, outages=[outage]) == {"node_kill": 1}
    assert judged(accepted(), FIRST, renewed(7, "w-1"), SECOND, outages=[outage]) == {"twice": 1}
    assert judged(accepted(), FIRST, SECOND, outages=[killed(4, "q1")]) == {"twice": 1}


@pytest.mark.parametrize(
    ("records", "at"),
    [
        pytest.param([*FIRST, *begun(5, "w-2"), *ended(6, "w-2")], 2.5, id="the claim"),
        pytest.param([*FIRST, *renewed(4, "w-1"), *begun(7, "w-2"), *ended(7.5, "w-2")], 4.3, id="a renewal"),
        pytest.param([*RAN, *SECOND], 3.5, id="the completion"),
    ],
)
def test_a_write_that_was_lost_with_its_node_is_a_cause(records: Sequence[Line], at: float):
    assert judged(accepted(), records, outages=[killed(at)]) == {"unreplicated again": 1}
    assert judged(accepted(), records, outages=[killed(at, "q3")]) == {"twice": 1}
    assert judged(accepted(), records, outages=[killed(at - 2)]) == {"twice": 1}


def test_a_stopped_node_that_goes_on_may_give_a_job_to_a_second_worker():
    stop = Outage("node_stop", 7001, ("q0",), 1.0, 6.5, ((0.0, 1.0), (5.0, 5.3)))
    other = [*begun(5.05, "w-2"), *ended(6, "w-2")]
    assert judged(accepted(at=0), begun(4, "w-1"), other, outages=[stop]) == {"unreplicated again": 1}
    assert judged(accepted(at=0), begun(4, "w-1"), begun(6, "w-2"), ended(7, "w-2"), outages=[stop]) == {"twice": 1}


def test_a_late_start_after_a_completion_is_noticed():
    late = [("w-1", ["claim", 2, "w-1"]), ("w-1", ["claimed", 2.1, "w-1", [[JOB, "w-1", 1, 0]]])]
    late += [("w-1", ["start", 12, JOB, 1, "w-1", JOB, 0.0])]
    dead = Fault("worker_stop", 2.2, 8.0, "w-1")
    assert judged(accepted(), late, SECOND, kills=[dead]) == {"worker_stop": 1}
    dead = Fault("worker_stop", 9.2, 9.4, "w-1")
    assert judged(accepted(), late, SECOND, kills=[dead]) == {"twice": 2}
