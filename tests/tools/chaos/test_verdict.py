"""Verdicts on the records of a run: invented ones, each with one violation or one allowed exception."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from scripts.tools.chaos.evidence import MUST_BE_ZERO, Evidence, Verdict
from scripts.tools.chaos.faults import SERVER, Fault
from scripts.tools.chaos.journal import Journal
from scripts.tools.chaos.servertime import ServerTime, Step
from scripts.tools.chaos.stalls import Stalls
from scripts.tools.chaos.verdict import judge

Line = tuple[str, list[Any]]
BASE_MS = 1_800_000_000_000.0
FAR_S = 200.0


def enqueued(at: float = 1, *, delay_ms: int | None = None, reply: Any = ("x",), most: int | None = None) -> list[Line]:
    return [
        ("p-1", ["do", at, 0, "enqueue", [["x", delay_ms, "nap", most]]]),
        ("p-1", ["did", at + 0.1, 0, reply if isinstance(reply, str | None) else list(reply)]),
    ]


def begun(at: float, worker: str, token: str, attempt: int = 1, *, crashes: int = 0, started: float = 0) -> list[Line]:
    return [
        (worker, ["claim", at, token]),
        (worker, ["claimed", at + 0.1, token, [["x", token, attempt, crashes]]]),
        (worker, ["start", started or at + 0.2, "x", attempt, token, "x", 0.0]),
    ]


def ended(
    at: float, worker: str, token: str, move: str = "complete", how: str = "done", reply: str = "OK"
) -> list[Line]:
    return [
        (worker, ["end", at, "x", 1, token, how]),
        (worker, ["settle", at, int(at * 10), [[move, "x", token, 300]]]),
        (worker, ["settled", at + 0.1, int(at * 10), [reply], 1]),
    ]


def verdict(
    *parts: Sequence[Line],
    faults: Sequence[Fault] = (),
    steps: Sequence[Step] = (),
    place: str | None = "completed",
    told: Sequence[str] = (),
) -> Verdict:
    """The verdict on these records of one job, whose final state is `place`."""
    journal = Journal.of(line for part in parts for line in part)
    samples = [(float(n), BASE_MS + n * 1000) for n in range(int(FAR_S) + 1)]
    final = {} if place is None else {"x": place}
    stalls = Stalls(faults, journal.gaps, [])
    return judge(Evidence(journal, stalls, ServerTime(samples, steps), faults, final, {"x": told}, FAR_S))


def wrong(found: Verdict) -> dict[str, int]:
    """The counters that should be zero but are not."""
    return {name: getattr(found, name) for name in MUST_BE_ZERO if getattr(found, name)}


def killed(at: float, worker: str = "w-1", *, is_calm: bool = False) -> Fault:
    return Fault("worker_kill", at, math.inf, worker, is_calm)


FIRST = begun(2, "w-1", "a")
SECOND = [*begun(9, "w-2", "b", 2, crashes=1), *ended(10, "w-2", "b")]


def test_a_job_that_ran_once_passes():
    found = verdict(enqueued(), FIRST, ended(3, "w-1", "a"))

    assert wrong(found) == {}
    assert (found.jobs, found.starts, found.twice_explained) == (1, 1, 0)


@pytest.mark.parametrize("place", [None, "pending", "delayed", "processing"])
def test_a_job_that_was_accepted_and_never_came_to_an_end_is_lost(place: str | None):
    assert verdict(enqueued(), place=place).lost == 1


def test_a_job_that_was_started_and_is_not_stored_is_lost():
    assert verdict(enqueued(), FIRST, faults=[killed(3)], place=None).lost == 1


def test_a_finished_job_may_be_deleted_but_a_requeued_one_may_not():
    failed = ended(3, "w-1", "a", "fail", "raised")
    revived: list[Line] = [("p-1", ["do", 4, 1, "requeue", [["x"]]]), ("p-1", ["did", 4.1, 1, True])]

    assert wrong(verdict(enqueued(), FIRST, failed, place=None)) == {}
    assert wrong(verdict(enqueued(), FIRST, failed, place=None, told=["failed"])) == {}
    lost = verdict(enqueued(), FIRST, failed, revived, place=None, told=["failed", "requeue"])
    assert wrong(lost) == {"lost": 1, "illegal": 1}
    assert verdict(enqueued(), FIRST, failed, revived, place=None).lost == 1


def test_a_job_whose_producer_does_not_know_whether_it_was_stored_may_be_missing():
    assert wrong(verdict(enqueued(reply=None), place=None)) == {}


def test_a_job_that_was_refused_may_not_be_there():
    assert wrong(verdict(enqueued(reply="full"), place=None)) == {}
    assert wrong(verdict(enqueued(reply="full"), FIRST, ended(3, "w-1", "a"))) == {"illegal": 1}


def test_a_completion_without_a_handler_that_came_to_its_end_is_noticed():
    found = verdict(enqueued(), FIRST, ended(3, "w-1", "a", how="raised"))

    assert wrong(found) == {"unfounded": 1}


def test_a_start_before_the_due_instant_is_noticed():
    assert wrong(verdict(enqueued(delay_ms=1500), FIRST, ended(3, "w-1", "a"))) == {"early": 1}
    assert wrong(verdict(enqueued(delay_ms=1100), FIRST, ended(3, "w-1", "a"))) == {}


def test_a_retry_before_its_backoff_has_passed_is_noticed():
    failed = ended(3, "w-1", "a", "retry", "raised")

    assert wrong(verdict(enqueued(), FIRST, failed, begun(3.05, "w-2", "b", 2), ended(4, "w-2", "b"))) == {"early": 1}
    assert wrong(verdict(enqueued(), FIRST, failed, begun(3.2, "w-2", "b", 2), ended(4, "w-2", "b"))) == {}


def test_a_step_of_the_servers_clock_makes_a_job_due_and_not_before():
    there_and_back = [Step(1.5, 1.6, 3_600_000), Step(1.8, 1.9, 0)]

    assert wrong(verdict(enqueued(delay_ms=60_000), FIRST, ended(3, "w-1", "a"), steps=there_and_back)) == {}
    later = [Step(2.5, 2.6, 3_600_000)]
    assert wrong(verdict(enqueued(delay_ms=60_000), FIRST, ended(3, "w-1", "a"), steps=later)) == {"early": 1}


def test_a_second_start_that_no_fault_explains_is_noticed():
    found = verdict(enqueued(), FIRST, SECOND)

    assert (found.twice_unexplained, found.twice_explained) == (1, 0)


def test_a_claim_whose_reply_took_long_does_not_count_as_earlier():
    snoozed = ended(3, "w-1", "a", "snooze", "snoozed")
    late: list[Line] = [
        ("w-2", ["claim", 1.5, "b"]),
        ("w-2", ["claimed", 4.1, "b", [["x", "b", 1, 0]]]),
        ("w-2", ["start", 4.2, "x", 1, "b", "x", 0.0]),
    ]

    assert wrong(verdict(enqueued(), FIRST, snoozed, late, ended(5, "w-2", "b"))) == {}


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (killed(3), "worker_kill"),
        (Fault("worker_stop", 3, 8, "w-1"), "worker_stop"),
        (Fault("black_hole", 4, 7, "w-1"), "black_hole"),
        (Fault("redis_kill", 4, 7, SERVER), "redis_kill"),
    ],
)
def test_a_second_start_after_a_fault_that_covers_the_lease_is_explained(fault: Fault, why: str):
    found = verdict(enqueued(), FIRST, SECOND, faults=[fault])

    assert wrong(found) == {}
    assert found.again == {why: 1}


@pytest.mark.parametrize(
    "fault",
    [killed(3, "w-3"), killed(8.9), Fault("worker_stop", 3, 3.5, "w-1"), Fault("script_flush", 3, 8, SERVER)],
)
def test_a_fault_of_another_process_or_too_short_a_one_explains_nothing(fault: Fault):
    assert verdict(enqueued(), FIRST, SECOND, faults=[fault]).twice_unexplained == 1


def test_a_process_that_was_frozen_without_a_fault_explains_a_second_start():
    gap: list[Line] = [("w-1", ["gap", 3.0, 7.0])]

    assert wrong(verdict(enqueued(), FIRST, SECOND, gap)) == {}


def test_a_lease_taken_before_it_ended_is_noticed_though_its_worker_is_dead():
    soon = [*begun(4, "w-2", "b", 2, crashes=1), *ended(5, "w-2", "b")]

    found = verdict(enqueued(), FIRST, soon, faults=[killed(2.5)])

    assert wrong(found) == {"twice_unexplained": 1, "illegal": 1}


def test_a_live_lease_that_a_step_of_the_clock_has_ended_is_noticed():
    soon = [*begun(4, "w-2", "b", 2, crashes=1), *ended(5, "w-2", "b")]

    found = verdict(enqueued(), FIRST, soon, steps=[Step(3, 3.1, 3_600_000)])

    assert wrong(found) == {"twice_unexplained": 1}


def test_an_attempt_that_begins_twice_is_noticed():
    again: list[Line] = [("w-1", ["start", 2.5, "x", 1, "a", "x", 0.0])]

    assert verdict(enqueued(), FIRST, again, ended(3, "w-1", "a")).twice_unexplained == 1


def test_an_attempt_without_a_claim_is_noticed():
    rogue: list[Line] = [("w-2", ["start", 2.5, "x", 1, "z", "x", 0.0])]

    assert verdict(enqueued(), FIRST, rogue, ended(3, "w-1", "a")).illegal == 1


def test_a_start_by_a_claim_after_the_completion_is_noticed():
    found = verdict(enqueued(), FIRST, ended(3, "w-1", "a"), SECOND, faults=[killed(3.2)])

    assert found.after_completion == 1
    assert found.illegal == 1


def test_a_frozen_process_may_start_its_former_job_after_another_has_completed_it():
    frozen = begun(2, "w-1", "a", started=12)
    found = verdict(
        enqueued(), frozen, SECOND, ended(13, "w-1", "a", reply="LOST"), faults=[Fault("worker_stop", 2.1, 12, "w-1")]
    )

    assert wrong(found) == {}


def test_a_process_that_was_not_frozen_may_not():
    found = verdict(
        enqueued(), begun(2, "w-1", "a", started=12), SECOND, ended(13, "w-1", "a", reply="LOST"), faults=[]
    )

    assert found.after_completion == 1


def test_a_frozen_process_that_changes_something_by_its_old_claim_is_noticed():
    found = verdict(
        enqueued(), FIRST, SECOND, ended(13, "w-1", "a", reply="OK"), faults=[Fault("worker_stop", 2.3, 12, "w-1")]
    )

    assert wrong(found) == {"illegal": 1}


def test_an_attempt_is_not_ended_by_the_sweep_that_took_back_the_one_before():
    """Its reply arrived after the next claim had been sent, and the next sweep's reply was lost."""
    swept: list[Line] = [("w-4", ["taken", 8.9, 9.05, ["x"]])]
    third = [*begun(15, "w-3", "c", 3, crashes=2), *ended(16, "w-3", "c")]
    found = verdict(
        enqueued(),
        FIRST,
        swept,
        begun(9, "w-2", "b", 2, crashes=1),
        third,
        faults=[killed(3), Fault("worker_stop", 9.4, 20, "w-2")],
    )

    assert (found.twice_explained, wrong(found)) == (2, {})


def test_how_long_a_killed_workers_job_waited_is_measured_and_judged():
    soon = [*begun(8, "w-2", "b", 2, crashes=1), *ended(10, "w-2", "b")]
    late = [*begun(12, "w-2", "b", 2, crashes=1), *ended(13, "w-2", "b")]

    assert verdict(enqueued(), FIRST, soon, faults=[killed(3, is_calm=True)]).recovery_max_ms == 5200
    assert wrong(verdict(enqueued(), FIRST, soon, faults=[killed(3, is_calm=True)])) == {}
    assert wrong(verdict(enqueued(), FIRST, late, faults=[killed(3, is_calm=True)])) == {"recovered_late": 1}


@pytest.mark.parametrize(("at", "late"), [(12.4, {}), (12.6, {"recovered_late": 1})])
def test_how_long_a_killed_workers_job_took_to_fail_is_measured_and_judged(at: float, late: dict[str, int]):
    """It has no attempt left, so it does not start elsewhere."""
    taken: list[Line] = [("w-3", ["taken", at - 0.1, at, ["x"]])]
    found = verdict(enqueued(most=1), FIRST, taken, faults=[killed(3, is_calm=True)], place="failed")

    assert wrong(found) == late
    assert (found.given_up, found.given_up_max_ms, found.recovered) == (1, round((at - 3) * 1000), 0)


def test_a_frozen_machine_is_not_a_late_recovery():
    late = [*begun(12, "w-2", "b", 2, crashes=1), *ended(13, "w-2", "b")]
    gap: list[Line] = [("w-3", ["gap", 5.0, 9.0])]

    assert wrong(verdict(enqueued(), FIRST, late, gap, faults=[killed(3, is_calm=True)])) == {}


@pytest.mark.parametrize(("kind", "illegal"), [("recovered", 0), ("claimed", 1)])
def test_a_claim_may_be_executed_after_the_recovery_request_but_not_after_its_reply(kind: str, illegal: int):
    retried = ended(3, "w-1", "a", "retry", "raised")
    late: list[Line] = [("w-2", ["claim", 3.5, "late"]), ("w-2", [kind, 4.0, "late", []])]
    taken: list[Line] = [("w-3", ["taken", 8.2, 8.3, ["x"]])]
    again = [*begun(8.4, "w-1", "b", 3, crashes=1), *ended(9, "w-1", "b")]

    assert verdict(enqueued(), FIRST, retried, late, taken, again).illegal == illegal


def test_a_claim_whose_reply_came_after_the_lease_is_recovered_and_counts_once():
    asked: list[Line] = [("w-1", ["recovered", 2.15, "a", [["x", "a", 1, 0]]])]
    claim, claimed, start = FIRST

    found = verdict(enqueued(), [claim, claimed, *asked, start, *ended(3, "w-1", "a")])

    assert (wrong(found), found.illegal) == ({}, 0)


@pytest.mark.parametrize(("is_killed", "late"), [(True, {}), (False, {"recovered_late": 1})])
def test_without_a_reclaimer_no_job_is_taken_back_and_how_long_that_was_is_measured(
    is_killed: bool, late: dict[str, int]
):
    again = [*begun(11, "w-4", "b", 2, crashes=1), *ended(13, "w-4", "b")]
    looks: list[Line] = [(who, ["held", at, "queue:first:pending"]) for at, who in ((2.9, "w-2"), (6.5, "w-3"))]
    faults = [killed(3, is_calm=True), *([killed(3.5, "w-2", is_calm=True)] if is_killed else [])]
    found = verdict(enqueued(), FIRST, again, looks, faults=faults)

    assert wrong(found) == late
    assert found.takeover_max_ms == (3000 if is_killed else 0)


def test_a_run_of_which_nothing_was_written_down_has_no_jobs():
    assert verdict(place=None).jobs == 0
