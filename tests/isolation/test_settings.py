"""The options of child processes, and the table of their states."""

from __future__ import annotations

from typing import Any

import pytest

from schedq import Queue, UsageError, Worker
from schedq.isolation.child_process import DEAD, LEGAL, STARTING
from schedq.isolation.settings import IsolationSettings


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kill_after": -1}, "kill_after must be 0 to 3,600 seconds, got -1"),
        ({"kill_after": float("nan")}, "kill_after must be 0 to 3,600 seconds, got nan"),
        ({"jobs_per_child": 0}, "jobs_per_child"),
        ({"memory_limit": 1024}, "memory_limit"),
        ({"memory_limit": "512M"}, "memory_limit"),
    ],
)
def test_an_invalid_option_is_refused_with_its_value(options: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=words):
        IsolationSettings(**options)


def test_an_unknown_pool_is_refused():
    queue = Queue("mail")
    queue.task(name="nothing")(print)

    with pytest.raises(UsageError, match="pool must be one of thread, process, got 'fork'"):
        Worker([queue], pool="fork")


def test_every_state_of_a_child_can_be_reached_and_leads_to_its_end():
    reached, before = {STARTING}, {DEAD}
    while reached != before:
        before = set(reached)
        reached = before.union(*(LEGAL[state] for state in before))

    assert reached == set(LEGAL)
    assert all(DEAD in after for state, after in LEGAL.items() if state is not DEAD)
