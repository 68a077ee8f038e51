"""What a producer gets from `enqueue`."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from schedq import Exponential, UsageError
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle

PAYLOADS = [
    {"kind": "email", "to": "ada@example.org"},
    {},
    [],
    "text",
    "",
    0,
    -1.5,
    True,
    None,
    9007199254740993,
    {"nested": [1, [2, {"deep": None}]], "empty": []},
    "π 𝄞 \u0000 \x7f \\ \" '",
]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_payloads_are_returned_byte_by_byte(queue: Handle, payload: object):
    job_id = queue.enqueue(payload)

    record = queue.get_job(job_id)
    claimed = queue.claim(0)

    assert (record.payload, type(record.payload)) == (payload, type(payload))
    assert (claimed.id, claimed.payload) == (job_id, payload)


def test_a_job_for_now_waits_in_pending_and_wakes_a_worker(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)

    job_id = queue.enqueue({"n": 1})

    assert queue.places() == {"pending": [job_id]}
    assert queue.fields(job_id) == {
        "id": job_id,
        "payload": '{"n":1}',
        "status": "pending",
        "attempts": "0",
        "enqueued_at_ms": str(clock.now_ms),
    }
    assert queue.state().holds("wake", "zset") == {"1": "0"}
    assert queue.state().totals() == {"enqueued_total": 1}


def test_without_a_clock_redis_says_when_it_was(queue: Handle):
    before = queue.stats()["now_ms"]
    record = queue.get_job(queue.enqueue(1))
    after = queue.stats()["now_ms"]

    assert before <= record.enqueued_at_ms <= after
    assert abs(before - time.time() * 1000) < 60_000


@pytest.mark.parametrize(
    ("delay", "wait_ms"),
    [
        (300, 300_000),
        (0.25, 250),
        (0.0001, 1),
        (timedelta(days=3), 3 * 86_400_000),
        (timedelta(microseconds=1), 1),
        (100 * 365 * 86_400, 100 * 365 * 86_400_000),
    ],
)
def test_a_delay_counts_from_now_and_is_never_cut_short(
    make_queue: MakeQueue, clock: Clock, delay: float, wait_ms: int
):
    queue = make_queue(clock=clock)

    job_id = queue.enqueue(1, delay=delay)

    assert queue.places() == {"delayed": [job_id]}
    assert queue.state().holds("delayed", "zset") == {job_id: str(clock.now_ms + wait_ms)}
    assert queue.get_job(job_id).run_at_ms == clock.now_ms + wait_ms
    assert queue.fields(job_id)["status"] == "delayed"


@pytest.mark.parametrize("delay", [0, 0.0, timedelta(0)])
def test_a_delay_of_nothing_is_now(queue: Handle, delay: float):
    job_id = queue.enqueue(1, delay=delay)

    assert queue.places() == {"pending": [job_id]}
    assert "run_at_ms" not in queue.fields(job_id)


@pytest.mark.parametrize(
    ("run_at", "due_ms"),
    [
        (datetime(2030, 1, 1, tzinfo=UTC), 1_893_456_000_000),
        (datetime.fromisoformat("2030-01-01T02:00:00+02:00"), 1_893_456_000_000),
        (datetime(2030, 1, 1, 0, 0, 0, 1, tzinfo=UTC), 1_893_456_000_001),
        (1_893_456_000, 1_893_456_000_000),
        (1_893_456_000.0001, 1_893_456_000_001),
        (datetime.max.replace(tzinfo=UTC), 253_402_300_799_999),
    ],
)
def test_a_job_for_an_instant_is_due_then(queue: Handle, run_at: object, due_ms: int):
    job_id = queue.enqueue(1, run_at=run_at)

    assert queue.places() == {"delayed": [job_id]}
    assert queue.state().holds("delayed", "zset") == {job_id: str(due_ms)}


@pytest.mark.parametrize("run_at", [datetime(2000, 1, 1, tzinfo=UTC), 0, -5.0])
def test_an_instant_that_is_past_is_now(queue: Handle, run_at: object):
    job_id = queue.enqueue(1, run_at=run_at)

    assert queue.places() == {"pending": [job_id]}
    assert queue.get_job(job_id).run_at_ms == max(0, 946_684_800_000 if run_at not in (0, -5.0) else 0)


@pytest.mark.parametrize(
    "options",
    [
        {"delay": 1, "run_at": 2_000_000_000},
        {"delay": -1},
        {"delay": float("nan")},
        {"delay": float("inf")},
        {"delay": True},
        {"delay": "60"},
        {"delay": timedelta(days=-1)},
        {"delay": timedelta.max},
        {"delay": 1e300},
        {"delay": 10**400},
        {"run_at": datetime(2030, 1, 1)},
        {"run_at": datetime(2030, 1, 1).date()},
        {"run_at": float("nan")},
        {"run_at": float("-inf")},
        {"run_at": 1_893_456_000_000},
        {"run_at": 10**400},
        {"run_at": "2030-01-01"},
        {"run_at": True},
        {"job_id": ""},
        {"job_id": "a:b"},
        {"job_id": "ä"},
        {"job_id": "x" * 65},
        {"job_id": "a\n"},
        {"job_id": 7},
        {"max_attempts": 0},
        {"max_attempts": True},
        {"max_attempts": 1.5},
        {"max_attempts": 10**9},
        {"backoff": 5},
        {"backoff": "exponential"},
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": "soon"},
    ],
    ids=lambda options: repr(options)[:40],
)
def test_an_option_that_makes_no_sense_is_refused_and_nothing_is_sent(queue: Handle, options: dict):
    with pytest.raises(UsageError), queue.server.requests() as sent:
        queue.enqueue(1, **options)

    assert sent == []


@pytest.mark.parametrize(
    "payload",
    [float("nan"), float("inf"), b"bytes", {1: 2}, {"a": {None: 1}}, object, {1, 2}, "\ud800", 1j],
    ids=repr,
)
def test_a_payload_that_is_not_json_is_refused_and_nothing_is_sent(queue: Handle, payload: object):
    with pytest.raises(UsageError), queue.server.requests() as sent:
        queue.enqueue(payload)

    assert sent == []


def test_the_size_of_a_payload_has_a_limit_in_bytes(make_queue: MakeQueue):
    queue = make_queue(max_payload=10)

    fits = queue.enqueue("ääää")  # 4 · 2 bytes and two quotes
    with pytest.raises(UsageError, match="11 bytes"):
        queue.enqueue("ääääx")

    assert queue.places() == {"pending": [fits]}


def test_options_of_a_job_are_stored_with_it(queue: Handle):
    backoff = Exponential(base=1, factor=3, cap=9, jitter=0.25)

    job_id = queue.enqueue(1, max_attempts=7, backoff=backoff, timeout=timedelta(seconds=90))
    fields, claimed = queue.fields(job_id), queue.claim(0)

    assert fields["max_attempts"] == "7"
    assert fields["timeout_ms"] == "90000"
    assert (claimed.max_attempts, claimed.backoff, claimed.timeout_ms) == (7, backoff, 90_000)


def test_options_that_were_not_given_are_not_stored(queue: Handle):
    claimed_id = queue.enqueue(1)

    assert not queue.fields(claimed_id).keys() & {"max_attempts", "backoff", "timeout_ms", "run_at_ms"}
