"""A queue at a glance."""

from __future__ import annotations

import json

import pytest

from schedq import Discard, Fixed
from schedq.inspect import samples
from schedq.inspect.overview import Pulse
from schedq.inspect.summary import MOST_SUMMARIZED, Spread, summaries, task_of
from schedq.transitions import heartbeat
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.inspect.scenes import call
from tests.servers import Server


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock)


def run(queue: Handle, clock: Clock, seconds: float, error: str = "") -> None:
    """Claim a job, work on it for some seconds, and end it."""
    job = queue.claim(0)
    clock.pass_time(seconds)
    if error:
        queue.fail(job, Discard(error))
    else:
        queue.complete(job)


def look(queue: Handle) -> Pulse:
    found: Pulse = queue.inspector.pulse()
    return found


def test_a_queue_that_was_never_used_has_a_pulse(queue: Handle):
    found = look(queue)

    assert set(found.depths.values()) == {0}
    assert found.rates == (None, None, None)
    assert found.lateness == found.run == Spread(0, None, None, None)
    assert (found.tasks, found.running, found.workers, found.promoter) == ((), (), (), None)


def test_it_says_how_late_jobs_start_and_how_long_they_run(queue: Handle, clock: Clock):
    queue.enqueue(call("send"))
    queue.enqueue(call("send"), delay=60)
    clock.pass_time(3)
    run(queue, clock, 2)  # 3 s late, runs 2 s
    clock.pass_time(56)
    run(queue, clock, 10)  # due at 60 s, started at 61 s

    found = look(queue)

    assert (found.lateness.count, found.lateness.p50_ms, found.lateness.p99_ms) == (2, 1000, 3000)
    assert (found.run.p50_ms, found.run.max_ms) == (2000, 10_000)


def test_jobs_whose_time_in_line_is_not_known_do_not_count_as_late(queue: Handle, clock: Clock):
    requeued, released = queue.enqueue("requeued"), queue.enqueue("released")
    run(queue, clock, 1, "no use")
    queue.release(queue.claim(0))
    clock.pass_time(300)
    queue.requeue(requeued)
    clock.pass_time(300)
    for _ in (requeued, released):
        run(queue, clock, 1)

    found = look(queue)

    assert (found.lateness.count, found.run.count) == (0, 2)


def test_a_retry_is_late_from_when_it_was_due(queue: Handle, clock: Clock):
    queue.enqueue(call("send"), backoff=Fixed(100))
    queue.fail(queue.claim(0), "not yet")
    clock.pass_time(107)
    run(queue, clock, 1)

    assert look(queue).lateness.max_ms == 7000


def test_it_names_slow_and_failing_tasks(queue: Handle, clock: Clock):
    for task, seconds, error in (("fast", 1, ""), ("slow", 30, ""), ("bad", 2, "no such user"), ("fast", 1, "once")):
        queue.enqueue(call(task))
        run(queue, clock, seconds, error)
    queue.enqueue({"n": 1})
    queue.claim(0)
    clock.pass_time(5)

    found = look(queue)

    assert [(task.task, task.run.max_ms) for task in found.tasks] == [
        ("slow", 30_000), ("", 5000), ("bad", 2000), ("fast", 1000)
    ]  # fmt: skip
    assert [(task.task, task.failed, task.last_error) for task in found.failing] == [
        ("bad", 1, "no such user"),
        ("fast", 1, "once"),
    ]
    assert {task.task: (task.completed, task.failed, task.running) for task in found.tasks} == {
        "slow": (1, 0, 0), "": (0, 0, 1), "bad": (0, 1, 0), "fast": (1, 1, 0)
    }  # fmt: skip


def test_jobs_that_ended_more_than_ten_minutes_ago_are_left_out(queue: Handle, clock: Clock):
    queue.enqueue(call("send"))
    run(queue, clock, 1)
    clock.pass_time(601)

    assert look(queue).tasks == ()
    assert look(queue).run.count == 0


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


def test_damage_to_the_samples_hides_nothing_else(queue: Handle):
    queue.enqueue(1)
    queue.redis.set(queue.keys.samples, "another program's")

    assert look(queue).depths["pending"] == 1

    queue.redis.delete(queue.keys.samples)


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


# -- figures of tasks are of one time


def end(queue: Handle, clock: Clock, count: int, *, fails: int, every_s: float = 1) -> None:
    """Jobs end one after the other; every `fails`-th one fails."""
    for n in range(1, count + 1):
        queue.enqueue(call("send", n))
        run(queue, clock, every_s, "refused" if n % fails == 0 else "")


def counted(queue: Handle, task: str = "send") -> tuple[int, int]:
    [found] = [found for found in look(queue).tasks if found.task == task]
    return found.completed, found.failed


@pytest.mark.parametrize("count", [20, 250, 600])
def test_a_task_that_fails_one_time_in_five_is_shown_so_however_much_it_does(queue: Handle, clock: Clock, count: int):
    end(queue, clock, count, fails=5, every_s=0.5)

    completed, failed = counted(queue)

    assert 0.19 <= failed / (completed + failed) <= 0.21
    assert (
        look(queue).since_ms == max(clock.now_ms - 600_000, clock.now_ms - (completed + failed - 1) * 500)
        or count == 20
    )


def test_counts_reach_back_as_far_as_both_histories_do(queue: Handle, clock: Clock):
    end(queue, clock, 3, fails=3, every_s=100)
    assert look(queue).since_ms == clock.now_ms - 600_000

    end(queue, clock, 160, fails=1000)

    found = look(queue)
    assert found.since_ms == clock.now_ms - 149_000
    assert counted(queue) == (150, 0)
    assert [(task.task, task.failed, task.completed) for task in found.failing] == [("send", 1, 150)]
    assert found.failing_since_ms == clock.now_ms - 600_000


@pytest.mark.breaks("totals", because="the history is short, and what was trimmed is in the totals alone")
@pytest.mark.parametrize(("history", "min_keep", "expected"), [(4, 1, (4, 1)), (0, 30, (24, 7))])
def test_a_short_history_shortens_the_time_for_failed_jobs_too(
    make_queue: MakeQueue, clock: Clock, history: int, min_keep: int, expected: tuple[int, int]
):
    queue = make_queue(clock=clock, completed_history=history, min_keep=min_keep, retry_for=1)
    end(queue, clock, 50, fails=5)

    assert counted(queue) == expected
