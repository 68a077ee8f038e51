"""Waking, pausing, and several queues in one worker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from schedq import Fixed
from schedq.observer import Observer
from schedq.worker import marker_check
from schedq.worker.worker import Worker
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.proxy import Proxy
from tests.servers import Server
from tests.waiting import until
from tests.worker.crew import Crew, Gate, asked, broken_laws, frozen


def until_blocked(queue: Handle, workers: int = 1) -> None:
    """Wait until this many workers wait for the markers of this queue."""

    def blocked() -> bool:
        found = queue.redis.client_list()
        return len([one for one in found if one["cmd"] == "bzpopmin" and queue.name in one["name"]]) == workers

    until(blocked)


class Claims(Observer):
    """Records the queues of the jobs that a worker claims, in their order; the jobs may begin in another one."""

    def __init__(self) -> None:
        self.came: list[str] = []

    def claim_answered(self, queue: str, jobs: int, has_more: bool) -> None:
        self.came += [queue] * jobs


@pytest.fixture
def times(queue: Handle) -> list[float]:
    """The times at which jobs of the task `note` ran."""
    found: list[float] = []
    queue.task(name="note", backoff=Fixed(0.2))(lambda: found.append(time.time()))
    return found


@pytest.mark.usefixtures("rare_looks")
@pytest.mark.parametrize("kind", ["new", "due", "rescheduled", "requeued", "foreign"])
def test_an_idle_worker_runs_a_job_at_once(queue: Handle, crew: Crew, times: list[float], kind: str) -> None:
    crew.start(queue)
    until(lambda: queue.redis.get(queue.keys.promoter))
    until_blocked(queue)
    came = int(time.time() * 1000) / 1000  # Redis's instants are whole milliseconds, too
    if kind == "new":
        queue.enqueue({"task": "note"})
    elif kind == "due":
        queue.enqueue({"task": "note"}, delay=0.4)
        came += 0.4
    elif kind == "rescheduled":
        job_id = queue.enqueue({"task": "note"}, delay=500)
        queue.run_now(job_id)
    elif kind == "requeued":
        job_id = queue.enqueue({"task": "note"}, delay=500)
        queue.cancel(job_id)
        queue.requeue(job_id)
    else:
        queue.redis.hset(queue.keys.job("theirs"), mapping={"id": "theirs", "payload": '{"task":"note"}'})
        queue.redis.hincrby(queue.keys.stats, "enqueued_total", 1)
        queue.redis.lpush(queue.keys.pending, "theirs")
        queue.redis.zadd(queue.keys.wake, {"1": 0})

    until(lambda: times)
    assert 0 <= times[0] - came < 25


@pytest.mark.usefixtures("rare_looks")
def test_a_retry_runs_when_it_is_due(queue: Handle, crew: Crew) -> None:
    times: list[float] = []

    @queue.task(backoff=Fixed(0.4))
    def fail_once() -> None:
        times.append(time.time())
        if len(times) == 1:
            raise RuntimeError

    crew.start(queue)
    job = fail_once.enqueue()
    job.result(60)

    due = int(queue.fields(job.id)["run_at_ms"]) / 1000
    assert 0 <= times[1] - due < 25


def test_paused_workers_claim_nothing_and_resume_wakes_them_at_once(
    queue: Handle, crew: Crew, times: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    crew.start(queue)
    until_blocked(queue)
    queue.pause()
    queue.enqueue({"task": "note"})

    with queue.server.requests() as requests:
        until(lambda: asked(requests, queue, "promote"))  # which may set the marker
        monkeypatch.setattr("schedq.background.promoter._LONGEST_SLEEP_S", 30)
        time.sleep(1.3)  # the last sleep of a second is over, so it is not the promoter that wakes them
    assert times == []
    assert not asked(requests, queue, "claim")
    resumed = time.time()
    assert queue.resume()

    until(lambda: times)
    assert times[0] - resumed < 25


def test_jobs_that_run_when_a_queue_is_paused_continue(queue: Handle, crew: Crew, gate: Gate) -> None:
    hold = gate.task(queue)

    crew.start(queue)
    job = hold.enqueue()
    gate.until_held()

    queue.pause()
    gate.open()

    assert job.result(60) == "held"
    queue.resume()


def test_queues_are_served_in_strict_order(make_queue: MakeQueue, crew: Crew, gate: Gate) -> None:
    first, second = make_queue(), make_queue()
    ran: list[str] = []
    for name, queue in (("first", first), ("second", second)):
        queue.task(name="note")(lambda name=name: ran.append(name))
    gate.task(first, in_thread=True)
    first.enqueue({"task": "hold"})
    crew.start(first, second, concurrency=1)
    gate.until_held()
    for _ in range(3):
        second.enqueue({"task": "note"})
    for _ in range(3):
        first.enqueue({"task": "note"})

    gate.open()

    until(lambda: len(ran) == 6)
    assert ran == ["first"] * 3 + ["second"] * 3


def test_a_backlog_of_an_earlier_queue_is_processed_first(make_queue: MakeQueue, crew: Crew) -> None:
    first, second, claims = make_queue(), make_queue(), Claims()

    async def note() -> None:
        await asyncio.sleep(len(claims.came) % 5 / 2000)  # some end while a claim is in progress

    for queue in (second, first):
        queue.task(name="note")(note)
        queue.enqueue_many([{"task": "note"}] * 100)
    crew.start(first, second, concurrency=4, observers=[claims])

    until(lambda: len(claims.came) == 200)
    assert claims.came == [first.name] * 100 + [second.name] * 100


def test_a_backlog_of_a_later_queue_does_not_keep_an_earlier_one_waiting(
    make_queue: MakeQueue, crew: Crew, gate: Gate
) -> None:
    first, second = make_queue(), make_queue()
    claims = Claims()
    first.task(name="note")(lambda: None)
    second.task(name="note")(gate.wait)
    second.enqueue_many([{"task": "note"}] * 30)
    crew.start(first, second, concurrency=2, observers=[claims])
    gate.until_held(2)
    first.enqueue_many([{"task": "note"}] * 3)

    gate.open()

    until(lambda: len(claims.came) == 33)
    assert max(place for place, name in enumerate(claims.came) if name == first.name) < 8


@pytest.mark.parametrize("which", [0, 1])
def test_a_job_that_a_full_worker_cannot_take_is_taken_by_another_at_once(
    make_queue: MakeQueue, crew: Crew, gate: Gate, which: int
) -> None:
    queues = [make_queue(), make_queue()]
    ran = threading.Event()
    for queue in queues:
        gate.task(queue, in_thread=True)
        queue.task(name="note")(ran.set)
    queues[0].enqueue({"task": "hold"})
    crew.start(*queues, concurrency=1, promotes=False)
    gate.until_held()
    crew.start(*queues, concurrency=1, promotes=False)
    until_blocked(queues[0])

    queues[which].enqueue({"task": "note"})

    assert ran.wait(9)


def test_a_marker_that_a_worker_takes_as_its_slots_fill_is_put_back(
    make_queue: MakeQueue, crew: Crew, gate: Gate
) -> None:
    first, second = make_queue(), make_queue()
    ran = threading.Event()
    gate.task(first, in_thread=True)
    second.task(name="note")(ran.set)
    full = crew.start(first, second, concurrency=1, promotes=False)
    until_blocked(first)
    crew.start(second, promotes=False)
    until_blocked(second)
    first.pause()
    held = first.enqueue({"task": "hold"})
    first.redis.delete(first.keys.paused)  # unlike `resume` this wakes no worker

    with frozen(
        first.server
    ):  # it claims the only job that it can hold, and gets the marker, because it has waited longest
        full.look()
        enqueued = second.start("enqueue", {"task": "note"})
        time.sleep(0.05)
    enqueued.result(60)

    assert ran.wait(9)
    assert first.places() == {"processing": [held]}


@pytest.mark.usefixtures("long_goodbyes")  # Redis is frozen when it begins to stop
@pytest.mark.parametrize("how", ["stop", "cancel"])
def test_a_worker_that_stops_takes_no_marker_with_it(queue: Handle, crew: Crew, times: list[float], how: str) -> None:
    post = crew.start(queue, promotes=False)
    until_blocked(queue)
    stopping: Callable[[], None] = post.stop if how == "stop" else post.cancel
    with frozen(queue.server):
        enqueued = queue.start("enqueue", {"task": "note"})  # its marker goes to the wait that is being cancelled
        time.sleep(0.05)
        stopping()
        time.sleep(0.05)
    enqueued.result(60)
    post.join()
    post.error = None

    assert queue.places() == {"pending": queue.state().ids("pending")}
    assert times == []
    assert queue.redis.zcard(queue.keys.wake) == 1


def test_an_idle_worker_sends_few_requests(queue: Handle, crew: Crew, times: list[float]) -> None:
    queue.enqueue({"task": "note"}, delay=3600)
    crew.start(queue)
    until_blocked(queue)
    until(lambda: dict(queue.redis.pubsub_numsub(queue.keys.due))[queue.keys.due])  # the promoter has started
    until(lambda: queue.redis.hlen(queue.keys.settings) and queue.redis.zcard(queue.keys.workers))

    with queue.server.requests() as requests:
        until(lambda: asked(requests, queue, "reclaim"))  # the first sweep comes last after a start
        before = len(requests)
        until(lambda: len(asked(requests[before:], queue, "promote")) >= 3)

    found = asked(requests[before:], queue)
    # Besides one look a second there are others every ten seconds, and a script that is not known yet is sent twice.
    assert len(found) <= 5 + (found[-1].at - found[0].at)


def test_a_busy_worker_needs_no_marker_to_continue(queue: Handle, crew: Crew, times: list[float]) -> None:
    crew.start(queue, concurrency=2, promotes=False)
    until_blocked(queue)
    queue.enqueue_many([{"task": "note"}] * 500)

    until(lambda: len(times) >= 500)
    assert queue.stats()["reclaimed_total"] == 0
    assert len(times) == 500


def test_a_worker_of_many_queues_has_few_connections_and_threads(make_queue: MakeQueue, crew: Crew, gate: Gate) -> None:
    queues = [make_queue(f"tenant{number}", visibility_ms=3000) for number in range(20)]
    tasks = [gate.task(queue) for queue in queues]
    before = threading.active_count()
    crew.start(*queues, concurrency=20)
    jobs = [task.enqueue() for task in tasks]

    def renewed() -> bool:
        ends = [queue.redis.zrange(queue.keys.leases, 0, 0, withscores=True) for queue in queues]
        return all(found and found[0][1] > claimed_ms + 3500 for found in ends)

    gate.until_held(20)
    claimed_ms = time.time() * 1000
    until(renewed)
    found = queues[0].redis.client_list()
    shared = [one["name"] for one in found if one["name"].startswith(("schedq-tenant0+", "schedq-tenant0-"))]
    blocked = [one["name"] for one in found if one["cmd"] == "bzpopmin"]
    threads = threading.active_count() - before
    gate.open()

    assert [job.result(60) for job in jobs] == ["held"] * 20
    assert sorted(shared) == ["schedq-tenant0+19", "schedq-tenant0+19", "schedq-tenant0+19", "schedq-tenant0-due"]
    assert len(blocked) <= 1
    assert [one["name"] for one in found if one["name"].endswith("-due")] == ["schedq-tenant0-due"]
    assert threads <= 4


def test_what_handlers_await_is_sent_on_the_connection_that_their_queues_share(make_queue: MakeQueue) -> None:
    queues = [make_queue(f"tenant{number}") for number in range(3)]
    queues[0].task(name="never")(lambda: None)
    queues[2].task(name="never")(lambda: None)
    other = queues[1]
    seen: list[int] = []

    def connections() -> int:
        return sum(one["name"] == "schedq-tenant1" for one in other.redis.client_list())

    @other.task
    async def looks() -> None:
        await other.queue.aio.stats()
        seen.append(connections())

    async def main() -> tuple[int, int]:
        await Worker([queue.queue for queue in queues], burst=True).run()
        left = await other.queue.aio.stats()  # the worker has closed what its queues shared
        return int(left["completed_total"]), connections()

    other.enqueue({"task": "looks"})
    of_the_test = connections()

    assert asyncio.run(main()) == (1, of_the_test + 1)
    assert seen == [of_the_test]
    until(lambda: connections() == of_the_test)


def test_requests_of_the_application_get_their_replies_when_a_worker_of_several_queues_stops(
    proxy: Proxy, make_queue: MakeQueue
) -> None:
    queues = [make_queue(url=proxy.url, retry_for=0) for _ in range(2)]
    for queue in queues:
        queue.task(name="later")(lambda: None)

    async def main() -> str:
        worker = Worker([queue.queue for queue in queues])
        work = asyncio.create_task(worker.run())
        while not (worker._queue_workers and all(each.fetcher.is_idle for each in worker._queue_workers)):
            await asyncio.sleep(0.01)
            assert not work.done()
        proxy.hold_reply("later")
        request = asyncio.create_task(queues[0].queue.aio.enqueue({"task": "later"}, delay=60))
        while not proxy.faults:
            await asyncio.sleep(0.01)
        worker.stop()
        asyncio.get_running_loop().call_later(0.1, proxy.let_go)
        await work
        job_id = str(await request)
        await queues[0].queue.aio.aclose()
        return job_id

    job_id = asyncio.run(main())

    assert queues[0].places() == {"delayed": [job_id]}


def test_a_busy_worker_of_many_queues_runs_a_job_of_an_earlier_one_next(make_queue: MakeQueue, crew: Crew) -> None:
    ran: list[str] = []
    queues = [make_queue(f"tenant{number}") for number in range(15)]
    first, last = queues[3], queues[-1]

    @first.task(name="note")
    async def urgent() -> None:
        ran.append("first")

    @last.task(name="note")
    async def note(number: int) -> None:
        ran.append("last")
        if number % 10 == 0:
            await first.queue.aio.enqueue({"task": "note"})
        await asyncio.sleep(2 * marker_check._REST_S)

    for queue in queues:
        if queue not in (first, last):
            queue.task(name="note")(lambda: None)
    last.enqueue_many([{"task": "note", "args": [number]} for number in range(100)])
    with first.server.requests() as requests:
        crew.start(*queues, concurrency=1, promotes=False)
        until(lambda: len(ran) == 110)

    assert ran == (["last", "first"] + ["last"] * 9) * 10
    assert len(asked(requests, queues[5], "claim")) < 10, "a queue without jobs is not asked after each job"


def test_a_server_that_is_frozen_keeps_no_slots_of_a_worker_of_many_queues(make_queue: MakeQueue, crew: Crew) -> None:
    ran: list[int] = []
    with Server() as other:
        queues = [*(make_queue(at=other) for _ in range(12)), make_queue()]
        last = queues[-1]
        for queue in queues:
            queue.task(name="note")(ran.append)
        post = crew.start(*queues, concurrency=1)
        until(lambda: all(each.fetcher.is_idle for each in post.worker._queue_workers))

        with frozen(other):
            last.enqueue_many([{"task": "note", "args": [number]} for number in range(50)])
            until(lambda: len(ran) == 50)
        post.end()
        assert not any(map(broken_laws, queues[:-1]))


def test_a_backlog_is_claimed_in_large_portions(queue: Handle, crew: Crew):
    held = [threading.Event() for _ in range(20)]

    @queue.task
    def hold(number: int) -> None:
        assert held[number].wait(120)

    hold.enqueue_many([((number,), {}) for number in range(20)])
    post = crew.start(queue, concurrency=8)
    fetcher = post.queue_worker.fetcher
    until(lambda: len(fetcher.in_flight.running) == 8 and not fetcher._claims)

    def turns() -> None:
        for _ in range(5):
            post.do(int)

    with frozen(queue.server):
        held[0].set()
        until(lambda: fetcher._claims == 1)
        held[1].set()
        until(lambda: len(fetcher.in_flight.running) == 6)
        turns()
        assert (fetcher._claims, len(fetcher.dispatcher.waiting)) == (1, 1)  # one slot waits for the reply
        held[2].set()
        until(lambda: fetcher._claims == 2)  # a quarter of the slots does not
        assert not fetcher.dispatcher.waiting
    for event in held:
        event.set()
    until(lambda: int(queue.redis.hget(queue.keys.stats, "completed_total") or 0) == 20)
