"""Deleting every existing job, and none that is enqueued later."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from schedq import Conflict, Discard, JobGone
from schedq.inspect.bulk import Purge
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.inspect.scenes import acts


def test_jobs_of_every_place_are_deleted_and_nothing_is_left_of_them(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, max_attempts=1)
    completed, failed, running, broken, cancelled, pending = queue.enqueue_many(range(6))
    delayed = queue.enqueue("delayed", delay=60)
    queue.complete(queue.claim(0))
    queue.fail(queue.claim(0))
    held = queue.claim(0)
    queue.redis.delete(queue.keys.job(broken))
    queue.cancel(cancelled)
    queue.run_now(delayed)
    queue.snooze(queue.claim(0), 60)
    queue.claim(0)
    assert len(queue.places()) == 6

    assert queue.purge() == 7

    assert queue.places() == {}
    assert queue.state().jobs() == {}
    assert queue.state().keys.keys() <= {"stats", "log", "wake"}
    assert not queue.complete(held)
    assert not queue.renew(held)
    assert queue.purge() == 0
    with pytest.raises(JobGone):
        queue.result(running, 0)
    with pytest.raises(JobGone):
        queue.wait(pending, 0)


def test_thousands_are_deleted_in_pages(queue: Handle):
    queue.enqueue_many(range(1200))
    queue.enqueue_many(range(1300), delay=60)

    with queue.server.requests() as sent:
        assert queue.purge() == 2500

    assert 7 <= len(sent) <= 25
    assert queue.places() == {}


@pytest.mark.parametrize("options", [{}, {"delay": 60}], ids=["now", "later"])
def test_jobs_enqueued_during_a_purge_stay(make_queue: MakeQueue, clock: Clock, options: Any):
    queue = make_queue(clock=clock)
    queue.enqueue_many(range(700), **options)
    trips = Purge(queue.settings).steps()
    step, fresh = next(trips), []

    try:
        while True:
            answers = queue.execute(step)
            clock.pass_time(0.001)
            fresh.append(queue.enqueue("fresh", **options))
            step = trips.send(answers)
    except StopIteration as stop:
        assert stop.value == 700

    assert queue.places() == {"delayed" if options else "pending": fresh}


def test_a_job_released_by_its_worker_during_a_purge_is_deleted_too(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    ids = queue.enqueue_many(range(3))
    jobs = [queue.claim(0) for _ in ids]
    trips = Purge(queue.settings).steps()
    step = next(trips)

    try:
        while True:
            answers = queue.execute(step)
            if step[0].keys[:1] == (queue.keys.pending,) and jobs:
                queue.release(jobs.pop())
            elif jobs:
                queue.snooze(jobs.pop(), 60)
            step = trips.send(answers)
    except StopIteration as stop:
        assert stop.value == 3

    assert queue.places() == {}


@pytest.mark.breaks("totals", because="another program made the job")
def test_jobs_of_other_programs_go_too(queue: Handle):
    queue.redis.hset(queue.keys.job("theirs"), mapping={"payload": "1"})
    queue.redis.lpush(queue.keys.pending, "theirs")

    assert queue.purge() == 1

    assert queue.places() == {}
    assert not queue.redis.exists(queue.keys.job("theirs"))


def test_other_queues_are_not_touched(make_queue: MakeQueue):
    queue, neighbor = make_queue("purged"), make_queue("purged.job")
    job_id = neighbor.enqueue(1)
    queue.enqueue(2)

    queue.purge()

    assert neighbor.places() == {"pending": [job_id]}


def test_settings_and_totals_stay(queue: Handle):
    queue.enqueue(1)
    queue.fail(queue.claim(0), Discard())

    queue.purge()

    assert queue.state().totals() == {"enqueued_total": 1, "failed_total": 1, "purged_total": 1}


def test_a_purge_is_one_line_of_the_log(queue: Handle):
    queue.enqueue_many(range(300))

    queue.inspector.purge(who="ada")

    (line,) = acts(queue)
    assert line.items() >= {"move": "act purge", "count": "300", "who": "ada"}.items()
    assert line["note"] == "the whole queue: 300 deleted"


def test_an_unnamed_operator_is_logged_by_user_and_host(queue: Handle):
    queue.enqueue(1)

    queue.purge()

    (line,) = acts(queue)
    assert line["who"].endswith(f"@{socket.gethostname()}")


def test_an_interrupted_purge_reports_what_it_has_deleted(queue: Handle):
    queue.enqueue_many(range(300), delay=60)
    queue.redis.sadd(queue.keys.broken, "a set where a list should be")

    with pytest.raises(Conflict):
        queue.purge()

    assert [line["count"] for line in acts(queue)] == ["300"]
    queue.redis.delete(queue.keys.broken)


def test_a_queue_that_keeps_no_log_is_purged_without_a_line(make_queue: MakeQueue):
    queue = make_queue(log_size=0)
    queue.enqueue(1)

    assert queue.purge() == 1

    assert not queue.redis.exists(queue.keys.log)
