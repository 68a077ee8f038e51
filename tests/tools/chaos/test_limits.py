"""What `scripts/chaos --limits` counts as a fault."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from scripts.tools.chaos.limits_records import read
from scripts.tools.chaos.limits_verdict import (
    FAULTS,
    Attempt,
    Change,
    Findings,
    Hold,
    judge_holds,
    judge_limits,
    judge_unique,
)

LEASE_MS = 4000


def attempts(*claims: float, lasts: float = 1000, **more: Any) -> list[Attempt]:
    """Attempts of jobs of gate g, key k: claimed then, each with a lease that lasts this long."""
    facts = {"gate": "g", "key": "k", **more}
    return [
        Attempt(job_id=f"j{n}", number=n, claimed=at, held_until=at + lasts, left=at + lasts, **facts)
        for n, at in enumerate(claims)
    ]


def judged(some: Sequence[Attempt], limits: dict[str, Any], *changes: Change) -> dict[str, int]:
    """The faults that are found with these limits in the code, and these changes."""
    found = Findings()
    judge_limits(some, {"g": limits}, changes, found)
    assert len(found.complaints) == sum(getattr(found, fault) for fault in FAULTS)
    return {fault: count for fault in (*FAULTS, "beyond_leases") if (count := getattr(found, fault))}


@pytest.mark.parametrize("limit", ["concurrency", "key_concurrency"])
def test_leases_never_exceed_the_limit(limit: str) -> None:
    assert judged(attempts(0, 500, 1000), {limit: 2}) == {}
    assert judged(attempts(0, 500, 999), {limit: 2}) == {"concurrency": 1}


def test_a_handler_may_continue_beside_others_after_its_lease_has_ended() -> None:
    frozen, other = attempts(0, 4500)
    frozen.held_until, frozen.left = 4000, 9000
    assert judged([frozen, other], {"concurrency": 1}) == {"beyond_leases": 1}


def test_other_keys_and_gates_do_not_count() -> None:
    assert judged(attempts(0) + attempts(0, key="other"), {"key_concurrency": 1}) == {}
    assert judged(attempts(0) + attempts(0, gate="other"), {"concurrency": 1}) == {}


@pytest.mark.parametrize(
    ("sent", "done", "faults"),
    [(100, 200, {"concurrency": 1}), (100, math.inf, {}), (400, 600, {}), (600, 700, {})],
    ids=["changed", "killed", "meanwhile", "later"],
)
def test_a_lower_limit_holds_for_claims_from_when_it_is_set(sent: float, done: float, faults: dict[str, int]) -> None:
    change = Change("limits", "g", {"concurrency": 1}, sent, done)
    assert judged(attempts(0, 500), {"concurrency": 2}, change) == faults


def test_no_window_has_more_starts_than_the_rate() -> None:
    assert judged(attempts(0, 500, 1000), {"rate": [[2, 1000, 1]]}) == {}
    assert judged(attempts(0, 500, 999), {"rate": [[2, 1000, 1]]}) == {"rate": 1}
    assert judged(attempts(0, 500, 999), {"key_rate": [[2, 1000, 1]]}) == {"rate": 1}


def test_a_rate_is_judged_while_it_is_certainly_in_force() -> None:
    change = Change("limits", "g", {"rate": [[1, 1000, 1]]}, 400, 600)
    assert judged(attempts(0, 300, 500, 700), {}, change) == {}
    assert judged(attempts(700, 900), {}, change) == {"rate": 1}
    assert judged(attempts(0, 300), {"rate": [[1, 1000, 1]]}, Change("limits", "g", {}, 400, 600)) == {"rate": 1}


def test_jobs_of_a_serial_key_start_in_the_order_of_acceptance() -> None:
    assert judged(attempts(0, 1000, 2000), {"serial": True}) == {}
    assert judged(attempts(0, 3000, 2000), {"serial": True}) == {"order": 1}


def test_unique_jobs_never_run_together() -> None:
    found = Findings()
    judge_unique(attempts(0, 1000, unique="a") + attempts(1500, unique="b") + attempts(1900, unique="a"), found)
    assert found.unique == 1


def test_nothing_starts_while_it_is_held() -> None:
    found = Findings()
    judge_holds(attempts(100, 900), [Hold("g", 200, 800), Hold("g k", 200, 900), Hold("g", 300, math.inf)], found)
    assert found.hold == 1


def begun(claimed: float) -> list[Any]:
    return ["begin", claimed + 5, "j", "t", "g", "k", 1, claimed, 1, ""]


@pytest.mark.parametrize(
    ("lines", "until"),
    [
        ([], 5000),
        ([["left", 1500, "j", "t", "done"]], 1500),
        ([["renewed", 3.0, 3.1, [["j", "t", "OK"]]]], 6950),
        ([["renewed", 3.0, 3.1, [["j", "t", "LOST"]]]], 5000),
        ([["settle", 2.0, 1, [["release", "j", "t", 0]]]], 1950),
        ([["left", 9000, "j", "t", "done"]], 5000),
    ],
    ids=["killed", "done", "renewed", "lost", "released", "frozen"],
)
def test_a_lease_is_certain_until_its_handler_ends_or_no_renewal_is_confirmed(
    lines: list[list[Any]], until: float
) -> None:
    worker = [["clock", 0.0, 0.0], begun(1000), *lines]
    (attempt,) = read([("worker-1-1", line) for line in worker], LEASE_MS).attempts
    assert attempt.held_until == until


def test_rate_limited_jobs_hold_their_key_until_someone_resumes_it() -> None:
    worker = [
        ["clock", 0.0, 0.0],
        begun(1000),
        ["left", 1200, "j", "t", "limited", 2, "key"],
        ["settle", 1.25, 1, [["limit", "j", "t", 2000]]],
        ["settled", 1.3, 1, ["OK"], 1],
    ]
    changer = [["change", 2000, "resume", "g k", 0], ["changed", 2010]]
    records = [("worker-1-1", line) for line in worker]
    assert read(records, LEASE_MS).holds == [Hold("g k", 1350, 3200)]
    assert read([*records, *(("changer-1", line) for line in changer)], LEASE_MS).holds == [Hold("g k", 1350, 2000)]


def test_pauses_and_holds_are_certain_between_the_reply_and_the_next_request() -> None:
    changer = [
        ["change", 100, "pause", "g", 0],
        ["changed", 110],
        ["change", 200, "hold", "g k", 600],
        ["changed", 210],
        ["change", 300, "resume", "g", 0],
        ["changed", 310],
        ["change", 400, "pause", "g", 0],
    ]
    records = read([("changer-1", line) for line in changer], LEASE_MS)
    assert records.holds == [Hold("g", 110, 300), Hold("g k", 210, 800)]
