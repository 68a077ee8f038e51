"""Resources that live as long as a worker are entered once before its first job and exited after its last."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from schedq import CurrentJob, Depends, UsageError, current_job
from schedq.testing import override, run_due
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.waiting import until
from tests.worker.conftest import Logs, crew, door, gate, logs
from tests.worker.crew import Crew

__all__ = ["crew", "door", "gate", "logs"]


@dataclass
class State:
    """The value that a lifespan yields."""

    name: str


class Notes(list[str]):
    """What was entered and exited, in order."""

    def lifespan(self, name: str = "state", *, how: str = "async") -> Any:
        @asynccontextmanager
        async def entered() -> AsyncIterator[State]:
            self.append(f"+{name}")
            await asyncio.sleep(0)
            try:
                yield State(name)
            finally:
                await asyncio.sleep(0)
                self.append(f"-{name}")

        @contextmanager
        def plainly() -> Iterator[State]:
            self.append(f"+{name}")
            try:
                yield State(name)
            finally:
                self.append(f"-{name}")

        return entered if how == "async" else plainly


@pytest.fixture
def notes() -> Notes:
    return Notes()


def with_task(queue: Handle, notes: Notes) -> Any:
    @queue.task
    async def use(it: int, state: State = Depends(queue.lifespan)) -> str:
        notes.append(f"run {it}")
        return state.name

    return use


@pytest.mark.parametrize("how", ["async", "plain"])
def test_a_lifespan_is_entered_before_the_first_job_and_exited_after_the_last(
    make_queue: MakeQueue, crew: Crew, notes: Notes, how: str
):
    queue = make_queue(lifespan=notes.lifespan(how=how))
    use = with_task(queue, notes)
    jobs = [use.enqueue(n) for n in range(2)]

    post = crew.start(queue)
    assert [job.result(60) for job in jobs] == ["state", "state"]
    post.stop()
    post.join()

    assert (notes[0], notes[-1], sorted(notes[1:-1])) == ("+state", "-state", ["run 0", "run 1"])


def test_run_due_enters_a_lifespan_as_a_worker_does(make_queue: MakeQueue, notes: Notes):
    queue = make_queue(lifespan=notes.lifespan())
    job = with_task(queue, notes).enqueue(1)

    run_due(queue.queue)

    assert (job.result(0), notes) == ("state", ["+state", "run 1", "-state"])


def test_queues_with_the_same_lifespan_share_it_and_others_have_their_own(
    make_queue: MakeQueue, crew: Crew, notes: Notes
):
    shared, own = notes.lifespan("shared"), notes.lifespan("own")
    queues = [make_queue(lifespan=each) for each in (shared, shared, own)]
    jobs = [with_task(queue, notes).enqueue(1) for queue in queues]

    post = crew.start(*queues)
    assert [job.result(60) for job in jobs] == ["shared", "shared", "own"]
    post.stop()
    post.join()

    assert [note for note in notes if note != "run 1"] == ["+shared", "+own", "-own", "-shared"]


def test_a_lifespan_that_fails_ends_the_worker_with_the_reason_before_it_claims_a_job(
    make_queue: MakeQueue, crew: Crew, notes: Notes, logs: Logs
):
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    first, second = make_queue(lifespan=notes.lifespan()), make_queue(lifespan=broken)
    job = with_task(first, notes).enqueue(1)
    with_task(second, notes)

    post = crew.start(first, second)
    post.join()

    assert isinstance(post.error, UsageError)
    assert "broken failed: RuntimeError: no database" in str(post.error)
    post.error = None
    assert notes == ["+state", "-state"]
    assert first.places() == {"pending": [job.id]}
    assert [line for line in logs() if line.startswith("ERROR lifespan ") and "no database" in line]
    assert not [line for line in logs() if "ready" in line]


def test_stopping_a_worker_while_it_enters_a_lifespan_ends_it_gracefully(
    make_queue: MakeQueue, crew: Crew, notes: Notes
):
    @asynccontextmanager
    async def slow() -> AsyncIterator[None]:
        notes.append("entering")
        try:
            await asyncio.sleep(60)
            yield
        finally:
            notes.append("left")

    queue = make_queue(lifespan=slow)
    job = with_task(queue, notes).enqueue(1)
    post = crew.start(queue)
    until(lambda: notes)

    post.stop()
    post.join()

    assert (notes, post.error) == (["entering", "left"], None)
    assert queue.places() == {"pending": [job.id]}


def test_a_lifespan_is_exited_after_jobs_that_the_grace_period_has_cut_off(
    make_queue: MakeQueue, crew: Crew, notes: Notes, monkeypatch: pytest.MonkeyPatch
):
    for wait in ("_LEAST_PATIENCE_S", "_LAST_S", "_UNWIND_S"):  # no cleanup takes as long as that
        monkeypatch.setattr(f"schedq.worker.worker.{wait}", 60)
    queue = make_queue(lifespan=notes.lifespan())

    @queue.task
    async def endless(state: State = Depends(queue.lifespan)) -> None:
        notes.append("run")
        try:
            await asyncio.sleep(60)
        finally:
            notes.append("cut off")

    job = endless.enqueue()
    post = crew.start(queue, grace=0.1)
    until(lambda: "run" in notes)
    post.stop()
    post.join()

    assert notes == ["+state", "run", "cut off", "-state"]
    assert queue.places() == {"pending": [job.id]}


def test_an_exception_on_exit_is_logged(make_queue: MakeQueue, crew: Crew, logs: Logs):
    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        yield
        raise RuntimeError("not closed")

    queue = make_queue(lifespan=broken)
    queue.task(name="t")(lambda: None)
    post = crew.start(queue)
    until(lambda: [line for line in logs() if "ready" in line])
    post.stop()
    post.join()

    assert post.error is None
    assert "ERROR a resource of this worker could not be cleaned up" in logs()


def test_a_cleanup_that_does_not_end_is_abandoned_after_the_grace_period(make_queue: MakeQueue, crew: Crew, logs: Logs):
    @asynccontextmanager
    async def endless() -> AsyncIterator[None]:
        yield
        await asyncio.sleep(60)

    queue = make_queue(lifespan=endless)
    queue.task(name="t")(lambda: None)
    post = crew.start(queue, grace=0.1)
    until(lambda: [line for line in logs() if "ready" in line])
    post.stop()
    post.join()

    assert "ERROR cleaning up this worker's resources takes more than 1 s; cancelled" in logs()


def test_a_lifespan_must_be_a_function_that_returns_a_context_manager(make_queue: MakeQueue, crew: Crew):
    with pytest.raises(UsageError, match="lifespan must be a function that returns a context manager, got 5"):
        make_queue(lifespan=5)

    queue = make_queue(lifespan=lambda: 5)
    queue.task(name="t")(lambda: None)
    post = crew.start(queue)
    post.join()

    assert "it returned 5, which is not a context manager" in str(post.error)
    post.error = None


def test_a_test_can_replace_a_lifespan(make_queue: MakeQueue, notes: Notes):
    real = notes.lifespan("real")
    queue = make_queue(lifespan=real)
    job = with_task(queue, notes).enqueue(1)

    with override(real, notes.lifespan("fake")):
        run_due(queue.queue)

    assert (job.result(0), notes) == ("fake", ["+fake", "run 1", "-fake"])


# -- dependencies of the worker scope


def with_pool(queue: Handle, notes: Notes, *, how: str) -> Any:
    def settings(state: State = Depends(queue.lifespan)) -> str:
        notes.append("settings")
        return f"settings of {state.name}"

    def plain_pool(settings: str = Depends(settings, scope="worker")) -> Iterator[str]:
        notes.append("+pool")
        yield f"pool by {settings} in {threading.current_thread() is threading.main_thread()}"
        notes.append("-pool")

    async def async_pool(settings: str = Depends(settings, scope="worker")) -> AsyncIterator[str]:
        notes.append("+pool")
        await asyncio.sleep(0.05)
        yield f"pool by {settings}"
        notes.append("-pool")

    pool: Any = plain_pool if how == "plain" else async_pool

    def session(job: CurrentJob = Depends(current_job), pool: str = Depends(pool, scope="worker")) -> str:
        return f"session of {job.task} in {pool}"

    @queue.task
    def plain(session: str = Depends(session)) -> str:
        return session

    @queue.task
    async def coro(session: str = Depends(session)) -> str:
        return session

    return [plain, coro]


@pytest.mark.parametrize("how", ["plain", "async"])
def test_worker_dependencies_are_created_when_first_needed_and_cleaned_up_with_the_worker(
    make_queue: MakeQueue, crew: Crew, notes: Notes, how: str
):
    queue = make_queue(lifespan=notes.lifespan())
    tasks = with_pool(queue, notes, how=how)
    jobs = [task.enqueue() for task in tasks * 5]

    post = crew.start(queue)
    results = {job.result(60) for job in jobs}
    post.stop()
    post.join()

    where = "pool by settings of state" + (" in False" if how == "plain" else "")
    assert results == {f"session of plain in {where}", f"session of coro in {where}"}
    assert notes == ["+state", "settings", "+pool", "-pool", "-state"]


def test_a_worker_dependency_that_fails_fails_the_attempt_and_is_tried_again(queue: Handle):
    tries = []

    def pool() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("no database")
        return "pool"

    @queue.task(backoff=lambda attempt, error: 0)
    def use(pool: str = Depends(pool, scope="worker")) -> str:
        return pool

    jobs = [use.enqueue(), use.enqueue()]
    run_due(queue.queue)

    assert [job.result(0) for job in jobs] == ["pool", "pool"]
    assert len(tries) == 2


@pytest.mark.parametrize("kind", [SystemExit, StopIteration, asyncio.CancelledError])
def test_a_worker_dependency_that_raises_something_odd_fails_the_attempt_and_not_the_worker(
    make_queue: MakeQueue, crew: Crew, kind: type[BaseException]
):
    queue = make_queue(max_attempts=1)
    tries: list[int] = []

    async def pool() -> str:
        tries.append(1)
        if len(tries) == 1:
            if kind is StopIteration:
                next(iter(()))
            raise kind("odd")
        return "pool"

    @queue.task
    async def use(pool: str = Depends(pool, scope="worker")) -> str:
        return pool

    crew.start(queue, concurrency=1)
    first = use.enqueue()
    until(lambda: queue.fields(first.id).get("status") == "failed")

    assert use.enqueue().result(60) == "pool"


def test_cancelling_an_attempt_does_not_cancel_the_worker_dependency_it_waits_for(
    make_queue: MakeQueue, crew: Crew, notes: Notes
):
    queue = make_queue(max_attempts=1)
    made = threading.Event()

    async def pool() -> str:
        notes.append("making")
        while not made.is_set():
            await asyncio.sleep(0.01)
        return "pool"

    @queue.task
    async def use(pool: str = Depends(pool, scope="worker")) -> str:
        return pool

    first = use.options(timeout=0.1).enqueue()
    crew.start(queue)
    until(lambda: queue.fields(first.id).get("status") == "failed")
    made.set()
    second = use.enqueue()

    assert second.result(60) == "pool"
    assert notes == ["making"]
