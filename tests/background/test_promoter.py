"""The promoter: which one promotes, and when it wakes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from schedq import NewJob, Rate
from schedq.background.promoter import Promoter
from schedq.background.reconnecting_client import Availability, ReconnectingClient
from schedq.transitions import Operation, heartbeat, promote
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.waiting import until
from tests.worker.crew import Crew, Post, asked, beat_every

T = TypeVar("T")


@pytest.fixture
def times(queue: Handle) -> list[float]:
    """The times at which jobs of the task `note` ran."""
    found: list[float] = []
    queue.task(name="note")(lambda: found.append(time.time()))
    return found


def holds(queue: Handle, post: Post) -> bool:
    """Whether this worker's promoter is the leader."""
    queue_workers = post.worker._queue_workers  # it has none just after its start
    promoter = queue_workers[0].promoter if queue_workers else None
    return promoter is not None and bool(queue.redis.get(queue.keys.promoter) == promoter.id)


def listening(queue: Handle) -> int:
    """How many promoters listen for due jobs."""
    return sum(one["name"] == f"schedq-{queue.name}-due" for one in queue.redis.client_list())


def foreign_job(queue: Handle, job_id: str) -> None:
    """Store a job as another program does, in no state yet."""
    queue.redis.hset(queue.keys.job(job_id), mapping={"id": job_id, "payload": '{"task":"note"}'})
    queue.redis.hincrby(queue.keys.stats, "enqueued_total", 1)


def test_an_earlier_job_ends_the_sleep(queue: Handle, crew: Crew, times: list[float]) -> None:
    post = crew.start(queue)
    until(lambda: holds(queue, post))
    began = time.time()
    for delay in (30, 0.8, 0.5, 0.3):
        queue.enqueue({"task": "note"}, delay=delay)

    until(lambda: len(times) == 3)

    for ran, delay in zip(sorted(times), (0.3, 0.5, 0.8), strict=True):
        assert delay - 0.02 < ran - began < delay + 5


@pytest.mark.usefixtures("rare_looks")
@pytest.mark.parametrize("earliest", [0, 200, 449])
def test_the_earliest_of_many_jobs_ends_the_sleep_wherever_it_is_in_the_list(
    queue: Handle, crew: Crew, times: list[float], earliest: int
) -> None:
    post = crew.start(queue)
    until(lambda: holds(queue, post))

    delays = [0.2 if n == earliest else 60 for n in range(450)]
    queue.enqueue_many([NewJob({"task": "note"}, delay=delay) for delay in delays])
    began = time.time()

    until(lambda: times)
    assert times[0] - began < 9


def test_a_foreign_job_that_comes_with_the_wake_marker_ends_the_sleep(
    queue: Handle, crew: Crew, times: list[float]
) -> None:
    post = crew.start(queue)
    until(lambda: holds(queue, post))

    late = [late_s(queue, times, f"theirs-{number}") for number in range(4)]

    assert all(-0.02 < seconds < 5 for seconds in late), late


def late_s(queue: Handle, times: list[float], job_id: str) -> float:
    """By how many seconds a job ran late that another program scheduled, setting the wake marker."""
    ran, due = len(times), time.time() + 0.1
    foreign_job(queue, job_id)
    queue.redis.zadd(queue.keys.delayed, {job_id: int(due * 1000)})
    queue.redis.zadd(queue.keys.wake, {"1": 0})
    until(lambda: len(times) > ran)
    return times[-1] - due


def test_a_job_announced_during_a_check_is_not_missed(make_queue: MakeQueue) -> None:
    queue = make_queue()
    second_ms = 0

    class Late(ReconnectingClient):
        """Stores and announces a job just before it returns a reply that does not include it."""

        async def ask(self, operation: Operation[T]) -> T:
            nonlocal second_ms
            answer = await super().ask(operation)
            if isinstance(answer, promote.Promotion) and answer.moved and not second_ms:
                second_ms = answer.now_ms + 200
                foreign_job(queue, "second")
                queue.redis.zadd(queue.keys.delayed, {"second": second_ms})
                promoter._hear(str(second_ms))
            return answer

    async def main() -> None:
        task = asyncio.create_task(promoter.run())
        while not queue.redis.exists(queue.keys.samples):  # from then on each check is a request of its own
            await asyncio.sleep(0.01)
        queue.enqueue({}, delay=0.3)
        while len(queue.places().get("pending", ())) < 2:
            await asyncio.sleep(0.01)
        late_ms.append(time.time() * 1000 - second_ms)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await link.aclose()

    late_ms: list[float] = []
    link = Late(queue.queue, Availability("here"))
    promoter = Promoter(queue.queue, link)
    asyncio.run(asyncio.wait_for(main(), 60))

    assert 0 <= late_ms[0] < 5000


def test_a_job_that_another_program_scheduled_is_noticed_within_a_second(
    queue: Handle, crew: Crew, times: list[float]
) -> None:
    post = crew.start(queue)
    until(lambda: holds(queue, post))
    foreign_job(queue, "theirs")
    came = time.time()
    queue.redis.zadd(queue.keys.delayed, {"theirs": int(came * 1000)})

    until(lambda: times)
    assert times[0] - came < 5  # an idle worker blocks for ten seconds


def test_a_job_that_another_program_pushed_is_noticed_within_a_second(
    queue: Handle, crew: Crew, times: list[float]
) -> None:
    post = crew.start(queue)
    until(lambda: holds(queue, post))
    foreign_job(queue, "theirs")
    came = time.time()
    queue.redis.lpush(queue.keys.pending, "theirs")

    until(lambda: times)
    assert times[0] - came < 5  # an idle worker blocks for ten seconds


def test_only_one_of_several_promoters_promotes(
    queue: Handle, crew: Crew, times: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedq.transitions.promote.PROMOTER_LEASE_MS", 60_000)  # it outlasts pauses of the machine
    monkeypatch.setattr("schedq.background.promoter._LONG_WAIT_S", 120)  # although no promoter rests
    posts = [crew.start(queue) for _ in range(3)]
    until(lambda: any(holds(queue, post) for post in posts))
    first = [holds(queue, post) for post in posts]
    until(lambda: listening(queue))
    time.sleep(1.2)

    assert [holds(queue, post) for post in posts] == first
    assert listening(queue) == 1


def test_another_promoter_takes_over_when_the_leader_has_vanished(
    queue: Handle, crew: Crew, times: list[float]
) -> None:
    queue.redis.set(queue.keys.promoter, "vanished", px=600)
    post = crew.start(queue)
    queue.enqueue({"task": "note"}, delay=0.1)

    until(lambda: times)
    assert holds(queue, post)
    assert queue.stats()["promoted_total"] == 1


@pytest.mark.usefixtures("long_goodbyes")
def test_another_promoter_takes_over_when_the_leader_stops_gracefully(
    queue: Handle, crew: Crew, times: list[float]
) -> None:
    first = crew.start(queue)
    until(lambda: holds(queue, first))
    second = crew.start(queue)
    until(lambda: queue.redis.zcard(queue.keys.workers) == 2)

    first.stop()
    first.join()

    assert not holds(queue, first)
    until(lambda: holds(queue, second))


@pytest.fixture
def long_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promoter leases of a minute; a lease that ends even later than that is ignored."""
    monkeypatch.setattr(promote, "PROMOTER_LEASE_MS", 60_000)


@pytest.mark.usefixtures("long_leases")
def test_a_leader_that_lost_its_lease_stands_by(
    queue: Handle, crew: Crew, times: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedq.background.promoter._LONG_WAIT_S", 120)
    post = crew.start(queue)
    until(lambda: holds(queue, post))
    promoter: Any = post.queue_worker.promoter
    until(lambda: promoter.is_leader)

    queue.redis.set(queue.keys.promoter, "another", px=60_000)

    until(lambda: not promoter.is_leader)
    assert queue.redis.get(queue.keys.promoter) == "another"
    until(lambda: not listening(queue))


@pytest.mark.usefixtures("long_leases")
def test_a_worker_notified_of_a_vacancy_takes_it_at_once(
    queue: Handle, crew: Crew, times: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = int(time.time() * 1000)
    places = {"first": "a", "first_until_ms": now_ms + 3500, "second": "b", "second_until_ms": now_ms + 3500}
    queue.redis.set(queue.keys.promoter, "another", px=60_000)
    queue.redis.hset(queue.keys.standbys, mapping=places)
    queue.redis.pexpire(queue.keys.standbys, 60_000)
    beat_every(0.05, monkeypatch)
    post = crew.start(queue)
    promoter: Any = post.queue_worker.promoter
    until(lambda: promoter.part is promote.Part.RESERVE)  # without a notification it would check in ten seconds

    queue.redis.hdel(queue.keys.standbys, "first", "second")
    until(lambda: promoter.part is promote.Part.FIRST, within=9)
    queue.redis.delete(queue.keys.promoter)
    left_at = time.monotonic()
    until(lambda: holds(queue, post))
    assert time.monotonic() - left_at < 9


def test_when_all_active_promoters_vanish_at_once_a_reserve_takes_over(
    queue: Handle, crew: Crew, times: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    beat_every(0.05, monkeypatch)
    posts = [crew.start(queue) for _ in range(4)]
    promoters: list[Any] = [post.queue_worker.promoter for post in posts]
    parts = until(lambda: now if sorted(now := [each.part for each in promoters]) == [1, 2, 3, 4] else [])
    reserve = posts[parts.index(promote.Part.RESERVE)]
    began = time.monotonic()

    for post in posts:
        if post is not reserve:
            post.stop()

    until(lambda: holds(queue, reserve))
    assert time.monotonic() - began < 25  # by itself it would look half a minute after the last heartbeat


def test_a_worker_without_a_promoter_never_promotes(queue: Handle, crew: Crew, times: list[float]) -> None:
    with queue.server.requests() as requests:
        crew.start(queue, promotes=False)
        queue.result(queue.enqueue({"task": "note"}), 60)

    assert not asked(requests, queue, "promote")
    assert asked(requests, queue, "claim")


@pytest.mark.usefixtures("rare_looks")
def test_many_due_jobs_are_promoted_in_batches(queue: Handle) -> None:
    async def main() -> None:
        task = asyncio.create_task(promoter.run())
        while "delayed" in queue.places():
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await link.aclose()

    queue.enqueue_many([{}] * 1000, delay=0.2)
    link = ReconnectingClient(queue.queue, Availability("here"))
    promoter = Promoter(queue.queue, link)
    began = time.monotonic()
    asyncio.run(asyncio.wait_for(main(), 20))

    assert len(queue.places()["pending"]) == 1000
    assert time.monotonic() - began < 40


class Resting:
    """A promoter that rests after a tenth of a second without work."""

    def __init__(self, queue: Handle, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("schedq.background.promoter._UNUSED_S", 0.1)
        self._queue = queue
        self.late_s: list[float] = []

    async def run(self, act: Callable[[], float]) -> None:
        """Wait until it rests, act, and record how late after the returned instant the job was promoted."""
        link = ReconnectingClient(self._queue.queue, Availability("here"))
        task = asyncio.create_task(Promoter(self._queue.queue, link, rest_s=50).run())
        await asyncio.to_thread(until, lambda: self._queue.redis.exists(self._queue.keys.asleep))
        due = act()
        await asyncio.to_thread(until, lambda: self._queue.redis.zscore(self._queue.keys.wake, "1") is not None)
        self.late_s.append(time.time() - due)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await link.aclose()


def test_a_job_that_becomes_due_while_the_promoter_rests_is_on_time(
    queue: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def schedule() -> float:
        queue.enqueue(1, delay=0.3)
        return time.time() + 0.3

    resting = Resting(queue, monkeypatch)
    asyncio.run(asyncio.wait_for(resting.run(schedule), 60))

    assert -0.02 < resting.late_s[0] < 5


def test_a_job_whose_rate_allows_it_while_the_promoter_rests_is_on_time(
    queue: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.gates.set("api", rate=Rate(1, per=4))
    queue.enqueue_many([1, 2], gate="api")
    first = queue.claim(0)
    queue.complete(first, "done")
    queue.redis.delete(queue.keys.wake)  # an idle worker has taken it
    resting = Resting(queue, monkeypatch)
    asyncio.run(asyncio.wait_for(resting.run(lambda: first.claimed_at_ms / 1000 + 4), 60))

    assert -0.02 < resting.late_s[0] < 5


def test_a_worker_that_dies_with_the_marker_is_noticed_within_a_second_although_the_promoter_rests(
    queue: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take_the_marker() -> float:
        queue.enqueue(1)
        queue.redis.zpopmin(queue.keys.wake)
        return time.time()

    resting = Resting(queue, monkeypatch)
    asyncio.run(asyncio.wait_for(resting.run(take_the_marker), 60))

    assert resting.late_s[0] < 5


def test_when_a_promoter_that_rests_leaves_the_next_one_takes_over_at_once(
    queue: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedq.background.promoter._UNUSED_S", 0.1)

    def left_s() -> float:
        """For how long the promoter lease is valid."""
        return float(queue.redis.pttl(queue.keys.promoter)) / 1000

    async def main() -> None:
        links = [ReconnectingClient(queue.queue, Availability("here")) for _ in range(3)]
        promoters = {Promoter(queue.queue, link, rest_s=50): link for link in links}
        tasks = {}
        for promoter in promoters:
            tasks[promoter] = asyncio.create_task(promoter.run())
            await promoter.has_looked.wait()
        while promoters:
            await asyncio.to_thread(until, lambda: left_s() > 20 and listening(queue) == len(promoters))
            holder = queue.redis.get(queue.keys.promoter)
            (leader,) = (promoter for promoter in promoters if promoter.id == holder)
            link = promoters.pop(leader)
            tasks[leader].cancel()
            await asyncio.gather(tasks[leader], return_exceptions=True)
            rest_s, left_at = left_s(), time.monotonic()
            await link.ask(heartbeat.leave(queue.settings, leader.id, leader.id))
            await asyncio.to_thread(until, lambda: not promoters or any(it.is_leader for it in promoters))
            assert time.monotonic() - left_at < rest_s - 10, "long before the rest would have ended"
            await link.aclose()

    asyncio.run(asyncio.wait_for(main(), 120))
