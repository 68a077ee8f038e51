"""Invalid arguments are rejected with one clear error that names them, before anything is sent.

Cases covered elsewhere are not repeated: times, names, JSON and settings (tests/model), the options of `enqueue`
(tests/transitions/test_enqueue.py), own ids and `max_pending` (test_own_ids.py, test_enqueue_many.py), closed and
forked queues (tests/queue/test_threads.py, test_asyncio.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from schedq import ClaimedJob, Fixed, NewJob, QueueFull, Retry, Snooze, UsageError
from schedq.model.settings import Settings
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle, in_thread
from tests.worker.crew import Crew, Gate

NO_IDS = ["", "a:b", "a b", "a\n", "ä", "*", "x" * 65, 7, None, b"a"]
NO_DELAYS = [
    -1,
    -0.001,
    math.nan,
    math.inf,
    -math.inf,
    True,
    "60",
    date(2030, 1, 1),
    datetime(2030, 1, 1, tzinfo=UTC),
    timedelta(seconds=-1),
]
NO_INSTANTS = [
    math.nan,
    math.inf,
    -math.inf,
    True,
    "2030-01-01",
    date(2030, 1, 1),
    datetime(2030, 1, 1),
    253_402_300_800,
]

Call = Callable[[Handle, Any], object]
WITH_ID: dict[str, Call] = {
    "get_job": lambda queue, given: queue.get_job(given),
    "cancel": lambda queue, given: queue.cancel(given),
    "reschedule": lambda queue, given: queue.reschedule(given, delay=1),
    "run_now": lambda queue, given: queue.run_now(given),
    "requeue": lambda queue, given: queue.requeue(given),
    "wait": lambda queue, given: queue.wait(given, 0),
    "result": lambda queue, given: queue.result(given, 0),
    "job": lambda queue, given: queue.job(given),
}
WITH_DELAY: dict[str, Call] = {
    "enqueue": lambda queue, given: queue.enqueue(1, delay=given),
    "enqueue_many": lambda queue, given: queue.enqueue_many([1], delay=given),
    "NewJob": lambda queue, given: queue.enqueue_many([NewJob(1, delay=given)]),
    "reschedule": lambda queue, given: queue.reschedule("a", delay=given),
    "snooze": lambda queue, given: queue.snooze(ClaimedJob("a", 1, 1, "r.1"), given),
    "options": lambda queue, given: task(queue).options(delay=given).enqueue(),
    "Retry": lambda queue, given: Retry(after=given),
    "Snooze": lambda queue, given: Snooze(given),
    "wait": lambda queue, given: queue.wait("a", given),
}
WITH_INSTANT: dict[str, Call] = {
    "enqueue": lambda queue, given: queue.enqueue(1, run_at=given),
    "enqueue_many": lambda queue, given: queue.enqueue_many([1], run_at=given),
    "NewJob": lambda queue, given: queue.enqueue_many([NewJob(1, run_at=given)]),
    "reschedule": lambda queue, given: queue.reschedule("a", run_at=given),
    "options": lambda queue, given: task(queue).options(run_at=given).enqueue(),
}
WITH_BOTH: dict[str, Call] = {
    "enqueue": lambda queue, given: queue.enqueue(1, **given),
    "enqueue_many": lambda queue, given: queue.enqueue_many([1], **given),
    "NewJob": lambda queue, given: queue.enqueue_many([NewJob(1, **given)]),
    "reschedule": lambda queue, given: queue.reschedule("a", **given),
    "options": lambda queue, given: task(queue).options(**given).enqueue(),
}
WITH_ATTEMPTS: dict[str, Call] = {
    "enqueue": lambda queue, given: queue.enqueue(1, max_attempts=given),
    "enqueue_many": lambda queue, given: queue.enqueue_many([1], max_attempts=given),
    "NewJob": lambda queue, given: queue.enqueue_many([NewJob(1, max_attempts=given)]),
    "task": lambda queue, given: queue.task(name="limited", max_attempts=given)(print),
    "options": lambda queue, given: task(queue).options(max_attempts=given).enqueue(),
    "settings": lambda queue, given: Settings("mail", max_attempts=given),
}
WITH_PAYLOAD: dict[str, Call] = {
    "enqueue": lambda queue, given: queue.enqueue(given),
    "enqueue_many": lambda queue, given: queue.enqueue_many([1, given]),
    "NewJob": lambda queue, given: queue.enqueue_many([NewJob(1), NewJob(given)]),
    "task": lambda queue, given: task(queue).options().enqueue(given),
}


def task(queue: Handle) -> Any:
    """A task of the queue, the same each time; its calls go through the blocking client."""
    return queue.queue.task(name="any")(_any)


def _any(*args: object) -> None:
    pass


def taken_by(queue: Handle, calls: dict[str, Call], given: object) -> list[str]:
    """The calls that take what is given; the others are rejected, and nothing is sent."""
    found = []
    with queue.server.requests() as sent:
        for name, call in calls.items():
            try:
                call(queue, given)
            except UsageError as error:
                text = str(error)
                assert len(text) < 500, name
            else:
                found.append(name)
    assert found or sent == []
    return found


def shown(value: object) -> str:
    return repr(value)[:40]


@pytest.mark.parametrize("given", NO_IDS, ids=shown)
def test_an_id_that_breaks_the_rule_is_refused_by_every_verb(queue: Handle, given: object) -> None:
    assert taken_by(queue, WITH_ID, given) == []


@pytest.mark.parametrize("given", NO_DELAYS, ids=shown)
def test_an_invalid_delay_is_refused_wherever_one_is_accepted(queue: Handle, given: object) -> None:
    assert taken_by(queue, WITH_DELAY, given) == []


@pytest.mark.parametrize("given", NO_INSTANTS, ids=shown)
def test_an_invalid_instant_is_refused_wherever_one_is_accepted(queue: Handle, given: object) -> None:
    assert taken_by(queue, WITH_INSTANT, given) == []


def test_a_delay_and_an_instant_at_once_are_refused_wherever_they_are_accepted(queue: Handle) -> None:
    assert taken_by(queue, WITH_BOTH, {"delay": 0, "run_at": 2_000_000_000}) == []


@pytest.mark.parametrize("given", [0, -1, True, 1.0, "3", math.nan, 10**7])
def test_invalid_attempts_are_refused_wherever_they_are_accepted(queue: Handle, given: object) -> None:
    assert taken_by(queue, WITH_ATTEMPTS, given) == []


@pytest.mark.parametrize("given", [999, 0, -1000, 1000.0, "1000", None])
def test_a_visibility_under_a_second_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="visibility_ms"):
        Settings("mail", visibility_ms=given)


class Rude:
    """Raises even in repr()."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    def __hash__(self) -> int:
        return 1


def circle() -> Any:
    found: list[Any] = []
    found.append({"again": found})
    return found


def deep() -> Any:
    found: Any = 1
    for _ in range(2000):
        found = {"in": found}
    return found


NO_JSON: dict[str, Any] = {
    "NaN": [math.nan],
    "infinity": {"a": math.inf},
    "bytes": b"x",
    "set": {1},
    "object": Rude(),
    "key": {1: 2},
    "rude key": {Rude(): 2},
    "huge key": {b"x" * 100_000: 2},
    "surrogate": "\ud800",
    "surrogate in a key": {"\udc00": 1},
    "circle": circle(),
    "deep": deep(),
    "endless number": 10**5000,
    "date": datetime(2030, 1, 1, tzinfo=UTC),
}


@pytest.mark.parametrize("given", NO_JSON)
def test_a_payload_that_is_not_json_is_refused_wherever_one_is_accepted(queue: Handle, given: str) -> None:
    assert taken_by(queue, WITH_PAYLOAD, NO_JSON[given]) == []


def test_a_payload_that_is_too_large_is_refused_wherever_one_is_accepted(make_queue: MakeQueue) -> None:
    assert taken_by(make_queue(max_payload=100), WITH_PAYLOAD, "x" * 100) == []


class RudeDict(dict[str, int]):
    """Raises when it is read."""

    def items(self) -> Any:
        raise LookupError("no")


@pytest.mark.parametrize("given", [*NO_JSON, "rude dict", "large"])
def test_whatever_a_handler_returns_its_job_completes_and_the_problem_is_reported(queue: Handle, given: str) -> None:
    result = NO_JSON.get(given, {"rude dict": RudeDict(a=1), "large": "x" * 300_000}.get(given))
    queue.enqueue(1)
    job = queue.claim(0)

    assert queue.complete(job, result)

    record = queue.get_job(job.id)
    assert (record.status, type(record.result)) == ("completed", str)
    assert record.result_error.startswith("result")
    assert len(record.result) <= 500
    assert len(record.result_error) <= 8192


@pytest.mark.parametrize("door", ["blocking"], indirect=True)
def test_a_worker_completes_a_job_whose_result_raises_when_it_is_read(queue: Handle, crew: Crew, gate: Gate) -> None:
    results = {"rude dict": RudeDict(a=1), "rude key": {Rude(): 1}, "circle": circle()}
    queue.task(name="give")(lambda name: results[name])
    crew.start(queue)

    for name in results:
        job_id = queue.enqueue({"task": "give", "args": [name]})
        assert isinstance(queue.result(job_id, 60), str)
        assert queue.get_job(job_id).result_error.startswith("result")


# -- the limit of pending jobs


def test_two_concurrent_producers_store_no_more_than_max_pending(make_queue: MakeQueue) -> None:
    queue = make_queue(max_pending=300)
    twin = make_queue(queue.name, max_pending=300)

    def produce(door: Handle) -> list[str]:
        stored: list[str] = []
        try:
            while True:
                stored += door.enqueue_many(range(7))
        except QueueFull as full:
            return stored + list(full.stored)

    both = [in_thread(produce, door) for door in (queue, twin)]
    stored = [job_id for found in both for job_id in found.result(60)]

    assert len(stored) == 300
    assert sorted(queue.places()["pending"]) == sorted(stored)


def test_a_batch_that_fits_exactly_is_stored_and_a_larger_one_is_not(make_queue: MakeQueue) -> None:
    queue = make_queue(max_pending=3)

    stored = queue.enqueue_many(range(3))
    with pytest.raises(QueueFull) as refusal:
        queue.enqueue_many([4])

    assert refusal.value.stored == ()
    assert queue.places() == {"pending": stored}


def test_jobs_that_become_due_are_promoted_even_if_the_queue_is_full(make_queue: MakeQueue, clock: Clock) -> None:
    queue = make_queue(max_pending=1, clock=clock, backoff=Fixed(1))
    later = queue.enqueue_many(range(5), delay=10)
    first = queue.enqueue("now")
    retried = queue.claim(0)
    queue.fail(retried, "again")
    now = queue.enqueue("and now")

    clock.pass_time(10)
    assert queue.promote_due() == 6

    assert set(queue.places()["pending"]) == {now, first, *later}
    with pytest.raises(QueueFull, match="max_pending=1"):
        queue.enqueue("no more")
    assert queue.enqueue("for later", delay=1)
