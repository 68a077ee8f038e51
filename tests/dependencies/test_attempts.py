"""A task's dependencies are created before it is called, and cleaned up in reverse order however it ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import pytest

from schedq import ArgumentsError, CurrentJob, Depends, Discard, Retry, UsageError, current_job
from schedq.testing import run_due
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.waiting import until
from tests.worker.crew import Crew, Gate

SEEN: list[str] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> Iterator[None]:
    SEEN.clear()
    yield
    SEEN.clear()


@pytest.fixture
def door() -> str:
    return "blocking"


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def crew(make_queue: MakeQueue, gate: Gate) -> Iterator[Crew]:
    crew = Crew()
    yield crew
    gate.open()
    crew.end()


def yielding(name: str, *needs: Any) -> Any:
    """A plain dependency that records when it is entered and exited, and with which exception."""

    def depend(below: Any = Depends(needs[0] if needs else object)) -> Iterator[str]:
        SEEN.append(f"+{name}")
        try:
            yield name
        except BaseException as error:
            SEEN.append(f"!{name} {type(error).__name__}")
            raise
        finally:
            SEEN.append(f"-{name}")

    return depend


def ayielding(name: str, *needs: Any) -> Any:
    """The same, async."""

    async def depend(below: Any = Depends(needs[0] if needs else object)) -> AsyncIterator[str]:
        SEEN.append(f"+{name}")
        try:
            await asyncio.sleep(0)
            yield name
        except BaseException as error:
            SEEN.append(f"!{name} {type(error).__name__}")
            raise
        finally:
            await asyncio.sleep(0)
            SEEN.append(f"-{name}")

    return depend


CHAINS = {
    "plain": lambda: yielding("c", yielding("b", yielding("a"))),
    "async": lambda: ayielding("c", ayielding("b", ayielding("a"))),
    "plain in async": lambda: ayielding("c", yielding("b", ayielding("a"))),
    "async in plain": lambda: yielding("c", ayielding("b", yielding("a"))),
}


def add_tasks(queue: Handle, chain: Any) -> None:
    @queue.task
    def plain(how: str, c: str = Depends(chain)) -> str:
        SEEN.append(f"run {c}")
        return end(how)

    @queue.task
    async def coro(how: str, *, c: str = Depends(chain)) -> str:
        SEEN.append(f"run {c}")
        await asyncio.sleep(0)
        return end(how)


def end(how: str) -> str:
    errors = {"error": RuntimeError("no"), "retry": Retry(5), "discard": Discard("no"), "exit": SystemExit(3)}
    if how in errors:
        raise errors[how]
    return how


ENDS = {"well": "", "error": "RuntimeError", "retry": "Retry", "discard": "Discard", "exit": "SystemExit"}


@pytest.mark.parametrize("by", ["a worker", "run_due"])
@pytest.mark.parametrize("chain", CHAINS)
def test_dependencies_are_exited_in_reverse_order_and_see_the_exception(
    make_queue: MakeQueue, crew: Crew, chain: str, by: str
):
    queue = make_queue(max_attempts=1)
    add_tasks(queue, CHAINS[chain]())
    calls = [(task, how) for task in ("plain", "coro") for how in ENDS]
    for task, how in calls:
        queue.enqueue({"task": task, "args": [how]})

    if by == "run_due":
        run_due(queue.queue)
    else:
        crew.start(queue, concurrency=1)
        until(lambda: sum(len(queue.places().get(place, [])) for place in ("completed", "failed")) == len(calls))

    expected = []
    for _, how in calls:
        left = [word for name in "cba" for word in ([f"!{name} {ENDS[how]}"] if ENDS[how] else []) + [f"-{name}"]]
        expected += ["+a", "+b", "+c", "run c", *left]
    assert expected == SEEN


@pytest.mark.parametrize("chain", CHAINS)
def test_a_timeout_cleans_up_what_was_entered(make_queue: MakeQueue, crew: Crew, gate: Gate, chain: str):
    queue = make_queue(max_attempts=1)
    chain_of = CHAINS[chain]()

    @queue.task(timeout=0.3)
    def plain(c: str = Depends(chain_of)) -> None:
        gate.wait()

    @queue.task(timeout=0.3)
    async def coro(c: str = Depends(chain_of)) -> None:
        await asyncio.sleep(60)

    ok = queue.task(name="ok")(lambda: "ok")
    crew.start(queue, concurrency=1)
    for task in ("plain", "coro"):
        job_id = queue.enqueue({"task": task})
        until(partial(has_failed, queue, job_id))
        gate.open()  # the plain function ends long after its timeout
        assert ok.enqueue().result(60) == "ok"  # in the only slot, so the attempt before has ended
        until(lambda: count_of("-") == count_of("+"))  # unless its thread took long, and another one its place

        entered = [word[1:] for word in SEEN if word[0] == "+"]  # the timeout may expire before all were entered
        assert [word[1:] for word in SEEN if word[0] == "-"] == entered[::-1]
        assert [word.split()[0][1:] for word in SEEN if word[0] == "!"] == entered[::-1]
        assert queue.fields(job_id)["last_error"] == "TimeoutError: timed out after 0.3 s"
        SEEN.clear()


def count_of(sign: str) -> int:
    return sum(word.startswith(sign) for word in SEEN)


def has_failed(queue: Handle, job_id: str) -> bool:
    return queue.fields(job_id).get("status") == "failed"


def test_a_cancelled_job_cleans_up_its_dependencies(make_queue: MakeQueue, crew: Crew):
    queue = make_queue(visibility_ms=3000)
    chain = CHAINS["async in plain"]()

    @queue.task
    async def coro(c: str = Depends(chain)) -> None:
        SEEN.append("run")
        await asyncio.sleep(60)

    job = coro.enqueue()
    crew.start(queue)
    until(lambda: "run" in SEEN)
    queue.cancel(job.id)
    until(lambda: "cancelled" in queue.places())

    assert SEEN[-6:] == [word for name in "cba" for word in (f"!{name} CancelledError", f"-{name}")]


def test_a_dependency_that_fails_to_start_fails_the_attempt_and_the_others_are_exited(queue: Handle):
    def broken(a: str = Depends(yielding("a"))) -> str:
        raise RuntimeError("no database")

    @queue.task
    def plain(b: str = Depends(broken)) -> None:
        SEEN.append("run")

    job = plain.enqueue()
    run_due(queue.queue)

    assert SEEN == ["+a", "!a RuntimeError", "-a"]
    assert queue.fields(job.id)["last_error"] == "RuntimeError: no database"


def test_a_dependency_that_fails_to_clean_up_fails_the_attempt(queue: Handle):
    def commits() -> Iterator[None]:
        yield
        raise RuntimeError("commit failed")

    @queue.task
    async def coro(session: None = Depends(commits)) -> str:
        return "done"

    job = coro.enqueue()
    run_due(queue.queue)

    assert queue.fields(job.id)["last_error"] == "RuntimeError: commit failed"


@pytest.mark.parametrize("task", ["plain", "coro"])
@pytest.mark.parametrize("by", ["a worker", "run_due"])
def test_no_dependency_can_suppress_an_error(make_queue: MakeQueue, crew: Crew, task: str, by: str):
    queue = make_queue(max_attempts=1)

    def swallows() -> Iterator[None]:
        try:
            yield
        except RuntimeError:
            SEEN.append("swallowed")

    async def aswallows() -> AsyncIterator[None]:
        try:
            yield
        except RuntimeError:
            SEEN.append("swallowed")

    @queue.task
    def plain(one: None = Depends(swallows), two: None = Depends(aswallows)) -> None:
        raise RuntimeError("no")

    @queue.task
    async def coro(one: None = Depends(swallows), two: None = Depends(aswallows)) -> None:
        raise RuntimeError("no")

    job_id = queue.enqueue({"task": task})
    if by == "run_due":
        run_due(queue.queue)
    else:
        crew.start(queue)
        until(lambda: queue.places().keys() & {"completed", "failed"})

    assert (queue.fields(job_id)["status"], queue.fields(job_id)["last_error"]) == ("failed", "RuntimeError: no")
    assert SEEN[:1] == ["swallowed"]


def test_a_value_is_shared_within_an_attempt_and_created_again_for_the_next(queue: Handle):
    made: list[object] = []

    def session() -> object:
        made.append(object())
        return made[-1]

    def users(session: object = Depends(session)) -> object:
        return session

    @queue.task
    def plain(number: int, users: object = Depends(users), session: object = Depends(session)) -> None:
        assert users is session

    plain.enqueue(1)
    plain.enqueue(2)
    run_due(queue.queue)

    assert len(made) == 2
    assert queue.stats()["completed_total"] == 2


def test_the_current_job_is_a_dependency_like_any_other(queue: Handle):
    def tenant(job: CurrentJob = Depends(current_job)) -> str:
        return f"tenant of {job.id}"

    @queue.task
    async def coro(job: CurrentJob = Depends(current_job), tenant: str = Depends(tenant)) -> list[str]:
        return [job.id, tenant]

    job = coro.enqueue()
    run_due(queue.queue)

    assert job.result(0) == [job.id, f"tenant of {job.id}"]


def test_plain_dependencies_never_run_on_the_event_loop_and_share_a_plain_tasks_thread(
    make_queue: MakeQueue, crew: Crew
):
    queue = make_queue()

    def where() -> int:
        return threading.get_ident()

    async def on_loop() -> int:
        return threading.get_ident()

    @queue.task
    def plain(here: int = Depends(where)) -> bool:
        return here == threading.get_ident()

    @queue.task
    async def coro(here: int = Depends(where), there: int = Depends(on_loop)) -> bool:
        return here != there == threading.get_ident()

    jobs = [plain.enqueue(), coro.enqueue()]
    crew.start(queue)

    assert [job.result(60) for job in jobs] == [True, True]


# -- what a caller may pass


def test_callers_leave_dependencies_out_and_may_not_pass_them(queue: Handle):
    @queue.task
    def charge(order: int, note: str = "", *, db: str = Depends(lambda: "db")) -> str:
        return f"{order} {note} {db}"

    job = charge.enqueue(1, note="x")
    for call in (lambda: charge.enqueue(1, db="mine"), lambda: charge.enqueue(1, "x", "mine")):
        with pytest.raises(ArgumentsError) as refused:
            call()
    assert "too many positional" in str(refused.value)
    with pytest.raises(ArgumentsError, match="schedq fills in 'db', so leave it out"):
        charge.enqueue_many([((1,), {"db": "mine"})])

    bad = queue.enqueue({"task": "charge", "args": [1], "kwargs": {"db": "theirs"}})
    more = queue.enqueue({"task": "charge", "args": [1, "x", "theirs"]})
    run_due(queue.queue)

    assert job.result(0) == "1 x db"
    assert queue.fields(job.id)["payload"] == '{"task":"charge","args":[1],"kwargs":{"note":"x"}}'
    assert queue.fields(bad)["last_error"].startswith("wrong arguments: ")
    assert "schedq fills in 'db'" in queue.fields(bad)["last_error"]
    assert queue.fields(more)["last_error"].startswith("wrong arguments: task 'charge': too many positional")


def test_a_handler_of_payloads_may_have_dependencies_too(queue: Handle):
    @queue.handler
    def handle(payload: Any, db: str = Depends(lambda: "db")) -> str:
        return f"{payload} {db}"

    job_id = queue.enqueue(5)
    run_due(queue.queue)

    assert queue.result(job_id, 0) == "5 db"


def test_mistakes_are_reported_where_they_are_made(queue: Handle):
    with pytest.raises(UsageError, match="Depends takes a function, got 5"):
        Depends(5)  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="must be 'attempt' or 'worker', got 'request'"):
        Depends(current_job, scope="request")  # type: ignore[call-overload]
    with pytest.raises(UsageError, match="'last' follows 'db', which schedq fills in; move it to the front"):

        @queue.task
        def charge(order: int, db: str = Depends(lambda: "db"), last: int = 0) -> None: ...


def test_a_dependency_that_cannot_be_provided_is_named(queue: Handle):
    def around(it: Any = None) -> None: ...

    around.__defaults__ = (Depends(around),)

    def missing(path: str) -> str:
        return path

    def short(job: CurrentJob = Depends(current_job)) -> None: ...

    cases: dict[Any, str] = {
        Depends(around): "these dependencies need each other",
        Depends(missing): "nothing provides its parameter 'path'",
        Depends(short, scope="worker"): "lives as long as the worker, but its parameter 'job' depends on",
    }
    for number, (marker, problem) in enumerate(cases.items()):

        def task(it: Any = marker) -> None: ...

        queue.task(name=f"t{number}")(task)
        job_id = queue.enqueue({"task": f"t{number}"})
        run_due(queue.queue)
        assert problem in queue.fields(job_id)["last_error"]


def test_managers_made_by_contextlib_are_entered(queue: Handle):
    @contextmanager
    def plain_one() -> Iterator[str]:
        SEEN.append("+plain")
        yield "plain"
        SEEN.append("-plain")

    @asynccontextmanager
    async def async_one() -> AsyncIterator[str]:
        SEEN.append("+async")
        yield "async"
        SEEN.append("-async")

    @queue.task
    def both(one: str = Depends(plain_one), two: str = Depends(async_one)) -> str:
        return f"{one} {two}"

    job = both.enqueue()
    run_due(queue.queue)

    assert job.result(0) == "plain async"
    assert SEEN == ["+plain", "+async", "-async", "-plain"]


def test_repeated_cancellation_does_not_interrupt_a_cleanup(
    make_queue: MakeQueue, crew: Crew, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("schedq.worker.stuck._FIRST_WAIT_S", 0.05)
    queue = make_queue(max_attempts=1)

    async def slow() -> AsyncIterator[None]:
        try:
            yield
        finally:
            SEEN.append("cleaning")
            await asyncio.sleep(0.5)  # the worker cancels again in the meantime
            SEEN.append("clean")

    @queue.task(timeout=0.5)
    async def coro(it: None = Depends(slow)) -> None:
        await asyncio.sleep(60)

    job = coro.enqueue()
    crew.start(queue)
    until(lambda: queue.fields(job.id).get("status") == "failed")

    assert SEEN == ["cleaning", "clean"]
    assert queue.fields(job.id)["last_error"] == "TimeoutError: timed out after 0.5 s"


def test_a_cancellation_just_before_the_end_of_the_task_does_not_interrupt_a_cleanup(make_queue: MakeQueue, crew: Crew):
    queue = make_queue()

    async def commits() -> AsyncIterator[None]:
        yield
        await asyncio.sleep(0)
        SEEN.append("committed")

    @queue.task
    async def coro(it: None = Depends(commits)) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()  # raised by the next await, which is in the cleanup
        return "done"

    crew.start(queue)

    assert coro.enqueue().result(60) == "done"
    assert SEEN == ["committed"]
