"""One queue object and many event loops: one after the other, in parallel threads, ended in every way."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import unittest
import uuid
import warnings
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

import anyio
import pytest
import trustme
from asgiref.sync import async_to_sync
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from schedq import AsyncQueue, ClosedError, Queue, UsageError
from schedq.connection.address import Address
from schedq.connection.redis_internals import abandon
from schedq.transitions import scripts
from schedq.worker import Worker
from schedq.worker.process import run_worker
from tests.connection.tls import Front
from tests.proxy import Proxy
from tests.servers import Server
from tests.state import State
from tests.waiting import until

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # belongs to the HTTP client that it uses
    from starlette.testclient import TestClient

NewLoop = Callable[[], asyncio.AbstractEventLoop]
KINDS: dict[str, NewLoop] = {"asyncio": asyncio.new_event_loop}
with suppress(ImportError):
    KINDS["uvloop"] = importlib.import_module("uvloop").new_event_loop


def fds() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


@pytest.fixture(autouse=True)
def nothing_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """No open descriptor, no warning from the garbage collector, no error logged by asyncio."""
    for new_loop in KINDS.values():  # the first loop of a process opens descriptors that its library keeps
        new_loop().close()
    gc.collect()
    before = fds()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield
        gc.collect()
        after = fds()
    assert [str(warning.message) for warning in said if warning.category is ResourceWarning] == []
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []
    assert after <= before


@pytest.fixture
def queue(server: Server) -> Iterator[Queue]:
    queue = Queue(f"loops-{uuid.uuid4().hex[:12]}", redis=server.unix_url)
    queue.task(name="double")(double)
    yield queue
    queue.close()
    with server.client() as client:
        state = State.of(client, queue.settings.keys)
        client.unlink(*[queue.settings.keys.prefix + key for key in state.keys] or ["none"])
    assert state.broken_laws() == {}


@pytest.fixture(params=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> NewLoop:
    """Makes an event loop of either kind."""
    if request.param not in KINDS:
        pytest.skip(f"{request.param} is not installed")
    return KINDS[request.param]


def double(number: int) -> int:
    return 2 * number


def connections(queue: Queue, server: Server) -> int:
    """How many connections this queue's asyncio client has; the blocking one is closed."""
    with server.client() as client:
        return [entry["name"] for entry in client.client_list()].count(f"schedq-{queue.name}")


def left_open(queue: Queue, server: Server) -> int:
    """How many connections stay open; those that were closed, the server notices in a while."""
    ends_at = time.monotonic() + 60
    while (count := connections(queue, server)) and time.monotonic() < ends_at:
        time.sleep(0.005)
    return count


async def use_everything(queue: Queue) -> object:
    """Each kind of request, of wait and of connection; returns the double of 1."""
    task = queue.registry.find({"task": "double", "args": [1]})
    assert task.handler.name == "double"
    job_id = await queue.aio.enqueue({"task": "double", "args": [1]})
    claimed = await queue.aio.claim(1000)
    assert claimed is not None and claimed.id == job_id
    handle = queue.job(job_id)
    waiting = asyncio.create_task(handle.aresult(60))
    assert await handle.astatus() == "processing"
    assert await queue.aio.complete(claimed, 2)
    assert await queue.aio.claim(20) is None
    assert await queue.aio.schedules.list() == []
    assert (await queue.aio.inspector.find("completed")).jobs[0].id == job_id
    return await waiting


# -- one after the other


def test_each_asyncio_run_can_use_the_same_queue(queue: Queue, server: Server, new_loop: NewLoop):
    for _ in range(3):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            assert runner.run(use_everything(queue)) == 2
    assert left_open(queue, server) == 0


def test_an_asyncqueue_and_its_tasks_can_be_used_by_loop_after_loop(server: Server, queue: Queue):
    aqueue = AsyncQueue(queue.name, redis=server.unix_url)
    task = aqueue.task(double)
    schedules, inspector = aqueue.schedules, aqueue.inspector

    async def main(number: int) -> int:
        job = await task.aenqueue(number)
        await task.aenqueue_many([((number,), {})])
        assert await schedules.list() == []
        return len((await inspector.find("pending")).jobs) + (await job.arecord()).attempts

    assert [asyncio.run(main(n)) for n in range(3)] == [2, 4, 6]
    assert left_open(queue, server) == 0


def test_two_hundred_loops_leave_nothing_behind(queue: Queue, server: Server, new_loop: NewLoop):
    before, loops = fds(), WeakSet[asyncio.AbstractEventLoop]()
    for number in range(200):
        loop = new_loop()
        loops.add(loop)
        loop.run_until_complete(queue.aio.enqueue(number))
        loop.close()
        assert fds() <= before + 3

    assert queue.stats()["pending_depth"] == 200
    queue.close()
    assert left_open(queue, server) == 0
    gc.collect()
    assert len(loops) <= 1


def test_async_to_sync_can_be_called_again_and_again(queue: Queue):
    enqueue = async_to_sync(queue.aio.enqueue)
    ids = [enqueue(number) for number in range(3)]

    async def within_a_loop() -> str:
        return await asyncio.to_thread(enqueue, 3)

    ids.append(asyncio.run(within_a_loop()))
    assert [job.id for job in queue.list_pending()] == ids


def test_each_starlette_test_client_can_use_the_same_queue(queue: Queue):
    async def order(_: Request) -> PlainTextResponse:
        return PlainTextResponse(await queue.aio.enqueue("order"))

    application = Starlette(routes=[Route("/", order)])
    ids = []
    for _ in range(3):
        with TestClient(application) as client:
            ids += [client.get("/").text, client.get("/").text]
    ids.append(TestClient(application).get("/").text)
    assert [job.id for job in queue.list_pending()] == ids


def test_each_isolated_test_case_can_use_the_same_queue(queue: Queue):
    class Case(unittest.IsolatedAsyncioTestCase):
        async def asyncSetUp(self) -> None:
            await queue.aio.enqueue("set up")

        async def test_one(self) -> None:
            await queue.aio.enqueue("one")

        async def test_two(self) -> None:
            await queue.aio.enqueue("two")

    outcome = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Case).run(outcome)

    assert (outcome.testsRun, outcome.errors, outcome.failures) == (2, [], [])
    assert queue.stats()["pending_depth"] == 4


def test_each_anyio_run_can_use_the_same_queue(queue: Queue):
    for _ in range(2):
        assert anyio.run(use_everything, queue) == 2


@pytest.fixture(scope="module")
def shared(server: Server) -> Iterator[AsyncQueue]:
    """A queue as in an application: one for all tests, while the plugin makes an event loop for each."""
    queue = AsyncQueue(f"loops-{uuid.uuid4().hex[:12]}", redis=server.unix_url)
    yield queue
    asyncio.run(queue.purge())
    with server.client() as client:
        client.unlink(*client.keys(queue.settings.keys.prefix + "*"))


@pytest.fixture
def anyio_backend() -> str:
    """The only connection of this server."""
    return "asyncio"


@pytest.mark.anyio
@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_each_test_of_anyios_plugin_can_use_the_same_queue(shared: AsyncQueue, nth: int):
    job_id = await shared.enqueue(nth)
    claimed = await shared.claim()
    assert claimed is not None and claimed.id == job_id and await shared.complete(claimed)


def test_without_asyncio_it_says_what_to_call(queue: Queue):
    """As under trio, whose coroutines look the same to Python."""
    for call in (queue.aio.stats, queue.aio.claim, queue.aio.aclose, lambda: queue.aio.wait("a")):
        with pytest.raises(UsageError, match="asyncio"):
            call().send(None)


def test_workers_of_one_queue_run_one_after_the_other(queue: Queue):
    @queue.task
    async def doubled_later(number: int) -> str:
        return (await queue.aio.enqueue({"task": "double", "args": [number]}, delay=0)) and "asked"

    for number in range(3):
        job = doubled_later.enqueue(number)
        asyncio.run(run_worker(Worker([queue], burst=True)))
        assert job.result(0) == "asked"
    assert queue.stats()["completed_total"] == 6


# -- side by side


def test_loops_in_many_threads_use_the_same_queue_at_once(queue: Queue, server: Server):
    """Several at once, each for a while; closing one does not affect the others."""
    failed: list[BaseException] = []

    async def main(number: int) -> None:
        for round_ in range(10):
            ids = await asyncio.gather(*[queue.aio.enqueue([number, round_, n]) for n in range(10)])
            assert [(await queue.aio.get_job(job_id)).payload for job_id in ids[:2]] == [
                [number, round_, 0],
                [number, round_, 1],
            ]
            if round_ % 3 == number % 3:
                await queue.aio.aclose()

    def run(number: int) -> None:
        try:
            asyncio.run(main(number))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert queue.stats()["pending_depth"] == 800
    queue.close()
    assert left_open(queue, server) == 0


def test_what_one_loop_closes_stays_open_for_another(queue: Queue):
    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(queue.aio.stats())
        second.run(queue.aio.stats())
        waiting = second.get_loop().create_task(queue.aio.claim(5000))
        second.run(asyncio.sleep(0.05))

        first.run(queue.aio.aclose())
        job_id = queue.enqueue(1)

        async def claimed() -> Any:
            return await waiting

        assert second.run(claimed()).id == job_id
        assert first.run(queue.aio.stats())["processing_depth"] == 1


def test_a_wait_can_not_continue_in_another_loop(queue: Queue):
    events = queue.aio.events()
    with asyncio.Runner() as first, asyncio.Runner() as second:

        async def begin() -> None:
            waiting = asyncio.ensure_future(anext(events))
            while not waiting.done():  # an event before it listens is not heard
                await queue.aio.enqueue(1)
                claimed = await queue.aio.claim(1000)
                assert claimed is not None and await queue.aio.complete(claimed)
                await asyncio.wait([waiting], timeout=0.02)
            assert waiting.result()["status"]

        first.run(begin())
        with pytest.raises((ClosedError, RuntimeError), match="event loop"):
            second.run(anext(events))
        second.run(queue.aio.stats())
        first.run(queue.aio.stats())


# -- closing


def test_a_queue_that_was_closed_opens_again(queue: Queue, server: Server):
    async def main() -> None:
        aqueue = AsyncQueue(queue.name, redis=server.unix_url)
        for _ in range(2):
            async with aqueue:
                assert await use_everything(queue) == 2
                await aqueue.stats()
            await aqueue.aclose()
            await queue.aio.aclose()
            while connections(queue, server):
                await asyncio.sleep(0.005)
            assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_a_request_in_progress_is_sent_again_when_the_queue_is_closed(queue: Queue, server: Server):
    """Even one that has yet to connect, because its caller closed nothing."""

    async def main() -> None:
        with Proxy(server) as proxy:
            aqueue = AsyncQueue(queue.name, redis=proxy.url)
            for _ in range(2):
                calls = [asyncio.create_task(aqueue.enqueue(n)) for n in range(5)]
                await asyncio.sleep(0)
                await aqueue.aclose()
                await asyncio.gather(*calls)
            await aqueue.aclose()

    asyncio.run(main())
    assert queue.stats()["pending_depth"] == 10


def test_a_dropped_queue_is_closed_while_its_loop_keeps_running(queue: Queue, server: Server):
    async def main() -> None:
        for _ in range(20):
            await AsyncQueue(queue.name, redis=server.unix_url).stats()
        gc.collect()
        assert await asyncio.to_thread(left_open, queue, server) == 0

    asyncio.run(main())


# -- loops that end


async def claim(queue: Queue) -> None:
    await queue.aio.claim(60_000)


async def wait(queue: Queue) -> None:
    await queue.aio.wait(await queue.aio.enqueue(1, delay=60))


async def listen(queue: Queue) -> None:
    async for _ in queue.aio.events():
        pass


async def leave_a_claim_behind(queue: Queue) -> None:
    claim = asyncio.ensure_future(queue.aio.claim(60_000))
    await asyncio.sleep(0.02)
    claim.cancel()


async def ask_for_ever(queue: Queue) -> None:
    while True:
        await asyncio.gather(*[queue.aio.stats() for _ in range(10)])


async def ask_for_confirmation(queue: Queue) -> None:
    while True:
        await asyncio.gather(*[queue.aio.enqueue(n, durability="fsync") for n in range(3)], return_exceptions=True)


WORK: dict[str, Callable[[Queue], Coroutine[Any, Any, None]]] = {
    each.__name__: each for each in (claim, wait, listen, leave_a_claim_behind, ask_for_ever, ask_for_confirmation)
}


@pytest.mark.parametrize("work", WORK)
def test_a_loop_that_is_ended_in_the_middle_leaves_nothing(queue: Queue, server: Server, new_loop: NewLoop, work: str):
    """As with Ctrl-C: `asyncio.run` cancels everything that runs, at any moment, even while connecting."""

    async def main(seconds: float) -> None:
        task = asyncio.ensure_future(WORK[work](queue))
        await asyncio.sleep(seconds)
        del task

    for seconds in (0, 0.0003, 0.001, 0.002, 0.004, 0.05):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(main(seconds))
    assert left_open(queue, server) == 0


@pytest.mark.parametrize("turns", range(8))
@pytest.mark.parametrize("what", ["events", "result"])
def test_a_cancellation_that_meets_a_message_is_not_lost(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, what: str, turns: int
):
    """On Python 3.11, `asyncio.wait_for` drops a cancellation that arrives together with what is waited for."""

    async def listen() -> None:
        if what == "events":
            await anext(queue.aio.events())
        else:
            await queue.aio.result(await queue.aio.enqueue(1, delay=60))

    async def main() -> None:
        task = asyncio.ensure_future(listen())

        class Messages(asyncio.Queue[str]):
            def put_nowait(self, item: str) -> None:
                super().put_nowait(item)
                cancel_after(turns)

        def cancel_after(left: int) -> None:
            asyncio.get_running_loop().call_soon(*((cancel_after, left - 1) if left else (task.cancel,)))

        monkeypatch.setattr(asyncio, "Queue", Messages)
        await asyncio.wait([task], timeout=20)
        assert task.cancelled()

    asyncio.run(main())


@pytest.mark.parametrize("work", WORK)
def test_a_loop_that_is_only_closed_leaves_nothing_of_ours(
    queue: Queue, server: Server, new_loop: NewLoop, work: str, caplog: pytest.LogCaptureFixture
):
    """Nothing was cancelled, so asyncio reports only the caller's own tasks.

    One was left pending; the others are calls that end when the loop is closed, with no one awaiting them.
    """

    async def main() -> asyncio.Task[None]:
        task = asyncio.create_task(WORK[work](queue), name="the caller's")
        await asyncio.sleep(0.05)
        return task

    loop = new_loop()
    task = loop.run_until_complete(main())
    loop.close()
    assert left_open(queue, server) == 0
    del task
    gc.collect()
    told = [record.getMessage() for record in caplog.records if record.name == "asyncio"]
    assert [text for text in told if "the caller's" not in text and "this event loop is being closed" not in text] == []
    caplog.clear()


def test_a_job_that_a_cancelled_claim_took_is_given_back_before_the_loop_ends(queue: Queue, server: Server):
    with Proxy(server) as proxy, server.client() as client:
        aqueue = AsyncQueue(queue.name, redis=proxy.url)
        job_id = queue.enqueue(1)
        client.script_load(scripts.load("claim").source)

        async def main() -> None:
            await aqueue.stats()
            proxy.hold_reply(scripts.load("claim").sha)
            claim = asyncio.ensure_future(aqueue.claim(5000))
            while not client.llen(queue.settings.keys.processing):
                await asyncio.sleep(0.005)
            asyncio.get_running_loop().call_later(0.1, proxy.let_go)
            del claim

        asyncio.run(main())

    assert [job.id for job in queue.list_pending()] == [job_id]


def test_a_loop_with_tls_connections_leaves_nothing(queue: Queue, server: Server, new_loop: NewLoop, tmp_path: Path):
    if server.is_cluster:
        pytest.skip("the front leads to one node")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with Front(server, authority.issue_cert("localhost")) as front:
        url = f"rediss://localhost:{front.port}/0?ssl_ca_certs={tmp_path / 'ca.pem'}"
        for seconds in (0.001, 0.01, 0.1):
            aqueue = AsyncQueue(queue.name, redis=url)
            loop = new_loop()
            task = loop.create_task(aqueue.claim(60_000))
            loop.run_until_complete(asyncio.sleep(seconds))
            task.cancel()
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
            loop.close()
        assert left_open(queue, server) == 0


def test_a_tls_connection_that_is_still_being_opened_is_closed_at_once(server: Server, tmp_path: Path):
    """Only asyncio knows its transport then, and would end it gracefully, on a loop that takes no more turns."""
    if server.is_cluster:
        pytest.skip("the front leads to one node")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))

    async def main(url: str) -> None:
        connection: Any = Address(url).find("").async_connection("test")
        await connection.connect()
        opened, writer, connection._writer = connection._opened, connection._writer, None
        await abandon(connection)
        assert opened.fileno() == -1
        del writer

    with Front(server, authority.issue_cert("localhost")) as front:
        asyncio.run(main(f"rediss://localhost:{front.port}/0?ssl_ca_certs={tmp_path / 'ca.pem'}"))
        until(lambda: front.is_idle, 30)  # else what is left of the front looks like a leak of the client


def test_a_loop_can_be_closed_from_within_another(queue: Queue, server: Server, new_loop: NewLoop):
    other = new_loop()

    async def main() -> None:
        thread = threading.Thread(target=other.run_until_complete, args=(queue.aio.stats(),))
        thread.start()
        await asyncio.to_thread(thread.join)
        await queue.aio.stats()
        other.close()
        assert (await queue.aio.stats())["pending_depth"] == 0

    asyncio.run(main())
    assert left_open(queue, server) == 0


def test_a_loop_whose_tasks_were_all_cancelled_can_be_used_again(queue: Queue):
    async def end_all() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def main() -> None:
        for work in WORK.values():
            task = asyncio.ensure_future(work(queue))
            await asyncio.sleep(0.02)
            await end_all()
            assert task.done()
        await queue.aio.purge()
        assert await use_everything(queue) == 2

    asyncio.run(main())


def test_a_loop_still_closes_when_redis_is_gone(queue: Queue, server: Server):
    with Proxy(server) as proxy:
        aqueue = AsyncQueue(queue.name, redis=proxy.url, retry_for=0.2)

        async def main() -> None:
            claim = asyncio.ensure_future(aqueue.claim(60_000))
            await asyncio.sleep(0.1)
            claim.cancel()

        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
    began = time.monotonic()
    loop.close()
    assert loop.is_closed() and time.monotonic() - began < 4.5


def test_a_running_loop_still_refuses_to_be_closed(queue: Queue):
    async def main() -> None:
        await queue.aio.stats()
        with pytest.raises(RuntimeError, match="running"):
            asyncio.get_running_loop().close()
        await queue.aio.stats()

    asyncio.run(main())


# -- forks and processes


def test_a_forked_child_has_its_own_loop_and_does_not_affect_the_parents(queue: Queue, server: Server):
    async def main() -> None:
        first = await queue.aio.enqueue("parent")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                signal.alarm(60)
                asyncio.run(queue.aio.enqueue("child"))
                asyncio.run(queue.aio.enqueue("child"))
                code = 0
            finally:
                os._exit(code)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert status == 0
        assert (await queue.aio.get_job(first)).payload == "parent"

    asyncio.run(main())
    assert sorted(job.payload for job in queue.list_pending()) == ["child", "child", "parent"]


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_a_program_ends_without_a_word(queue: Queue, server: Server, kind: str):
    """Warnings are errors in it, and the last of its loops is never closed, which asyncio itself reports."""
    pytest.importorskip(kind)
    program = textwrap.dedent(f"""
        import asyncio, {kind}
        from schedq import Queue
        queue = Queue({queue.name!r}, redis={server.unix_url!r})
        async def main():
            await queue.aio.enqueue(1)
            events = queue.aio.events()
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0.02)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        for _ in range(2):
            with asyncio.Runner(loop_factory={kind}.new_event_loop) as runner:
                runner.run(main())
        for is_closed in True, False:
            loop = {kind}.new_event_loop()
            loop.run_until_complete(main())
            if is_closed:
                loop.close()
    """)
    strict = ["-W", "error", "-W", "ignore:unclosed event loop:ResourceWarning"]

    ended = subprocess.run([sys.executable, *strict, "-c", program], capture_output=True, text=True, timeout=120)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
