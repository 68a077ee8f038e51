"""Two round trips run in parallel while more jobs wait than are claimed."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from schedq import current_job
from schedq.transitions import scripts
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.waiting import until
from tests.worker.crew import Crew, asked

_HEADER = scripts.header("claim")
LIMIT = 3 + len(_HEADER.keys) + [argument.name for argument in _HEADER.args].index("limit")
"""The position of the limit in a claim: after the command, the script, and the number of keys."""


def test_while_jobs_wait_each_round_trip_claims_for_half_of_the_slots(make_queue: MakeQueue, crew: Crew) -> None:
    queue = make_queue(visibility_ms=5000)
    starts: Counter[str] = Counter()
    running, most = 0, 0

    @queue.task
    async def brief() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        starts[current_job().id] += 1
        await asyncio.sleep(0)
        running -= 1

    ids = queue.enqueue_many([{"task": "brief"}] * 200)
    with queue.server.requests() as requests:
        crew.start(queue, concurrency=10)
        until(lambda: queue.stats()["completed_total"] == len(ids), within=60)

    limits = [int(request.words[LIMIT]) for request in asked(requests, queue, "claim")]
    assert limits[0] == 10
    assert all(1 <= limit <= 5 for limit in limits[1:20]), limits
    assert starts == Counter(ids)
    assert most <= 10


@pytest.mark.parametrize(("is_only", "limit"), [(False, "10"), (True, "1")])
def test_a_few_jobs_are_fetched_in_one_round_trip(
    make_queue: MakeQueue, crew: Crew, spare: Handle, is_only: bool, limit: str
) -> None:
    queue = make_queue(visibility_ms=5000)
    queue.task(name="ok")(lambda: None)
    post = crew.start(*([queue] if is_only else [queue, spare]), concurrency=10, promotes=False)
    until(lambda: not post.do(lambda: post.worker.capacity.is_any_ready), within=60)

    with queue.server.requests() as requests:
        queue.enqueue({"task": "ok"})
        until(lambda: queue.stats()["completed_total"] == 1, within=60)

    # The worker also checks from time to time: before the job is there, or when it is done.
    found = [(request.words[1], request.words) for request in asked(requests, queue, "enqueue", "claim", "settle")]
    shas = [sha for sha, _ in found]
    between = found[shas.index(scripts.load("enqueue").sha) + 1 : shas.index(scripts.load("settle").sha)]
    assert [words[LIMIT] for _, words in between] == [limit]
