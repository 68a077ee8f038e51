"""Errors are stored as text that can't control a terminal or forge a log line, and that has a limited length."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from schedq import Discard, Retry
from schedq.testing import run_due
from tests.conftest import MakeQueue
from tests.doors import Handle

STEERING = "\x1b[2J\x1b]0;owned\x07\x9b31m\x00\x08\r\u202e\u2066\ud800"
"""Clears the screen, sets the window title, changes colors (in one byte), ends strings, reverses text, is invalid."""
LONG = "x" * 100_000
MOST = 10_000


class NastyError(Exception):
    """An error whose text tries to do harm."""


class MuteError(Exception):
    """An error that has no text."""

    def __str__(self) -> str:
        raise RuntimeError(STEERING)


class Shown:
    """A result that is not JSON and whose repr tries to do harm."""

    def __repr__(self) -> str:
        return STEERING + LONG


def texts(found: Any) -> Iterator[str]:
    """All strings stored for a queue."""
    if isinstance(found, bytes):
        yield found.decode(errors="surrogateescape")
    elif isinstance(found, str):
        yield found
    elif isinstance(found, dict):
        yield from texts(list(found.items()))
    elif isinstance(found, (list, tuple)):
        for each in found:
            yield from texts(each)


def harmful(queue: Handle) -> list[str]:
    """The stored texts that contain control characters or are long, except for payloads."""

    def is_harmless(text: str) -> bool:
        return len(text) <= MOST and text.replace("\n", "").replace("\t", "").isprintable()

    return [text for text in texts(queue.dump()) if not is_harmless(text)]


def failing(error: BaseException | str) -> Callable[[Handle], None]:
    def fail(queue: Handle) -> None:
        queue.fail(queue.claim(0), error)

    return fail


def returning(queue: Handle) -> None:
    queue.complete(queue.claim(0), Shown())


@pytest.mark.parametrize(
    "end",
    [
        failing(STEERING + LONG),
        failing(LONG + STEERING),
        failing(NastyError(STEERING + LONG)),
        failing(Discard(STEERING + LONG)),
        failing(Retry(5, STEERING + LONG)),
        failing(MuteError()),
        failing(type(f"Odd{STEERING[:-1].replace(chr(0), '')}", (Exception,), {})(STEERING)),
        returning,
    ],
    ids=["text", "long", "exception", "discard", "retry", "no text", "name of a class", "result"],
)
def test_the_stored_error_is_harmless_however_an_attempt_ends(make_queue: MakeQueue, end: Callable[[Handle], None]):
    queue = make_queue(max_attempts=1)
    job_id = queue.enqueue("work")
    events = queue.events(timeout=60)
    first = queue.start_iteration(events)
    while not queue.redis.pubsub_numsub(queue.keys.events)[0][1]:
        time.sleep(0.01)

    end(queue)

    told = str(first.result(60))
    assert harmful(queue) == []
    assert told.isprintable()
    assert len(told) <= MOST
    assert queue.get_job(job_id).status in ("failed", "completed", "delayed")
    events.close()


def test_a_handler_that_raises_leaves_a_harmless_traceback(make_queue: MakeQueue):
    queue = make_queue(max_attempts=1)

    @queue.task
    def nasty() -> None:
        try:
            raise NastyError(STEERING)
        except NastyError as error:
            error.add_note(STEERING + LONG)
            raise NastyError(STEERING + LONG) from error

    ids = queue.enqueue_many([{"task": "nasty"}])
    run_due(queue.queue)

    record = queue.get_job(ids[0])
    assert record.status == "failed"
    assert 0 < len(record.fields["traceback"]) <= MOST
    assert harmful(queue) == []


def test_an_unreadable_payload_leaves_a_harmless_reason(make_queue: MakeQueue):
    queue = make_queue(max_attempts=1)
    job_id = queue.enqueue("work")
    queue.redis.hset(queue.keys.job(job_id), "payload", '{"' + "\\u001b" + STEERING[:-1])

    queue.claim(0)
    run_due(queue.queue)
    queue.redis.hdel(queue.keys.job(job_id), "payload")

    assert harmful(queue) == []
