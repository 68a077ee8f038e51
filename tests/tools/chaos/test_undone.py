"""What `scripts/chaos --workflows` counts as a fault of steps that can be undone."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.tools.chaos.workflows_draw import drawn
from scripts.tools.chaos.workflows_plan import Outcome, Plan, older, operations, undoable
from tests.tools.chaos.workflow_journal import Job, Journal

RUN = Job("run-1", "run", "1", 0)
RUIN = ["ruin", "r", "bad"]
KEEP = ["keep", "k"]


def step(label: str) -> list[Any]:
    return ["undoable", label, "ok", 0, False, 0, 0]


def began(*labels: str, program: list[Any] | None = None, status: str = "failed", run: str = "v=1") -> Journal:
    """A run whose steps a, b and c were to begin, and these did; it has ended so."""
    program = program or [step("a"), step("b"), step("c"), RUIN]
    plan = Plan(1, "run", {"program": program}, [[0, "start"]], "failed")
    journal = Journal(plan)
    journal.did(plan, 0)
    journal.attempt(RUN, "t", 100, 300, how="StepFailed", move="undo")
    for n, label in enumerate(labels):
        journal.write("step", 110 + n, "run-1", 0, label, "t")
    journal.ended("job:run-1", status=status, last_error="step r: as planned", run=run)
    return journal


def undo(journal: Journal, at: float, *labels: str, token: str = "u", claimed: int = 350) -> Journal:
    """An attempt that undoes these steps; of a label with ! the undo does not return."""
    for n, label in enumerate(labels):
        fields = ["run-1", 0, label.removesuffix("!"), token, claimed]
        journal.write("undo", at + 2 * n, *fields)
        if not label.endswith("!"):
            journal.write("undone", at + 2 * n + 1, *fields)
    return journal


def test_a_run_that_fails_undoes_what_it_has_begun_the_newest_step_first() -> None:
    assert undo(began("a", "b"), 400, "b", "a").faults() == {}
    assert undo(began("a", "b", "c"), 400, "c", "b", "a").faults() == {}
    assert undo(began("a"), 400, "b", "a").faults() == {}, "a worker died between the request and the step"


def test_each_step_that_began_is_undone() -> None:
    assert began("a").faults() == {"undone": 1}
    assert undo(began("a", "b"), 400, "b").faults() == {"undone": 1}
    assert undo(began("a", "b"), 400, "b", "a!").faults() == {"undone": 1}
    assert undo(began("a", status="cancelled"), 400, "b").faults()["undone"] == 1


def test_an_older_step_is_undone_only_when_the_newer_one_is() -> None:
    for wrong in (("a", "b"), ("b!", "a", "b"), ("c", "a", "b")):
        assert undo(began("a", "b"), 400, *wrong).faults()["undone"] >= 1


def test_an_undo_runs_again_if_its_worker_died_and_not_once_an_older_step_is_undone() -> None:
    journal = undo(began("a", "b"), 400, "b!")
    assert undo(journal, 500, "b", "a", token="v", claimed=450).faults() == {}
    late = undo(began("a", "b"), 400, "b", "a")
    assert undo(late, 500, "b", token="old", claimed=340).faults() == {}, "its lease was lost"
    assert undo(late, 600, "b", token="v", claimed=550).faults() == {"undone": 1}


def test_a_run_that_completes_undoes_nothing() -> None:
    program = [step("a")]
    journal = began("a", program=program)
    journal.plans[1].ends = "completed"
    journal.write("returned", 290, "run-1", 0, "t", Outcome(1).of(program))
    journal.ended("job:run-1", status="completed")
    assert journal.faults() == {}
    assert undo(journal, 400, "a").faults() == {"undone": 1}


@pytest.mark.parametrize("run", ["v=1 left=1", "v=1 undos=1"])
def test_nothing_is_left_to_be_undone(run: str) -> None:
    assert undo(began("a", run=run), 400, "a").faults() == {"undone": 1}


def test_what_is_kept_is_not_undone() -> None:
    def kept() -> Journal:
        journal = began("a", "b", program=[step("a"), KEEP, step("b"), RUIN])
        journal.write("saw", 111, "run-1", 0, 0, "k", "t", None)
        return journal

    assert undo(kept(), 400, "b").faults() == {}
    assert undo(kept(), 400, "b", "a").faults() == {"undone": 1}


def test_a_run_that_is_undone_does_not_go_on() -> None:
    journal = undo(began("a"), 400, "a")
    journal.attempt(RUN, "again", 500, how="StepFailed", move="undo")
    assert journal.faults() == {"again": 1}


def test_a_nested_run_is_undone_like_any_other() -> None:
    inner = [step("a"), ["receive", "n", "never"]]
    journal = began(program=[["nested", "m", inner], RUIN])
    journal.attempt(Job("run-0f-0-abc", "run", "1", 0), "n", 120, 200, how="CancelledError", move="suspend")
    journal.write("step", 130, "run-0f-0-abc", 0, "a", "n")
    journal.ended("job:run-0f-0-abc", status="cancelled")
    assert journal.faults() == {"undone": 1}


def test_steps_of_branches_have_an_order_only_within_their_branch() -> None:
    gather = ["gather", "g", [[step("b"), step("c")], [step("d")]]]
    program = [step("a"), gather, ["nested", "n", [step("x")]], step("e")]
    pairs = {"ab", "ac", "ad", "ae", "bc", "be", "ce", "de"}
    assert {"".join(pair) for pair in older(program)} == pairs
    assert undoable(program) == set("abcde")


def test_runs_with_undos_end_in_every_way() -> None:
    plans = [drawn(1, number) for number in range(300)]
    found = [plan for plan in plans if any(op[0] == "undoable" for op in operations(plan.what.get("program", [])))]
    assert {plan.ends for plan in found} == {"completed", "failed", "cancelled"}
    assert {plan.error for plan in found} == {"as planned", "run_timeout"}
    ways = {"undone", "undone_cancelled", "undone_nested", "undone_kept", "undone_late"}
    assert {plan.name for plan in found} == {"undoable", *ways}
