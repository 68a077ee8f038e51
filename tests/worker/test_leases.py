"""Keeping a job, losing it, and being asked to stop it."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from schedq import JobCancelled, Queue, current_job
from schedq.model.records import ClaimedJob
from schedq.transitions import scripts
from schedq.worker.attempt import Attempt, InFlight
from schedq.worker.renewal import Held, Renewal
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.proxy import Proxy
from tests.servers import Server
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate
from tests.worker.layers import take_away

SOON_S = 30
"""Longer than the second between two renewals, however busy the machine is."""


def test_a_handler_that_blocks_the_event_loop_longer_than_its_lease_keeps_its_job(
    make_queue: MakeQueue, crew: Crew
) -> None:
    queue = make_queue(visibility_ms=4000)

    @queue.task
    async def block() -> int:
        time.sleep(5.5)  # without a renewal the lease ends and another worker takes the job back
        return current_job().attempts

    crew.start(queue, promotes=False)
    job = block.enqueue()
    until(lambda: queue.places().get("processing"))
    crew.start(queue)

    assert job.result(60) == 1
    assert queue.stats()["reclaimed_total"] == 0


def test_a_renewal_whose_connection_hangs_leaves_time_for_another_one(
    make_queue: MakeQueue, server: Server, crew: Crew, gate: Gate
) -> None:
    with Proxy(server) as proxy:
        queue = make_queue(url=proxy.url, visibility_ms=3000)

        @queue.task
        async def hold() -> int:
            await gate.passed()
            return current_job().attempts

        crew.start(queue)
        job = hold.enqueue()
        ends_at = until(lambda: queue.redis.zscore(queue.keys.leases, job.id))
        proxy.hold_reply(scripts.load("renew").sha)

        # The renewal whose reply is held extends the lease by a second.
        until(lambda: (queue.redis.zscore(queue.keys.leases, job.id) or 0) > ends_at + 1400)
        gate.open()

        assert job.result(20) == 1
        assert queue.stats()["reclaimed_total"] == 0
        crew.end()


@pytest.mark.parametrize(("visibility_ms", "reply_s"), [(600_000, 5.0), (10_000, 10 / 6), (3000, 0.5), (1000, 0.25)])
def test_renewals_wait_for_their_replies_in_proportion_to_the_lease(visibility_ms: int, reply_s: float) -> None:
    queue = Queue("mail", visibility_ms=visibility_ms)

    async def renewal() -> Renewal:
        return Renewal([Held(queue, InFlight())], asyncio.get_running_loop())

    assert asyncio.run(renewal())._connection._reply_s == pytest.approx(reply_s, rel=0.01)


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_lost_lease_stops_the_handler_and_its_outcome_is_dropped(
    queue: Handle, crew: Crew, gate: Gate, logs: Logs, kind: str
) -> None:
    begun, told = threading.Event(), threading.Event()

    async def hold() -> str:
        begun.set()
        try:
            await gate.passed()
        except asyncio.CancelledError:
            told.set()
            raise
        return "held"

    def hold_plain() -> str:
        current = current_job()
        begun.set()
        until(lambda: current.is_cancelled)
        told.set()
        return "held"

    task = queue.task(name="hold")(hold if kind == "async" else hold_plain)
    ok = queue.task(name="ok")(lambda: "ok")
    crew.start(queue, concurrency=1)
    job = task.enqueue()
    assert begun.wait(60)

    theirs = take_away(queue, job.id)

    assert told.wait(SOON_S)
    assert ok.enqueue().result(60) == "ok"
    assert queue.places()["processing"] == [job.id]
    assert queue.complete(theirs, "theirs")
    assert job.result(60) == "theirs"
    assert len([line for line in logs() if "hold lost its lease" in line]) == 1


def test_an_outcome_that_comes_after_the_lease_was_lost_is_dropped_and_logged(
    make_queue: MakeQueue, crew: Crew, gate: Gate, logs: Logs
) -> None:
    queue = make_queue(visibility_ms=600_000)  # renewed long after the test
    hold = gate.task(queue)
    crew.start(queue)
    job = hold.enqueue()
    gate.until_held()

    theirs = take_away(queue, job.id)
    gate.open()

    until(lambda: [line for line in logs() if "complete came too late, the job belongs to another worker" in line])
    assert queue.fields(job.id)["status"] == "processing"
    assert queue.complete(theirs, "theirs")


def test_a_worker_that_claims_a_job_again_stops_its_older_attempt(
    make_queue: MakeQueue, crew: Crew, gate: Gate
) -> None:
    queue = make_queue()
    begun, ended = [], []

    @queue.task
    async def hold() -> str:
        token = current_job().claim_token
        begun.append(token)
        try:
            await gate.passed()
            return token
        finally:
            ended.append(token)

    crew.start(queue, concurrency=2, promotes=False)
    job = hold.enqueue()
    until(lambda: begun)
    with queue.redis.pipeline(transaction=True) as moves:  # as a reclaimer elsewhere does before this worker notices it
        moves.lrem(queue.keys.processing, 1, job.id)
        moves.zrem(queue.keys.leases, job.id)
        moves.hdel(queue.keys.job(job.id), "claim_token")
        moves.hset(queue.keys.job(job.id), "status", "pending")
        moves.rpush(queue.keys.pending, job.id)
        moves.zadd(queue.keys.wake, {"1": 0})
        moves.execute()

    until(lambda: len(begun) == 2)
    until(lambda: ended == begun[:1])
    gate.open()
    assert job.result(60) == begun[1]


def test_cancelling_a_running_job_cancels_an_async_handler_soon(queue: Handle, crew: Crew, gate: Gate) -> None:
    stopped = threading.Event()

    @queue.task
    async def hold() -> None:
        try:
            await gate.passed()
        finally:
            stopped.set()

    crew.start(queue)
    job = hold.enqueue()
    gate.until_held()

    assert job.cancel() == "asked"

    assert stopped.wait(SOON_S)
    with pytest.raises(JobCancelled):
        job.result(60)
    assert queue.stats()["cancelled_total"] == 1


def ended_plainly(begun: list[str], returns: bool) -> Any:
    def hold() -> str:
        current = current_job()
        begun.append(current.id)
        until(lambda: current.is_cancelled)
        if returns:
            return "done"
        raise RuntimeError("stopped half-way")

    return hold


def test_a_plain_handler_can_see_that_its_job_was_cancelled(queue: Handle, crew: Crew) -> None:
    begun: list[str] = []
    task = queue.task(name="hold")(ended_plainly(begun, returns=False))
    crew.start(queue)
    job = task.enqueue()
    until(lambda: begun)

    assert job.cancel() == "asked"

    with pytest.raises(JobCancelled):
        job.result(60)
    assert queue.places() == {"cancelled": [job.id]}


def test_a_job_that_completes_is_completed_although_it_was_asked_to_stop(queue: Handle, crew: Crew) -> None:
    begun: list[str] = []

    @queue.task
    async def calm() -> str:
        current = current_job()
        begun.append(current.id)
        while not current.is_cancelled:
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                continue
        return "done"

    plain = queue.task(name="plain")(ended_plainly(begun, returns=True))
    crew.start(queue)
    jobs = [calm.enqueue(), plain.enqueue()]
    until(lambda: len(begun) == 2)

    assert [job.cancel() for job in jobs] == ["asked", "asked"]

    assert [job.result(60) for job in jobs] == ["done", "done"]


def test_a_stop_request_reaches_only_its_own_job(queue: Handle, crew: Crew, gate: Gate) -> None:
    @queue.task
    async def hold(number: int) -> int:
        await gate.passed()
        return number

    crew.start(queue)
    jobs = [hold.enqueue(number) for number in range(4)]
    gate.until_held(4)

    jobs[2].cancel()

    until(lambda: jobs[2].status() == "cancelled")
    gate.open()
    assert [jobs[number].result(60) for number in (0, 1, 3)] == [0, 1, 3]


def test_a_claim_whose_reply_comes_after_its_leases_have_ended_starts_only_jobs_it_still_holds(
    make_queue: MakeQueue, crew: Crew, spare: Handle
) -> None:
    queue = make_queue(visibility_ms=1000)
    begun: list[str] = []
    is_held, goes_on = threading.Event(), threading.Event()

    @queue.task
    async def note(name: str) -> str:
        begun.append(name)
        return "here"

    post = crew.start(queue, spare, promotes=False)
    until(lambda: not post.do(lambda: post.worker.capacity.is_any_ready))
    client: Any = post.queue_worker.client
    execute = client.execute

    async def held_back(operations: Any, *rest: Any) -> list[Any]:
        answers: list[Any] = await execute(operations, *rest)
        if not is_held.is_set() and any(getattr(answer, "jobs", ()) for answer in answers):
            is_held.set()
            while not goes_on.is_set():
                await asyncio.sleep(0.01)
        return answers

    post.do(setattr, client, "execute", held_back)
    queue.pause()
    theirs, ours = note.enqueue("theirs"), note.enqueue("ours")
    queue.resume()
    assert is_held.wait(SOON_S)
    queue.redis.zadd(queue.keys.leases, {theirs.id: 1, ours.id: time.time() * 1000 + 60_000})
    assert queue.reclaim_stuck() == [theirs.id]
    other = queue.claim(timeout_ms=0)
    assert queue.complete(other, "there")
    time.sleep(1)  # as long as a lease
    goes_on.set()

    assert theirs.result(60) == "there"
    assert ours.result(60) == "here"
    assert begun == ["ours"]


def test_a_failed_renewal_is_sent_again_at_once_and_then_soon(queue: Handle, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    now = 0.0
    answers = iter([False, False, False, True, False])
    held = InFlight()
    held.add(Attempt(ClaimedJob("a", None, 1, "mine.1")))
    renewal = Renewal([Held(queue.queue, held)], asyncio.new_event_loop())

    def wait(seconds: float) -> bool:
        nonlocal now
        now += seconds
        waits.append(round(seconds, 1))
        if len(waits) > 5:
            renewal.stop()
        return False

    monkeypatch.setattr("schedq.worker.renewal.monotonic", lambda: now)
    monkeypatch.setattr(renewal, "_are_renewed", lambda *_, **__: next(answers))
    monkeypatch.setattr(held.reporters.changed, "wait", wait)
    renewal.run()
    renewal._loop.close()

    assert waits == [1.0, 0.0, 0.2, 0.2, 1.0, 0.0]


@pytest.mark.breaks("leases", because="those of one queue were replaced by a text")
def test_the_leases_of_a_damaged_queue_keep_no_others_from_being_renewed(
    make_queue: MakeQueue, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedq.worker.renewal.SENT_AT_ONCE", 2)
    queues = [make_queue(name) for name in ("damaged", "mail", "reports")]
    held = [Held(queue.queue, InFlight()) for queue in queues]
    for queue, each in zip(queues, held, strict=True):
        queue.enqueue(1)
        job = queue.claim(timeout_ms=0)
        each.in_flight.add(Attempt(job))
        queue.redis.zadd(queue.keys.leases, {job.id: 1})
    queues[0].redis.set(queues[0].keys.leases, "what is this")
    loop = asyncio.new_event_loop()
    renewal = Renewal(held, loop)

    renewal._send()
    renewal._connection.close()
    loop.close()

    ends = [queue.redis.zscore(queue.keys.leases, queue.redis.lindex(queue.keys.processing, 0)) for queue in queues[1:]]
    assert all(end > time.time() * 1000 for end in ends)
    queues[0].redis.delete(queues[0].keys.leases)
    assert [line.partition(" can't be")[0] for line in logs()] == ["ERROR queue damaged: leases"]
