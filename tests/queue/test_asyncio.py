"""What can go wrong only with asyncio: loops, cancellation, many callers on one connection."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator

import pytest

from schedq import AsyncQueue, ClosedError, Queue
from schedq.transitions import scripts
from tests.proxy import Proxy
from tests.servers import Server
from tests.state import State


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server) as proxy:
        yield proxy


@pytest.fixture
def run(server: Server, proxy: Proxy) -> Iterator[Callable[[Callable[[AsyncQueue], Awaitable[None]]], None]]:
    """Runs a test's coroutine on an event loop of its own, with a queue whose requests go through the proxy."""
    name = f"asyncio-{uuid.uuid4().hex[:12]}"

    def run(body: Callable[[AsyncQueue], Awaitable[None]]) -> None:
        async def main() -> None:
            async with AsyncQueue(name, redis=proxy.url) as queue:
                await body(queue)

        asyncio.run(asyncio.wait_for(main(), 60))

    yield run
    with server.client() as client:
        keys = Queue(name).settings.keys
        state = State.of(client, keys)
        client.unlink(*[keys.prefix + key for key in state.keys] or ["none"])
    assert state.broken_laws() == {}


async def soon(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + 60
    while not await condition():
        assert time.monotonic() < until, "it is not so"
        await asyncio.sleep(0.005)


# -- cancellation


def test_a_cancelled_claim_releases_its_jobs(run: Callable, proxy: Proxy, server: Server):
    async def body(queue: AsyncQueue) -> None:
        first, second = await queue.enqueue_many([1, 2])
        await queue.stats()
        with server.client() as client:
            client.script_load(scripts.load("claim").source)
            proxy.hold_reply(scripts.load("claim").sha)
            claim = asyncio.create_task(queue.claim(5000))
            await asyncio.sleep(0)
            while not client.llen(queue.settings.keys.processing):
                await asyncio.sleep(0.005)  # Redis has handed out the job, but the caller does not know it yet
            claim.cancel()
            with pytest.raises(asyncio.CancelledError):
                await claim
            proxy.let_go()
            while client.llen(queue.settings.keys.processing):
                await asyncio.sleep(0.005)
        assert [job.id for job in await queue.list_pending()] == [first, second]
        assert (await queue.get_job(first)).attempts == 0

    run(body)


def test_a_cancelled_claim_that_waits_leaves_the_next_job_to_others(run: Callable):
    async def body(queue: AsyncQueue) -> None:
        waiting = [asyncio.create_task(queue.claim(60_000)) for _ in range(5)]
        await asyncio.sleep(0.1)
        for claim in waiting[:4]:
            claim.cancel()
        job_id = await queue.enqueue(1)

        began = time.monotonic()
        assert (await waiting[4]).id == job_id
        assert time.monotonic() - began < 30
        for claim in waiting[:4]:
            with pytest.raises(asyncio.CancelledError):
                await claim

    run(body)


def test_claims_that_are_cancelled_at_any_moment_lose_no_job(run: Callable):
    """A timeout around a claim, at every stage of the claim."""

    async def body(queue: AsyncQueue) -> None:
        ids = await queue.enqueue_many(range(60))
        taken = []
        for n in range(60):
            try:
                job = await asyncio.wait_for(queue.claim(0), n % 30 / 10_000)
            except TimeoutError:
                continue
            taken.append(job)
        while queue._client.connections()._background:
            await asyncio.sleep(0.005)
        for job in taken:
            assert job is not None and await queue.complete(job)
        left = [job.id for job in await queue.list_pending()]
        done = [job.id for job in await queue.list_completed()]
        assert sorted(left + done) == ids
        assert await queue.list_processing() == []

    run(body)


def test_a_cancelled_call_does_not_hand_its_reply_to_another(run: Callable, proxy: Proxy):
    async def body(queue: AsyncQueue) -> None:
        a, b = await queue.enqueue_many(["a", "b"])
        proxy.hold_reply("HGETALL")
        lost = asyncio.create_task(queue.get_job(a))
        await asyncio.sleep(0.05)
        lost.cancel()
        kept = asyncio.create_task(queue.get_job(b))
        await asyncio.sleep(0.05)
        proxy.let_go()

        assert (await kept).payload == "b"
        assert (await queue.get_job(a)).payload == "a"

    run(body)


# -- many callers


def test_many_callers_share_one_connection_and_each_gets_its_own_reply(run: Callable, server: Server):
    async def body(queue: AsyncQueue) -> None:
        ids = await asyncio.gather(*[queue.enqueue(n) for n in range(300)])
        records = await asyncio.gather(*[queue.get_job(job_id) for job_id in ids])

        assert [record.payload for record in records] == list(range(300))
        with server.client() as client:
            names = [entry["name"] for entry in client.client_list()]
        assert names.count(f"schedq-{queue.name}") == 1

    run(body)


def test_the_first_calls_of_many_callers_share_one_attempt_to_connect(run: Callable, server: Server):
    async def body(queue: AsyncQueue) -> None:
        with server.requests() as sent:
            await asyncio.gather(*[queue.stats() for _ in range(50)])

        assert len([request for request in sent if request.name == "INFO"]) == 1

    run(body)


def test_a_cut_wire_is_made_good_for_all_callers_at_once(run: Callable, proxy: Proxy):
    async def body(queue: AsyncQueue) -> None:
        await queue.stats()
        calls = [asyncio.create_task(queue.enqueue(n)) for n in range(100)]
        await asyncio.sleep(0)
        proxy.cut()

        ids = await asyncio.gather(*calls)

        assert sorted(job.id for job in await queue.list_pending()) == sorted(ids)

    run(body)


def test_claims_wait_side_by_side_with_everything_else(run: Callable):
    async def body(queue: AsyncQueue) -> None:
        waiting = [asyncio.create_task(queue.claim(60_000)) for _ in range(20)]
        await asyncio.sleep(0.1)
        began = time.monotonic()
        await queue.stats()
        assert time.monotonic() - began < 30

        ids = await queue.enqueue_many(range(20))
        jobs = await asyncio.gather(*waiting)
        assert sorted(job.id for job in jobs) == ids
        assert all(await asyncio.gather(*[queue.complete(job) for job in jobs if job is not None]))

    run(body)


# -- closing


@pytest.mark.parametrize("verb", ["claim", "wait", "events"])
def test_what_waits_while_the_queue_is_closed_ends_soon_and_leaves_nothing(server: Server, verb: str):
    name = f"closing-{verb}"

    async def main() -> None:
        queue = AsyncQueue(name, redis=server.unix_url)
        job_id = await queue.enqueue(1, delay=60)
        await queue.claim(20)
        waiting = asyncio.ensure_future(
            {
                "claim": lambda: queue.claim(60_000),
                "wait": lambda: queue.wait(job_id),
                "events": lambda: anext(queue.events()),
            }[verb]()
        )
        await asyncio.sleep(0.1)
        await queue.aclose()
        with pytest.raises(ClosedError):
            await asyncio.wait_for(waiting, 30)
        assert len(asyncio.all_tasks()) == 1
        with server.client() as client:

            async def is_gone() -> bool:
                return f"schedq-{name}" not in [entry["name"] for entry in client.client_list()]

            await soon(is_gone)
            client.unlink(*client.keys(queue.settings.keys.prefix + "*"))

    asyncio.run(main())


@pytest.mark.parametrize("verb", ["claim", "wait", "events"])
def test_what_has_just_begun_to_wait_when_the_queue_is_closed_leaves_nothing(server: Server, verb: str):
    """The close meets the wait in each turn of the loop, while it connects, asks for the first time and subscribes."""

    async def closed_after(turns: int) -> None:
        queue = AsyncQueue(f"closing-at-once-{verb}", redis=server.unix_url)
        job_id = await queue.enqueue(1, delay=60)
        waiting = asyncio.ensure_future(
            {
                "claim": lambda: queue.claim(60_000),
                "wait": lambda: queue.wait(job_id),
                "events": lambda: anext(queue.events()),
            }[verb]()
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        await queue.aclose()
        with pytest.raises(ClosedError):
            await asyncio.wait_for(waiting, 30)
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == [], turns
        await queue.purge()
        await queue.aclose()

    for turns in range(1, 25):
        asyncio.run(closed_after(turns))


def test_the_asyncio_counterpart_of_a_queue_has_its_settings(server: Server):
    queue = Queue("twins", redis=server.unix_url, visibility_ms=7000)

    async def main() -> None:
        twin = queue.aio
        assert twin.settings is queue.settings
        assert twin is queue.aio
        job_id = await twin.enqueue(1)
        assert queue.get_job(job_id).payload == 1
        await twin.purge()
        await twin.aclose()

    asyncio.run(main())
    queue.close()
