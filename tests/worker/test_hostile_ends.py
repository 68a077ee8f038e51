"""Whatever a handler raises or returns, its attempt ends, its slot is freed, and the worker continues."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn

import pytest

from schedq import Discard, Fixed, Retry, Snooze
from schedq.logs import log
from schedq.observer import AttemptEnd, AttemptFacts, Observer
from tests.doors import Handle
from tests.waiting import until
from tests.worker.crew import Crew, Post

BEYOND: tuple[type[BaseException], ...] = (ValueError, SystemExit, KeyboardInterrupt, GeneratorExit)
"""Exceptions that user code may raise while it is examined; most of these end a process that does not catch them."""


class BareRetry(Retry):
    def __init__(self) -> None: ...


class BareSnooze(Snooze):
    def __init__(self) -> None: ...


class BareDiscard(Discard):
    def __init__(self) -> None: ...


class WrongRetry(Retry):
    def __init__(self) -> None:
        self.after_ms = "soon"  # type: ignore[assignment]


def raises(kind: type[BaseException]) -> Callable[..., NoReturn]:
    """A method that raises."""

    def method(*_: object) -> NoReturn:
        raise kind("while it was looked at")

    return method


def hostile(attribute: str, kind: type[BaseException], parent: type[BaseException] = RuntimeError) -> BaseException:
    """An exception that raises when one of its attributes is read."""
    method = raises(kind)
    value = method if attribute in ("__str__", "__repr__") else property(method)
    made: BaseException = type("HostileError", (parent,), {attribute: value})("hostile")
    return made


class Nameless(type):
    """Its class raises when asked for its name."""

    def __getattribute__(cls, name: str) -> Any:
        if name in ("__name__", "__qualname__", "__module__"):
            raise SystemExit("while it was looked at")
        return type.__getattribute__(cls, name)


class NamelessError(Exception, metaclass=Nameless): ...


class WorseError(ValueError):
    """The exception that a hostile exception raises may itself be hostile."""

    __repr__ = __str__ = raises(SystemExit)


ERRORS: dict[str, Callable[[], BaseException]] = {
    "a Retry without its delay": BareRetry,
    "a Retry with a delay that is none": WrongRetry,
    "a Snooze without its delay": BareSnooze,
    "a Discard without its reason": BareDiscard,
    "StopIteration": lambda: hostile("__repr__", ValueError, StopIteration),
    "StopIteration twice hostile": lambda: hostile("__repr__", WorseError, StopIteration),
    "a class without a name": NamelessError,
    "GeneratorExit": GeneratorExit,
    "SystemExit": lambda: SystemExit(3),
    **{
        f"{attribute} that raises {kind.__name__}": partial(hostile, attribute, kind)
        for attribute in ("__str__", "__class__", "__cause__", "__notes__", "__traceback__")
        for kind in BEYOND
    },
}


def expect_life(queue: Handle, post: Post) -> None:
    """The only slot is free, no lease is left, and the worker runs the next job."""
    assert queue.task(lambda: "ok", name="ok").enqueue().result(20) == "ok"
    until(lambda: not queue.redis.exists(queue.keys.leases, queue.keys.processing))
    assert post.is_working


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_an_attempt_ends_whatever_its_handler_raises(queue: Handle, crew: Crew, kind: str) -> None:
    def fail(what: str) -> None:
        raise ERRORS[what]()

    async def afail(what: str) -> None:
        raise ERRORS[what]()

    task = queue.task(name="fail", max_attempts=2, backoff=Fixed(0))(fail if kind == "plain" else afail)
    post = crew.start(queue, concurrency=1)

    jobs = {what: task.enqueue(what) for what in ERRORS}

    until(lambda: len(queue.places().get("failed", ())) == len(jobs))
    attempts = {what: queue.fields(job.id)["attempts"] for what, job in jobs.items()}
    assert {what for what, count in attempts.items() if count != "2"} == {"a Discard without its reason"}
    assert all(queue.fields(job.id)["last_error"] for job in jobs.values())
    expect_life(queue, post)


def test_a_failure_is_logged_even_if_its_class_can_not_be_examined(
    queue: Handle, crew: Crew, caplog: pytest.LogCaptureFixture
) -> None:
    @queue.task(max_attempts=1)
    def fail() -> None:
        raise NamelessError

    crew.start(queue)
    job = fail.enqueue()

    assert queue.wait(job.id, 20)
    failed = f"job {job.id}: fail failed for good, attempt 1: exception: (its text is not available)"
    until(lambda: failed in caplog.text)
    assert "NamelessError (its traceback can't be shown)" in caplog.text


def test_an_invalid_delay_is_named(queue: Handle, crew: Crew) -> None:
    @queue.task(max_attempts=1)
    def snooze() -> None:
        raise BareSnooze

    crew.start(queue)
    job = snooze.enqueue()

    assert queue.wait(job.id, 20)
    error = queue.fields(job.id)["last_error"]
    assert error.startswith("the end of the attempt could not be processed: UsageError: BareSnooze has no valid delay")


def test_a_retry_that_does_not_call_its_parent_uses_the_jobs_backoff(queue: Handle, crew: Crew) -> None:
    seen: list[int] = []

    @queue.task(max_attempts=2, backoff=Fixed(0))
    def again() -> str:
        seen.append(1)
        if len(seen) == 1:
            raise BareRetry
        return "done"

    crew.start(queue)

    assert again.enqueue().result(20) == "done"


@pytest.mark.parametrize("kind", BEYOND)
@pytest.mark.parametrize("attribute", ["__repr__", "__class__", "__len__", "__iter__", "__await__"])
def test_a_result_that_can_not_be_examined_completes_its_job(
    queue: Handle, crew: Crew, attribute: str, kind: type[BaseException]
) -> None:
    parent = {"__len__": list, "__iter__": dict}.get(attribute, object)
    value: Any = raises(kind) if attribute != "__class__" else property(raises(kind))
    odd = type("Odd", (parent,), {attribute: value})()

    @queue.task
    async def give() -> object:
        return odd

    @queue.task
    def give_plain() -> object:
        return odd if attribute != "__await__" else [odd]

    post = crew.start(queue, concurrency=1)
    jobs = [give.enqueue(), give_plain.enqueue()]

    for job in jobs:
        assert queue.wait(job.id, 20)
        assert queue.fields(job.id)["status"] == "completed"
    expect_life(queue, post)


@pytest.mark.parametrize("kind", BEYOND)
def test_a_backoff_function_may_raise_anything(queue: Handle, crew: Crew, kind: type[BaseException]) -> None:
    task = queue.task(name="fail", max_attempts=2, backoff=raises(kind))(raises(ValueError))
    post = crew.start(queue, concurrency=1)
    job = task.enqueue()

    until(lambda: queue.fields(job.id)["status"] in ("delayed", "failed"))  # failed: in its second attempt
    assert queue.fields(job.id)["last_error"] == "ValueError: while it was looked at"
    expect_life(queue, post)


class Filter(logging.Filter):
    """Raises for every line."""

    def __init__(self, kind: type[BaseException]) -> None:
        super().__init__()
        self._kind = kind

    def filter(self, record: logging.LogRecord) -> bool:
        raise self._kind("filter")


@pytest.fixture(params=[ValueError, SystemExit])
def broken_log(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An application's filter raises for every line that schedq logs."""
    found = Filter(request.param)
    monkeypatch.setattr(log, "_reported", set())
    logging.getLogger("schedq").addFilter(found)
    yield
    logging.getLogger("schedq").removeFilter(found)


class Brute(Observer):
    """Raises at the start and at the end of attempts."""

    def attempt_started(self, attempt: AttemptFacts) -> None:
        raise SystemExit("enough")

    def attempt_ended(self, attempt: AttemptFacts, end: AttemptEnd) -> None:
        raise SystemExit("enough")


@pytest.mark.parametrize("observers", [[], [Brute()]])
def test_a_log_that_raises_disturbs_no_job(
    queue: Handle,
    crew: Crew,
    broken_log: None,
    observers: Sequence[Observer],
    capsys: pytest.CaptureFixture[str],
) -> None:
    @queue.task(max_attempts=2, backoff=Fixed(0))
    def fail() -> None:
        raise LookupError("no such customer")

    @queue.task(timeout=0.02, max_attempts=1)
    def overrun() -> None:
        until(lambda: queue.redis.llen(queue.keys.failed) == 3)

    post = crew.start(queue, concurrency=1, observers=observers)
    fail.enqueue()
    queue.redis.hset(queue.keys.job("bad"), mapping={"id": "bad", "payload": '{"half":'})
    queue.redis.lpush(queue.keys.pending, "bad")
    queue.redis.hincrby(queue.keys.stats, "enqueued_total", 1)
    until(lambda: queue.redis.llen(queue.keys.failed) == 2)
    overrun.enqueue()

    until(lambda: queue.redis.llen(queue.keys.failed) == 3)
    expect_life(queue, post)
    assert "a log line is lost, a filter or handler raised" in capsys.readouterr().err


def test_a_log_line_names_its_caller_and_escapes_text_from_users(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise LookupError("no such\x1b[2J mailbox\r")
    except LookupError as error:
        log.error("job %s: failed, attempt %d: %s", "j\n1", 3, error, exc_info=True, extra={"error": "a\nb"})

    (record,) = caplog.records
    assert record.getMessage() == r"job j\n1: failed, attempt 3: no such\x1b[2J mailbox\r"
    assert (record.filename, record.funcName) == (
        "test_hostile_ends.py",
        "test_a_log_line_names_its_caller_and_escapes_text_from_users",
    )
    assert record.__dict__["error"] == "a\nb", "for formatters that escape by themselves"
    text = logging.Formatter("%(message)s").format(record)
    assert text.splitlines()[1] == "  Traceback (most recent call last):"
    assert "\x1b" not in text and r"no such\x1b[2J mailbox\r" in text.splitlines()[-1]
