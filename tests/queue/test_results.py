"""Waiting for a job's end, and listening to events."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from schedq import Discard, JobCancelled, JobFailed, JobGone, UsageError
from schedq.transitions import scripts
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.queue.test_claim_waits import AT_ONCE_S, rare_looks, seconds_until
from tests.waiting import until

__all__ = ["rare_looks"]


def when_listening(queue: Handle, channel: str) -> None:
    """Wait until a client is subscribed to a channel."""
    until(lambda: dict(queue.redis.pubsub_numsub(channel))[channel], failing=f"no client listens to {channel}")


def waiting(queue: Handle, verb: str, job_id: str, timeout: float | None = 120) -> Any:
    """A call that is waiting for a job's end."""
    future = queue.start(verb, job_id, timeout)
    when_listening(queue, queue.keys.waiter(job_id))
    until(lambda: queue.fields(job_id).get("waiter"))
    return future


# -- how a job ended


def test_the_result_of_a_job_that_is_done_is_there_at_once(queue: Handle):
    job_id = queue.enqueue(1)
    queue.complete(queue.claim(0), {"sent": True})

    assert queue.result(job_id, 0) == {"sent": True}
    assert queue.result(job_id) == {"sent": True}
    assert queue.wait(job_id, 0) is True


def test_a_job_that_failed_says_why(queue: Handle):
    job_id = queue.enqueue(1)
    queue.fail(queue.claim(0), Discard("no such user"))

    with pytest.raises(JobFailed, match="no such user") as failed:
        queue.result(job_id, 0)

    assert (failed.value.job_id, failed.value.error) == (job_id, "no such user")
    assert queue.wait(job_id, 0) is True


def test_a_cancelled_job_has_no_result(queue: Handle):
    job_id = queue.enqueue(1)
    queue.cancel(job_id)

    with pytest.raises(JobCancelled, match=job_id):
        queue.result(job_id, 0)
    assert queue.wait(job_id, 0) is True


def test_a_missing_job_is_reported(queue: Handle):
    for verb in ("result", "wait"):
        with pytest.raises(JobGone, match="job never-was in queue"):
            getattr(queue, verb)("never-was", 0)


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_a_job_that_is_not_finished_is_waited_for_until_the_timeout(queue: Handle, timeout: float):
    job_id = queue.enqueue(1)
    began = time.monotonic()

    with pytest.raises(TimeoutError, match="pending"):
        queue.result(job_id, timeout)
    assert queue.wait(job_id, timeout) is False

    assert 2 * timeout <= time.monotonic() - began < 2 * timeout + 5


@pytest.mark.parametrize("timeout", [-1, float("nan"), "soon", True])
def test_a_timeout_that_makes_no_sense_is_refused(queue: Handle, timeout: Any):
    with pytest.raises(UsageError, match="timeout"):
        queue.result(queue.enqueue(1), timeout)


@pytest.mark.breaks("totals", because="another program completed the job")
@pytest.mark.parametrize(("text", "result"), [("plain text", "plain text"), ("[1]", [1]), ("", None)])
def test_a_result_of_another_program_is_returned_unchanged(queue: Handle, text: str, result: object):
    job_id = queue.enqueue(1)
    job = queue.claim(0)
    queue.complete(job)
    queue.redis.hset(queue.keys.job(job_id), "result", text)
    queue.redis.hset(queue.keys.stats, "completed_total", 0)

    assert queue.result(job_id, 0) == result


# -- being told at once


@pytest.mark.usefixtures("rare_looks")
@pytest.mark.parametrize("end", ["completed", "failed", "cancelled", "lost", "refused"])
def test_every_waiting_caller_is_notified_at_once_of_an_end(make_queue: MakeQueue, end: str):
    queue = make_queue("told", max_attempts=1, visibility_ms=1000)
    worker = make_queue("told", max_attempts=1, visibility_ms=1000)
    job_id = queue.enqueue(1)
    job = None if end == "refused" else worker.claim(0)
    future = waiting(queue, "wait", job_id)

    if end == "completed":
        worker.complete(job)
    elif end == "failed":
        worker.fail(job)
    elif end == "cancelled":
        worker.cancel(job_id)
        worker.release(job)
    elif end == "lost":
        worker.redis.zadd(worker.keys.leases, {job_id: 1})
        worker.reclaim_stuck()
    else:
        worker.redis.hdel(worker.keys.job(job_id), "payload")
        worker.claim(0)
    ended, seconds = seconds_until(future)

    assert ended is True
    assert seconds < AT_ONCE_S


@pytest.mark.usefixtures("rare_looks")
def test_cancelling_a_job_ends_the_wait_for_it_at_once(queue: Handle):
    job_id = queue.enqueue(1, delay=900)
    future = waiting(queue, "result", job_id)

    queue.cancel(job_id)
    began = time.monotonic()

    with pytest.raises(JobCancelled):
        future.result(60)
    assert time.monotonic() - began < AT_ONCE_S


def test_a_retry_does_not_end_a_wait(make_queue: MakeQueue):
    queue = make_queue("retry-no-end")
    worker = make_queue("retry-no-end")
    job_id = worker.enqueue(1)
    future = waiting(queue, "result", job_id)

    worker.fail(worker.claim(0), "once")
    worker.run_now(job_id)
    worker.complete(worker.claim(0), "at last")

    assert future.result(60) == "at last"


def test_many_may_wait_for_one_job(make_queue: MakeQueue):
    queue = make_queue("many-wait")
    worker = make_queue("many-wait")
    job_id = worker.enqueue(1)
    futures = [waiting(queue, "result", job_id) for _ in range(5)]

    worker.complete(worker.claim(0), "done")

    assert [future.result(60) for future in futures] == ["done"] * 5


@pytest.mark.usefixtures("rare_looks")
def test_only_callers_that_wait_for_a_job_are_notified_of_it(queue: Handle):
    mine, others = queue.enqueue(1), queue.enqueue_many(range(5))
    future = waiting(queue, "result", others[-1])

    with queue.server.requests() as sent:
        for _ in range(5):
            queue.complete(queue.claim(0))
        time.sleep(0.05)

    assert queue.wait(mine, 0)
    looks = [request for request in sent if scripts.load("watch").sha in request.words]
    assert len(looks) <= 1, "five other jobs have ended, and the caller looked at most when it began to wait"
    assert all(others[-1] in request.words for request in looks)
    queue.complete(queue.claim(0), "mine")
    assert future.result(60) == "mine"
    assert "waiter" not in queue.fields(others[-1])


def test_waiting_asks_redis_at_most_once_a_second(make_queue: MakeQueue):
    queue = make_queue("quiet-wait")
    job_id = queue.enqueue(1)
    queue.wait(job_id, 0)

    with queue.server.requests() as sent:
        assert queue.wait(job_id, 1.5) is False

    scripts = [request for request in sent if request.name in ("EVAL", "EVALSHA")]
    # At the start, after a second, and when time is up; on a slow machine two of them may be one.
    assert 1 <= len(scripts) <= 3


def test_a_message_that_was_lost_is_made_up_for_within_a_second(make_queue: MakeQueue):
    queue = make_queue("lost-message")
    worker = make_queue("lost-message")
    job_id = worker.enqueue(1)
    future = waiting(queue, "result", job_id)

    worker.redis.hdel(worker.keys.job(job_id), "waiter")
    worker.complete(worker.claim(0), "done")
    result, seconds = seconds_until(future)

    assert result == "done"
    assert seconds < 10


# -- events


def test_events_report_every_move_of_every_job(make_queue: MakeQueue):
    queue = make_queue("events", max_attempts=2)
    worker = make_queue("events", max_attempts=2)
    heard = queue.events(timeout=60)
    first = queue.start_iteration(heard)
    when_listening(queue, queue.keys.events)

    done, bad = worker.enqueue_many([1, 2])
    worker.complete(worker.claim(0))
    worker.fail(worker.claim(0), "no\nnews")
    worker.run_now(bad)
    worker.fail(worker.claim(0), "still no news")
    worker.requeue(bad)
    worker.release(worker.claim(0))
    worker.cancel(bad)
    worker.redis.publish(queue.keys.events, '{"id":"none"}')
    events = [first.result(60), *itertools.takewhile(lambda event: event["id"] != "none", heard)]
    heard.close()

    assert [(event["id"], event["status"], event["attempts"]) for event in events] == [
        (done, "completed", 1),
        (bad, "retry", 1),
        (bad, "failed", 2),
        (bad, "released", 0),
        (bad, "cancelled", 0),
    ]
    assert events[1]["error"] == "no\nnews"
    assert events[1]["run_at_ms"] > events[1]["at_ms"] > 1_700_000_000_000


def test_invalid_messages_are_ignored(queue: Handle):
    heard = queue.events(timeout=60)
    first = queue.start_iteration(heard)
    when_listening(queue, queue.keys.events)

    for text in ("not json", "[1]", "7", "", '{"id":"a","status":"completed"}'):
        queue.redis.publish(queue.keys.events, text)

    assert first.result(60) == {"id": "a", "status": "completed"}
    heard.close()


def test_events_end_after_so_much_silence(queue: Handle):
    began = time.monotonic()

    assert list(queue.events(timeout=0.1)) == []

    assert 0.1 <= time.monotonic() - began < 5
