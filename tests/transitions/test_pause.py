"""Stopping claims, and allowing them again."""

from __future__ import annotations

import pytest

from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.scenes import failed_jobs


def test_pausing_keeps_when_it_began_and_takes_the_marker_away(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    queue.enqueue(1)
    began = clock.now_ms

    assert queue.pause() is None
    clock.pass_time(5)
    queue.pause()

    assert queue.stats()["paused_since_ms"] == began
    assert "wake" not in queue.state().keys


@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many", "release", "requeue", "run_now", "promote_due"])
def test_nothing_sets_the_marker_while_paused(make_queue: MakeQueue, clock: Clock, verb: str):
    queue = make_queue(clock=clock)
    (failed,) = failed_jobs(queue, 1)
    later = queue.enqueue(1, delay=1)
    queue.enqueue(2)
    job = queue.claim(0)
    queue.pause()
    clock.pass_time(1)

    argument = {
        "enqueue": 1,
        "enqueue_many": [1],
        "release": job,
        "requeue": failed,
        "run_now": later,
        "promote_due": 5,
    }
    getattr(queue, verb)(argument[verb])

    assert queue.state().ids("pending")
    assert "wake" not in queue.state().keys


def test_what_runs_while_paused_runs_on(make_queue: MakeQueue):
    queue = make_queue(max_attempts=1)
    queue.enqueue_many(range(3))
    jobs = [queue.claim(0) for _ in range(3)]

    queue.pause()

    assert queue.renew(jobs[0])
    assert queue.complete(jobs[0])
    assert queue.fail(jobs[1])
    assert queue.release(jobs[2])


def test_resume_says_whether_it_was_paused_and_wakes_a_worker(queue: Handle):
    job_id = queue.enqueue(1)
    queue.pause()

    assert queue.resume() is True
    assert queue.state().holds("wake", "zset")
    assert queue.resume() is False
    assert queue.claim(0).id == job_id


def test_a_pause_survives_a_purge(queue: Handle):
    queue.enqueue(1)
    queue.pause()

    queue.purge()

    queue.enqueue(2)
    assert queue.claim(0) is None


@pytest.mark.breaks("layout", because="another program's list stands where `paused` should")
def test_a_pause_of_the_wrong_type_is_still_a_pause(queue: Handle):
    queue.enqueue(1)
    queue.redis.delete(queue.keys.wake)
    queue.redis.rpush(queue.keys.paused, "what is this")

    assert queue.claim(0) is None
    assert queue.stats()["paused_since_ms"] == 0


def test_operators_actions_are_in_the_audit_stream(queue: Handle):
    (failed,) = failed_jobs(queue, 1)
    later = queue.enqueue(1, delay=60)
    queue.redis.delete(queue.keys.log)

    queue.pause()
    queue.resume()
    queue.reschedule(later, delay=70)
    queue.requeue(failed)
    queue.cancel(failed)

    moves = [fields["move"] for _, fields in queue.redis.xrange(queue.keys.log)]
    assert moves == ["pause", "resume", "reschedule", "requeue", "cancelled"]
