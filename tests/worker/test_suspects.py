"""Jobs that may kill their worker: one at a time per process, without delaying other jobs."""

from __future__ import annotations

import time

import pytest

from schedq import Fixed, WorkflowContext
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate, asked


class Cage:
    """A task for suspects, which wait at a gate, and one for other jobs."""

    def __init__(self, queue: Handle, gate: Gate) -> None:
        self.inside = self.most = 0
        self._queue = queue
        self._gate = gate
        queue.task(name="suspect")(self._stay)
        queue.task(name="good")(lambda: "good")

    async def _stay(self) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        await self._gate.passed()
        self.inside -= 1

    def suspects(self, count: int) -> list[str]:
        """Enqueue jobs that have lost two leases."""
        self._queue.pause()
        ids: list[str] = self._queue.enqueue_many([{"task": "suspect"}] * count)
        for job_id in ids:
            self._queue.redis.hset(self._queue.keys.job(job_id), "crashes", 2)
        self._queue.resume()
        return ids


@pytest.fixture
def frozen_queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    """A queue whose clock is frozen, so a suspect that was skipped never becomes due on its own."""
    return make_queue(clock=clock)


@pytest.fixture
def cage(queue: Handle, gate: Gate) -> Cage:
    return Cage(queue, gate)


def test_a_process_holds_one_suspect_at_a_time_while_others_run(
    queue: Handle, crew: Crew, gate: Gate, cage: Cage
) -> None:
    suspects = cage.suspects(4)
    good = queue.enqueue_many([{"task": "good"}] * 20)
    crew.start(queue, concurrency=5)

    assert all(queue.wait(job_id, 60) for job_id in good)
    assert len(queue.places()["processing"]) == 1
    gate.open()
    assert all(queue.wait(job_id, 60) for job_id in suspects)
    assert cage.most == 1


def test_two_processes_hold_one_suspect_each(queue: Handle, crew: Crew, gate: Gate, cage: Cage) -> None:
    suspects = cage.suspects(4)
    crew.start(queue)
    crew.start(queue)

    until(lambda: cage.inside == 2)
    gate.open()
    assert all(queue.wait(job_id, 60) for job_id in suspects)
    assert cage.most == 2


@pytest.mark.parametrize("count", [3, 45])
def test_suspects_that_no_process_may_hold_are_not_claimed_again_and_again(
    frozen_queue: Handle, crew: Crew, gate: Gate, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr("schedq.background.promoter._LONGEST_SLEEP_S", 0.2)
    queue, cage = frozen_queue, Cage(frozen_queue, gate)
    suspects = cage.suspects(count)
    crew.start(queue)
    until(lambda: cage.inside == 1 and not queue.places().get("pending"))  # the others were skipped

    with queue.server.requests() as requests:
        until(lambda: len(asked(requests, queue, "promote")) >= 8)  # the promoter's looks show that time passes

    assert len(asked(requests, queue, "claim")) <= 3
    assert len([request for request in asked(requests, queue) if request.name == "BZPOPMIN"]) <= 3
    gate.open()
    assert all(queue.wait(job_id, 60) for job_id in suspects)


def test_jobs_behind_many_suspects_are_reached(queue: Handle, crew: Crew, gate: Gate, cage: Cage) -> None:
    cage.suspects(30)
    crew.start(queue, concurrency=2)
    until(lambda: cage.inside == 1)

    good = queue.enqueue({"task": "good"})

    assert queue.wait(good, 60)


def test_a_suspect_whose_settlement_is_rejected_for_a_while_does_not_block_the_next_one(
    queue: Handle, crew: Crew, gate: Gate, cage: Cage, logs: Logs
) -> None:
    (first,) = cage.suspects(1)
    crew.start(queue)
    until(lambda: cage.inside == 1)
    queue.redis.set(queue.keys.completed, "not a list")
    gate.open()
    until(lambda: [line for line in logs() if f"{queue.name}: jobs can't be settled: " in line])
    queue.redis.delete(queue.keys.completed)

    assert queue.wait(first, 60)
    (second,) = cage.suspects(1)
    assert queue.wait(second, 60)


def test_a_suspect_that_fails_makes_room_for_the_next(frozen_queue: Handle, crew: Crew) -> None:
    queue = frozen_queue

    @queue.task(name="bad", backoff=Fixed(600))
    def bad() -> None:
        raise RuntimeError

    queue.pause()
    ids = queue.enqueue_many([{"task": "bad"}] * 5)
    for job_id in ids:
        queue.redis.hset(queue.keys.job(job_id), "crashes", 2)
    queue.resume()
    crew.start(queue)

    until(lambda: all(queue.get_job(job_id).last_error for job_id in ids))
    assert [queue.get_job(job_id).status for job_id in ids] == ["delayed"] * 5


def test_skipped_suspects_follow_each_other_at_once(frozen_queue: Handle, crew: Crew, gate: Gate) -> None:
    queue, cage = frozen_queue, Cage(frozen_queue, gate)
    gate.open()
    ids = cage.suspects(200)
    crew.start(queue, concurrency=5)
    crew.start(queue, concurrency=5)

    assert all(queue.wait(job_id, 60) for job_id in ids)
    assert cage.most <= 2


@pytest.mark.usefixtures("rare_looks")
def test_hundreds_of_suspects_delay_no_other_job(queue: Handle, crew: Crew, cage: Cage) -> None:
    cage.suspects(400)
    crew.start(queue, concurrency=5)
    until(lambda: cage.inside == 1)

    began = time.monotonic()
    for _ in range(5):
        assert queue.wait(queue.enqueue({"task": "good"}), 60)

    assert time.monotonic() - began < 25, "one waited for the promoter"
    assert cage.inside == 1


def test_a_suspect_that_makes_progress_lets_the_next_one_run(frozen_queue: Handle, crew: Crew) -> None:
    """A step of a workflow run clears the count of its lost leases while it holds the right of its process."""
    queue = frozen_queue

    @queue.queue.workflow
    async def careful(ctx: WorkflowContext) -> str:
        return await ctx.step(str, "done")

    queue.pause()
    jobs = [careful.enqueue() for _ in range(3)]
    for job in jobs:
        queue.redis.hset(queue.keys.job(job.id), "crashes", 2)
    queue.resume()
    crew.start(queue, concurrency=1)

    assert all(queue.wait(job.id, 60) for job in jobs)
