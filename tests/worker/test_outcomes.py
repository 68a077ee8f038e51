"""How a job ends, depending on what its handler does."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from schedq import Discard, Exponential, Fixed, JobFailed, NewJob, Retry, Snooze
from tests.doors import Handle
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew


def delayed(queue: Handle, job_id: str) -> dict[str, str]:
    """The fields of a job once it waits for its next attempt."""
    return until(lambda: (found := queue.fields(job_id))["status"] == "delayed" and found) or {}


def wait_ms(fields: dict[str, str]) -> int:
    """How long a failed job has to wait."""
    return int(fields["run_at_ms"]) - int(fields["last_error_at_ms"])


def test_the_return_values_of_async_and_plain_functions_are_the_results(queue: Handle, crew: Crew) -> None:
    @queue.task
    async def twice(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    @queue.task
    def joined(*words: str, by: str) -> dict[str, str]:
        return {"text": by.join(words)}

    crew.start(queue)

    assert twice.enqueue(21).result(60) == 42
    assert joined.enqueue("a", "b", by="+").result(60) == {"text": "a+b"}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_traceback_begins_at_the_handler(queue: Handle, crew: Crew, is_async: bool) -> None:
    def fail() -> None:
        raise ValueError("no such mailbox")

    async def fail_later() -> None:
        fail()

    task = queue.task(name="fail", max_attempts=1)(fail_later if is_async else fail)
    crew.start(queue)
    job = task.enqueue()
    assert queue.wait(job.id, 60)

    files = [line for line in queue.fields(job.id)["traceback"].splitlines() if line.startswith("  File")]
    assert [line.rpartition(" in ")[2] for line in files] == (["fail_later", "fail"] if is_async else ["fail"])


def test_the_handler_gets_payloads_that_are_not_task_calls(queue: Handle, crew: Crew) -> None:
    @queue.handler
    def handle(payload: Any) -> Any:
        return ["handled", payload]

    crew.start(queue)

    for payload in ({"kind": "email"}, [1, None], "text", 7, None, {"task": "x", "extra": 1}):
        assert queue.result(queue.enqueue(payload), 60) == ["handled", payload]


def test_an_async_object_and_a_plain_function_around_an_async_one_are_awaited(queue: Handle, crew: Crew) -> None:
    class Caller:
        async def __call__(self, number: int) -> int:
            return number + 1

    async def inner(number: int) -> int:
        await asyncio.sleep(0)
        return number + 2

    called = queue.task(name="called")(Caller())
    wrapped = queue.task(name="wrapped")(lambda number: inner(number))
    crew.start(queue)

    assert called.enqueue(1).result(60) == 2
    assert wrapped.enqueue(1).result(60) == 3


def test_a_task_added_by_a_later_release_is_run_by_that_release(queue: Handle, crew: Crew) -> None:
    @queue.task
    def known() -> None: ...

    job_id = queue.enqueue({"task": "coming"}, backoff=Fixed(0.05))
    crew.start(queue)
    until(lambda: queue.fields(job_id).get("unknown_since_ms"))

    queue.task(name="coming")(lambda: "came")

    assert queue.result(job_id, 60) == "came"


def test_an_unreadable_payload_fails_and_is_never_run(queue: Handle, crew: Crew, logs: Logs) -> None:
    ran: list[object] = []
    queue.handler(ran.append)
    queue.redis.hset(queue.keys.job("bad"), mapping={"id": "bad", "payload": '{"half":'})
    queue.redis.lpush(queue.keys.pending, "bad")
    queue.redis.hincrby(queue.keys.stats, "enqueued_total", 1)

    crew.start(queue)

    until(lambda: queue.places() == {"failed": ["bad"]})
    assert queue.fields("bad")["last_error"].startswith("unreadable payload: payload is not JSON")
    assert ran == []
    assert [line for line in logs() if line.startswith("ERROR job bad: its payload can't be read")]


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_an_exception_is_retried_until_the_attempts_are_used_up(queue: Handle, crew: Crew, kind: str) -> None:
    seen = []

    def fail(text: str) -> None:
        seen.append(text)
        raise LookupError(f"no {text}")

    async def afail(text: str) -> None:
        fail(text)

    task = queue.task(name="fail", max_attempts=3, backoff=Fixed(0.02))(afail if kind == "async" else fail)
    crew.start(queue)
    job = task.enqueue("luck")

    with pytest.raises(JobFailed, match="LookupError: no luck"):
        job.result(60)

    assert seen == ["luck"] * 3
    fields = queue.fields(job.id)
    assert "raise LookupError" in fields["traceback"]
    assert [json.loads(line)["outcome"] for line in fields["history"].splitlines()] == ["retry", "retry", "failed"]


@pytest.mark.parametrize("word", [Retry, Discard])
def test_what_led_to_a_retry_or_a_discard_is_kept_with_its_traceback(queue: Handle, crew: Crew, word: Any) -> None:
    @queue.task(max_attempts=1)
    def ask(*, because: bool) -> None:
        try:
            raise ConnectionError("crm")
        except ConnectionError as error:
            raise word(reason="later") from (error if because else None)

    crew.start(queue)
    jobs = [ask.enqueue(because=because) for because in (True, False)]
    until(lambda: [job.status() for job in jobs] == ["failed"] * 2)

    caused, plain = (queue.fields(job.id) for job in jobs)
    assert (caused["last_error"], plain["last_error"]) == ("later", "later")
    assert 'raise ConnectionError("crm")' in caused["traceback"]
    assert "traceback" not in plain


def test_a_jobs_own_backoff_comes_before_its_tasks_and_that_before_the_queues(make_queue: Any, crew: Crew) -> None:
    queue = make_queue(backoff=Fixed(3000))

    def fail(_: int) -> None:
        raise RuntimeError

    own = queue.task(name="own", backoff=Fixed(2000))(fail)
    plain = queue.task(name="plain")(fail)
    crew.start(queue)
    of_queue, of_task = plain.enqueue(1), own.enqueue(1)
    of_job = own.options(backoff=Fixed(1000)).enqueue(1)

    waits = [wait_ms(delayed(queue, job.id)) for job in (of_job, of_task, of_queue)]

    assert waits == [1_000_000, 2_000_000, 3_000_000]


def test_a_backoff_function_gets_attempt_and_error(queue: Handle, crew: Crew) -> None:
    asked = []

    def backoff(attempt: int, error: BaseException) -> float:
        asked.append((attempt, repr(error)))
        return 0.01 if attempt == 1 else 500

    @queue.task(backoff=backoff)
    def fail() -> None:
        raise KeyError("k")

    crew.start(queue)
    job = fail.enqueue()

    until(lambda: queue.fields(job.id)["attempts"] == "2" and queue.fields(job.id)["status"] == "delayed")
    assert asked == [(1, "KeyError('k')"), (2, "KeyError('k')")]
    assert wait_ms(queue.fields(job.id)) == 500_000


@pytest.mark.parametrize("answer", [ZeroDivisionError("by zero"), -1, float("nan"), "soon", None])
def test_a_backoff_function_that_fails_costs_nothing_but_its_delay(queue: Handle, crew: Crew, answer: Any) -> None:
    def backoff(attempt: int, error: BaseException) -> float:
        if isinstance(answer, Exception):
            raise answer
        found: float = answer
        return found

    @queue.task(backoff=backoff)
    def fail() -> None:
        raise RuntimeError("the first problem")

    crew.start(queue)
    job = fail.enqueue()

    fields = delayed(queue, job.id)
    assert wait_ms(fields) == Exponential().wait(1) * 1000
    assert fields["last_error"] == "RuntimeError: the first problem"


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_a_handler_may_ask_for_retry_discard_and_snooze(queue: Handle, crew: Crew, kind: str) -> None:
    asks = {
        "retry": Retry(after=timedelta(seconds=700), reason="busy"),
        "discard": Discard("no such address"),
        "snooze": Snooze(800),
    }

    def ask(what: str) -> None:
        raise asks[what]

    async def aask(what: str) -> None:
        raise asks[what]

    task = queue.task(name="ask", backoff=Fixed(1))(aask if kind == "async" else ask)
    crew.start(queue)
    retry, discard, snooze = (task.enqueue(what) for what in asks)

    fields = delayed(queue, retry.id)
    assert (fields["attempts"], fields["last_error"], wait_ms(fields)) == ("1", "busy", 700_000)
    with pytest.raises(JobFailed, match="no such address"):
        discard.result(60)
    fields = delayed(queue, snooze.id)
    assert (fields["attempts"], "last_error" in fields) == ("0", False)


@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit(), StopIteration()]
)
def test_an_exception_that_would_end_a_process_fails_the_job_and_not_the_worker(
    queue: Handle, crew: Crew, kind: str, error: BaseException
) -> None:
    def fail() -> None:
        raise error

    async def afail() -> None:
        fail()

    task = queue.task(name="fail", max_attempts=1)(afail if kind == "async" else fail)
    ok = queue.task(name="ok")(lambda: "ok")
    post = crew.start(queue, concurrency=1)

    with pytest.raises(JobFailed, match=type(error).__name__):
        task.enqueue().result(60)

    assert ok.enqueue().result(60) == "ok"
    assert post.is_working


def test_a_result_that_is_not_json_completes_the_job_with_a_result_error(queue: Handle, crew: Crew) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError("not even that")

    values = {
        "set": {1},
        "nan": float("nan"),
        "surrogate": "\ud800",
        "odd": Odd(),
        "bytes": b"x",
        "large": "x" * 300_000,
    }
    task = queue.task(name="give")(lambda what: values[what])
    crew.start(queue)

    for what in values:
        job = task.enqueue(what)
        assert isinstance(job.result(60), str)
        record = job.record()
        assert record.status == "completed"
        assert "result" in record.result_error


def test_the_log_says_once_that_results_of_a_task_are_stored_as_text(queue: Handle, crew: Crew, logs: Logs) -> None:
    task = queue.task(name="give")(lambda: {1})
    crew.start(queue)

    first, second = task.enqueue(), task.enqueue()
    assert [first.result(60), second.result(60)] == ["{1}", "{1}"]

    problem = "give completed, but its result is stored as text: result is a set, which is not JSON"
    until(lambda: [line for line in logs() if problem in line])
    assert sum(problem in line for line in logs()) == 1


def test_huge_and_wild_error_texts_are_stored_shortened_and_escaped(queue: Handle, crew: Crew, logs: Logs) -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    wild = "\x1b[2Jgone\r\n2026-01-01 ERROR forged\x00\ud800" + "x" * 1_000_000
    errors = {"wild": RuntimeError(wild), "mute": MuteError()}

    @queue.handler
    def fail(what: str) -> None:
        raise errors[what]

    crew.start(queue)
    jobs = queue.enqueue_many([NewJob(what, max_attempts=1) for what in errors])

    until(lambda: len(queue.places().get("failed", ())) == 2)
    error, trace = (queue.fields(jobs[0])[field] for field in ("last_error", "traceback"))
    assert len(error) <= 8192
    assert len(trace) <= 8192
    assert not {"\x1b", "\r", "\x00"} & set(error + trace)
    assert "MuteError" in queue.fields(jobs[1])["last_error"]
    assert max(map(len, logs())) < 1000
