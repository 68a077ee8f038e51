"""Work on very many keys is done in pages: no script takes long, and nothing is left behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from schedq import ClaimedJob, NewJob, Rate
from schedq.model.ids import new_request
from schedq.model.outcome import Policy, succeeded
from schedq.transitions import claim, gates, promote
from schedq.transitions.settle import settle
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle

MOST_COMMANDS = 650
"""How many commands a script sends at most; a claim of 100 plain jobs sends 320."""


@pytest.fixture
def door() -> str:
    """The same scripts run, whichever client sends them."""
    return "blocking"


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock)


def enqueue(queue: Handle, count: int, **options: Any) -> None:
    """Enqueue a job for each of `count` keys."""
    queue.enqueue_many([NewJob("send", gate="api", key=f"k{number}") for number in range(count)], **options)


@contextmanager
def short_scripts(queue: Handle) -> Iterator[Callable[[Any], Any]]:
    """Sends an operation, and fails if its script sends too many commands."""

    def sent() -> int:
        calls = queue.redis.info("commandstats")
        return sum(each["calls"] for each in calls.values())

    def ask(operation: Any) -> Any:
        before = sent()
        (found,) = queue.execute([operation])
        assert sent() - before < MOST_COMMANDS, operation.name
        return found

    yield ask


def drained(queue: Handle, clock: Clock, ask: Callable[[Any], Any]) -> list[str]:
    """Workers and a promoter run until nothing waits; the keys in the order of their starts."""
    found: list[str] = []
    for _ in range(200):
        promotion = ask(promote.promote(queue.settings, promote.MOST_PROMOTED))
        jobs = claimed(queue, ask)
        end(queue, jobs, ask)
        found += [job.key for job in jobs]
        if not jobs and not promotion.has_more:
            return found
    raise AssertionError(f"jobs still wait: {queue.state().places()}")


def claimed(queue: Handle, ask: Callable[[Any], Any], most: int = 100) -> Sequence[ClaimedJob]:
    jobs: Sequence[ClaimedJob] = ask(claim.claim(queue.settings, new_request(), most)).jobs
    return jobs


def end(queue: Handle, jobs: Sequence[ClaimedJob], ask: Callable[[Any], Any]) -> None:
    policy = Policy(3, queue.settings.backoff, 100_000)
    if jobs:
        ask(settle(queue.settings, [succeeded(job, 1, policy) for job in jobs]))


def test_a_claim_takes_fifty_jobs_of_gates_and_says_that_there_are_more(queue: Handle) -> None:
    queue.gate("api", key_concurrency=1, key_rate=Rate(10, per=1), rate=Rate(10_000, per=1, burst=300))
    enqueue(queue, 120)

    with short_scripts(queue) as ask:
        found = [ask(claim.claim(queue.settings, new_request(), 100)) for _ in range(3)]

    assert [(len(one.jobs), one.has_more) for one in found] == [(50, True), (50, True), (20, False)]


def test_gates_and_plain_jobs_share_what_a_claim_takes(queue: Handle) -> None:
    queue.gate("api")
    enqueue(queue, 200)
    queue.enqueue_many(["plain"] * 200)

    with short_scripts(queue) as ask:
        taken = [job.gate for _ in range(8) for job in claimed(queue, ask)]

    assert len(taken) == 400
    assert taken[:200].count("api") == taken[:200].count("") == 100


def test_many_keys_that_rest_until_the_same_instant_start_in_pages(queue: Handle, clock: Clock) -> None:
    queue.gate("api", key_rate=Rate(1, per=60))
    enqueue(queue, 300)
    enqueue(queue, 300)
    with short_scripts(queue) as ask:
        assert len(drained(queue, clock, ask)) == 300
        clock.pass_time(61)

        first = ask(claim.claim(queue.settings, new_request(), 100))
        assert (len(first.jobs), first.has_more) == (30, True)
        end(queue, first.jobs, ask)
        keys = [job.key for job in first.jobs] + drained(queue, clock, ask)

    assert sorted(keys) == sorted(f"k{number}" for number in range(300))


def test_keys_that_were_full_start_in_pages_after_their_limit_was_raised(queue: Handle, clock: Clock) -> None:
    queue.gate("api", key_concurrency=1)
    enqueue(queue, 300)
    enqueue(queue, 300)
    with short_scripts(queue) as ask:
        running = [job for _ in range(6) for job in claimed(queue, ask)]
        assert len(running) == 300
        assert claimed(queue, ask) == ()

        ask(gates.set_limits(queue.settings, "api", json.dumps({"key_concurrency": 2})))
        pages = [ask(promote.promote(queue.settings, 100)) for _ in range(4)]
        assert [page.has_more for page in pages] == [True, True, True, False]
        assert len(drained(queue, clock, ask)) == 300
        for first in range(0, 300, 50):
            end(queue, running[first : first + 50], ask)


def test_many_due_jobs_of_gates_go_to_their_lanes_in_pages(queue: Handle, clock: Clock) -> None:
    enqueue(queue, 180, delay=5)
    clock.pass_time(6)
    with short_scripts(queue) as ask:
        pages = [ask(promote.promote(queue.settings, 250)) for _ in range(4)]
        assert [(page.moved, page.has_more) for page in pages] == [(50, True), (50, True), (50, True), (30, False)]
        assert len(drained(queue, clock, ask)) == 180


def test_keys_behind_a_paused_task_all_go_on_when_it_is_resumed(queue: Handle, clock: Clock) -> None:
    queue.task(name="send", gate="api")(print)
    queue.gate("api", concurrency=1000)
    queue.enqueue_many([NewJob({"task": "send"}, gate="api", key=f"k{number}") for number in range(700)])
    with short_scripts(queue) as ask:
        queue.pause(task="send")
        assert drained(queue, clock, ask) == []
        queue.resume(task="send")
        assert len(drained(queue, clock, ask)) == 700


def test_what_was_noted_of_rates_is_forgotten_in_pages(queue: Handle, clock: Clock) -> None:
    queue.gate("api", key_rate=Rate(1, per=60), key_concurrency=1)
    for _ in range(2):
        enqueue(queue, 1200)
    with short_scripts(queue) as ask:
        drained(queue, clock, ask)
        clock.pass_time(61)
        for _ in range(70):
            clock.pass_time(0.001)
            end(queue, claimed(queue, ask), ask)
            ask(promote.promote(queue.settings, 100))
        clock.pass_time(61)
        for number in range(30):
            clock.pass_time(0.001)
            queue.enqueue(number, gate="api", key=f"new{number}")
            end(queue, claimed(queue, ask), ask)

    assert queue.redis.zcard(f"{queue.keys.gate_keys}api:rates") < 100


def test_a_gate_with_a_damaged_key_calls_no_promoter_without_rest(queue: Handle, clock: Clock) -> None:
    queue.gate("api", key_rate=Rate(1, per=1))
    enqueue(queue, 3)
    enqueue(queue, 3)
    with short_scripts(queue) as ask:
        assert len(drained(queue, clock, ask)) == 3
        clock.pass_time(2)
        ready = f"{queue.keys.gate_keys}api:ready"
        queue.redis.delete(ready)
        queue.redis.set(ready, "what is this")

        found = ask(promote.promote(queue.settings, 100))
        assert not found.has_more
        assert found.next_due_ms == clock.now_ms + 1000

        queue.redis.delete(ready)
        clock.pass_time(1)
        assert len(drained(queue, clock, ask)) == 3
