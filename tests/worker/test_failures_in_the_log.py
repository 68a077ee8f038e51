"""What the log shows and observers get of a job that fails."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Callable, Iterator

import pytest

from schedq import Discard, Fixed, JobFailed, Snooze
from schedq.cli import daemon
from schedq.observer import AttemptEnd, AttemptFacts, Observer
from tests.doors import Handle
from tests.waiting import until
from tests.worker.crew import Crew, Gate

Records = Callable[[int], list[logging.LogRecord]]
HOSTILE = "no\r\n2026-01-01 ERROR forged\x1b[2J"


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> Records:
    """The records logged for failures."""
    caplog.set_level(logging.DEBUG, logger="schedq")
    return lambda level: [entry for entry in caplog.records if entry.levelno == level and "failed" in entry.msg]


@pytest.fixture
def plain_log() -> Iterator[io.StringIO]:
    """The log of an application with the simplest logging setup."""
    stream, logger = io.StringIO(), logging.getLogger("schedq")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)


def failing(queue: Handle, kind: str, text: str, **options: object) -> str:
    """Run a job whose handler fails at every attempt; return its id when it has failed for good."""

    def deliver(password: str) -> None:
        secret = password * 2
        error = LookupError(text)
        error.add_note(text)
        raise error from ValueError(text[: len(secret) * 100])

    async def adeliver(password: str) -> None:
        deliver(password)

    task = queue.task(name="deliver", **options)(deliver if kind == "plain" else adeliver)
    job = task.enqueue("hunter2")
    with pytest.raises(JobFailed):
        job.result(20)
    found: str = job.id
    return found


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_the_last_failure_has_its_traceback_and_others_only_when_debugging(
    queue: Handle, crew: Crew, records: Records, caplog: pytest.LogCaptureFixture, kind: str, level: int
) -> None:
    caplog.set_level(level, logger="schedq")
    crew.start(queue.task(lambda: None, name="other") and queue)
    job_id = failing(queue, kind, "no such mailbox", max_attempts=3, backoff=Fixed(0))

    (last,) = until(lambda: records(logging.ERROR))
    assert last.getMessage() == f"job {job_id}: deliver failed for good, attempt 3: LookupError: no such mailbox"
    assert last.exc_info is not None and isinstance(last.exc_info[1], LookupError)
    text = logging.Formatter().format(last)
    assert "in deliver\n" in text and "raise error from ValueError" in text
    assert "runner.py" not in text, "it begins at the handler"
    assert "hunter2" not in text, "no values of variables"
    retries = [logging.Formatter().format(entry) for entry in records(logging.WARNING)]
    assert len(retries) == 2
    if level == logging.DEBUG:
        assert all("in deliver\n" in text for text in retries)
    else:
        assert all(
            re.fullmatch(r"job \S+: deliver failed, attempt \d: LookupError: no such mailbox; .*", text)
            for text in retries
        )


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_timeout_shows_where_the_handler_was(
    queue: Handle, crew: Crew, records: Records, gate: Gate, kind: str
) -> None:
    async def wait() -> None:
        await gate.passed()

    task = queue.task(name="wait", timeout=0.05, max_attempts=1)(wait if kind == "async" else gate.wait)
    crew.start(queue)
    task.enqueue()

    (last,) = until(lambda: records(logging.ERROR))
    assert last.exc_info is not None and isinstance(last.exc_info[1], TimeoutError)
    assert kind == "plain" or "in wait\n" in logging.Formatter().format(last)


def test_no_text_of_an_error_can_look_like_a_line_of_a_plain_log(
    queue: Handle, crew: Crew, plain_log: io.StringIO, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="schedq")
    crew.start(queue.task(lambda: None, name="other") and queue)
    queue.redis.hset(queue.keys.job("j"), mapping={"id": "j", "payload": '{"half":\r\nERROR forged'})
    queue.redis.lpush(queue.keys.pending, "j")
    queue.redis.hincrby(queue.keys.stats, "enqueued_total", 1)
    failing(queue, "plain", HOSTILE, max_attempts=2, backoff=Fixed(0))
    until(lambda: queue.redis.llen(queue.keys.failed) == 2)
    until(lambda: "for good" in plain_log.getvalue())

    text = plain_log.getvalue()
    assert not {"\x1b", "\r"} & set(text)
    heads = ("DEBUG ", "INFO ", "WARNING ", "ERROR job ", "  ")
    assert [line for line in text.splitlines() if line and not line.startswith(heads)] == []
    assert r"LookupError: no\r\n2026-01-01 ERROR forged\x1b[2J" in text


def test_json_has_the_traceback_in_a_field(
    queue: Handle, crew: Crew, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    crew.start(queue.task(lambda: None, name="other") and queue)
    failing(queue, "plain", "no such mailbox", max_attempts=1)
    (last,) = until(lambda: [entry for entry in caplog.records if "for good" in entry.msg])

    entry = json.loads(daemon._JsonFormatter().format(last))

    assert (entry["level"], entry["task"], entry["error"]) == ("error", "deliver", "LookupError: no such mailbox")
    lines = entry["traceback"].splitlines()
    assert lines[0] == "ValueError: no such mailbox"
    assert "Traceback (most recent call last):" in lines
    assert "LookupError: no such mailbox" in lines
    assert "hunter2" not in entry["traceback"]


def test_observers_get_the_exception(queue: Handle, crew: Crew) -> None:
    ends: list[tuple[str, str, type[BaseException] | None]] = []

    class Watching(Observer):
        def attempt_ended(self, attempt: AttemptFacts, end: AttemptEnd) -> None:
            ends.append((attempt.task, end.outcome, None if end.exception is None else type(end.exception)))

    @queue.task
    def fine() -> None: ...

    @queue.task(max_attempts=2, backoff=Fixed(0))
    async def fail() -> None:
        raise LookupError

    @queue.task
    def discard() -> None:
        raise Discard

    snoozed: list[int] = []

    @queue.task
    def snooze() -> None:
        snoozed.append(1)
        if len(snoozed) == 1:
            raise Snooze(0.001)

    crew.start(queue, observers=[Watching()])
    for task in (fine, fail, discard, snooze):
        task.enqueue()

    until(lambda: len(ends) == 6)
    assert sorted(ends, key=str) == [
        ("discard", "failed", Discard),
        ("fail", "failed", LookupError),
        ("fail", "retry", LookupError),
        ("fine", "completed", None),
        ("snooze", "completed", None),
        ("snooze", "snoozed", Snooze),
    ]
