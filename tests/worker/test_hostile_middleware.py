"""Whatever middleware does, its attempt ends, its slot becomes free, and the worker keeps working."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from schedq import AttemptFacts, CallNext, JobCancelled, JobFailed, UsageError, Worker, current_job
from tests.doors import Handle
from tests.waiting import until
from tests.worker.crew import Crew, Gate
from tests.worker.layers import KINDS, Trail, add_ok, expect_life, handler, only

BEYOND = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration)

# -- call_next used wrongly


async def call_twice(attempt: AttemptFacts, call_next: CallNext) -> Any:
    await call_next()
    return await call_next()


async def call_without_await(attempt: AttemptFacts, call_next: CallNext) -> Any:
    call_next()  # type: ignore[unused-coroutine]
    return "done"


async def return_unawaited(attempt: AttemptFacts, call_next: CallNext) -> Any:
    return call_next()


async def leave_in_a_task(attempt: AttemptFacts, call_next: CallNext) -> Any:
    task = asyncio.create_task(call_next())
    await asyncio.sleep(0.01)
    return f"done, except for {task.get_name()}"


async def resume_by_hand(attempt: AttemptFacts, call_next: CallNext) -> Any:
    call_next().send(None)
    return "done"


AWAIT = "returned before call_next() did; write await call_next()"
WRONG = {
    call_twice: "called call_next twice; to run the job again, raise Retry",
    call_without_await: AWAIT,
    return_unawaited: AWAIT,
    leave_in_a_task: AWAIT,
    resume_by_hand: AWAIT,
}


# A plain function may return its coroutine just after its attempt has ended.
@pytest.mark.filterwarnings("ignore:.*test_a_wrong_use_of_call_next.*work.*:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .*work' was never awaited:RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_a_wrong_use_of_call_next_fails_the_attempt_and_says_what_to_do(
    queue: Handle, crew: Crew, kind: str, wrong: Any
) -> None:
    begun: list[int] = []
    ended: list[int] = []

    async def work() -> None:
        begun.append(1)
        try:
            await asyncio.sleep(0.05)
        finally:
            ended.append(1)

    def work_in_thread() -> None:
        begun.append(1)
        if wrong is not call_twice:
            until(lambda: current_job().is_cancelled)
        ended.append(1)

    function = {"async": work, "plain": work_in_thread, "awaitable": lambda: work()}[kind]
    add_ok(queue)
    task = queue.task(name="work", max_attempts=1)(function)
    queue.use(only("work", wrong))
    crew.start(queue, concurrency=1)

    with pytest.raises(JobFailed) as failed:
        task.enqueue().result(20)
    assert f"UsageError: middleware tests.worker.layers.only.<locals>.layer {WRONG[wrong]}" in str(failed.value)
    expect_life(queue)
    assert len(begun) == len(ended)


@pytest.mark.parametrize("kind", KINDS)
def test_call_next_is_refused_once_its_middleware_has_ended(queue: Handle, crew: Crew, kind: str) -> None:
    kept: list[CallNext] = []

    @queue.use
    async def keep(attempt: AttemptFacts, call_next: CallNext) -> Any:
        if kept:
            with pytest.raises(UsageError, match=r"keep called call_next after it had ended"):
                await kept[0]()
        kept.append(call_next)
        return len(kept)

    task = queue.task(name="work")(handler(kind, lambda: 1))
    crew.start(queue, concurrency=1)

    assert [task.enqueue().result(20) for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_may_run_in_a_task_of_the_middleware(queue: Handle, crew: Crew, kind: str) -> None:
    @queue.use
    async def gather(attempt: AttemptFacts, call_next: CallNext) -> Any:
        found, _ = await asyncio.gather(call_next(), asyncio.sleep(0.01))
        return [found, await asyncio.wait_for(asyncio.sleep(0, "waited"), 5)]

    @queue.use
    async def wait(attempt: AttemptFacts, call_next: CallNext) -> Any:
        return await asyncio.wait_for(call_next(), 20)

    task = queue.task(name="work")(handler(kind, lambda: current_job().id))
    crew.start(queue)
    job = task.enqueue()

    assert job.result(20) == [job.id, "waited"]


@pytest.mark.parametrize("kind", KINDS)
def test_when_middleware_fails_a_handler_in_a_task_of_it_is_cancelled(queue: Handle, crew: Crew, kind: str) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    def work_in_thread() -> None:
        begun.set()
        until(lambda: current_job().is_cancelled)
        ended.set()

    async def fail() -> None:
        while not begun.is_set():
            await asyncio.sleep(0.005)
        raise LookupError("the other part")

    async def gather(attempt: AttemptFacts, call_next: CallNext) -> Any:
        return await asyncio.gather(call_next(), fail())

    add_ok(queue)
    queue.use(only("work", gather))
    function = {"async": work, "plain": work_in_thread, "awaitable": lambda: work()}[kind]
    task = queue.task(name="work", max_attempts=1)(function)
    crew.start(queue, concurrency=1)

    with pytest.raises(JobFailed, match="LookupError: the other part"):
        task.enqueue().result(20)
    expect_life(queue)
    assert ended.is_set()


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_timeout_of_its_own_ends_the_handler_and_the_slot_is_held_until_then(
    queue: Handle, crew: Crew, gate: Gate, kind: str
) -> None:
    cancelled: list[bool] = []

    async def hold() -> None:
        try:
            await gate.passed()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    def hold_thread() -> None:
        gate.wait()
        cancelled.append(current_job().is_cancelled)

    async def limit_time(attempt: AttemptFacts, call_next: CallNext) -> Any:
        try:
            async with asyncio.timeout(0.05):
                return await call_next()
        except TimeoutError:
            return "too slow"

    add_ok(queue)
    queue.use(only("hold", limit_time))
    task = queue.task(name="hold")(hold if kind == "async" else hold_thread)
    crew.start(queue, concurrency=1)

    assert task.enqueue().result(20) == "too slow"
    waiting = queue.enqueue({"task": "ok"})
    if kind == "plain":
        assert not queue.wait(waiting, 0.2)
    gate.open()
    assert queue.result(waiting, 20) == "ok"
    assert cancelled == [True]


# -- what it raises and returns


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("error", BEYOND)
def test_whatever_it_raises_its_attempt_ends(queue: Handle, crew: Crew, kind: str, error: type[BaseException]) -> None:
    async def fail(attempt: AttemptFacts, call_next: CallNext) -> Any:
        if attempt.job.payload["args"] == ["after"]:
            await call_next()
        raise error("enough")

    add_ok(queue)
    queue.use(only("work", fail))
    task = queue.task(name="work", max_attempts=1)(handler(kind, lambda when: when))
    post = crew.start(queue, concurrency=1)

    for when in ("before", "after"):
        with pytest.raises(JobFailed, match="StopIteration" if error is StopIteration else "enough"):
            task.enqueue(when).result(20)
    expect_life(queue)
    assert post.is_working


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_handler_raises_passes_through(queue: Handle, crew: Crew, trail: Trail, kind: str) -> None:
    def leave() -> None:
        raise SystemExit(3)

    add_ok(queue)
    queue.use(trail.layer("layer"))
    task = queue.task(name="work", max_attempts=1)(handler(kind, leave))
    post = crew.start(queue, concurrency=1)

    with pytest.raises(JobFailed, match="SystemExit: 3"):
        task.enqueue().result(20)
    assert trail.steps == ["+layer", "!layer SystemExit"]
    expect_life(queue)
    assert post.is_working


def test_a_coroutine_or_generator_is_not_a_result(queue: Handle, crew: Crew, trail: Trail) -> None:
    async def nothing() -> None: ...

    @queue.use
    async def leave_work(attempt: AttemptFacts, call_next: CallNext) -> Any:
        await call_next()
        return nothing()

    queue.use(trail.layer("inner"))
    task = queue.task(lambda: 1, name="work", max_attempts=5)
    generates = queue.task(lambda: (number for number in range(3)), name="generates", max_attempts=5)
    crew.start(queue)

    with pytest.raises(JobFailed, match="it returned a coroutine, whose code has not run"):
        task.enqueue().result(20)
    with pytest.raises(JobFailed, match="it returned a generator, whose code has not run"):
        generates.enqueue().result(20)
    assert trail.steps == ["+inner", "-inner", "+inner", "!inner Discard"]


class Wrong:
    """Middleware whose call looks async but returns nothing that can be awaited."""

    async def __call__(self, attempt: AttemptFacts, call_next: CallNext) -> Any: ...


def test_what_it_returns_must_be_awaitable(queue: Handle, crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    queue.use(Wrong())
    monkeypatch.setattr(Wrong, "__call__", lambda *_: None)
    task = queue.task(lambda: 1, name="work", max_attempts=1)
    crew.start(queue)

    with pytest.raises(JobFailed, match="TypeError"):
        task.enqueue().result(20)


# -- what does not end


async def swallow(attempt: AttemptFacts, call_next: CallNext, gate: Gate) -> Any:
    while True:
        try:
            await call_next() if attempt.task == "" else await gate.passed()
            return "done"
        except asyncio.CancelledError:
            continue


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["timeout", "cancel", "lost lease"])
def test_one_that_never_ends_is_stuck_and_its_job_is_settled_without_it(
    queue: Handle, crew: Crew, gate: Gate, kind: str, how: str
) -> None:
    begun = threading.Event()

    async def hold(attempt: AttemptFacts, call_next: CallNext) -> Any:
        with suppress(TimeoutError):  # of a handler that took long to start
            await call_next()
        begun.set()
        return await swallow(attempt, call_next, gate)

    add_ok(queue)
    queue.use(only("work", hold))
    timeout = 0.05 if how == "timeout" else None
    task = queue.task(name="work", timeout=timeout, max_attempts=1)(handler(kind, lambda: 1))
    post = crew.start(queue, concurrency=2, grace=0.3)
    job = task.enqueue()
    assert begun.wait(20)

    if how == "cancel":
        job.cancel()
    elif how == "lost lease":
        queue.redis.hset(queue.keys.job(job.id), "claim_token", "other.1")
    (slot,) = until(lambda: post.worker.stuck)

    assert slot.why == {"timeout": "timed out", "cancel": "cancelled", "lost lease": "lost its lease"}[how]
    if how == "lost lease":
        queue.redis.hset(queue.keys.job(job.id), "claim_token", "other.1")
        assert queue.wait(queue.enqueue({"task": "ok"}), 20)
        gate.open()
        until(lambda: not post.worker.stuck)
        queue.redis.zadd(queue.keys.leases, {job.id: 1})
        assert queue.wait(job.id, 20)
        return
    with pytest.raises(JobFailed if how == "timeout" else JobCancelled):
        job.result(20)
    assert queue.wait(queue.enqueue({"task": "ok"}), 20), "in the other slot"
    gate.open()
    until(lambda: not post.worker.stuck)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("kind", KINDS)
def test_one_that_never_ends_after_its_handler_has_timed_out_is_stuck(
    queue: Handle, crew: Crew, gate: Gate, kind: str
) -> None:
    async def hold_on_loop() -> None:
        await gate.passed()

    async def hold(attempt: AttemptFacts, call_next: CallNext) -> Any:
        try:
            return await call_next()
        except TimeoutError:
            return await swallow(attempt, call_next, gate)

    function = {"async": hold_on_loop, "plain": gate.wait, "awaitable": lambda: hold_on_loop()}[kind]
    add_ok(queue)
    queue.use(only("work", hold))
    task = queue.task(name="work", timeout=0.05, max_attempts=1)(function)
    post = crew.start(queue, concurrency=1, grace=0.3)

    with pytest.raises(JobFailed, match=r"timed out after 0.05 s"):
        task.enqueue().result(20)
    (slot,) = until(lambda: post.worker.stuck)
    assert slot.why == "timed out"
    gate.open()
    expect_life(queue)


@pytest.mark.usefixtures("hasty")
def test_a_handler_that_its_middleware_left_and_that_never_ends_is_stuck(queue: Handle, crew: Crew, gate: Gate) -> None:
    async def hold() -> str:
        while True:
            try:
                await gate.passed()
                return "done"
            except asyncio.CancelledError:
                continue

    add_ok(queue)
    queue.use(only("hold", leave_in_a_task))
    task = queue.task(name="hold", max_attempts=1)(hold)
    post = crew.start(queue, concurrency=1, grace=0.3)

    with pytest.raises(JobFailed, match="it was asked to end and did not"):
        task.enqueue().result(20)
    assert [slot.task for slot in until(lambda: post.worker.stuck)] == ["hold"]
    gate.open()
    expect_life(queue)


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_stops_although_middleware_swallows_every_cancellation(
    queue: Handle, crew: Crew, gate: Gate, kind: str
) -> None:
    begun = threading.Event()

    @queue.use
    async def hold(attempt: AttemptFacts, call_next: CallNext) -> Any:
        begun.set()
        return await swallow(attempt, call_next, gate)

    task = queue.task(name="work")(handler(kind, lambda: 1))
    post = crew.start(queue, grace=0)
    job = task.enqueue()
    assert begun.wait(20)

    post.stop(times=2)
    until(lambda: post.has_run)

    assert queue.places() == {"pending": [job.id]}
    gate.open()
    post.join()


# -- what is refused at once


def plain_middleware(attempt: AttemptFacts, call_next: CallNext) -> Any: ...


async def takes_one(attempt: AttemptFacts) -> Any: ...


REFUSED: dict[Any, str] = {
    plain_middleware: "plain_middleware is not async; write async def",
    takes_one: "takes_one can't be called with these two: too many positional arguments",
    Wrong: "got the class tests.worker.test_hostile_middleware.Wrong; write Wrong()",
    Wrong.__call__: "can't be called with these two: missing a required argument: 'call_next'",
    "middleware": "got 'middleware'",
}


@pytest.mark.parametrize("wrong", REFUSED, ids=lambda wrong: getattr(wrong, "__qualname__", wrong))
def test_objects_that_are_not_middleware_are_refused(queue: Handle, wrong: Any) -> None:
    add_ok(queue)
    attach: list[Callable[[], object]] = [lambda: queue.use(wrong), lambda: Worker([queue.queue], middleware=[wrong])]

    for attached in attach:
        with pytest.raises(UsageError) as refused:
            attached()
        assert "takes an async function (attempt, call_next)" in str(refused.value)
        assert REFUSED[wrong] in str(refused.value)
    assert queue.registry.middleware == []


def test_a_worker_takes_a_list_of_middleware(queue: Handle, trail: Trail) -> None:
    add_ok(queue)

    with pytest.raises(UsageError, match="a worker takes a list of middleware, got <function"):
        Worker([queue.queue], middleware=trail.layer("alone"))


def test_use_comes_too_late_once_a_worker_has_started(queue: Handle, crew: Crew, trail: Trail) -> None:
    add_ok(queue)
    crew.start(queue)

    with pytest.raises(UsageError, match=f"queue {queue.name}: a worker of it has started .* use comes too late"):
        queue.use(trail.layer("late"))
