"""Any order of what can happen to a queue with gates; and turns, of which every key gets its share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from schedq import ClaimedJob, NewJob, Rate
from schedq.model.ids import new_request
from schedq.model.records import Settlement
from schedq.transitions import promote, reclaim
from schedq.transitions.claim import claim
from schedq.transitions.settle import settle
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.servers import Server
from tests.transitions import gates_walk


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_no_law_is_broken_and_every_job_ends(server: Server, seed: int) -> None:
    state = gates_walk.walked(server, seed, steps=100)

    assert state.places().keys() <= {"completed", "failed", "cancelled"}
    assert state.broken_laws().keys() <= {"totals"}  # histories are kept short


@pytest.fixture
def door() -> str:
    """The same scripts run, whichever client sends them."""
    return "blocking"


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock)


def enqueue(queue: Handle, *keys: str, gate: str = "api") -> None:
    queue.enqueue_many([NewJob(None, gate=gate or None, key=key) for key in keys])


def start(queue: Handle, most: int = 1) -> Sequence[ClaimedJob]:
    """A promoter ticks, and a worker claims."""
    _, found = queue.execute([promote.promote(queue.settings, 100), claim(queue.settings, new_request(), most)])
    jobs: Sequence[ClaimedJob] = found.jobs
    return jobs


def end(queue: Handle, jobs: Sequence[ClaimedJob], move: str = "complete", delay_ms: int = 0) -> None:
    endings = [Settlement(move, job.id, job.claim_token, delay_ms, gate_key=job.gate_key) for job in jobs]
    queue.execute([settle(queue.settings, endings)] if endings else [])


def run(queue: Handle, most: int = 1) -> list[str]:
    """Start up to `most` jobs and complete them; returns their keys in order."""
    jobs = start(queue, most)
    end(queue, jobs)
    return [job.key for job in jobs]


def test_few_jobs_of_a_key_do_not_wait_for_many_of_another_one(queue: Handle) -> None:
    queue.gate("api", concurrency=100)
    light = [f"k{number}" for number in range(9)]
    enqueue(queue, *["flood"] * 400)
    enqueue(queue, *light * 5)

    found: list[str] = []
    while not all(found.count(key) == 5 for key in light):
        found += run(queue, 10)

    assert len(found) <= 60
    assert {*light} <= {*found[:20]}


def test_keys_that_wait_between_starts_get_the_same_share(queue: Handle, clock: Clock) -> None:
    queue.gate("api", rate=Rate(10, per=1), key_rate=Rate(1, per=1))
    keys = [f"k{number:02}" for number in range(20)]
    enqueue(queue, *keys * 10)

    found: Counter[str] = Counter()
    for _ in range(100):
        found.update(run(queue, 50))
        clock.pass_time(0.1)

    assert 98 <= found.total() <= 100
    assert set(found.values()) <= {4, 5}


def test_a_key_with_one_job_at_a_time_gets_its_share(queue: Handle) -> None:
    queue.gate("api", concurrency=2)
    keys = [f"k{number}" for number in range(9)]
    enqueue(queue, *keys * 30, "trickle")

    found: list[str] = []
    for _ in range(60):
        found += (started := run(queue, 2))
        if "trickle" in started:
            enqueue(queue, "trickle")

    assert 11 <= found.count("trickle") <= 13


def test_an_endless_stream_of_new_keys_lets_old_ones_start(queue: Handle) -> None:
    queue.gate("api")
    enqueue(queue, "zoe", "mia", "mia")

    found: list[str] = []
    for round_number in range(24):
        enqueue(queue, *(f"a{round_number:02}-{number:02}" for number in range(50)))
        found += run(queue, 50)

    assert found[:2] == ["zoe", "mia"]
    assert found.index("mia", 2) <= 1010  # a start is worth the entrance of 1,000 keys


def test_gates_take_turns_by_their_weights(queue: Handle) -> None:
    for name, weight in (("a", 1), ("b", 2), ("c", 5)):
        queue.gate(name, weight=weight)
        enqueue(queue, *[""] * 150, gate=name)
    queue.enqueue_many(["plain"] * 50)

    found: Counter[str] = Counter()
    for _ in range(25):
        jobs = start(queue, 9)
        found.update(job.gate for job in jobs)
        end(queue, jobs)

    assert found.total() == 225
    assert all(abs(found[name] - 25 * weight) <= 2 * weight for name, weight in (("", 1), ("a", 1), ("b", 2), ("c", 5)))


def test_jobs_of_a_key_in_order_start_as_they_came_whatever_the_clock_does(queue: Handle, clock: Clock) -> None:
    queue.gate("api", serial=True)
    ids = []
    for jump in (0, 1, -5, -60, 30, 0.001):
        clock.pass_time(jump)
        ids.append(queue.enqueue(jump, gate="api", key="7"))

    started = []
    for move, delay_ms in (("retry", 5000), ("release", 0), ("complete", 0), *[("complete", 0)] * 5):
        (job,) = start(queue, 5)
        assert start(queue, 5) == ()
        started.append(job.id)
        end(queue, [job], move, delay_ms)
        if delay_ms:
            assert start(queue, 5) == ()
        clock.pass_time(delay_ms / 1000)

    assert started == [ids[0], ids[0], *ids]


def test_a_job_that_loses_its_lease_twice_stays_the_first_of_its_key(queue: Handle, clock: Clock) -> None:
    queue.gate("api", serial=True)
    first, second = (queue.enqueue(number, gate="api", key="7") for number in range(2))

    started = []
    for _ in range(8):
        started += [job.id for job in start(queue, 5)]
        clock.pass_time(11)
        queue.reclaim_stuck()
    assert started == [first] * 3 + [second] * 3


def test_a_rate_goes_on_soon_after_the_clock_went_back(queue: Handle, clock: Clock) -> None:
    queue.gate("api", rate=Rate(2, per=1), key_rate=Rate(1, per=1))
    enqueue(queue, "a", "a", "b", "b", "b")

    run(queue, 5)
    clock.pass_time(-3600)
    queue.drive(reclaim.sweep(queue.settings, -1, shorten=True))
    found: list[str] = []
    for _ in range(5):
        found += run(queue, 5)
        clock.pass_time(1)
    assert len(found) == 4
