"""A flow whose worker dies at any of its requests: each job of a node runs once, and the end is the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from schedq import BatchResults, Fixed, Job, JobGone, Queue
from schedq.connection.async_client import AsyncClient
from schedq.testing import QueueTester
from schedq.testing.runner import LocalAttempt

MOST_REQUESTS = 200


class Died(BaseException):
    """The worker is gone."""


class Cuts:
    """Lets a worker die before the n-th request of its asyncio client, which only workflows use here.

    That is as good as after the one before: what Redis has is the same. `unsent` has the client and the request.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = self.seen = 0
        self.unsent: Any = None
        real, ending, cuts = AsyncClient.execute, LocalAttempt._ending, self

        async def execute(client: AsyncClient, operations: Any) -> Any:
            cuts.seen += 1
            if cuts.seen == cuts.at:
                cuts.unsent = client, operations
                raise Died
            return await real(client, operations)

        def dying(attempt: LocalAttempt, error: BaseException) -> Any:
            if isinstance(error, Died):
                raise error
            return ending(attempt, error)

        monkeypatch.setattr(AsyncClient, "execute", execute)
        monkeypatch.setattr(LocalAttempt, "_ending", dying)

    def each(self) -> Iterator[str]:
        """All places, until a run has fewer requests than that."""
        for at in range(1, MOST_REQUESTS):
            self.at, self.seen = at, 0
            yield f"before request {at}"
            if self.seen < at:
                return
        raise AssertionError("the requests never end")


@pytest.fixture
def queue(tester: QueueTester) -> Queue:
    """A queue whose retries follow at once."""
    return Queue("shop", backoff=Fixed(0), visibility_ms=10_000)


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> Cuts:
    """Where the worker dies."""
    return Cuts(monkeypatch)


def run(tester: QueueTester, queue: Queue) -> None:
    """Run what is due; a job whose worker died runs again once its lease is over."""
    for _ in range(3):
        try:
            while tester.fast_forward(11) or queue.reclaim_stuck():
                pass
            return
        except Died:
            pass
    raise AssertionError("it never ends")


def test_a_worker_that_dies_anywhere_in_a_flow(tester: QueueTester, queue: Queue, cuts: Cuts):
    ran: Counter[str] = Counter()
    breaks = {"bad"}

    @queue.task(max_attempts=1)
    def part(name: str) -> str:
        ran[name] += 1
        if name in breaks:
            raise ValueError(name)
        return name

    @queue.task
    def join(parts: BatchResults[str], *more: Any) -> str:
        ran["join"] += 1
        return " ".join([*parts, *map(str, more)])

    def start(number: int) -> Job[str]:
        flow = queue.flow("cut")
        listed = flow.map(part, ["a", "b"], concurrency=1)
        bad = flow.call(part, "bad")
        winner = flow.first(bad, flow.call(part, "good"))
        flow.options(after=bad, when="failure").call(part, "alarm")
        end = flow.options(after=flow.options(after=bad, when="ended").call(part, "clean")).call(join, listed.result)
        return flow.start(flow.call(join, listed.result, winner.result, end.result), job_id=f"cut-{number}")

    once = {"a": 1, "b": 1, "bad": 1, "good": 1, "alarm": 1, "clean": 1, "join": 2}
    for number, place in enumerate(cuts.each()):
        ran.clear()
        job = start(number)
        run(tester, queue)
        assert (dict(ran), job.status()) == (once, "completed"), place
        assert job.result(0) == "a b good a b", place
        assert queue.stats()["delayed_depth"] == 0, place


def test_a_worker_that_dies_anywhere_in_a_requeued_flow(tester: QueueTester, queue: Queue, cuts: Cuts):
    ran: Counter[str] = Counter()
    breaks: set[str] = set()

    @queue.task(max_attempts=1)
    def part(name: str) -> str:
        ran[name] += 1
        if name in breaks:
            raise ValueError(name)
        return name

    for number, place in enumerate(cuts.each()):
        cuts.at, at = 0, cuts.at
        breaks |= {"bad", "b"}
        flow = queue.flow("cut")
        good, bad = flow.call(part, "good"), flow.call(part, "bad")
        flow.map(part, ["a", "b"])
        flow.options(after=bad, when="failure").call(part, "alarm")
        flow.options(after=[good, flow.options(after=bad, when="ended").call(part, "clean")]).call(part, "end")
        job = flow.start(flow.call(part, bad.result), job_id=f"again-{number}")
        run(tester, queue)
        assert job.status() == "failed"
        ran.clear()
        breaks.clear()
        cuts.at, cuts.seen = at, 0
        assert job.requeue()
        run(tester, queue)
        assert dict(ran) == {"bad": 2, "b": 1, "clean": 1, "end": 1}, place
        assert job.result(0) == "bad", place


def test_a_worker_that_dies_anywhere_in_a_cancelled_or_purged_flow(tester: QueueTester, queue: Queue, cuts: Cuts):
    """What is called off stays off, whether its flow was cancelled before or after its worker died."""
    ran: Counter[str] = Counter()
    ends: list[Callable[[Job[Any]], object]] = [lambda job: job.cancel(), lambda job: queue.purge()]

    @queue.task(max_attempts=1)
    def part(name: str) -> str:
        ran[name] += 1
        return name

    for number, place in enumerate(cuts.each()):
        ran.clear()
        flow = queue.flow("off")
        job = flow.start(flow.call(part, flow.call(part, flow.call(part, "a").result).result), job_id=f"off-{number}")
        try:
            tester.run_due()
        except Died:
            ends[number % 2](job)
            before = ran["a"]
            run(tester, queue)
            assert ran["a"] == before, place
            try:
                assert job.status() == "cancelled", place
            except JobGone:
                assert number % 2, place
        else:
            assert job.result(0) == "a"
        assert queue.stats()["delayed_depth"] == 0, place
