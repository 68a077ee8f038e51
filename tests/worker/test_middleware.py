"""Code around each attempt: it sees what the handler does, and may change the outcome."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from schedq import (
    AttemptFacts,
    CallNext,
    Depends,
    Discard,
    JobFailed,
    Retry,
    Snooze,
    current_job,
)
from schedq.observer import Observer
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.waiting import until
from tests.worker.crew import Crew
from tests.worker.layers import KINDS, Trail, add_ok, handler

tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")


# -- what it is given, and in which order


@pytest.mark.parametrize("kind", KINDS)
def test_a_workers_middleware_is_outside_that_of_the_queue_in_the_order_of_use(
    queue: Handle, crew: Crew, trail: Trail, kind: str
) -> None:
    def run() -> str:
        trail.steps.append("run")
        return "done"

    task = queue.task(name="run")(handler(kind, run))
    for name in ("c", "d"):
        queue.use(trail.layer(name))
    crew.start(queue, middleware=[trail.layer("a"), trail.layer("b")])

    assert task.enqueue().result(20) == "done"

    assert trail.steps == ["+a", "+b", "+c", "+d", "run", "-d", "-c", "-b", "-a"]


def test_the_middleware_of_a_queue_is_for_that_queue(make_queue: MakeQueue, crew: Crew, trail: Trail) -> None:
    mail, files = make_queue(), make_queue()
    for queue, name in ((mail, "mail"), (files, "files")):
        add_ok(queue)
        queue.use(trail.layer(name))
    crew.start(mail, files, middleware=[trail.layer("all")])

    for queue in (mail, files):
        assert queue.wait(queue.enqueue({"task": "ok"}), 20)

    assert trail.steps == ["+all", "+mail", "-mail", "-all", "+all", "+files", "-files", "-all"]


@pytest.mark.parametrize("kind", KINDS)
def test_it_knows_the_attempt_and_the_current_job(queue: Handle, crew: Crew, kind: str) -> None:
    seen: list[Any] = []

    class Watch(Observer):
        def attempt_started(self, attempt: AttemptFacts) -> None:
            seen.append(attempt)

    @queue.use
    async def look(attempt: AttemptFacts, call_next: CallNext) -> Any:
        seen.append(attempt)
        job = current_job()
        assert (job.id, job.task, job.queue) == (attempt.job.id, attempt.task, attempt.queue)
        return await call_next()

    task = queue.task(name="run")(handler(kind, lambda number: number))
    post = crew.start(queue, observers=[Watch()])
    job = task.enqueue(7)

    assert job.result(20) == 7
    watched, attempt = seen
    assert attempt is watched
    assert (attempt.queue, attempt.worker, attempt.task) == (queue.name, post.worker.id, "run")
    assert (attempt.job.id, attempt.job.attempts, attempt.job.payload["args"]) == (job.id, 1, [7])
    assert attempt.lateness_ms >= 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_variable_that_it_sets_is_seen_in_the_handler_and_no_other_job(queue: Handle, crew: Crew, kind: str) -> None:
    @queue.use
    async def set_tenant(attempt: AttemptFacts, call_next: CallNext) -> Any:
        before = tenant.get()
        token = tenant.set(f"tenant of {attempt.job.id}")
        try:
            return [before, await call_next()]
        finally:
            tenant.reset(token)

    task = queue.task(name="run")(handler(kind, lambda: tenant.get()))
    crew.start(queue, concurrency=1)

    for _ in range(3):
        job = task.enqueue()
        assert job.result(20) == ["none", f"tenant of {job.id}"]


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_it_is_outside_the_dependencies_which_see_its_variables(
    queue: Handle, crew: Crew, trail: Trail, kind: str
) -> None:
    async def session() -> AsyncIterator[str]:
        trail.steps.append("+session")
        try:
            yield f"session of {tenant.get()}"
        finally:
            trail.steps.append("-session")

    def plain_session(below: str = Depends(session)) -> Iterator[str]:
        assert below == f"session of {tenant.get()}"
        yield f"plain {below}"

    @queue.use
    async def set_tenant(attempt: AttemptFacts, call_next: CallNext) -> Any:
        tenant.set("acme")
        return await call_next()

    async def acall(db: str = Depends(plain_session)) -> str:
        return f"{db} and {tenant.get()}"

    def call(db: str = Depends(plain_session)) -> str:
        return f"{db} and {tenant.get()}"

    queue.use(trail.layer("layer"))
    task = queue.task(name="run")(acall if kind == "async" else call)
    crew.start(queue)

    assert task.enqueue().result(20) == "plain session of acme and acme"
    assert trail.steps == ["+layer", "+session", "-session", "-layer"]


def test_payloads_of_a_handler_and_jobs_of_schedules_pass_it_too(queue: Handle, crew: Crew, trail: Trail) -> None:
    queue.use(trail.layer("layer"))

    @queue.handler
    def handle(payload: int) -> int:
        return payload + 1

    @queue.every(10**9, catch_up="latest")
    def tick() -> None:
        trail.steps.append("tick")

    crew.start(queue)

    assert queue.result(queue.enqueue(1), 20) == 2
    until(lambda: queue.schedules.get("tick"))  # the worker has written it
    queue.schedules.trigger("tick")
    until(lambda: trail.steps == ["+layer", "-layer", "+layer", "tick", "-layer"])


def test_jobs_without_an_attempt_pass_no_middleware(make_queue: MakeQueue, crew: Crew, trail: Trail) -> None:
    queue = make_queue(unknown_for=0)
    add_ok(queue)
    queue.use(trail.layer("layer"))
    crew.start(queue)

    assert queue.wait(queue.enqueue({"task": "unknown"}), 20)
    queue.redis.hset(queue.keys.job("bad"), mapping={"id": "bad", "payload": '{"half":'})
    queue.redis.lpush(queue.keys.pending, "bad")
    queue.redis.hincrby(queue.keys.stats, "enqueued_total", 1)
    until(lambda: queue.redis.llen(queue.keys.failed) == 2)

    assert trail.steps == []


# -- what it sees and changes


@pytest.mark.parametrize("kind", KINDS)
def test_it_sees_the_exception_itself(queue: Handle, crew: Crew, trail: Trail, kind: str) -> None:
    error = LookupError("no such customer")

    def fail() -> None:
        raise error

    task = queue.task(name="fail", max_attempts=1)(handler(kind, fail))
    queue.use(trail.layer("outer"))
    queue.use(trail.layer("inner"))
    crew.start(queue)
    job = task.enqueue()

    with pytest.raises(JobFailed, match="LookupError: no such customer"):
        job.result(20)

    assert trail.errors == [error, error]
    traceback = queue.fields(job.id)["traceback"].splitlines()
    assert "in layer" in traceback[1]
    assert "in fail" in "".join(traceback)
    assert "schedq/worker" not in "".join(traceback)
    assert "schedq/queue" not in "".join(traceback)


@pytest.mark.parametrize("kind", KINDS)
def test_it_may_replace_a_result_or_an_error(queue: Handle, crew: Crew, kind: str) -> None:
    @queue.use
    async def replace(attempt: AttemptFacts, call_next: CallNext) -> Any:
        try:
            return 10 * await call_next()
        except LookupError:
            return "nobody"
        except ArithmeticError as error:
            raise ValueError("not a number") from error

    def work(what: str) -> int:
        if what == "lookup":
            raise LookupError
        return 1 // len(what)

    task = queue.task(name="work", max_attempts=1)(handler(kind, work))
    crew.start(queue)

    assert task.enqueue("x").result(20) == 10
    assert task.enqueue("lookup").result(20) == "nobody"
    with pytest.raises(JobFailed, match="ValueError: not a number"):
        task.enqueue("").result(20)


def test_what_it_returns_is_encoded_as_the_handlers_result_is(queue: Handle, crew: Crew) -> None:
    later = datetime(2030, 1, 1, tzinfo=UTC)

    @queue.use
    async def replace(attempt: AttemptFacts, call_next: CallNext) -> Any:
        found = await call_next()
        assert isinstance(found, datetime)
        return later

    @queue.task
    def when(at: datetime) -> datetime:
        return at

    crew.start(queue)

    assert when.enqueue(datetime(2020, 1, 1, tzinfo=UTC)).result(20) == later


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("before", [True, False])
def test_it_may_ask_for_a_retry_a_snooze_or_a_failure(queue: Handle, crew: Crew, kind: str, before: bool) -> None:
    asked = {"retry": Retry(0), "snooze": Snooze(0.001), "discard": Discard("not wanted")}
    calls: list[str] = []

    @queue.use
    async def ask(attempt: AttemptFacts, call_next: CallNext) -> Any:
        (what,) = attempt.job.payload["args"]
        is_first = what not in calls
        calls.append(what)
        if before and is_first:
            raise asked[what]
        result = await call_next()
        if is_first:
            raise asked[what]
        return result

    task = queue.task(name="work", max_attempts=2)(handler(kind, lambda what: what))
    crew.start(queue)
    retried, snoozed, discarded = (task.enqueue(what) for what in asked)

    assert retried.result(20) == "retry"
    assert snoozed.result(20) == "snooze"
    with pytest.raises(JobFailed, match="not wanted"):
        discarded.result(20)
    attempts = [queue.fields(job.id)["attempts"] for job in (retried, snoozed, discarded)]
    assert attempts == ["2", "1", "1"]


@pytest.mark.parametrize("kind", KINDS)
def test_it_may_skip_the_handler(queue: Handle, crew: Crew, kind: str) -> None:
    ran: list[int] = []

    @queue.use
    async def cached(attempt: AttemptFacts, call_next: CallNext) -> Any:
        return "cached"

    task = queue.task(name="work")(handler(kind, lambda: ran.append(1)))
    crew.start(queue)

    assert task.enqueue().result(20) == "cached"
    assert ran == []


def test_wrong_arguments_fail_for_good_although_middleware_saw_the_error(
    queue: Handle, crew: Crew, trail: Trail
) -> None:
    queue.task(lambda number: number, name="work", max_attempts=5)
    queue.use(trail.layer("layer"))
    crew.start(queue)
    job_id = queue.enqueue({"task": "work", "args": [1, 2]})

    with pytest.raises(JobFailed, match="wrong arguments"):
        queue.result(job_id, 20)
    assert queue.fields(job_id)["attempts"] == "1"
    assert trail.steps == ["+layer", "!layer TypeError"]
