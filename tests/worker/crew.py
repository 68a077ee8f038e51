"""Workers inside the test process, each on an event loop in its own thread."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import Context
from typing import Any, Protocol, TypeVar

import pytest

from schedq.transitions import scripts
from schedq.worker import Worker
from schedq.worker.served import QueueWorker
from tests.doors import Handle
from tests.servers import Request, Server
from tests.state import State
from tests.waiting import until

T = TypeVar("T")


def asked(requests: Iterable[Request], queue: Handle, *moves: str) -> list[Request]:
    """The requests about this queue; only those of some scripts if they are named."""
    shas = {scripts.load(move).sha for move in moves}
    found = [request for request in requests if any(word.startswith(queue.keys.prefix) for word in request.words)]
    return [request for request in found if not moves or request.words[1] in shas]


def broken_laws(queue: Handle) -> dict[str, list[str]]:
    """The broken laws of a queue, for tests whose server stops before the check that follows each test."""
    with queue.server.client() as client:
        return State.of(client, queue.keys).broken_laws()


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """Freeze Redis: it executes requests sent meanwhile when it continues."""
    server.freeze()
    try:
        yield
    finally:
        server.thaw()


def beat_every(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers send heartbeats this often. Each still counts for half a minute, however slow the machine is."""
    monkeypatch.setattr("schedq.worker.heartbeat.until_next_beat", lambda *_: seconds)


def renew_every(seconds: float, queue: Handle) -> None:
    """Let workers renew the leases of a queue this often, however long the leases are; call it before they start."""
    vars(queue.settings)["renewal_s"] = seconds


class Gate:
    """Holds plain and async handlers until the test opens it."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._arrivals: list[None] = []
        self._wakers: list[Callable[[], object]] = []

    def task(self, queue: Any, *, in_thread: bool = False) -> Any:
        """Add a task `hold` to a queue, which waits here and returns "held"."""

        async def hold() -> str:
            await self.passed()
            return "held"

        def hold_thread() -> str:
            self.wait()
            return "held"

        return queue.task(name="hold")(hold_thread if in_thread else hold)

    def open(self) -> None:
        """Let all handlers continue."""
        self._event.set()
        while self._wakers:
            with suppress(RuntimeError):  # its loop has ended
                self._wakers.pop()()

    def until_held(self, count: int = 1) -> None:
        """Wait until so many handlers have reached the gate.

        A job is `processing` in Redis before its worker has the reply to the claim, let alone has called the handler.
        A test that goes on to stop a worker, or to take something away from it, waits for the handler.
        """
        until(lambda: len(self._arrivals) >= count)

    def wait(self) -> None:
        """Wait in a thread."""
        self._arrivals.append(None)
        assert self._event.wait(120), "the gate was not opened"

    async def passed(self) -> None:
        """Wait on an event loop."""
        loop, opened = asyncio.get_running_loop(), asyncio.Event()
        self._wakers.append(lambda: loop.call_soon_threadsafe(opened.set))
        self._arrivals.append(None)
        if not self._event.is_set():
            async with asyncio.timeout(120):
                await opened.wait()


class Post:
    """One running worker."""

    def __init__(self, worker: Worker, *, debug: bool = True, context: Context | None = None) -> None:
        self.worker = worker
        self._context = context
        self.complaints: list[str] = []
        self.error: BaseException | None = None
        self._debug = debug
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        until(lambda: self._task)

    @property
    def is_working(self) -> bool:
        """Whether its event loop is running."""
        return self._thread.is_alive()

    @property
    def has_run(self) -> bool:
        """Whether `Worker.run` has returned; its event loop may still wait for what it has abandoned."""
        return self._task is not None and self._task.done()

    @property
    def queue_worker(self) -> QueueWorker:
        """What works on its first queue; waits until the worker has begun."""
        return until(lambda: self.worker._queue_workers)[0]

    @property
    def free_slots(self) -> int:
        """The slots without a job; one of them may be reserved for the next job of an idle queue."""
        return self.worker.capacity.free + self.queue_worker.fetcher.later_claims

    def do(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function on the worker's event loop and return its result."""
        assert self._loop is not None
        result: Future[Any] = Future()
        self._loop.call_soon_threadsafe(lambda: result.set_result(function(*args)))
        return result.result(60)

    def stop(self, times: int = 1) -> None:
        """Ask the worker to stop, once or several times, in one turn of its loop: it may end soon after the first."""

        def ask() -> None:
            for _ in range(times):
                self.worker.stop()

        self.do(ask)

    def look(self) -> None:
        """Let it check its first queue for jobs, as it does at its start, and wait until its claim was sent."""
        self.do(self.queue_worker.fetcher.look)
        self.take_turns()

    def take_turns(self) -> None:
        """Wait until its event loop has done what was ready, and what followed from that without waiting."""
        for _ in range(5):
            self.do(lambda: None)

    def cancel(self) -> None:
        """Cancel `Worker.run`."""
        assert self._task is not None
        self.do(self._task.cancel)

    def join(self, within: float = 60.0) -> None:
        """Wait until it has stopped."""
        self._thread.join(within)
        assert not self._thread.is_alive(), f"the worker has not gone within {within} s"

    def end(self) -> None:
        """Let it stop, whatever it does."""
        assert self._loop is not None
        with suppress(RuntimeError):  # its loop has ended
            for _ in range(2):
                self._loop.call_soon_threadsafe(self.worker.stop)
        self.join()

    def _run(self) -> None:
        try:
            with asyncio.Runner(debug=self._debug) as runner:
                runner.get_loop().set_exception_handler(self._complain)
                runner.run(self._main(), context=self._context)
        except BaseException as error:
            self.error = error

    async def _main(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        try:
            await self.worker.run()
        finally:
            for queue in self.worker.queues:
                await queue.aio.aclose()  # what handlers used belongs to this loop

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.complaints.append(f"{context.get('message')}: {context.get('exception')!r}")


class HasQueue(Protocol):
    """A wrapper of one queue, such as a `Handle`."""

    queue: Any


class Crew:
    """The workers of one test."""

    def __init__(self) -> None:
        self._posts: list[Post] = []
        gc.freeze()  # earlier tests' garbage, above all pytest's reports, need not be traversed at the end

    def start(self, *queues: HasQueue, debug: bool = True, context: Context | None = None, **options: Any) -> Post:
        """Start a worker with asyncio's debug mode on; in a context, if one is given."""
        post = Post(Worker([queue.queue for queue in queues], **options), debug=debug, context=context)
        self._posts.append(post)
        return post

    @property
    def all_are_working(self) -> bool:
        """Whether no worker has stopped."""
        return all(post.is_working for post in self._posts)

    @property
    def all_left_in_order(self) -> bool:
        """Whether all workers have stopped without an error."""
        return all(post.error is None and not post.is_working for post in self._posts)

    def end(self) -> None:
        """Stop all workers; none may have failed, nor left anything behind."""
        for post in self._posts:
            post.end()
        gc.collect()  # tasks whose exceptions were never retrieved complain when they are collected
        for post in self._posts:
            assert post.error is None, repr(post.error)
            assert post.complaints == [], post.complaints
