"""Detection of broken promises about single faults: invented records, each with a kept or broken promise."""

from __future__ import annotations

import math
from typing import Any

from scripts.tools.chaos import promises
from scripts.tools.chaos.faults import SERVER, Fault
from scripts.tools.chaos.promises import BACK_S, TIMED_OUT_S
from tests.tools.chaos.test_verdict import Line, begun, ended, verdict, wrong


def enqueued(kind: str, most: int | None = None) -> list[Line]:
    return [
        ("p-1", ["do", 1.0, 0, "enqueue", [["x", None, kind, most]]]),
        ("p-1", ["did", 1.1, 0, ["x"]]),
    ]


def judged(fault: str, *parts: list[Line], faults: list[Fault] | None = None, place: str = "completed") -> Any:
    """The verdict on one promise: judged, broken, and whether there is no other violation."""
    found = verdict(*parts, faults=faults or [], place=place)
    promise = found.promises.get(fault)
    counts = (0, 0) if promise is None else (promise.judged, promise.broken)
    assert wrong(found) == ({"broken": counts[1]} if counts[1] else {})
    return counts


def test_a_worker_that_does_not_reconnect_while_its_executor_is_full_is_noticed():
    full = [Fault("executor_full", 5.0, 5.0, "w-1")]
    soon = [*begun(6, "w-1", "a"), *ended(7, "w-1", "a")]
    late = [*begun(6 + BACK_S, "w-1", "a"), *ended(7 + BACK_S, "w-1", "a")]

    assert judged("executor_full", enqueued("brief"), soon, faults=full) == (1, 0)
    assert judged("executor_full", enqueued("brief"), late, faults=full) == (1, 1)
    hole = Fault("black_hole", 5.5, 7.0, "w-1")
    assert judged("executor_full", enqueued("brief"), late, faults=[*full, hole]) == (1, 0)
    killed = Fault("worker_kill", 6.0, math.inf, "w-1")
    elsewhere = [*begun(2, "w-1", "a"), *begun(11, "w-2", "b", 2, crashes=1), *ended(12, "w-2", "b")]
    assert judged("executor_full", enqueued("brief"), elsewhere, faults=[*full, killed]) == (0, 0)


def test_an_attempt_that_overruns_its_timeout_and_does_not_end_is_noticed():
    again = [*begun(9, "w-2", "b", 2), *ended(9.5, "w-2", "b")]
    soon = [*begun(2, "w-1", "a"), *ended(3, "w-1", "a", "retry"), *again]
    late = [*begun(2, "w-1", "a"), *ended(2.3 + TIMED_OUT_S, "w-1", "a", "retry"), *again]

    assert judged("timed_out_thread", enqueued("overrun"), soon) == (2, 0)
    assert judged("timed_out_thread", enqueued("overrun"), late) == (2, 1)
    blocked = Fault("loop_block", 2.5, 3.5, "w-1")
    assert judged("timed_out_thread", enqueued("overrun"), late, faults=[blocked]) == (2, 0)


def unknown_to(worker: str, attempt: int) -> list[Line]:
    given_back = [
        (worker, ["settle", 3.0, 30, [["snooze", "x", "a", 300]]]),
        (worker, ["settled", 3.1, 30, ["OK"], 1]),
    ]
    claimed = [(worker, ["claim", 2.0, "a"]), (worker, ["claimed", 2.1, "a", [["x", "a", 1, 0]]])]
    return [*claimed, *given_back, *begun(6, "worker-0-1", "b", attempt), *ended(7, "worker-0-1", "b")]


def test_a_task_that_a_worker_does_not_know_costs_no_attempt():
    assert judged("unknown_task", enqueued("newcomer"), unknown_to("worker-1-2", 1)) == (1, 0)
    assert judged("unknown_task", enqueued("newcomer"), unknown_to("worker-0-2", 1)) == (0, 0)
    assert verdict(enqueued("newcomer"), unknown_to("worker-1-2", 3)).promises["unknown_task"].broken == 1
    gone = [*unknown_to("worker-1-2", 1)[:4]]
    assert verdict(enqueued("newcomer"), gone, place="failed").promises["unknown_task"].broken == 1


def test_a_limited_worker_that_gets_a_job_of_another_task_is_noticed():
    def runs(worker: str) -> list[Line]:
        return [*begun(2, worker, "a"), *ended(3, worker, "a")]

    assert judged("limited_worker", enqueued("nap"), runs("worker-2-1")) == (1, 0)
    assert judged("limited_worker", enqueued("hopeless"), runs("worker-2-1")) == (1, 1)
    assert judged("limited_worker", enqueued("refused"), runs("worker-4-1")) == (1, 0)
    assert judged("limited_worker", enqueued("hopeless"), runs("worker-4-1")) == (1, 1)
    assert judged("limited_worker", enqueued("hopeless"), runs("worker-0-1")) == (0, 0)


def test_a_handler_that_is_stopped_because_redis_rejects_all_users_is_noticed():
    refused = [Fault("password_refused", 4.0, 6.0, SERVER)]
    done = [*begun(2, "w-1", "a"), *ended(5, "w-1", "a")]
    stopped = [*begun(2, "w-1", "a"), *ended(5, "w-1", "a", "release", "stopped")]
    again = [*begun(9, "w-2", "b"), *ended(9.5, "w-2", "b")]

    assert judged("password_refused", enqueued("nap"), done, faults=refused) == (1, 0)
    assert judged("password_refused", enqueued("nap"), stopped, again, faults=refused) == (1, 1)
    restart = Fault("worker_restart", 4.5, math.inf, "w-1")
    assert judged("password_refused", enqueued("nap"), stopped, again, faults=[*refused, restart]) == (1, 0)


def test_a_claim_whose_reply_was_unread_while_the_loop_was_blocked_may_be_started_again():
    slow = [
        ("w-1", ["claim", 2.0, "a"]),
        ("w-1", ["claimed", 7.5, "a", [["x", "a", 1, 0]]]),
        ("w-1", ["start", 7.6, "x", 1, "a", "x", 0.0]),
        *begun(6.5, "w-2", "b", 2, crashes=1),
        *ended(7.0, "w-2", "b"),
        ("w-1", ["end", 7.7, "x", 1, "a", "done"]),
    ]
    blocked: list[Line] = [("w-1", ["block", 2.0, 7.5])]

    assert wrong(verdict(enqueued("brief"), slow, blocked)) == {}
    assert "after_completion" in wrong(verdict(enqueued("brief"), slow))
    held = [*begun(2, "w-1", "a"), *begun(9, "w-2", "b", 2, crashes=1), *ended(10, "w-2", "b")]
    elsewhere: list[Line] = [("w-1", ["block", 20.0, 21.0])]
    frozen = [Fault("worker_stop", 2.2, 8.9, "w-1")]
    assert wrong(verdict(enqueued("brief"), held, elsewhere, faults=frozen)) == {}
    assert "twice_unexplained" in wrong(verdict(enqueued("brief"), held, blocked))


def held(*lines: list[Any]) -> list[Line]:
    """Records of worker w-1, whose attempt `a` of job x begins at 2 and ends at 3."""
    return [*begun(2, "w-1", "a"), *(("w-1", list(line)) for line in lines), *ended(3, "w-1", "a")]


POOL = ["entered", 1.0, 1, "", "pool"]
OUTER, INNER = ["entered", 2.2, 2, "a", "connection"], ["entered", 2.3, 3, "a", "session of connection"]


def test_resources_that_are_left_once_and_in_reverse_order_keep_the_promise():
    kept = held(POOL, OUTER, INNER, ["left", 2.8, 3], ["left", 2.9, 2])

    assert judged("resources", enqueued("nap"), kept) == (3, 0)


def test_a_dependency_that_is_not_left_after_its_handler_has_ended_is_noticed():
    never = held(POOL, OUTER, INNER, ["left", 2.8, 3])

    assert judged("resources", enqueued("nap"), never) == (3, 1)
    killed = [Fault("worker_kill", 3.5, math.inf, "w-1")]
    assert judged("resources", enqueued("nap"), never, faults=killed) == (3, 0)


def test_a_dependency_that_is_left_twice_or_in_another_order_is_noticed():
    twice = held(POOL, OUTER, INNER, ["left", 2.8, 3], ["left", 2.85, 3], ["left", 2.9, 2])
    in_order = held(POOL, OUTER, INNER, ["left", 2.8, 2], ["left", 2.9, 3])

    assert judged("resources", enqueued("nap"), twice) == (3, 1)
    assert judged("resources", enqueued("nap"), in_order) == (3, 1)


def test_a_lifespan_that_is_entered_after_the_first_claim_is_noticed():
    late = held(["entered", 2.15, 1, "", "pool"], OUTER, ["left", 2.9, 2])

    assert judged("resources", enqueued("nap"), late) == (2, 1)


def test_a_lifespan_that_a_stopped_worker_does_not_leave_is_noticed(monkeypatch):
    monkeypatch.setattr(promises, "_STOPPED_WITHIN_S", 5.0)
    stopped = [Fault("worker_restart", 4.0, math.inf, "w-1")]
    never, left = held(POOL), held(POOL, ["left", 6.0, 1])

    assert judged("resources", enqueued("nap"), never, faults=stopped) == (1, 1)
    assert judged("resources", enqueued("nap"), left, faults=stopped) == (1, 0)
