"""How a worker stops."""

from __future__ import annotations

import asyncio

import pytest

from schedq import Snooze, UsageError, current_job
from schedq.worker import Worker
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.servers import Server
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate, frozen


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest waits of a worker are longer than these tests wait, so a worker that stops in time has not waited."""
    monkeypatch.setattr("schedq.worker.worker._UNWIND_S", 60)
    monkeypatch.setattr("schedq.worker.worker._GOODBYE_S", 60)


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_stop_waits_for_running_jobs_and_claims_no_more(queue: Handle, crew: Crew, gate: Gate, kind: str) -> None:
    task = gate.task(queue, in_thread=kind == "plain")
    post = crew.start(queue, concurrency=1)
    running = task.enqueue()
    gate.until_held()
    waiting = task.enqueue()

    post.stop()
    gate.open()
    post.join()

    assert queue.places() == {"completed": [running.id], "pending": [waiting.id]}


def test_jobs_that_run_longer_than_the_grace_period_are_released_to_the_front(
    queue: Handle, crew: Crew, gate: Gate, logs: Logs
) -> None:
    cleaned = []

    @queue.task
    async def hold(number: int) -> None:
        try:
            await gate.passed()
        finally:
            await asyncio.sleep(0)  # together, because one that ends later is released later
            cleaned.append(number)

    jobs = [hold.enqueue(number) for number in range(5)]
    post = crew.start(queue, concurrency=3, grace=0.1)
    gate.until_held(3)

    post.stop()
    post.join()

    assert queue.places() == {"pending": [job.id for job in jobs]}
    assert sorted(cleaned) == [0, 1, 2]
    for job in jobs:
        assert queue.fields(job.id)["attempts"] == "0"
    assert [line for line in logs() if "releases 3 jobs that are still running" in line]


@pytest.mark.parametrize(
    ("asks", "error"),
    [(["stop", "stop"], None), (["cancel"], asyncio.CancelledError)],
    ids=["stopped again", "cancelled"],
)
def test_a_worker_that_must_stop_at_once_releases_its_jobs_at_once(
    queue: Handle, crew: Crew, gate: Gate, asks: list[str], error: type[BaseException] | None
) -> None:
    hold = gate.task(queue)
    post = crew.start(queue, grace=60)
    job = hold.enqueue()
    gate.until_held()

    for ask in asks:
        assert post.is_working
        getattr(post, ask)()
    post.join()

    assert queue.places() == {"pending": [job.id]}
    assert (type(post.error) if post.error else None) is error
    post.error = None


def test_a_stuck_thread_does_not_delay_the_worker(queue: Handle, crew: Crew, gate: Gate) -> None:
    @queue.task
    def stuck() -> None:
        gate.wait()

    post = crew.start(queue, grace=0)
    job = stuck.enqueue()
    gate.until_held()

    post.stop(2)
    post.join()

    assert queue.places() == {"pending": [job.id]}


def test_an_async_handler_that_does_not_end_is_abandoned(queue: Handle, crew: Crew, gate: Gate, logs: Logs) -> None:
    @queue.task
    async def stuck() -> None:
        while True:
            try:
                await gate.passed()
                return
            except asyncio.CancelledError:
                continue

    post = crew.start(queue, grace=0)
    job = stuck.enqueue()
    gate.until_held()

    post.stop(2)
    until(lambda: post.has_run)

    assert queue.places() == {"pending": [job.id]}
    assert [line for line in logs() if "exits without waiting for 1 handlers that do not end" in line]


def test_a_plain_handler_gets_a_moment_to_notice_that_the_worker_stops(queue: Handle, crew: Crew) -> None:
    begun: list[str] = []

    @queue.task
    def polite(*, returns: bool) -> str:
        current = current_job()
        begun.append(current.id)
        until(lambda: current.is_cancelled)
        if returns:
            return "done"
        raise RuntimeError("half-way")

    post = crew.start(queue, grace=0)
    done, half = polite.enqueue(returns=True), polite.enqueue(returns=False)
    until(lambda: len(begun) == 2)

    post.stop()
    post.join()

    assert queue.places() == {"completed": [done.id], "pending": [half.id]}
    assert queue.fields(half.id)["attempts"] == "0"


def test_a_handler_that_decides_how_its_job_ends_is_obeyed_even_during_a_stop(
    queue: Handle, crew: Crew, gate: Gate
) -> None:
    @queue.task
    async def snoozing() -> None:
        try:
            await gate.passed()
        except asyncio.CancelledError:
            raise Snooze(900) from None

    post = crew.start(queue, grace=0)
    job = snoozing.enqueue()
    gate.until_held()

    post.stop()
    post.join()

    assert queue.places() == {"delayed": [job.id]}


def test_a_job_that_was_asked_to_stop_is_cancelled_when_its_worker_stops(
    make_queue: MakeQueue, crew: Crew, gate: Gate
) -> None:
    queue = make_queue()
    hold = gate.task(queue)
    post = crew.start(queue, grace=0)
    job = hold.enqueue()
    gate.until_held()

    job.cancel()
    post.stop()
    post.join()

    assert queue.places() == {"cancelled": [job.id]}


def test_jobs_claimed_after_the_stop_are_released(queue: Handle, crew: Crew) -> None:
    ran: list[int] = []
    queue.task(name="run")(lambda: ran.append(1))
    post = crew.start(queue, promotes=False)
    until(lambda: not post.do(lambda: post.worker.capacity.is_any_ready))
    queue.pause()
    job_id = queue.enqueue({"task": "run"})
    queue.redis.delete(queue.keys.paused)

    with frozen(queue.server):
        post.look()
        post.stop()
        until(lambda: not post.do(lambda: post.worker.capacity.is_any_ready))
    post.join()

    assert queue.places() == {"pending": [job_id]}
    assert queue.fields(job_id)["released"] == "1"
    assert ran == []


def test_an_idle_worker_stops_without_waiting_for_a_server_that_is_gone(
    make_queue: MakeQueue, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedq.worker.worker._GOODBYE_S", 300)
    with Server() as server:
        queue = make_queue(at=server)
        queue.task(name="ok")(lambda: "ok")
        post = crew.start(queue)
        until(lambda: post.do(lambda: post.queue_worker.fetcher.later_claims))
        server.kill()
        until(lambda: post.queue_worker.health().lost_for_s)
        post.stop()
        post.join()

    assert post.error is None


def test_a_worker_that_is_stopped_while_it_starts_leaves_nothing_open(queue: Handle, crew: Crew) -> None:
    queue.task(name="ok")(lambda: "ok")
    for steps in range(24):
        post = crew.start(queue)
        for _ in range(steps):
            post.do(lambda: None)
        post.stop(1 + steps % 2)
        post.join()

    assert crew.all_left_in_order  # nor does anything complain when it is collected


def test_a_worker_runs_once(queue: Handle, crew: Crew) -> None:
    queue.task(name="ok")(lambda: "ok")
    post = crew.start(queue)
    post.stop()
    post.join()

    with pytest.raises(UsageError, match="runs only once"):
        asyncio.run(post.worker.run())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"concurrency": True}, "concurrency"),
        ({"concurrency": 10_001}, "concurrency"),
        ({"concurrency": 1.5}, "concurrency"),
        ({"grace": -1}, "grace"),
        ({"grace": float("nan")}, "grace"),
    ],
)
def test_invalid_numbers_are_refused(queue: Handle, options: dict[str, float], problem: str) -> None:
    queue.task(name="ok")(lambda: "ok")

    with pytest.raises(UsageError, match=problem):
        Worker([queue.queue], **options)  # type: ignore[arg-type]


def test_invalid_queues_are_refused(queue: Handle, make_queue: MakeQueue) -> None:
    with pytest.raises(UsageError, match="at least one queue"):
        Worker([])
    with pytest.raises(UsageError, match=rf"got queue {queue.name} alone; write Worker\(\[queue\]\)"):
        Worker(queue.queue)  # type: ignore[arg-type]
    for nothing in ("mail", ["mail"], None, 5):
        with pytest.raises(UsageError, match="takes objects of Queue or AsyncQueue, got"):
            Worker(nothing)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=f"queue {queue.name} has no task and no handler"):
        Worker([queue.queue])
    queue.task(name="ok")(lambda: "ok")
    twin = make_queue(queue.name)
    twin.task(name="ok")(lambda: "ok")
    with pytest.raises(UsageError, match="each queue once"):
        Worker([queue.queue, twin.queue])
