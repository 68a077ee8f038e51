"""Redis unavailable, slow or without its scripts; cut connections."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter

import pytest

from schedq import current_job
from schedq.background.reconnecting_client import ReconnectingClient
from schedq.transitions import scripts
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.proxy import Proxy
from tests.servers import Server
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate, Post, broken_laws, frozen, renew_every


class Load:
    """Jobs of a task that records each start."""

    def __init__(self, queue: Handle) -> None:
        self.starts: Counter[str] = Counter()
        self._queue = queue
        self._lock = threading.Lock()
        queue.task(name="along")(self._along)
        queue.task(name="plain")(self._note)

    def enqueue(self, count: int) -> list[str]:
        """Enqueue jobs, half of them plain and half async."""
        found: list[str] = self._queue.enqueue_many([{"task": "along"}, {"task": "plain"}] * (count // 2))
        return found

    def starts_of_completed(self, count: int) -> dict[str, int]:
        """Wait until this many jobs are completed, all in their first attempt; returns how often each has started."""
        stats = self._queue.keys.stats
        until(lambda: int(self._queue.redis.hget(stats, "completed_total") or 0) == count, within=60)
        completed = self._queue.places()["completed"]
        assert {self._queue.fields(job_id)["attempts"] for job_id in completed} == {"1"}
        return {job_id: self.starts[job_id] for job_id in {*completed, *self.starts}}

    def _note(self) -> None:
        with self._lock:
            self.starts[current_job().id] += 1

    async def _along(self) -> None:
        self._note()


def connections(queue: Handle) -> dict[str, list[int]]:
    """The ids of a worker's connections to the queue, by the command they sent last."""
    found: dict[str, list[int]] = {}
    for one in queue.redis.client_list():
        if one["name"].startswith(f"schedq-{queue.name}"):
            found.setdefault(one["cmd"], []).append(int(one["id"]))
    return found


def kill(queue: Handle, command: str) -> None:
    """Close the connections whose last command was this one."""
    for number in until(lambda: connections(queue).get(command)):
        queue.redis.client_kill_filter(_id=number)


def clients(post: Post) -> list[ReconnectingClient]:
    """The worker's clients of its first queue: each notices by itself that a server is gone."""
    return [post.queue_worker.client, post.queue_worker.background_client]


def until_noticed(post: Post) -> None:
    """Wait until the worker has noticed that the server is gone, on both of its event loops."""
    until(lambda: not any(client.is_connected for client in clients(post)))
    post.take_turns()  # the loops handle what happened to their other connections
    for _ in range(5):
        until(post.do(lambda: post.worker._background.run(asyncio.sleep(0))).done)


def until_at_rest(queue: Handle, post: Post) -> None:
    """Wait until the worker waits for a marker and listens for due jobs."""
    until(lambda: {"bzpopmin", "subscribe"} <= connections(queue).keys())
    until(lambda: not post.do(lambda: post.worker.capacity.is_any_ready))


def test_a_redis_that_was_frozen_for_longer_than_a_lease_costs_no_worker_a_job(
    make_queue: MakeQueue, crew: Crew, gate: Gate, logs: Logs
) -> None:
    queue = make_queue(visibility_ms=30_000)
    renew_every(2.5, queue)  # and reclaimers rest for a little longer when Redis is back

    @queue.task
    async def hold() -> int:
        await gate.passed()
        return current_job().attempts

    @queue.task
    def hold_plain() -> int:
        gate.wait()
        return current_job().attempts

    for _ in range(2):
        crew.start(queue, concurrency=3)
    jobs = [task.enqueue() for task in (hold, hold_plain) for _ in range(3)]
    gate.until_held(6)

    # Not shorter leases: after the freeze these end before a worker that is slow for a moment has renewed them.
    queue.redis.zadd(queue.keys.leases, dict.fromkeys((job.id for job in jobs), int(time.time() * 1000) + 3000))
    with frozen(queue.server):
        time.sleep(4)
    time.sleep(0.5)
    gate.open()

    assert [job.result(60) for job in jobs] == [1] * 6
    assert queue.stats()["reclaimed_total"] == 0
    assert not [line for line in logs() if "lost its lease" in line or "too late" in line]


def test_scripts_that_redis_has_forgotten_are_sent_again(queue: Handle, crew: Crew) -> None:
    load = Load(queue)
    crew.start(queue, concurrency=5)
    ids = []
    for _ in range(12):
        ids += load.enqueue(20)
        queue.redis.script_flush()

    assert load.starts_of_completed(len(ids)) == dict.fromkeys(ids, 1)


def test_connections_cut_under_load_cost_no_job_an_attempt(queue: Handle, crew: Crew) -> None:
    load = Load(queue)
    crew.start(queue, concurrency=5)
    ids = []
    for _ in range(12):
        ids += load.enqueue(20)
        for numbers in connections(queue).values():
            for number in numbers:
                queue.redis.client_kill_filter(_id=number)
        time.sleep(0.01)
    queue.pause()
    (suspect,) = queue.enqueue_many([{"task": "along"}])
    queue.redis.hset(queue.keys.job(suspect), "crashes", 2)
    queue.resume()

    ids.append(suspect)  # nor has a claim without a reply kept the right to hold a suspect
    assert load.starts_of_completed(len(ids)) == dict.fromkeys(ids, 1)


@pytest.mark.usefixtures("rare_looks")
@pytest.mark.parametrize("command", ["bzpopmin", "subscribe", "evalsha"])
def test_an_idle_worker_whose_connection_was_cut_starts_jobs_as_fast_as_before(
    queue: Handle, crew: Crew, command: str
) -> None:
    times: list[float] = []
    queue.task(name="note")(lambda: times.append(time.time()))
    until_at_rest(queue, crew.start(queue))

    kill(queue, command)
    began = time.time()
    queue.enqueue({"task": "note"})
    until(lambda: times)
    assert times[0] - began < 25
    until(lambda: "subscribe" in connections(queue))
    time.sleep(0.1)
    due = time.time() + 0.3
    queue.enqueue({"task": "note"}, delay=0.3)
    until(lambda: len(times) == 2)
    assert -0.02 < times[1] - due < 25  # Redis's clock counts milliseconds


def test_a_job_keeps_its_lease_when_the_renewals_connection_is_cut(queue: Handle, crew: Crew, gate: Gate) -> None:
    @queue.task
    async def hold() -> int:
        await gate.passed()
        return current_job().attempts

    crew.start(queue)
    job = hold.enqueue()
    first_end = until(lambda: queue.redis.zscore(queue.keys.leases, job.id))
    for end in (first_end, first_end + 500):
        until(lambda end=end: queue.redis.zscore(queue.keys.leases, job.id) > end)  # type: ignore[misc]
        kill(queue, "evalsha")
    until(lambda: queue.redis.zscore(queue.keys.leases, job.id) > first_end + 1000)
    gate.open()

    assert job.result(60) == 1


@pytest.mark.parametrize("move", ["claim", "settle"])
def test_a_lost_reply_costs_no_job_an_attempt(
    make_queue: MakeQueue, proxy: Proxy, crew: Crew, logs: Logs, move: str
) -> None:
    queue = make_queue(url=proxy.url)
    load = Load(queue)
    crew.start(queue, promotes=False)
    ids = load.enqueue(10)
    assert load.starts_of_completed(len(ids)) == dict.fromkeys(ids, 1)

    proxy.lose_reply(scripts.load(move).sha)
    ids += load.enqueue(10)

    assert load.starts_of_completed(len(ids)) == dict.fromkeys(ids, 1)
    assert proxy.faults == 1
    assert not [line for line in logs() if "too late" in line]


def test_jobs_of_a_lost_reply_are_released_when_their_slots_are_taken(
    make_queue: MakeQueue, proxy: Proxy, crew: Crew, gate: Gate
) -> None:
    first, second = make_queue(url=proxy.url), make_queue()
    load = Load(first)
    gate.task(second, in_thread=True)
    post = crew.start(first, second, concurrency=2, promotes=False)
    until(lambda: len(connections(first).get("bzpopmin", ())) == len(connections(second).get("bzpopmin", ())) == 1)
    until(lambda: not post.do(lambda: post.worker.capacity.is_any_ready))

    proxy.hold_reply(scripts.load("claim").sha)
    ids = load.enqueue(2)
    until(lambda: first.places() == {"processing": ids})
    proxy.hold_reply(scripts.load("recover").sha)
    proxy.cut()
    until(lambda: proxy.faults == 2)
    held = [second.enqueue({"task": "hold"}) for _ in range(2)]
    gate.until_held(2)
    proxy.let_go()

    until(lambda: first.places() == {"pending": ids})
    assert [first.fields(job_id)["released"] for job_id in ids] == ["1", "1"]
    gate.open()
    assert load.starts_of_completed(len(ids)) == dict.fromkeys(ids, 1)
    assert all(second.wait(job_id, 60) for job_id in held)


def test_an_outage_of_redis_is_logged_in_two_lines_its_start_and_its_end(
    make_queue: MakeQueue, crew: Crew, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In an outage of more than two seconds another reason is logged as well.
    monkeypatch.setattr("schedq.background.reconnecting_client._SETTLED_S", 60)
    with Server(appendonly=True) as server:
        queue = make_queue(at=server)
        load = Load(queue)
        post = crew.start(queue)
        until_at_rest(queue, post)
        server.kill()
        until(lambda: [line for line in logs() if ": lost" in line])
        until_noticed(post)
        server.start()
        ids = load.enqueue(10)
        until(lambda: set(load.starts) == set(ids), within=60)
        until(lambda: [line for line in logs() if "back after" in line])
        crew.end()
        assert broken_laws(queue) == {}

    lost, back = (line for line in logs() if line.startswith("WARNING"))
    assert f"{queue.address.label}: lost" in lost
    assert f"{queue.address.label}: back after" in back


def test_a_worker_whose_slots_fill_as_redis_comes_back_notices_that_it_is_back(
    make_queue: MakeQueue, crew: Crew, gate: Gate, logs: Logs
) -> None:
    queue = make_queue()
    gate.task(queue, in_thread=True)
    post = crew.start(queue, concurrency=1, promotes=False)
    until(lambda: connections(queue).get("bzpopmin"))
    until(lambda: not post.do(lambda: post.worker.capacity.is_any_ready))
    queue.pause()  # without a marker the worker finds the job in the check after its loss
    job_id = queue.enqueue({"task": "hold"})
    queue.redis.delete(queue.keys.paused)

    kill(queue, "bzpopmin")
    gate.until_held()
    assert queue.places() == {"processing": [job_id]}

    until(lambda: post.worker.health()[0].lost_for_s == 0)
    assert [line.partition(": lost")[1] or line.partition(": back")[1] for line in logs() if "WARNING" in line] == [
        ": lost",
        ": back",
    ]


def test_an_outage_of_one_server_does_not_stop_the_queues_of_another(
    make_queue: MakeQueue, crew: Crew, logs: Logs
) -> None:
    with Server() as server:
        first, second = make_queue(at=server), make_queue()
        loads = Load(first), Load(second)
        post = crew.start(first, second, concurrency=2)
        until_at_rest(second, post)
        until_at_rest(first, post)

        server.kill()
        until(lambda: [line for line in logs() if "lost" in line])
        ids = [job_id for _ in range(5) for job_id in loads[1].enqueue(20)]

        assert loads[1].starts_of_completed(len(ids)) == dict.fromkeys(ids, 1)
        server.start()
        ids = loads[0].enqueue(10)
        until(lambda: set(loads[0].starts) == set(ids), within=60)
        crew.end()
        assert broken_laws(first) == {}
