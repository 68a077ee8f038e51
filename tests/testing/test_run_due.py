"""Testing an application: a clock that the test advances, and jobs that run when the test says so."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
from freezegun import freeze_time

from schedq import AsyncQueue, AttemptFacts, CallNext, Discard, Fixed, JobFailed, Queue, UsageError, current_job
from schedq.model import times
from schedq.testing import as_job, run_due, wall_clock
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.servers import Server

DAY = timedelta(days=1)


@pytest.fixture
def door() -> str:
    """`run_due` accepts queues of either client; most tests here need only one."""
    return "blocking"


@pytest.fixture
def queue(make_queue: MakeQueue) -> Handle:
    """A queue that uses the test's clock."""
    return make_queue(clock=wall_clock)


def test_a_job_due_in_three_days_runs_after_the_clock_moved(queue: Handle) -> None:
    ran = []

    @queue.task
    def remind(name: str) -> str:
        ran.append(name)
        return f"reminded {name}"

    with freeze_time("2026-03-01") as frozen:
        job = remind.options(delay=3 * DAY).enqueue("ada")
        assert run_due(queue.queue) == 0
        frozen.tick(3 * DAY - timedelta(milliseconds=1))
        assert run_due(queue.queue) == 0
        frozen.tick(timedelta(milliseconds=1))
        assert run_due(queue.queue) == 1

        assert ran == ["ada"]
        assert job.result(0) == "reminded ada"


@pytest.mark.parametrize("waits", ["job", "schedule"])
def test_a_frozen_clock_that_the_queue_does_not_use_is_named(make_queue: MakeQueue, waits: str) -> None:
    queue = make_queue()
    remind = queue.task(name="remind")(lambda: "reminded")
    if waits == "schedule":
        queue.every(10**9, id="rarely")(remind)

    with freeze_time("2026-03-01") as frozen:
        if waits == "job":
            remind.options(delay=3 * DAY).enqueue()
        with pytest.raises(UsageError, match=r"2026-03-01 00:00:00 UTC: .*clock=schedq\.testing\.wall_clock"):
            run_due(queue.queue)
        frozen.tick(3 * DAY)
        with pytest.raises(UsageError, match="2026-03-04 00:00:00 UTC"):
            run_due(queue.queue)
    assert run_due(queue.queue) == 0


def test_a_clock_replaced_in_any_way_is_noticed(make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = make_queue()
    queue.handler(lambda payload: payload)
    queue.enqueue({}, delay=60)
    assert run_due(queue.queue) == 0

    monkeypatch.setattr(time, "time", lambda: times.wall() + 61)

    with pytest.raises(UsageError, match="1 delayed job can't become due"):
        run_due(queue.queue)


def test_a_frozen_clock_that_changes_nothing_raises_no_error(
    make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedq.testing.runner._SAME_S", 60)  # the clock may be frozen for some seconds
    queue = make_queue()
    double = queue.task(name="double")(lambda number: 2 * number)

    with freeze_time("2026-03-01"):
        assert run_due(queue.queue) == 0  # no job is waiting
        job = double.enqueue(21)
        assert run_due(queue.queue) == 1
        assert job.result(0) == 42
    double.options(delay=DAY).enqueue(1)
    assert run_due(queue.queue) == 0  # the clock is not replaced
    with freeze_time():
        assert run_due(queue.queue) == 0  # it shows the same time as Redis's clock


def test_a_year_of_retries_in_a_second(queue: Handle) -> None:
    days = []

    @queue.task(max_attempts=365, backoff=Fixed(86_400))
    def stubborn() -> str:
        days.append(current_job().attempts)
        if len(days) < 365:
            raise ConnectionError("not yet")
        return "at last"

    began = times.monotonic()
    with freeze_time("2026-01-01") as frozen:
        job = stubborn.enqueue()
        while run_due(queue.queue):
            frozen.tick(DAY)
        assert job.result(0) == "at last"

    assert days == list(range(1, 366))
    assert times.monotonic() - began < 30


def test_async_handlers_run_and_their_sleeps_take_real_time(queue: Handle) -> None:
    @queue.task
    async def wait(name: str) -> str:
        await asyncio.sleep(0.01)  # would never end with the frozen clock
        return f"{name} {current_job().attempts}"

    with freeze_time("2026-01-01"):
        jobs = [wait.enqueue(name) for name in ("ada", "bob")]
        assert run_due(queue.queue) == 2
        assert [job.result(0) for job in jobs] == ["ada 1", "bob 1"]


def test_a_context_variable_of_one_job_does_not_leak_to_the_next_or_to_the_test(queue: Handle) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")

    @queue.task
    def serve(name: str) -> str:
        found: str = tenant.get()
        tenant.set(name)
        return found

    @queue.task
    async def aserve(name: str) -> str:
        found: str = serve(name)
        return found

    jobs = [task.enqueue(name) for name in ("ada", "bob") for task in (serve, aserve)]
    run_due(queue.queue)

    assert [job.result(0) for job in jobs] == ["nobody"] * 4
    assert tenant.get() == "nobody"


def test_async_handlers_may_use_the_queue_call_after_call(queue: Handle) -> None:
    @queue.task
    async def first(number: int) -> bool:
        await second.aenqueue(number)
        return await current_job().arenew()

    seen: list[int] = []
    second = queue.task(name="second")(seen.append)

    for number in range(3):
        jobs = [first.enqueue(number), first.enqueue(number)]
        assert run_due(queue.queue) == 4
        assert [job.result(0) for job in jobs] == [True, True]

    assert seen == [0, 0, 1, 1, 2, 2]


def test_the_test_can_keep_using_the_asyncio_queue(queue: Handle) -> None:
    @queue.task
    async def nothing() -> None: ...

    async def main() -> str:
        job = await nothing.aenqueue()
        assert await asyncio.to_thread(run_due, queue.queue) == 1
        status: str = await job.astatus()
        await queue.queue.aio.aclose()
        return status

    assert asyncio.run(main()) == "completed"


def test_in_an_event_loop_the_error_says_what_to_write(queue: Handle) -> None:
    async def main() -> None:
        run_due(queue.queue)

    with pytest.raises(UsageError, match="asyncio.to_thread"):
        asyncio.run(main())


def test_the_queue_of_an_asyncio_application_is_accepted_too(server: Server, queue: Handle) -> None:
    async_queue = AsyncQueue(queue.name, redis=server.unix_url, clock=wall_clock)

    @async_queue.task
    async def double(number: int) -> int:
        return 2 * number

    job = double.enqueue(21)

    assert run_due(async_queue) == 1
    assert job.result(0) == 42
    blocking = async_queue.blocking
    assert isinstance(blocking, Queue)
    blocking.close()


@pytest.mark.parametrize("kind", ["plain", "async"])
@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(2), asyncio.CancelledError("gone"), Discard("bad")])
def test_an_exception_of_a_handler_fails_only_its_job(queue: Handle, kind: str, error: BaseException) -> None:
    def fail() -> None:
        raise error

    async def afail() -> None:
        raise error

    task = queue.task(name="fail", max_attempts=1)(afail if kind == "async" else fail)
    jobs = [task.enqueue(), task.enqueue()]

    assert run_due(queue.queue) == 2
    for job in jobs:
        with pytest.raises(JobFailed, match=type(error).__name__ if str(error) != "bad" else "bad"):
            job.result(0)


def test_ctrl_c_ends_the_test(queue: Handle) -> None:
    task = queue.task(name="fail")(lambda: (_ for _ in ()).throw(KeyboardInterrupt()))
    task.enqueue()

    with pytest.raises(KeyboardInterrupt):
        run_due(queue.queue)


def test_ctrl_c_ends_the_test_in_an_async_handler_too(queue: Handle) -> None:
    @queue.task
    async def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(5)

    interrupted.enqueue()

    with pytest.raises(KeyboardInterrupt):
        run_due(queue.queue)


def test_a_tasks_own_attempts_and_backoff_apply_to_payloads_of_other_programs(queue: Handle) -> None:
    @queue.task(max_attempts=2, backoff=lambda attempt, error: 700 * attempt)
    def fail() -> None:
        raise RuntimeError

    with freeze_time("2026-01-01") as frozen:
        job_id = queue.enqueue({"task": "fail"})
        assert run_due(queue.queue) == 1
        fields = queue.fields(job_id)
        assert int(fields["run_at_ms"]) - int(fields["last_error_at_ms"]) == 700_000
        frozen.tick(700)
        assert run_due(queue.queue) == 1

    assert queue.places() == {"failed": [job_id]}


def test_timeouts_of_async_handlers_are_kept_in_real_time(queue: Handle) -> None:
    deadlines = []

    @queue.task(timeout=0.05, max_attempts=1)
    async def slow() -> None:
        deadlines.append(current_job().deadline)
        await asyncio.sleep(60)

    with freeze_time("2026-01-01"):
        job = slow.enqueue()
        assert run_due(queue.queue) == 1
        with pytest.raises(JobFailed, match=r"timed out after 0.05 s"):
            job.result(0)

    assert [str(deadline) for deadline in deadlines] == ["2026-01-01 00:00:00.050000+00:00"]


def test_a_job_without_a_registered_task_waits_for_its_backoff(queue: Handle, caplog: pytest.LogCaptureFixture) -> None:
    job_id = queue.enqueue({"task": "unknown"})

    assert run_due(queue.queue) == 1
    assert queue.places() == {"delayed": [job_id]}
    said = f"job {job_id}: this process has no task 'unknown'; a test imports the module that defines it"
    assert said in caplog.messages


def test_the_limit_ends_a_run_that_would_never_end(queue: Handle) -> None:
    @queue.task(backoff=Fixed(0), max_attempts=1_000_000)
    def again() -> None:
        raise RuntimeError

    again.enqueue()

    assert run_due(queue.queue, limit=25) == 25


def test_current_job_works_in_handlers_and_not_afterwards(queue: Handle) -> None:
    ids: list[str] = []
    task = queue.task(name="note")(lambda: ids.append(current_job().id))
    job = task.enqueue()

    run_due(queue.queue)

    assert ids == [job.id]
    with pytest.raises(UsageError):
        current_job()


def test_under_a_frozen_clock_calls_still_wait_and_time_out_in_real_time(queue: Handle) -> None:
    with freeze_time("2026-01-01"):
        began = times.monotonic()
        assert queue.claim(timeout_ms=150) is None
        job_id = queue.enqueue({})
        assert not queue.wait(job_id, 0.15)
        assert list(queue.events(timeout=0.1)) == []
        took = times.monotonic() - began
        assert time.monotonic() == time.monotonic()  # the clock is frozen

    assert 0.4 <= took < 20


def test_under_a_frozen_clock_a_worker_meets_its_timeouts(queue: Handle) -> None:
    """A worker needs real time on its loop, which freezegun's `real_asyncio` provides."""
    from schedq.worker import Worker

    @queue.task(timeout=0.05, max_attempts=1)
    def stuck() -> None:
        while not current_job().is_cancelled:
            times.sleep(0.01)

    @queue.task
    def later() -> None: ...

    async def work() -> list[Any]:
        worker = Worker([queue.queue], burst=True)
        await asyncio.wait_for(worker.run(), 60)
        return [job.status() for job in jobs]

    with freeze_time("2026-01-01", real_asyncio=True):
        jobs = [stuck.enqueue(), later.enqueue()]
        assert asyncio.run(work()) == ["failed", "completed"]


def test_a_function_that_uses_current_job_can_be_called_as_a_plain_function():
    def task() -> tuple[str, int, bool, bool]:
        job = current_job()
        return job.id, job.attempts, job.renew(), job.is_cancelled

    with as_job("order-7", attempts=2) as job:
        calm = task()
        job.cancel()
        asked_to_stop = task()

    assert calm == ("order-7", 2, True, False)
    assert asked_to_stop == ("order-7", 2, True, True)
    with pytest.raises(UsageError):
        task()


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_middleware_and_hooks_run_as_in_a_worker(queue: Handle, kind: str) -> None:
    steps: list[Any] = []
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")

    @queue.use
    async def outer(attempt: AttemptFacts, call_next: CallNext) -> Any:
        tenant.set(f"{attempt.queue} {attempt.task} {attempt.job.id}")
        try:
            return [await call_next()]
        except LookupError as error:
            steps.append(error)
            raise ValueError("not found") from error

    @queue.use
    async def inner(attempt: AttemptFacts, call_next: CallNext) -> Any:
        found, _ = await asyncio.gather(call_next(), asyncio.sleep(0))
        return found

    def work(name: str) -> str:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()  # a plain function may use one of its own, as without middleware
        assert threading.current_thread() is threading.main_thread()
        if name == "nobody":
            raise LookupError(name)
        return tenant.get()

    async def awork(name: str) -> str:
        await asyncio.sleep(0)
        if name == "nobody":
            raise LookupError(name)
        return tenant.get()

    task = queue.task(
        name="work",
        max_attempts=2,
        backoff=Fixed(0, jitter=0.5),
        on_success=lambda attempt, result: steps.append(result),
        on_failure=lambda attempt, error: steps.append(error),
        on_retry=lambda attempt, error, delay: steps.append(delay),
    )(work if kind == "plain" else awork)
    good, bad = task.enqueue("ada"), task.enqueue("nobody")

    assert run_due(queue.queue) == 3

    result = [f"{queue.name} work {good.id}"]
    assert good.result(0) == result
    with pytest.raises(JobFailed, match="ValueError: not found"):
        bad.result(0)
    assert [type(step) for step in steps] == [list, LookupError, float, LookupError, ValueError]
    assert steps[0] == result
    assert tenant.get() == "none"


def test_a_hook_receives_the_delay_that_is_stored(queue: Handle) -> None:
    told: list[float] = []
    task = queue.task(
        name="fail",
        max_attempts=2,
        backoff=Fixed(100, jitter=0.9),
        on_retry=lambda attempt, error, delay: told.append(delay),
    )(lambda: [][0])

    with freeze_time("2026-03-01"):
        job = task.enqueue()
        run_due(queue.queue)
        due = int(queue.fields(job.id)["run_at_ms"])

    assert told == [(due - 1772323200_000) / 1000]


def test_errors_that_are_not_worth_another_attempt_fail_at_once(queue: Handle) -> None:
    task = queue.task(name="fail", max_attempts=5, discard_on=LookupError)(lambda: [][0])
    job = task.enqueue()

    assert run_due(queue.queue) == 1
    with pytest.raises(JobFailed, match="IndexError"):
        job.result(0)


def test_ctrl_c_ends_the_test_within_middleware_too(queue: Handle) -> None:
    @queue.use
    async def pass_on(attempt: AttemptFacts, call_next: CallNext) -> Any:
        return await call_next()

    def interrupt() -> None:
        raise KeyboardInterrupt

    queue.task(name="interrupt")(interrupt).enqueue()

    with pytest.raises(KeyboardInterrupt):
        run_due(queue.queue)
    assert queue.places().keys() == {"processing"}


def test_middleware_that_leaves_its_handler_behind_is_an_error(queue: Handle) -> None:
    @queue.use
    async def leave(attempt: AttemptFacts, call_next: CallNext) -> Any:
        task = asyncio.create_task(call_next())
        await asyncio.sleep(0)
        return task.get_name()

    ran: list[int] = []
    job = queue.task(name="work", max_attempts=1)(lambda: ran.append(1)).enqueue()

    assert run_due(queue.queue) == 1
    with pytest.raises(JobFailed, match="returned before call_next"):
        job.result(0)


def test_functions_for_child_processes_run_in_the_process_of_the_test(queue: Queue):
    @queue.task
    async def measure(text: str) -> int:
        return await current_job().run_isolated(len, text)

    job = measure.enqueue("four")

    run_due(queue)

    assert job.result(20) == 4
    with as_job():
        assert asyncio.run(measure("three")) == 5
