"""What `scripts/chaos --outbox` counts as a fault."""

from __future__ import annotations

import pytest

from scripts.tools.chaos.outbox import FAULTS, Findings, Freeze, judge

ORDERS = {"job": "order"}


def judged(runs: dict[str, list[float]], *freezes: Freeze) -> dict[str, int]:
    """The faults and announced second runs that are found, with one committed order."""
    found = Findings()
    judge(ORDERS, runs, freezes, found)
    assert len(found.complaints) == sum(getattr(found, fault) for fault in FAULTS)
    return {name: count for name in (*FAULTS, "announced") if (count := getattr(found, name))}


@pytest.mark.parametrize(
    ("runs", "faults"),
    [
        ({"job": [1.0]}, {}),
        ({}, {"lost": 1}),
        ({"job": [1.0], "other": [2.0]}, {"invented": 1}),
        ({"job": [1.0, 2.0]}, {"repeated": 1}),
    ],
)
def test_each_committed_order_has_one_job_and_no_other_job_runs(
    runs: dict[str, list[float]], faults: dict[str, int]
) -> None:
    assert judged(runs) == faults


@pytest.mark.parametrize(
    ("freeze", "faults"),
    [
        (Freeze(0.5, 8.5), {"announced": 1}),
        (Freeze(9.5, 17.0), {"repeated": 1}),
        (Freeze(-9.0, -1.0), {"repeated": 1}),
    ],
)
def test_a_second_run_is_announced_if_a_relay_was_frozen_between_both(freeze: Freeze, faults: dict[str, int]) -> None:
    assert judged({"job": [1.0, 9.0]}, freeze) == faults
