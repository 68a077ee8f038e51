"""A queue at a glance."""

from __future__ import annotations

import json

import pytest

from schedq.inspect import samples
from schedq.inspect.overview import Pulse
from schedq.inspect.summary import MOST_SUMMARIZED, Spread, summaries, task_of
from schedq.transitions import heartbeat
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.inspect.scenes import call, failed, report
from tests.servers import Server


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock)


def look(queue: Handle) -> Pulse:
    found: Pulse = queue.inspector.pulse()
    return found


def test_a_queue_that_was_never_used_has_a_pulse(queue: Handle):
    found = look(queue)

    assert set(found.depths.values()) == {0}
    assert found.rates == (None, None, None)
    assert found.lateness == found.run == Spread(0, None, None, None)
    assert (found.tasks, found.running, found.workers, found.promoter) == ((), (), (), None)


def test_it_says_how_late_jobs_start_and_how_long_they_run(queue: Handle):
    report(queue, "send", completed=2, run_ms=[2000, 10_000], late_ms=[3000, 1000])
    report(queue, "count", completed=1, run_ms=[500], late_ms=[0])

    found = look(queue)

    assert (found.lateness.count, found.lateness.max_ms) == (3, 3000)
    assert (found.run.count, found.run.max_ms) == (3, 10_000)
    assert found.run.p50_ms == pytest.approx(2000, rel=0.42)


def test_it_names_slow_and_failing_tasks(queue: Handle, clock: Clock):
    report(queue, "fast", completed=1, failed=1, run_ms=[900, 1000])
    report(queue, "slow", completed=1, retried=2, run_ms=[30_000, 1, 1])
    report(queue, "bad", failed=2, run_ms=[2000, 10])
    failed(queue, [call("bad")], "no such user")
    failed(queue, [call("fast")], "once")
    queue.enqueue({"n": 1})
    queue.claim(0)
    clock.pass_time(5)

    found = look(queue)

    assert [(task.task, task.run.max_ms) for task in found.tasks] == [
        ("slow", 30_000), ("", 5000), ("bad", 2000), ("fast", 1000)
    ]  # fmt: skip
    assert [(task.task, task.failed, task.last_error) for task in found.failing] == [
        ("bad", 2, "no such user"),
        ("fast", 1, "once"),
    ]
    assert {task.task: (task.completed, task.failed, task.retried, task.running) for task in found.tasks} == {
        "slow": (1, 0, 2, 0), "": (0, 0, 0, 1), "bad": (0, 2, 0, 0), "fast": (1, 1, 0, 0)
    }  # fmt: skip


def test_what_was_counted_long_ago_is_left_out(queue: Handle, clock: Clock):
    """The last ten minutes count, from the full five minutes in which they begin."""
    report(queue, "send", completed=1, run_ms=[5])
    clock.pass_time(901)

    assert look(queue).tasks == ()
    assert look(queue).run.count == 0


def test_a_task_counts_however_short_the_histories_are(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, completed_history=4, min_keep=1, retry_for=1)
    report(queue, "send", completed=40_000, failed=10_000, run_ms=[5])

    [found] = look(queue).tasks

    assert (found.completed, found.failed) == (40_000, 10_000)


def test_it_names_the_longest_running_jobs_and_the_next_one(queue: Handle, clock: Clock):
    first, second, _ = queue.enqueue_many([call("one"), call("two"), call("three")])
    queue.claim(0)
    clock.pass_time(4)
    queue.claim(0)
    clock.pass_time(5)

    found = look(queue)

    assert [(job.id, job.task) for job in found.running] == [(first, "one"), (second, "two")]
    assert found.oldest_pending_ms == 9000


def test_it_shows_what_is_due_and_which_process_promotes(queue: Handle, clock: Clock):
    queue.enqueue(1, delay=60)
    clock.pass_time(62)
    queue.redis.set(queue.keys.promoter, "somebody", px=600_000)

    found = look(queue)

    assert (found.overdue_ms, found.promoter) == (2000, "somebody")


def test_it_says_how_much_is_done_per_second(queue: Handle, clock: Clock):
    for _ in range(4):
        queue.redis.set(queue.keys.promoter, "me", px=600_000)
        queue.execute([samples.take(queue.settings, "me")])
        for job in queue.enqueue_many([1] * 20):
            assert job
            queue.complete(queue.claim(0))
        clock.pass_time(10)

    ten, minute, ten_minutes = look(queue).rates

    assert (ten.seconds, ten.completed, ten.enqueued) == (10, 2, 2)
    assert (minute.seconds, minute.completed) == (40, 2)
    assert ten_minutes == minute


def test_it_names_the_workers(queue: Handle):
    queue.execute([heartbeat.beat(queue.settings, "w-1", {"host": "vm", "pid": 7})])

    assert [worker.id for worker in look(queue).workers] == ["w-1"]


@pytest.mark.parametrize("key", ["samples", "task_stats"])
def test_damage_to_what_was_measured_hides_nothing_else(queue: Handle, key: str):
    queue.enqueue(1)
    queue.redis.set(getattr(queue.keys, key), "another program's")

    assert look(queue).depths["pending"] == 1

    queue.redis.delete(getattr(queue.keys, key))


@pytest.mark.parametrize(
    ("payload", "task"),
    [
        ('{"task": "send", "args": [1]}', "send"),
        ('{"args":[1],"task":"send"}', "send"),
        ('{"task":"s\\u00e4gen","args":["' + "x" * 600, "sägen"),
        ('{"n":1}', ""),
        ("[1]", ""),
        ("", ""),
        ('{"args":["' + "x" * 600, ""),
        ('{"task":', ""),
    ],
)
def test_a_task_is_known_by_how_its_payload_begins(payload: str, task: str):
    assert task_of(payload[:400]) == task


@pytest.mark.parametrize("size", [10, 200_000])
def test_looking_over_jobs_keeps_redis_busy_for_a_moment_only(make_queue: MakeQueue, size: int):
    """However large the payloads are, because the bytes read are bounded."""
    with Server() as server:
        queue = make_queue(at=server)
        queue.enqueue_many([call("send", "x" * size)] * 300)
        queue.redis.config_resetstat()

        (found,) = queue.execute([summaries(queue.settings, queue.keys.pending, "oldest")])

        assert 5 <= len(found) <= MOST_SUMMARIZED
        assert {job.task for job in found} == {"send"}
        read = json.dumps([job.error for job in found])
        assert len(read) < 100_000
        queue.forget()
        queue.close()
