"""An idle worker with one queue sends a claim for one job behind its wait for the wake marker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from redis.exceptions import ConnectionError  # noqa: A004 - the name that redis-py gives it

from schedq import current_job
from schedq.connection.async_connection import AsyncConnection
from schedq.connection.endpoint import REPLY_S
from schedq.worker.wake_listener import LaterClaim, WakeListener
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.proxy import Proxy
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate, Post


def waiting(queue: Handle) -> int:
    """The number of connections that wait for a marker at the queue's server."""
    return sum(one["cmd"] == "bzpopmin" for one in queue.redis.client_list())


def attempt_of(queue: Handle, name: str = "attempt") -> Any:
    """A task that returns the number of its attempt."""

    @queue.task(name=name)
    async def attempt() -> int:
        return current_job().attempts

    return attempt


def start(crew: Crew, *queues: Handle, proxy: Proxy | None = None, **options: Any) -> Post:
    """Start a worker, and wait until it waits with a claim, which has passed the proxy."""
    post = crew.start(*queues, **options)
    until(lambda: post.do(lambda: post.queue_worker.fetcher.later_claims) and waiting(queues[0]))
    if proxy is not None:
        until(lambda: proxy.is_asked("BZPOPMIN", "EVALSHA"))
    return post


@contextmanager
def blocked(post: Post) -> Iterator[None]:
    """While this is open, the worker's event loop is blocked."""
    is_blocked, may_go_on = threading.Event(), threading.Event()

    def block() -> None:
        is_blocked.set()
        may_go_on.wait()

    thread = threading.Thread(target=post.do, args=(block,))
    thread.start()
    is_blocked.wait()
    try:
        yield
    finally:
        may_go_on.set()
        thread.join()


def through(proxy: Proxy, make_queue: MakeQueue) -> Handle:
    """A queue that is reached through the proxy, with leases that outlast the test."""
    return make_queue(url=proxy.url, visibility_ms=300_000)


def test_redis_claims_a_job_for_an_idle_worker_without_asking_it(queue: Handle, crew: Crew) -> None:
    attempt = attempt_of(queue)
    post = start(crew, queue)

    with blocked(post):
        job = attempt.enqueue()
        until(lambda: queue.get_job(job.id).status == "processing")
        assert queue.places()["processing"] == [job.id], "while the worker could send nothing"

    assert job.result(60) == 1


def test_a_worker_that_runs_a_job_waits_without_a_claim(queue: Handle, crew: Crew, gate: Gate) -> None:
    attempt = attempt_of(queue)
    gate.task(queue)
    post = start(crew, queue)
    queue.enqueue({"task": "hold"})
    gate.until_held()
    until(lambda: waiting(queue))

    assert post.do(lambda: post.queue_worker.fetcher.later_claims) == 0, "the handler might block the event loop"
    assert attempt.enqueue().result(60) == 1

    gate.open()
    until(lambda: post.do(lambda: post.queue_worker.fetcher.later_claims) == 1)


def test_a_burst_takes_one_such_claim_and_fills_the_other_slots_as_ever(queue: Handle, crew: Crew, gate: Gate) -> None:
    @queue.task
    async def hold() -> None:
        await gate.passed()

    post = start(crew, queue, concurrency=5)
    jobs = queue.enqueue_many([{"task": "hold"}] * 8)
    gate.until_held(5)
    post.take_turns()

    assert len(queue.places()["processing"]) == 5
    gate.open()
    until(lambda: queue.stats()["completed_total"] == len(jobs))
    until(lambda: post.free_slots == 5)


@pytest.mark.parametrize("max_jobs", [1, 3])
def test_such_claims_count_towards_the_limit_of_jobs(queue: Handle, crew: Crew, max_jobs: int) -> None:
    attempt = attempt_of(queue)
    post = start(crew, queue, max_jobs=max_jobs, concurrency=2)
    jobs = [attempt.enqueue() for _ in range(5)]
    post.join()

    assert len(queue.places()["completed"]) == max_jobs
    assert len(queue.places()["pending"]) == len(jobs) - max_jobs


def test_a_job_whose_claim_lost_its_reply_starts_before_the_wait_would_have_ended(
    proxy: Proxy, make_queue: MakeQueue, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = through(proxy, make_queue)
    attempt = attempt_of(queue)
    start(crew, queue, proxy=proxy)
    monkeypatch.setattr("schedq.worker.wake_listener._BLOCK_S", 300)
    proxy.lose_late_reply("BZPOPMIN")
    job = attempt.enqueue()

    assert job.result(60) == 1
    assert proxy.faults == 1
    assert queue.stats()["reclaimed_total"] == queue.stats()["released_total"] == 0


def test_a_job_claimed_on_a_connection_that_only_the_worker_has_lost_starts_when_the_wait_is_over(
    proxy: Proxy, make_queue: MakeQueue, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = through(proxy, make_queue)
    attempt = attempt_of(queue)
    is_claimed, recover_again = threading.Event(), WakeListener._recover_again

    async def recover_later(self: WakeListener, claim: LaterClaim) -> None:
        """Recover as if the job had been claimed at the very end of the wait."""
        await asyncio.to_thread(is_claimed.wait, 60)
        await recover_again(self, claim)

    monkeypatch.setattr(WakeListener, "_recover_again", recover_later)
    start(crew, queue, proxy=proxy)
    monkeypatch.setattr("schedq.worker.wake_listener._BLOCK_S", 0.5)
    proxy.leave("BZPOPMIN")
    until(lambda: waiting(queue) == 2)
    job = attempt.enqueue()  # for the connection that has waited longest
    until(lambda: queue.get_job(job.id).status != "pending")
    is_claimed.set()

    assert job.result(60) == 1
    proxy.let_go()
    assert queue.stats()["reclaimed_total"] == 0


def test_a_connection_that_closes_between_wait_and_claim_costs_no_job(
    queue: Handle, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt, send = attempt_of(queue), AsyncConnection.send
    failures: list[Sequence[tuple[Any, ...]]] = []

    def send_or_fail(self: AsyncConnection, commands: Sequence[tuple[Any, ...]], reply_s: float = REPLY_S) -> Any:
        if reply_s > REPLY_S and commands[0][0] != "BZPOPMIN" and not failures:
            failures.append(commands)
            self.close()
            raise ConnectionError
        return send(self, commands, reply_s)

    monkeypatch.setattr(AsyncConnection, "send", send_or_fail)
    start(crew, queue)

    assert failures
    assert attempt.enqueue().result(60) == 1


def test_a_running_job_is_not_started_again_by_the_second_recovery(
    proxy: Proxy, make_queue: MakeQueue, crew: Crew, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = through(proxy, make_queue)

    @queue.task
    async def hold() -> int:
        await gate.passed()
        return current_job().attempts

    lost: list[LaterClaim] = []
    ended: list[LaterClaim] = []

    async def recover(claim: LaterClaim) -> None:
        await recovers(claim)
        lost.append(claim)

    def end(claim: LaterClaim) -> None:
        ends(claim)
        ended.append(claim)

    recovers, ends = LaterClaim.recover, LaterClaim.end
    monkeypatch.setattr(LaterClaim, "recover", recover)
    monkeypatch.setattr(LaterClaim, "end", end)
    start(crew, queue, proxy=proxy)
    monkeypatch.setattr("schedq.worker.wake_listener._BLOCK_S", 0.5)
    proxy.lose_late_reply("BZPOPMIN")
    job = hold.enqueue()
    gate.until_held()
    until(lambda: len(lost) == 2 and lost[0] in ended)
    gate.open()

    assert job.result(60) == 1
    assert len(gate._arrivals) == 1


def test_a_job_whose_lease_ended_before_the_reply_came_is_left_to_who_has_it_now(
    proxy: Proxy, make_queue: MakeQueue, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = through(proxy, make_queue)
    starts: list[int] = []

    @queue.task
    async def count() -> int:
        starts.append(current_job().attempts)
        return len(starts)

    start(crew, queue, proxy=proxy, promotes=False)
    proxy.hold_late_reply("BZPOPMIN")
    job = count.enqueue()
    until(lambda: queue.get_job(job.id).status == "processing")
    queue.redis.zadd(queue.keys.leases, {job.id: 0})
    assert queue.reclaim_stuck() == [job.id]
    taken = queue.claim()
    monkeypatch.setattr(LaterClaim, "is_late", True)
    proxy.let_go()
    until(lambda: attempt_of(queue).enqueue().result(60))
    queue.complete(taken, "elsewhere")

    assert job.result(60) == "elsewhere"
    assert starts == []


def test_a_worker_that_stops_while_it_waits_takes_no_job(queue: Handle, crew: Crew, logs: Logs) -> None:
    attempt = attempt_of(queue)
    post = start(crew, queue)
    began = time.monotonic()
    post.stop()
    post.join()
    job = attempt.enqueue()

    assert time.monotonic() - began < 5, "it did not wait for the end of its wait"
    assert queue.get_job(job.id).status == "pending"
    assert not [line for line in logs() if "lost" in line]
    crew.start(queue)
    assert job.result(60) == 1


def test_a_job_claimed_for_a_worker_at_its_stop_is_pending_again(
    proxy: Proxy, make_queue: MakeQueue, crew: Crew
) -> None:
    queue = through(proxy, make_queue)
    attempt = attempt_of(queue)
    post = start(crew, queue, proxy=proxy)
    proxy.hold_late_reply("BZPOPMIN")
    job = attempt.enqueue()
    until(lambda: queue.get_job(job.id).status == "processing")
    post.stop()
    threading.Timer(0.2, proxy.let_go).start()
    post.join()

    assert queue.get_job(job.id).status in ("pending", "completed")
    crew.start(queue)
    assert job.result(60) == 1


def test_a_server_that_forgot_its_scripts_costs_no_job(queue: Handle, crew: Crew) -> None:
    attempt = attempt_of(queue)
    start(crew, queue, promotes=False)
    queue.redis.script_flush()

    assert attempt.enqueue().result(60) == 1


def test_a_job_that_comes_when_a_wait_lasts_longer_than_a_lease_starts_at_once(
    make_queue: MakeQueue, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue(visibility_ms=300_000)
    attempt = attempt_of(queue)
    start(crew, queue)
    monkeypatch.setattr(LaterClaim, "is_late", True)

    assert attempt.enqueue().result(60) == 1
    assert queue.stats()["reclaimed_total"] == 0


@pytest.mark.parametrize("is_own", [False, True])
def test_no_job_loses_its_only_attempt_to_a_worker_that_is_frozen(
    make_queue: MakeQueue, crew: Crew, is_own: bool
) -> None:
    queue = make_queue() if is_own else make_queue(max_attempts=1)
    queue.task(name="charge", max_attempts=1 if is_own else None)(lambda: "done")
    post = crew.start(queue)
    until(lambda: waiting(queue) and post.do(lambda: post.queue_worker.fetcher.is_idle))

    assert post.queue_worker.fetcher.later_claims == 0
    assert queue.wait(queue.enqueue({"task": "charge"}), 60)


def test_a_job_with_a_single_attempt_waits_until_the_worker_can_start_it(queue: Handle, crew: Crew) -> None:
    attempt = attempt_of(queue)
    post = start(crew, queue)

    with blocked(post):
        job = attempt.options(max_attempts=1).enqueue()
        until(lambda: not waiting(queue))
        assert queue.places() == {"pending": [job.id]}

    assert job.result(60) == 1


def test_a_worker_of_several_queues_waits_without_a_claim(make_queue: MakeQueue, crew: Crew) -> None:
    queues = [make_queue(), make_queue()]
    tasks = [attempt_of(queue) for queue in queues]
    post = crew.start(*queues)
    for task in tasks:
        assert task.enqueue().result(60) == 1
    until(lambda: waiting(queues[0]) and post.do(lambda: post.queue_worker.fetcher.is_idle))

    assert post.queue_worker.fetcher.later_claims == 0
