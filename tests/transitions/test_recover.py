"""The jobs of a claim whose reply was lost are found again by the id of its request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schedq import ClaimedJob
from schedq.transitions import claim
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle

MINE, OTHERS = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"


def claimed(queue: Handle, request: str, limit: int) -> tuple[ClaimedJob, ...]:
    found: tuple[ClaimedJob, ...] = queue._ask(claim.claim(queue.settings, request, limit)).jobs
    return found


def recovered(queue: Handle, between: Callable[[], Any] = lambda: None) -> list[ClaimedJob]:
    """Go through the pages, with something happening between them."""
    trips = claim.recover(queue.settings, MINE)
    try:
        step = next(trips)
        while True:
            answers = queue.execute(step)
            between()
            step = trips.send(answers)
    except StopIteration as stop:
        found: list[ClaimedJob] = stop.value
        return found


def test_it_returns_exactly_the_jobs_of_the_claim(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    queue.enqueue_many([{"n": n} for n in range(30)], max_attempts=7, timeout=5)
    claimed(queue, OTHERS, 5)
    mine = claimed(queue, MINE, 20)
    claimed(queue, OTHERS, 5)
    clock.pass_time(3)
    before = queue.dump()

    assert recovered(queue) == list(mine)

    assert queue.dump() == before


def test_a_claim_that_took_nothing_gets_nothing(queue: Handle):
    queue.enqueue(1)
    claimed(queue, OTHERS, 1)

    assert recovered(queue) == []


def test_jobs_that_were_settled_or_taken_back_meanwhile_are_no_longer_held(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    queue.enqueue_many(range(4))
    done, released, lost, kept = claimed(queue, MINE, 4)
    queue.complete(done)
    queue.release(released)
    queue.redis.zadd(queue.keys.leases, {lost.id: 1})
    queue.reclaim_stuck()

    assert recovered(queue) == [kept]


def test_another_request_whose_name_begins_alike_is_another(queue: Handle):
    queue.enqueue_many(range(2))
    (mine,) = claimed(queue, MINE, 1)
    claimed(queue, MINE + "b", 1)

    assert recovered(queue) == [mine]


def test_claims_of_others_between_two_pages_give_no_job_twice(queue: Handle):
    queue.enqueue_many(range(600))
    mine = claimed(queue, MINE, 100)
    claimed(queue, OTHERS, 190)

    assert recovered(queue, lambda: claimed(queue, OTHERS, 40)) == list(mine)


def test_jobs_that_end_between_two_pages_hide_no_others(queue: Handle):
    queue.enqueue_many(range(230))
    mine = claimed(queue, MINE, 30)
    others = list(claimed(queue, OTHERS, 200))

    def end_some() -> None:
        for _ in range(40):
            if others:
                queue.complete(others.pop())

    assert recovered(queue, end_some) == list(mine)
