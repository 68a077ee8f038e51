"""Redis's clock jumps by an hour, either way: no job is lost, early by more than the jump, or taken from a live worker.

The clock is virtual, so bounds are exact: a running reclaimer sweeps when a lease ends, and at least once a
second while jobs are due (`schedq.background.promoter`); here it does so every half a second.
"""

from __future__ import annotations

from typing import Any

import pytest

from schedq import Fixed
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle

HOUR_S = 3600
VISIBILITY_S = 10
SWEEP_S = 0.5
either_way = pytest.mark.parametrize("step_s", [HOUR_S, -HOUR_S], ids=["ahead", "back"])


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock, visibility_ms=VISIBILITY_S * 1000, max_attempts=3, backoff=Fixed(1))


def sweeps_until_taken(queue: Handle, clock: Clock, job_id: str) -> int:
    """Sweep until a job is reclaimed; returns how many sweeps it took."""
    for sweep in range(1, 200):
        clock.pass_time(SWEEP_S)
        if queue.reclaim_stuck() == [job_id]:
            return sweep
    raise AssertionError("it never was")


@pytest.mark.parametrize("attempts_before", [0, 1, 2])
def test_a_killed_workers_job_is_taken_back_when_its_lease_ends_the_last_attempt_too(
    queue: Handle, clock: Clock, attempts_before: int
):
    """visibility + 1.5 s are allowed, and twice the visibility + 1.5 s for a last attempt."""
    job_id = queue.enqueue(1)
    for _ in range(attempts_before):
        queue.fail(queue.claim(0), "not yet")
        clock.pass_time(1)
    job = queue.claim(0)
    clock.pass_time(VISIBILITY_S / 2)
    queue.renew(job)

    sweeps = sweeps_until_taken(queue, clock, job_id)

    assert sweeps * SWEEP_S <= VISIBILITY_S + SWEEP_S
    assert queue.places() == {"failed" if attempts_before == 2 else "pending": [job_id]}


@either_way
def test_a_live_lease_survives_by_renewal_and_a_dead_workers_job_is_taken_back(
    queue: Handle, clock: Clock, step_s: float
):
    living, dead = (queue.enqueue(n) for n in range(2))
    held = {job.id: job for job in (queue.claim(0), queue.claim(0))}
    clock.pass_time(step_s)

    assert queue.renew(held[living])
    taken: list[str] = []
    for _ in range(int((VISIBILITY_S + 1.5) / SWEEP_S)):
        taken += queue.reclaim_stuck()
        clock.pass_time(SWEEP_S)
        assert queue.renew(held[living])

    assert taken == [dead]
    assert queue.complete(held[living])


@either_way
def test_nothing_starts_early_by_more_than_the_step(queue: Handle, clock: Clock, step_s: float):
    later = [queue.enqueue(delay, delay=delay) for delay in (60, HOUR_S + 60)]
    begun = clock()
    clock.pass_time(step_s)

    for job_id, delay in zip(later, (60, HOUR_S + 60), strict=True):
        due = begun + delay
        while (job := queue.claim(0)) is None:
            assert clock() < due
            clock.pass_time(min(10, due - clock()))
        assert (job.id, clock() >= due) == (job_id, True)


@either_way
def test_nothing_is_lost(queue: Handle, clock: Clock, step_s: float):
    """Jobs in every place, and workers that continue after the clock has come back."""
    ids = queue.enqueue_many(range(6))
    ids += [queue.enqueue(n, delay=30) for n in range(2)]
    running = [queue.claim(0) for _ in range(3)]
    queue.fail(running[0], "again")
    clock.pass_time(step_s)
    running.append(queue.claim(0))  # the lease is given while the clock is wrong, and its worker dies
    clock.pass_time(-step_s)

    done: list[Any] = []
    for _ in range(200):
        clock.pass_time(SWEEP_S)
        queue.reclaim_stuck()
        while job := queue.claim(0):
            queue.complete(job)
            done.append(job.id)

    assert sorted(done) == sorted(ids)
