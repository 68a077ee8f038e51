"""What `scripts/chaos --workflows` counts as a fault of runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scripts.tools.chaos.workflows_draw import drawn
from scripts.tools.chaos.workflows_plan import Outcome, Plan, child_values, operations, value_of
from scripts.tools.chaos.workflows_verdict import PROPAGATION_MS
from tests.tools.chaos.workflow_journal import Job, Journal

STEP = ["step", "s", 1, False, 0]
SLEEP = ["sleep", "z", 500]
MAP = ["map", "m", 3, 2, 0, {}, 0]


def a_run(*program: list[Any], acts: tuple[list[Any], ...] = (), ends: str = "completed") -> Plan:
    return Plan(1, "run", {"program": [*program]}, [[0, "start"], *acts], ends)


def run_attempt(journal: Journal, token: str, claimed: float, left: float, move: str, **more: Any) -> None:
    more = {"how": "done" if move == "complete" else "CancelledError"} | more
    journal.attempt(Job("run-1", "run", "1", 0), token, claimed, left, move=move, **more)


def of_run(plan: Plan) -> Journal:
    """A run that two attempts have brought to its end: from 100 to 200, and from 1000 to 1300."""
    journal = Journal(plan)
    journal.did(plan, 0)
    run_attempt(journal, "a", 100, 200, "suspend")
    run_attempt(journal, "b", 1000, 1300, "complete")
    result = Outcome(1).of(plan.what["program"])
    journal.write("returned", 1290, "run-1", 0, "b", result)
    journal.ended("job:run-1", status="completed", result=json.dumps(result))
    return journal


def saw(journal: Journal, at: float, label: str, token: str, value: Any) -> None:
    journal.write("saw", at, "run-1", 0, 0, label, token, value)


def of_step() -> Journal:
    """A step that has failed once."""
    journal, value = of_run(a_run(STEP)), [value_of(1, "s"), 7]
    journal.write("step", 110, "run-1", 0, "s", "a")
    journal.write("stumbled", 115, "run-1", 0, "s", "a")
    journal.write("step", 120, "run-1", 0, "s", "a")
    journal.write("stepped", 130, "run-1", 0, "s", "a", value)
    saw(journal, 140, "s", "a", value)
    saw(journal, 1010, "s", "b", value)
    return journal


def test_a_run_that_ends_as_planned_is_right() -> None:
    assert of_step().faults() == {}


@pytest.mark.parametrize("status", ["delayed", "failed"])
def test_an_acknowledged_run_ends_as_planned(status: str) -> None:
    journal = of_step()
    journal.ended("job:run-1", status=status)
    assert journal.faults()["ended"] == 1


def test_a_run_fails_for_the_planned_reason() -> None:
    plan = a_run(["ruin", "r", "bad"], ends="failed")
    for error, faults in (("step r: as planned", {}), ("a lost lease", {"ended": 1})):
        journal = Journal(plan)
        journal.did(plan, 0)
        journal.ended("job:run-1", status="failed", last_error=error)
        assert journal.faults() == faults


@pytest.mark.parametrize(
    ("reply", "did", "faults"),
    [("no", 1400, {}), ("no", 1200, {"ended": 2}), ("asked", 1400, {"ended": 2})],
    ids=["it had returned", "it had not", "it was asked"],
)
def test_a_run_that_ended_before_it_was_cancelled_is_completed(reply: str, did: float, faults: dict[str, int]) -> None:
    plan = a_run(STEP, acts=([0, "cancel"],), ends="cancelled")
    journal = of_step()
    journal.plans = {1: plan}
    journal.did(plan, 1, did - 1, reply)
    assert {fault: count for fault, count in journal.faults().items() if fault == "ended"} == faults


def test_a_run_whose_start_was_not_acknowledged_may_not_exist() -> None:
    journal, plan = Journal(a_run(STEP)), a_run(STEP)
    journal.did(plan, 0, reply=None)
    assert journal.faults() == {}


def test_an_act_of_the_producer_that_is_never_acknowledged_is_noticed() -> None:
    journal = of_run(a_run(acts=([0, "cancel"],)))
    assert journal.faults() == {"ended": 1}


def test_a_run_returns_what_it_returns_without_faults() -> None:
    journal = of_step()
    journal.ended("job:run-1", status="completed", result="[0]")
    assert journal.faults() == {"results": 1}
    journal = of_step()
    journal.write("returned", 1280, "run-1", 0, "b", [0])
    assert journal.faults() == {"results": 1}


def test_all_attempts_see_the_same_outcome() -> None:
    journal = of_step()
    journal.write("stepped", 150, "run-1", 0, "s", "a", [value_of(1, "s"), 8])
    saw(journal, 1020, "s", "b", [value_of(1, "s"), 8])
    assert journal.faults() == {"changed": 1}


def test_an_outcome_is_what_a_call_returned() -> None:
    journal, strange = of_step(), [value_of(1, "s"), 9]
    journal.lines = [(key, [strange if it == [value_of(1, "s"), 7] and line[0] == "saw" else it for it in line])
                     for key, line in journal.lines]  # fmt: skip
    assert journal.faults() == {"changed": 2}


def test_a_recorded_step_does_not_run_again() -> None:
    journal = of_step()
    journal.write("step", 1015, "run-1", 0, "s", "b")
    assert journal.faults()["again"] == 2  # and the attempt before had not lost its lease


def test_a_step_may_run_again_in_an_attempt_that_has_lost_its_lease_to_the_one_that_recorded_it() -> None:
    journal = of_step()
    run_attempt(journal, "old", -5000, 160, "", how="")
    for at, faults in ((105, {}), (145, {"again": 1})):  # before the other one and after it, which is the second time
        journal.write("step", at, "run-1", 0, "s", "old")
        assert journal.faults() == faults


def test_a_step_is_called_again_only_after_its_attempt_has_ended() -> None:
    journal = of_step()
    journal.write("step", 135, "run-1", 0, "s", "a")
    assert journal.faults() == {"again": 1}


def of_sleep(ends: float) -> Journal:
    journal = of_run(a_run(SLEEP))
    journal.write("waits", 150, "run-1", 0, "z", "sleep", 500)
    journal.write("waits", 1005, "run-1", 0, "z", "sleep", 500)
    saw(journal, ends, "z", "b", None)
    return journal


def test_a_sleep_never_ends_early() -> None:
    assert of_sleep(1006).faults() == {}
    assert of_sleep(649).faults() == {}  # Redis's clock shows whole ms
    assert of_sleep(640).faults() == {"early": 1}


def test_a_moment_is_never_reached_early() -> None:
    for moment, faults in ((1000, {}), (1100, {"early": 1})):
        journal = of_run(a_run(["until", "u", 0]))
        journal.write("waits", 150, "run-1", 0, "u", "until", moment)
        saw(journal, 1005, "u", "b", None)
        assert journal.faults() == faults


def of_messages(*seen: tuple[float, str, Any], acked: tuple[float, ...] = (300, 400)) -> Journal:
    """A run that waits for two messages, each for 500 ms at a time."""
    plan = a_run(
        ["patience", "p", "news", 500], ["patience", "q", "news", 500],
        acts=tuple([0, "send", "news", n] for n in range(len(acked))),
    )  # fmt: skip
    journal = of_run(plan)
    for number, at in enumerate(acked):
        journal.did(plan, number + 1, at)
    journal.write("waits", 150, "run-1", 0, "p.0", "news", 500)
    for at, label, value in seen:
        saw(journal, at, label, "b", value)
    return journal


FIRST, SECOND = ["news", 0], ["news", 1]


def test_messages_are_received_once_and_in_order() -> None:
    assert of_messages((1010, "p.0", FIRST), (1020, "q.0", SECOND)).faults() == {}
    assert of_messages((1010, "p.0", FIRST), (1020, "q.0", FIRST), (1030, "q.1", SECOND)).faults() == {"messages": 1}
    assert of_messages((1010, "p.0", SECOND), (1020, "q.0", FIRST)).faults() == {"messages": 1}


def test_no_acknowledged_message_is_lost() -> None:
    assert of_messages((1010, "p.0", FIRST)).faults() == {"messages": 1}


def test_a_run_that_waits_refuses_no_message() -> None:
    journal = of_messages((1010, "p.0", FIRST), (1020, "q.0", SECOND))
    journal.write("did", 500, 1, 2, False, process="producer-0-1")
    assert journal.faults() == {"messages": 1}


def test_a_message_that_came_in_time_is_received_in_time() -> None:
    seen = ((1005, "p.0", "timeout"), (1010, "p.1", FIRST), (1020, "q.0", SECOND))
    assert of_messages(*seen, acked=(651, 900)).faults() == {}
    assert of_messages(*seen, acked=(600, 900)).faults() == {"messages": 1}


def test_a_timeout_never_comes_early() -> None:
    seen = ((640, "p.0", "timeout"), (1010, "p.1", FIRST), (1020, "q.0", SECOND))
    assert of_messages(*seen, acked=(700, 900)).faults() == {"early": 1}


# -- children of a run


def child_of_map(number: int, label: str = "m") -> Job:
    return Job(f"run-0f-{number}-abc", "run-0f", f"1 {label}", number)


def of_map(values: list[int], *claims: float) -> Journal:
    journal = of_run(a_run(MAP))
    for number, at in enumerate(claims or (300, 300, 320)):
        journal.attempt(child_of_map(number), f"c{number}", at)
    saw(journal, 1010, "m", "b", values)
    return journal


VALUES = child_values(1, "m", 3, {}, is_mended=False)


def test_a_map_ends_with_exactly_its_items_in_order() -> None:
    assert of_map(VALUES).faults() == {}
    assert of_map(VALUES[:2]).faults() == {"counted": 1}
    assert of_map(VALUES[::-1]).faults() == {"counted": 1}


def test_no_more_children_than_its_concurrency_have_leases_at_a_time() -> None:
    assert of_map(VALUES, 300, 300, 305).faults() == {}  # a settlement's instant is not exact
    journal = of_run(a_run(MAP))
    for number in range(3):
        journal.attempt(child_of_map(number), f"c{number}", 300 + number, 600)
    assert journal.faults() == {"concurrency": 1}


def cancelled_run(claimed: float, begins: float) -> dict[str, int]:
    plan = a_run(MAP, acts=([0, "cancel"],), ends="cancelled")
    journal = Journal(plan)
    journal.did(plan, 0)
    journal.did(plan, 1, 500, "cancelled")
    run_attempt(journal, "a", claimed, claimed + 10, "suspend")
    journal.attempt(child_of_map(0), "c", begins)
    journal.ended("job:run-1", status="cancelled")
    return journal.faults()


def test_nothing_of_a_cancelled_run_begins() -> None:
    assert cancelled_run(100, 300) == {}
    assert cancelled_run(100, 501 + PROPAGATION_MS) == {}
    assert cancelled_run(600, 300) == {"cancelled": 1}
    assert cancelled_run(100, 502 + PROPAGATION_MS) == {"cancelled": 1}


def test_a_map_that_has_lost_a_race_is_called_off() -> None:
    for begins, faults in ((1200, {}), (1101 + PROPAGATION_MS, {"cancelled": 1})):
        journal = of_run(a_run(["late", "l", 300, 3, 100, 400]))
        saw(journal, 1100, "l", "b", "late")
        journal.attempt(child_of_map(0, "l"), "c", begins)
        assert journal.faults() == faults


# -- jobs that begin again


@pytest.mark.parametrize(
    ("how", "move", "again", "faults"),
    [
        ("", "", 4300, {}),
        ("", "", 4200, {"again": 1}),
        ("done", "complete", 5000, {"again": 1}),
        ("done", "", 4300, {}),
        ("done", "", 2000, {"again": 1}),
        ("RuntimeError", "retry", 700, {}),
        ("CancelledError", "release", 700, {}),
        ("Discard", "fail", 700, {"again": 1}),
    ],
    ids=["killed", "has its lease", "completed", "unknown", "too soon", "raised", "released", "failed"],
)
def test_a_job_begins_again_only_with_a_reason(how: str, move: str, again: float, faults: dict[str, int]) -> None:
    journal = of_map(VALUES)
    job = Job("run-0e-0-abc", "run-0e", "1 c", 0)
    journal.attempt(job, "d1", 250, 400, how=how, move=move)
    journal.attempt(job, "d2", again)
    assert journal.faults() == faults


# -- plans


def test_a_plan_depends_on_the_seed_and_its_number_only() -> None:
    plans = [drawn(1, number) for number in range(400)]
    assert plans == [drawn(1, number) for number in range(400)]
    assert plans != [drawn(2, number) for number in range(400)]
    verbs = {op[0] for plan in plans for op in operations(plan.what.get("program", []))}
    assert {"step", "map", "gather", "race", "late", "over", "nested", "patience", "graph"} <= verbs
    assert {plan.ends for plan in plans} == {"completed", "failed", "cancelled"}


def test_each_life_of_a_run_takes_the_messages_that_earlier_ones_left() -> None:
    assert Outcome(1).of([["receive", "r", "news"], ["over", "o", 2]]) == [["news", 2]]
