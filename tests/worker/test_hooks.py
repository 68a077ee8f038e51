"""Hooks of tasks, and the errors that a task retries."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from schedq import (
    AttemptFacts,
    CallNext,
    Depends,
    Discard,
    Fixed,
    JobCancelled,
    JobFailed,
    Retry,
    Snooze,
    UsageError,
    current_job,
)
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate
from tests.worker.layers import KINDS, add_ok, expect_life, handler


class RecordedHooks:
    """The hooks of a task; each records what it is called with."""

    def __init__(self, *, are_async: bool = False) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.threads: set[int] = set()
        self._are_async = are_async

    def options(self) -> dict[str, Any]:
        """Options of a task that has all of them."""
        return {name: self._hook(name) for name in ("on_success", "on_failure", "on_retry")}

    def _hook(self, name: str) -> Callable[..., Any]:
        def hook(attempt: AttemptFacts, *rest: Any) -> None:
            self.threads.add(threading.get_ident())
            assert current_job().id == attempt.job.id
            self.calls.append((name, attempt.job.attempts, *rest))

        async def ahook(attempt: AttemptFacts, *rest: Any) -> None:
            await asyncio.sleep(0)
            hook(attempt, *rest)

        return ahook if self._are_async else hook


@pytest.fixture
def hooks() -> RecordedHooks:
    return RecordedHooks()


@pytest.mark.parametrize("are_async", [True, False], ids=["async hooks", "plain hooks"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_hooks_are_called_with_the_outcome_of_each_attempt(
    queue: Handle, crew: Crew, kind: str, are_async: bool
) -> None:
    hooks = RecordedHooks(are_async=are_async)
    error = LookupError("no such customer")

    def work(what: str) -> str:
        if what == "fails":
            raise error
        return what

    task = queue.task(name="work", max_attempts=2, backoff=Fixed(0.001), **hooks.options())(handler(kind, work))
    crew.start(queue)

    assert task.enqueue("well").result(20) == "well"
    with pytest.raises(JobFailed, match="no such customer"):
        task.enqueue("fails").result(20)

    assert hooks.calls == [("on_success", 1, "well"), ("on_retry", 1, error, 0.001), ("on_failure", 2, error)]


def test_the_hooks_are_outside_all_middleware(queue: Handle, crew: Crew, hooks: RecordedHooks) -> None:
    async def outer(attempt: AttemptFacts, call_next: CallNext) -> Any:
        try:
            return 10 * await call_next()
        except LookupError:
            raise Discard("not wanted") from None

    @queue.use
    async def inner(attempt: AttemptFacts, call_next: CallNext) -> Any:
        return 1 + await call_next()

    def work(number: int) -> int:
        return [5][number]

    task = queue.task(name="work", **hooks.options())(work)
    crew.start(queue, middleware=[outer])

    assert task.enqueue(0).result(20) == 60
    with pytest.raises(JobFailed, match="not wanted"):
        task.enqueue(1).result(20)
    assert hooks.calls[0] == ("on_success", 1, 60)
    assert [(name, str(error)) for name, _, error in hooks.calls[1:]] == [("on_failure", "not wanted")]


def test_hooks_are_called_for_a_retry_or_discard_by_hand_but_not_for_a_snooze(
    queue: Handle, crew: Crew, hooks: RecordedHooks
) -> None:
    asked: list[BaseException] = [Snooze(0.001), Retry(0.002), Discard("not wanted")]
    left = list(asked)

    @queue.task(**hooks.options())
    def work() -> None:
        raise left.pop(0)

    crew.start(queue)

    with pytest.raises(JobFailed, match="not wanted"):
        work.enqueue().result(20)
    assert [(name, *rest) for name, _, *rest in hooks.calls] == [
        ("on_retry", asked[1], 0.002),
        ("on_failure", asked[2]),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_timeout_a_hook_has_time_to_report_it(queue: Handle, crew: Crew, gate: Gate, kind: str) -> None:
    reported: list[str] = []

    async def hold() -> None:
        await gate.passed()

    async def report(attempt: AttemptFacts, error: BaseException) -> None:
        await asyncio.sleep(1.2)  # longer than the wait before an attempt is asked to end again
        reported.append(f"{error!r}")

    function = {"async": hold, "plain": gate.wait, "awaitable": lambda: hold()}[kind]
    task = queue.task(name="hold", timeout=0.05, max_attempts=1, on_failure=report)(function)
    crew.start(queue)

    with pytest.raises(JobFailed, match="timed out"):
        task.enqueue().result(20)
    assert reported == ["TimeoutError('timed out after 0.05 s')"]


@pytest.mark.usefixtures("hasty")
def test_a_plain_hook_runs_although_handlers_that_overran_hold_all_threads(
    queue: Handle, crew: Crew, gate: Gate, hooks: RecordedHooks
) -> None:
    task = queue.task(name="hold", timeout=0.05, max_attempts=1, **hooks.options())(gate.wait)
    crew.start(queue, concurrency=1)

    with pytest.raises(JobFailed, match="timed out"):
        task.enqueue().result(20)
    until(lambda: hooks.calls)  # a hook that takes long is not waited for
    assert [name for name, *_ in hooks.calls] == ["on_failure"]


@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_no_hook_is_called_for_a_job_that_is_cancelled_or_released(
    queue: Handle, crew: Crew, gate: Gate, hooks: RecordedHooks, how: str
) -> None:
    begun = threading.Event()

    @queue.task(**hooks.options())
    async def hold() -> None:
        begun.set()
        await gate.passed()

    post = crew.start(queue, grace=0)
    job = hold.enqueue()
    assert begun.wait(20)

    if how == "cancel":
        job.cancel()
        with pytest.raises(JobCancelled):
            job.result(20)
    else:
        post.stop()
        post.join()
    assert hooks.calls == []


def test_no_hook_is_called_for_a_job_that_the_reclaimer_fails(queue: Handle, crew: Crew, hooks: RecordedHooks) -> None:
    task = queue.task(lambda: None, name="work", max_attempts=1, **hooks.options())
    job = task.enqueue()
    assert queue.claim() is not None
    queue.redis.zadd(queue.keys.leases, {job.id: 1})
    crew.start(queue)

    with pytest.raises(JobFailed):
        job.result(20)
    assert hooks.calls == []


def test_on_failure_is_called_with_the_reason_for_wrong_arguments(
    queue: Handle, crew: Crew, hooks: RecordedHooks
) -> None:
    queue.task(lambda number: number, name="work", max_attempts=5, **hooks.options())
    crew.start(queue)
    job_id = queue.enqueue({"task": "work", "args": [1, 2]})

    with pytest.raises(JobFailed, match="wrong arguments"):
        queue.result(job_id, 20)
    ((name, attempts, error),) = hooks.calls
    assert (name, attempts) == ("on_failure", 1)
    assert isinstance(error, Discard) and "wrong arguments" in str(error)


# -- hooks that misbehave


@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError])
def test_an_exception_of_a_hook_is_logged_and_changes_nothing(
    queue: Handle, crew: Crew, caplog: pytest.LogCaptureFixture, error: type[BaseException], kind: str
) -> None:
    def rage(attempt: AttemptFacts, *_: Any) -> None:
        raise error("enough")

    async def arage(attempt: AttemptFacts, *_: Any) -> None:
        raise error("enough")

    hook = rage if kind == "plain" else arage
    hooks = dict.fromkeys(("on_success", "on_failure", "on_retry"), hook)

    def work(what: str) -> str:
        if what == "fails":
            raise LookupError(what)
        return what

    add_ok(queue)
    task = queue.task(name="work", max_attempts=2, backoff=Fixed(0), **hooks)(work)
    crew.start(queue, concurrency=1)
    good = task.enqueue("well")
    bad = task.enqueue("fails")

    assert good.result(20) == "well"
    with pytest.raises(JobFailed, match="LookupError: fails"):
        bad.result(20)
    said = [
        entry
        for entry in caplog.records
        if "raised; the attempt ends as it would have without it" in entry.getMessage()
    ]
    assert len(said) == 3
    assert f"hook {__name__}." in said[0].getMessage() and " of work raised" in said[0].getMessage()
    assert all(entry.exc_info and entry.exc_info[0] is error for entry in said)
    expect_life(queue)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_hook_that_does_not_end_in_time_is_cancelled_and_changes_nothing(
    queue: Handle, crew: Crew, gate: Gate, logs: Logs, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    skipped_s = 0.0
    monkeypatch.setattr("schedq.worker.wrapped_call.monotonic", lambda: time.monotonic() + skipped_s)

    def work() -> str:
        nonlocal skipped_s
        skipped_s = 59.9
        return "done"

    async def ahold(attempt: AttemptFacts, result: str) -> None:
        await gate.passed()

    def hold(attempt: AttemptFacts, result: str) -> None:
        gate.wait()

    add_ok(queue)
    hook = hold if kind == "plain" else ahold
    task = queue.task(name="work", timeout=60, max_attempts=1, on_success=hook)(work)
    post = crew.start(queue, concurrency=1, grace=0.3)

    assert task.enqueue().result(20) == "done"
    until(lambda: [line for line in logs() if "hold of work raised" in line])
    if kind == "plain":
        assert not queue.wait(queue.enqueue({"task": "ok"}), 0.2), "its thread holds the slot"
        assert [slot.task for slot in until(lambda: post.worker.stuck)] == ["work"]
    gate.open()
    expect_life(queue)


def test_a_worker_that_stops_ends_a_hook_and_keeps_the_result(queue: Handle, crew: Crew, gate: Gate) -> None:
    begun = threading.Event()

    async def hold(attempt: AttemptFacts, result: str) -> None:
        begun.set()
        await gate.passed()

    task = queue.task(name="work", on_success=hold)(lambda: "done")
    post = crew.start(queue, grace=0)
    job = task.enqueue()
    assert begun.wait(20)

    post.stop()
    post.join()

    assert job.result(20) == "done"


def generates(attempt: AttemptFacts, result: Any) -> Any:
    yield 1


def with_database(attempt: AttemptFacts, error: BaseException, db: object = Depends(dict)) -> None: ...


REFUSED: dict[str, tuple[Any, str]] = {
    "on_success": (generates, "a hook on_success must be a function, and tests.worker.test_hooks.generates is a gen"),
    "on_failure": (lambda error: None, "on_failure is called with (attempt, error), but tests.worker.test_hooks.<lam"),
    "on_failure ": (
        with_database,
        "on_failure: tests.worker.test_hooks.with_database has a parameter with Depends",
    ),
    "on_retry": (
        RecordedHooks,
        "a hook on_retry must be a function, got the class tests.worker.test_hooks.RecordedHooks",
    ),
    "retry_on": (ValueError("x"), "retry_on must be an exception type or a tuple of them, got ValueError('x')"),
    "discard_on": ((KeyError, "x"), "discard_on must be an exception type or a tuple of them, got 'x'"),
}


@pytest.mark.parametrize("option", REFUSED)
def test_wrong_hooks_and_exception_types_are_refused(queue: Handle, option: str) -> None:
    given, said = REFUSED[option]

    with pytest.raises(UsageError) as refused:
        queue.task(name="work", **{option.strip(): given})(lambda: None)
    assert said in str(refused.value)
    assert queue.registry.is_empty


# -- which errors are worth another attempt


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("options", "error", "attempts"),
    [
        ({"retry_on": OSError}, ConnectionError("x"), 3),
        ({"retry_on": (KeyError, OSError)}, ConnectionError("x"), 3),
        ({"retry_on": OSError}, ValueError("x"), 1),
        ({"retry_on": OSError}, SystemExit("x"), 1),
        ({"retry_on": ()}, ValueError("x"), 1),
        ({"discard_on": OSError}, ConnectionError("x"), 1),
        ({"discard_on": OSError}, ValueError("x"), 3),
        ({"retry_on": OSError, "discard_on": ConnectionError}, ConnectionError("x"), 1),
        ({"retry_on": OSError, "discard_on": ConnectionError}, FileNotFoundError("x"), 3),
        ({"retry_on": OSError}, Retry(0, "x"), 3),
        ({"discard_on": Exception}, Retry(0, "x"), 3),
        ({"retry_on": Exception}, Discard("x"), 1),
    ],
    ids=str,
)
def test_errors_are_retried_or_not_as_the_task_says(
    queue: Handle, crew: Crew, options: dict[str, Any], error: BaseException, attempts: int, kind: str
) -> None:
    def fail() -> None:
        raise error

    task = queue.task(name="fail", max_attempts=3, backoff=Fixed(0), **options)(handler(kind, fail))
    crew.start(queue)
    job = task.enqueue()

    with pytest.raises(JobFailed, match="x"):
        job.result(20)
    fields = queue.fields(job.id)
    assert fields["attempts"] == str(attempts)
    if not isinstance(error, (Retry, Discard)):
        assert type(error).__name__ in fields["last_error"]
        assert "in fail" in fields["traceback"]


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_timeout_is_an_error_like_any_other(queue: Handle, crew: Crew, gate: Gate, kind: str) -> None:
    async def hold() -> None:
        await gate.passed()

    function = hold if kind == "async" else gate.wait
    once = queue.task(name="once", timeout=0.05, max_attempts=3, discard_on=TimeoutError)(function)
    again = queue.task(name="again", timeout=0.05, max_attempts=2, backoff=Fixed(0), retry_on=TimeoutError)(function)
    crew.start(queue)
    jobs = [once.enqueue(), again.enqueue()]

    for job in jobs:
        with pytest.raises(JobFailed, match="timed out"):
            job.result(20)
    assert [queue.fields(job.id)["attempts"] for job in jobs] == ["1", "2"]


def test_a_snooze_by_hand_is_not_an_error(queue: Handle, crew: Crew) -> None:
    snoozed: list[int] = []

    @queue.task(discard_on=Exception)
    def snooze() -> str:
        if not snoozed:
            snoozed.append(1)
            raise Snooze(0.001)
        return "done"

    crew.start(queue)

    assert snooze.enqueue().result(20) == "done"


def test_a_task_registered_with_another_queue_keeps_them(
    make_queue: MakeQueue, crew: Crew, hooks: RecordedHooks
) -> None:
    one, other = make_queue(), make_queue()

    @one.task(name="fail", max_attempts=3, discard_on=LookupError, **hooks.options())
    def fail() -> None:
        raise KeyError("x")

    registered = other.register(fail)
    also = other.task(name="renamed", discard_on=())(fail)
    crew.start(other)

    with pytest.raises(JobFailed):
        registered.enqueue().result(20)
    with pytest.raises(JobFailed):
        also.options(max_attempts=1).enqueue().result(20)
    assert [(name, attempts) for name, attempts, *_ in hooks.calls] == [("on_failure", 1), ("on_failure", 1)]
