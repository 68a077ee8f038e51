"""What `scripts/chaos --workflows` counts as a fault of batches and chains."""

from __future__ import annotations

from typing import Any

from scripts.tools.chaos.batches_verdict import judge_leftovers
from scripts.tools.chaos.workflows_plan import Plan, chain_value, child_value, link_value
from scripts.tools.chaos.workflows_verdict import PROPAGATION_MS, Findings
from tests.state import Key, State
from tests.tools.chaos.workflow_journal import Job, Journal


def a_batch(acts: tuple[list[Any], ...] = (), ends: str = "completed", **what: Any) -> Plan:
    given = {"total": 3, "concurrency": 2, "tolerate": 1, "flags": {"2": "bad"}, "ms": 0, "keep": 3600} | what
    return Plan(2, "batch", given, [[0, "start"], *acts], ends)


COUNTED = [child_value(2, "", 0), child_value(2, "", 1)]


def child(number: int, generation: str = "abc") -> Job:
    return Job(f"batch-2-{number}-{generation}", "batch-2", "2 ", number)


def call(generation: str = "abc") -> Job:
    return Job(f"batch-2-then-{generation}", "then", "2 then", 2)


def of_batch(plan: Plan, *, called: float = 500, values: Any = COUNTED, counts: Any = (2, 1, 3)) -> Journal:
    """A batch whose last child fails."""
    journal = Journal(plan)
    journal.did(plan, 0)
    for number, how in enumerate(("done", "done", "Discard")):
        move = "complete" if how == "done" else "fail"
        journal.attempt(child(number), f"c{number}", 200 + number, 300, how=how, move=move)
    journal.attempt(call(), "t", called)
    journal.write("end", called + 5, "batch-2", "batch-2-then-abc", "then", "t", [*values], [*counts])
    journal.ended("group:batch-2", status="completed", ended_at_ms=400, kept_ms=3_600_000)
    journal.plans[2].what["concurrency"] = 3
    return journal


def test_a_batch_that_ends_as_planned_is_right() -> None:
    assert of_batch(a_batch()).faults() == {}


def test_a_batch_counts_each_child_once() -> None:
    assert of_batch(a_batch(), values=COUNTED[:1]).faults() == {"counted": 1}
    assert of_batch(a_batch(), counts=(3, 1, 3)).faults() == {"counted": 1}


def test_progress_counts_only_children_that_have_ended() -> None:
    for at, faults in ((400, {}), (250, {"counted": 1})):
        journal = of_batch(a_batch())
        journal.write("progress", at, 2, "running", [2, 1, 3], process="producer-0-1")
        assert journal.faults() == faults


def test_the_call_at_the_end_is_made_once() -> None:
    journal = of_batch(a_batch())
    journal.attempt(call("xyz"), "u", 600)
    assert journal.faults() == {"follow_up": 1}
    journal = of_batch(a_batch())
    journal.attempt(call(), "u", 600)
    assert journal.faults() == {"again": 1}


def test_the_call_at_the_end_is_made() -> None:
    journal = of_batch(a_batch())
    journal.lines = [each for each in journal.lines if "batch-2-then-abc" not in each[1] and each[1][1:2] != [0.51]]
    assert journal.faults()["follow_up"] == 2  # there is no job, and nothing has read the results


def test_a_batch_that_fails_makes_the_other_call() -> None:
    assert "follow_up" in of_batch(a_batch(tolerate=0, ends="failed")).faults()


def test_the_call_at_the_end_waits_for_all_children() -> None:
    assert of_batch(a_batch(), called=290).faults() == {"follow_up": 1}


def test_a_batch_ends_as_planned() -> None:
    journal = of_batch(a_batch())
    journal.ended("group:batch-2", status="running")
    assert journal.faults() == {"ended": 1, "waiting": 1}
    assert of_batch(a_batch(keep=60)).faults() == {}
    journal.keys.clear()  # its record was kept for a minute
    assert journal.faults() == {}


def cancelled_batch(*claims: float) -> dict[str, int]:
    plan = a_batch(acts=([0, "cancel"],), ends="cancelled", concurrency=2, total=9)
    journal = Journal(plan)
    journal.did(plan, 0)
    journal.did(plan, 1, 500)
    for number, at in enumerate(claims):
        journal.attempt(child(number), f"c{number}", at)
    journal.ended("group:batch-2", status="cancelled")
    return journal.faults()


def test_only_children_that_are_jobs_may_begin_after_a_batch_was_cancelled() -> None:
    assert cancelled_batch(300, 600, 700) == {}
    assert cancelled_batch(300, 600, 700, 800) == {"cancelled": 1}
    assert cancelled_batch(300, 502 + PROPAGATION_MS) == {"cancelled": 1}


# -- chains


def of_chain(*claims: float, before: int = 0) -> Journal:
    plan = Plan(3, "chain", {"total": 2, "flags": {}, "ms": 0}, [[0, "start"]])
    journal = Journal(plan)
    journal.did(plan, 0)
    for number, at in enumerate(claims):
        given = link_value(0, 0) if number else before
        link = Job(f"chain-3-{number}-abc", "chain-3", f"3 {given}", number)
        journal.attempt(link, f"l{number}", at, at + 100)
    journal.ended("group:chain-3", status="completed", last=chain_value(2))
    return journal


def test_the_links_of_a_chain_begin_one_after_the_other() -> None:
    assert of_chain(100, 210).faults() == {}
    assert of_chain(100, 190).faults() == {"follow_up": 1}


def test_each_link_of_a_chain_is_made_once_and_given_the_result_of_the_one_before() -> None:
    assert of_chain(100).faults() == {"counted": 1}
    assert of_chain(100, 210, 320).faults() == {"counted": 1}
    assert of_chain(100, 210, before=5).faults() == {"counted": 1}


def test_a_chain_returns_what_its_last_link_returned() -> None:
    journal = of_chain(100, 210)
    journal.ended("group:chain-3", status="completed", last=1)
    assert journal.faults() == {"results": 1}


# -- what is left


def test_nothing_waits_at_the_end() -> None:
    found = Findings()
    judge_leftovers(State({"pending": Key("list", -1, ["a"])}), 0, found)
    assert found.waiting == 1


def test_no_key_of_a_group_is_kept_for_too_long() -> None:
    group = Key("hash", -1, {"status": "completed", "ended_at_ms": "1000", "kept_ms": "60000"})
    for now, left in ((61_000, 0), (81_001, 1)):
        found = Findings()
        judge_leftovers(State({"group:b": group}), now, found)
        assert found.left == left
    found = Findings()
    judge_leftovers(State({"group:b": group}), 81_001, found, {"b"})
    assert found.left == 0
    found = Findings()
    judge_leftovers(State({"group:b:counted": Key("string", -1, ["x"])}), 0, found)
    assert found.left == 1


def test_what_has_completed_does_not_run_again_after_a_retry() -> None:
    plan = a_batch(acts=([0, "retry"],))
    journal = of_batch(plan)
    journal.did(plan, 1, 900)
    journal.attempt(child(0, "xyz"), "again", 950)
    assert journal.faults()["again"] == 1
