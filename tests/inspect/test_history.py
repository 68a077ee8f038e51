"""What is stored about every ended attempt."""

from __future__ import annotations

import json

from schedq import Fixed
from tests.conftest import MakeQueue
from tests.doors import Clock
from tests.transitions.scenes import held


def test_every_ended_attempt_leaves_a_line(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, max_attempts=3, backoff=Fixed(0))
    job_id = queue.enqueue(1)
    began = clock.now_ms

    for end in (lambda job: queue.fail(job, 'bad "quotes"\n\ttwo lines'), queue.release, queue.complete):
        job = queue.claim(0)
        clock.pass_time(2)
        end(job)

    assert queue.get_job(job_id).history == (
        {
            "attempt": 1,
            "worker": "",
            "started_at_ms": began,
            "ended_at_ms": began + 2000,
            "outcome": "retry",
            "error": 'bad "quotes"\n\ttwo lines',
        },
        {"attempt": 2, "worker": "", "started_at_ms": began + 2000, "ended_at_ms": began + 4000, "outcome": "released"},
        {
            "attempt": 2,
            "worker": "",
            "started_at_ms": began + 4000,
            "ended_at_ms": began + 6000,
            "outcome": "completed",
        },
    )


def test_the_last_ten_attempts_are_kept(make_queue: MakeQueue):
    queue = make_queue(max_attempts=100, backoff=Fixed(0))
    job_id = queue.enqueue(1)

    for _ in range(25):
        queue.fail(queue.claim(0), "again")

    lines = queue.fields(job_id)["history"].split("\n")
    assert [json.loads(line)["attempt"] for line in lines] == list(range(16, 26))


def test_the_audit_stream_has_every_end_and_is_capped(make_queue: MakeQueue):
    queue = make_queue(log_size=10)
    ids = queue.enqueue_many(range(300))
    for _ in ids:
        queue.complete(queue.claim(0))

    entries = [fields for _, fields in queue.redis.xrange(queue.keys.log)]

    assert (entries[-1]["move"], entries[-1]["id"], entries[-1]["attempts"]) == ("completed", ids[-1], "1")
    assert 10 <= len(entries) <= 210


def test_an_audit_stream_of_no_size_is_not_written(make_queue: MakeQueue):
    queue = make_queue(log_size=0)
    queue.complete(held(queue))

    assert not queue.redis.exists(queue.keys.log)


def test_a_job_that_completes_at_once_has_one_entry_and_stays_small(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job_id = queue.enqueue(1)
    job = queue.claim(0)
    clock.pass_time(2)

    queue.complete(job, "done")

    (line,) = queue.get_job(job_id).history
    assert (line["attempt"], line["outcome"]) == (1, "completed")
    assert line["ended_at_ms"] - line["started_at_ms"] == 2000
    assert queue.redis.object("encoding", queue.keys.job(job_id)) in ("listpack", "ziplist")  # and not a hashtable
