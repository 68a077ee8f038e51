"""Puts jobs into the states that tests of several verbs need."""

from __future__ import annotations

from typing import Any

import pytest

from schedq import ClaimedJob, Discard
from tests.doors import Clock, Handle

one_door = pytest.mark.parametrize("door", ["blocking"])
"""For behavior of scripts that takes thousands of jobs or hundreds of cases to show."""


def held(queue: Handle, **options: Any) -> ClaimedJob:
    queue.enqueue("work", **options)
    job: ClaimedJob = queue.claim(0)
    return job


def failed_jobs(queue: Handle, count: int) -> list[str]:
    ids: list[str] = queue.enqueue_many(range(count))
    for _ in ids:
        queue.fail(queue.claim(0), Discard("no use"))
    return ids


def lose(queue: Handle, clock: Clock) -> ClaimedJob:
    """Claim a job and let its lease end."""
    job: ClaimedJob = queue.claim(0)
    clock.pass_time(10)
    return job
