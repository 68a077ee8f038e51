"""Paused tasks: their jobs stay pending, in their order, and jobs of other tasks pass them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from schedq import Discard, NewJob, UsageError
from schedq.model.ids import new_request
from schedq.transitions import claim, pause, promote, unwrap
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.scenes import one_door


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Iterator[Handle]:
    return make_queue(clock=clock)


def call(task: str, *args: Any) -> dict[str, Any]:
    return {"task": task, "args": list(args)}


def enqueued(queue: Handle, *tasks: str, **options: Any) -> list[str]:
    ids: list[str] = queue.enqueue_many([call(task) for task in tasks], **options)
    return ids


def claimed(queue: Handle, most: int = 100) -> list[str]:
    """Claim one after the other until there is none; returns their ids."""
    found: list[str] = []
    while len(found) < most and (job := queue.claim(0)) is not None:
        found.append(job.id)
    return found


def held(queue: Handle) -> list[str]:
    """The held jobs, in their order."""
    return list(queue.redis.zrange(queue.keys.held, 0, -1))


# -- which jobs run


def test_jobs_of_other_tasks_pass_those_of_a_paused_task(queue: Handle):
    first, second, third, fourth = enqueued(queue, "send", "report", "send", "report")

    queue.pause(task="send")

    assert claimed(queue) == [second, fourth]
    assert queue.state().ids("pending") == [first, third]
    assert queue.list_paused_tasks().keys() == {"send"}


def test_its_jobs_run_in_their_old_order_once_it_is_resumed(queue: Handle):
    ids = enqueued(queue, "send", "report", "send", "report", "send")
    queue.pause(task="send")
    assert claimed(queue, 1) == [ids[1]]

    assert queue.resume(task="send") is True

    assert claimed(queue) == [ids[0], ids[2], ids[3], ids[4]]


def test_jobs_that_are_no_calls_are_not_concerned(queue: Handle):
    """Whatever they look like."""
    queue.pause(task="send")
    payloads = [
        "send",
        {"task": "send", "more": 1},
        {"task": "send", "args": {"a": 1}},
        {"task": "send", "kwargs": [1]},
        {"task": "send", "args": None},
        {"task": ["send"]},
        {"tasks": "send"},
        [{"task": "send"}],
        None,
    ]
    ids = queue.enqueue_many(payloads)

    assert claimed(queue) == ids


@pytest.mark.parametrize(
    "payload",
    [
        '{"task":"sénd ü"}',
        '{"task": "s\\u00e9nd \\u00fc"}',
        ' {"kwargs": {"a": [1]}, "args": [{}], "task": "sénd ü"} ',
        '{"args":[],"kwargs":{},"task":"sénd ü"}',
        '{"args":[1e400, 12345678901234567890, null],"task":"sénd ü"}',
    ],
)
def test_a_call_is_one_of_its_task_however_its_producer_wrote_it(queue: Handle, payload: str):
    queue.redis.hset(queue.keys.job("theirs"), mapping={"payload": payload, "status": "pending"})
    queue.redis.lpush(queue.keys.pending, "theirs")
    queue.redis.hset(queue.keys.stats, "enqueued_total", 1)

    queue.pause(task="sénd ü")

    assert queue.claim(0) is None
    assert queue.places() == {"pending": ["theirs"]}


@pytest.mark.parametrize("payload", ["{", "\x00", '{"task":"send"', "[" * 100_000 + "]" * 100_000])
def test_a_payload_that_can_not_be_read_fails_as_ever(queue: Handle, payload: str):
    queue.redis.hset(queue.keys.job("theirs"), mapping={"payload": payload, "status": "pending"})
    queue.redis.lpush(queue.keys.pending, "theirs")
    queue.redis.hset(queue.keys.stats, "enqueued_total", 1)
    queue.pause(task="send")

    assert queue.claim(0) is None

    assert queue.places() == {"failed": ["theirs"]}


def come_back_promoted(queue: Handle, clock: Clock) -> str:
    (job_id,) = enqueued(queue, "send", delay=5)
    clock.pass_time(5)
    return job_id


def come_back_retried(queue: Handle, clock: Clock) -> str:
    (job_id,) = enqueued(queue, "send", max_attempts=9)
    queue.fail(queue.claim(0), "no")
    clock.pass_time(600)
    return job_id


def come_back_reclaimed(queue: Handle, clock: Clock) -> str:
    (job_id,) = enqueued(queue, "send")
    queue.claim(0)
    clock.pass_time(11)
    assert queue.reclaim_stuck() == [job_id]
    return job_id


def come_back_released(queue: Handle, clock: Clock) -> str:
    (job_id,) = enqueued(queue, "send")
    queue.release(queue.claim(0))
    return job_id


def come_back_requeued(queue: Handle, clock: Clock) -> str:
    (job_id,) = enqueued(queue, "send")
    queue.fail(queue.claim(0), Discard("no"))
    queue.requeue(job_id)
    return job_id


def come_back_now(queue: Handle, clock: Clock) -> str:
    (job_id,) = enqueued(queue, "send", delay=60)
    queue.run_now(job_id)
    return job_id


WAYS = [
    come_back_promoted,
    come_back_retried,
    come_back_reclaimed,
    come_back_released,
    come_back_requeued,
    come_back_now,
]


@pytest.mark.parametrize("come_back", WAYS, ids=[way.__name__.removeprefix("come_back_") for way in WAYS])
def test_a_job_of_a_paused_task_does_not_run_however_it_gets_to_pending(
    queue: Handle, clock: Clock, come_back: Callable[[Handle, Clock], str]
):
    queue.pause(task="send")
    queue.resume(task="send")
    job_id = come_back(queue, clock)
    queue.pause(task="send")
    (other,) = enqueued(queue, "report")

    assert claimed(queue) == [other]

    assert queue.state().ids("pending") == [job_id]
    queue.resume(task="send")
    assert claimed(queue) == [job_id]


@pytest.mark.parametrize("how", ["release", "reclaim"])
def test_a_job_that_is_given_back_is_the_next_of_its_task(queue: Handle, clock: Clock, how: str):
    ids = enqueued(queue, *["send"] * 4)
    jobs = [queue.claim(0) for _ in range(2)]
    queue.pause(task="send")
    assert claimed(queue) == []
    if how == "release":
        for job in reversed(jobs):
            queue.release(job)
    else:
        clock.pass_time(11)
        queue.reclaim_stuck()
    assert claimed(queue) == []
    assert held(queue) == ids

    queue.resume(task="send")

    assert claimed(queue) == ids


def test_running_jobs_go_on(queue: Handle):
    (job_id,) = enqueued(queue, "send")
    job = queue.claim(0)

    queue.pause(task="send")

    assert queue.renew(job) is True
    assert queue.complete(job) is True
    assert queue.places() == {"completed": [job_id]}


def test_tasks_are_paused_and_resumed_independently(queue: Handle):
    sends, reports, others = (enqueued(queue, *[task] * 3) for task in ("send", "report", "other"))
    for task in ("send", "report"):
        queue.pause(task=task)
    assert claimed(queue, 1) == [others[0]]

    queue.resume(task="report")

    assert claimed(queue) == [*reports, *others[1:]]
    assert queue.list_paused_tasks().keys() == {"send"}
    queue.resume(task="send")
    assert claimed(queue) == sends


def test_a_queue_and_its_tasks_are_paused_independently(queue: Handle):
    send, report = enqueued(queue, "send", "report")
    queue.pause(task="send")
    queue.pause()
    assert claimed(queue) == []

    assert queue.resume() is True

    assert claimed(queue) == [report]
    queue.pause()
    assert queue.resume(task="send") is True
    assert claimed(queue) == []
    queue.resume()
    assert claimed(queue) == [send]


def test_pausing_again_keeps_the_time_and_resuming_says_whether_it_was_paused(queue: Handle, clock: Clock):
    queue.pause(task="send")
    since = queue.list_paused_tasks()
    clock.pass_time(5)

    queue.pause(task="send")

    assert queue.list_paused_tasks() == since == {"send": clock.now_ms - 5000}
    assert [queue.resume(task="send"), queue.resume(task="send")] == [True, False]
    assert queue.list_paused_tasks() == {}


def test_a_task_may_be_given_itself(queue: Handle):
    task = queue.task(name="send")(lambda: None)

    queue.pause(task=task)

    assert queue.list_paused_tasks().keys() == {"send"}
    assert queue.resume(task=task) is True


@pytest.mark.parametrize("task", ["", 5, "a\nb", "x" * 201, b"send", ["send"]])
def test_what_names_no_task_is_refused(queue: Handle, task: Any):
    for verb in (queue.pause, queue.resume):
        with pytest.raises(UsageError, match="task must be a task, or its name"):
            verb(task=task)
    with pytest.raises(UsageError, match="task must be a task, or its name"):
        queue.cancel_task(task)
    assert queue.state().keys == {}


def test_the_log_says_who_was_paused_and_resumed(queue: Handle):
    queue.pause(task="send")
    queue.pause(task="send")
    queue.resume(task="send")
    queue.resume(task="send")

    found = [(entry.move, entry.id, entry.note) for entry in queue.inspector.log()]

    assert found == [("pause", "", "task send"), ("resume", "", "task send")]


def test_a_job_that_expires_while_its_task_is_paused_is_cancelled_after(queue: Handle, clock: Clock):
    (job_id,) = enqueued(queue, "send", expires=60)
    queue.pause(task="send")
    assert claimed(queue) == []
    clock.pass_time(61)
    assert claimed(queue) == []
    assert queue.state().ids("pending") == [job_id]

    queue.resume(task="send")

    assert claimed(queue) == []
    assert queue.places() == {"cancelled": [job_id]}


# -- many jobs


@one_door
def test_a_claim_finds_the_others_behind_many_jobs_of_a_paused_task(make_queue: MakeQueue, clock: Clock):
    """In steps: none looks at more than some hundred, and none looks at them again."""
    queue = make_queue(clock=clock)
    sends = enqueued(queue, *["send"] * 2000)
    (report,) = enqueued(queue, "report")
    queue.pause(task="send")

    found: list[str] = []
    claims = 0
    while not found:
        reply = queue._ask(claim.claim(queue.settings, new_request(), 10))
        assert reply.has_more is (claims < 5)
        assert queue.redis.zcard(queue.keys.held) <= 360 * (claims + 1)
        found, claims = [job.id for job in reply.jobs], claims + 1

    assert found == [report]
    assert claims <= 7
    assert held(queue) == sends
    assert queue.redis.llen(queue.keys.pending) == 0


@one_door
def test_many_jobs_are_put_back_in_steps_and_claims_meanwhile_keep_their_order(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    sends = enqueued(queue, *["send"] * 2500)
    others = enqueued(queue, *["report"] * 3)
    queue.pause(task="send")
    while not (first := claimed(queue, 1)):
        pass
    assert first == [others[0]]

    trips = pause.resume_task(queue.settings, "send")
    step, found, moves = next(trips), [], 0
    try:
        while True:
            replies = queue.execute(step)
            moves += 1
            found += claimed(queue, 4)
            step = trips.send(replies)
    except StopIteration as stop:
        assert stop.value is True

    assert moves == 3
    assert found + claimed(queue, 3000) == [*sends, *others[1:]]
    assert not queue.redis.exists(queue.keys.held, queue.keys.lanes)


@one_door
def test_what_a_resume_left_half_done_is_done_by_claims(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    sends = enqueued(queue, *["send"] * 1500)
    queue.pause(task="send")
    for _ in range(6):
        assert claimed(queue) == []
    trips = pause.resume_task(queue.settings, "send")
    queue.execute(next(trips))  # the process dies
    assert len(held(queue)) == 500

    assert claimed(queue, 2000) == sends

    assert not queue.redis.exists(queue.keys.held, queue.keys.lanes)


@one_door
def test_a_task_that_is_paused_again_while_it_is_resumed_stays_paused(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    sends = enqueued(queue, *["send"] * 1500)
    queue.pause(task="send")
    for _ in range(6):
        assert claimed(queue) == []
    trips = pause.resume_task(queue.settings, "send")
    replies = queue.execute(next(trips))
    queue.pause(task="send")
    with pytest.raises(StopIteration):
        trips.send(queue.execute(trips.send(replies)))

    for _ in range(6):
        assert claimed(queue) == []

    assert sorted(held(queue)) == sorted(sends)
    queue.resume(task="send")
    assert sorted(claimed(queue, 2000)) == sorted(sends)


@one_door
def test_many_paused_tasks_hold_up_none_of_the_others(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    tasks = [f"task-{n}" for n in range(100)]
    ids = {task: enqueued(queue, task, task) for task in tasks}
    (last,) = enqueued(queue, "last")
    for task in tasks:
        queue.pause(task=task)

    assert claimed(queue) == [last]

    for task in tasks[::-1]:
        queue.resume(task=task)
        assert claimed(queue) == ids[task]
    assert not queue.redis.exists(queue.keys.held, queue.keys.lanes, queue.keys.paused_tasks)


def test_a_queue_is_woken_by_the_jobs_of_tasks_that_are_not_paused(queue: Handle, clock: Clock):
    """Those of paused tasks wake no worker."""
    enqueued(queue, "send")
    queue.pause(task="send")
    queue.claim(0)
    queue.redis.delete(queue.keys.wake)

    assert unwrap(queue.execute([promote.promote(queue.settings, 100, "me")])[0]).woken_for == ""
    assert unwrap(queue.execute([promote.wake(queue.settings)])[0]) is False
    assert not queue.redis.exists(queue.keys.wake)

    (other,) = enqueued(queue, "report")
    assert queue.redis.exists(queue.keys.wake)
    queue.redis.delete(queue.keys.wake)
    assert unwrap(queue.execute([promote.promote(queue.settings, 100, "me")])[0]).woken_for == other


@one_door
def test_idle_workers_are_woken_for_what_a_resume_left_half_done(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    sends = enqueued(queue, *["send"] * 1100)
    queue.pause(task="send")
    for _ in range(5):
        queue.claim(0)
    queue.execute(next(pause.resume_task(queue.settings, "send")))
    queue.redis.delete(queue.keys.pending, queue.keys.wake)  # as if others had taken these

    look = unwrap(queue.execute([promote.promote(queue.settings, 100, "me")])[0])
    assert look.woken_for == sends[0]
    queue.redis.delete(queue.keys.wake)
    assert unwrap(queue.execute([promote.wake(queue.settings)])[0]) is True
    queue.forget()


# -- damage


@pytest.fixture
def paused(queue: Handle) -> tuple[Handle, list[str], str]:
    """A queue with a paused task: its held jobs, and a job of it that no claim has looked at."""
    ids = enqueued(queue, "send", "send", "send")
    queue.pause(task="send")
    assert queue.claim(0) is None
    (later,) = enqueued(queue, "send")
    assert held(queue) == ids
    return queue, ids, later


@pytest.mark.parametrize(
    "damage",
    [
        {"task:send": "x"},
        {"task:send": "-1"},
        {"task:send": "1e300"},
        {"made": "x"},
        {"first": "x", "made": "99999999999999"},
        {"first": "77"},
    ],
)
def test_damaged_numbers_of_lanes_lose_no_job(paused: tuple[Handle, list[str], str], damage: dict[str, str]):
    queue, ids, later = paused
    queue.redis.hset(queue.keys.lanes, mapping=damage)
    (other,) = enqueued(queue, "report")

    assert claimed(queue) == [other]
    assert sorted(held(queue)) == sorted([*ids, later])

    queue.resume(task="send")
    assert sorted(claimed(queue)) == sorted([*ids, later])


@pytest.mark.parametrize("score", ["-inf", "inf", "0", "-5", "1e300"])
def test_an_entry_with_a_damaged_score_is_not_lost(paused: tuple[Handle, list[str], str], score: str):
    queue, ids, later = paused
    queue.redis.zadd(queue.keys.held, {ids[0]: score})

    queue.resume(task="send")

    assert sorted(claimed(queue)) == sorted([*ids, later])


def test_many_jobs_of_a_batch_with_one_id_each(queue: Handle):
    queue.pause(task="send")
    ids = queue.enqueue_many([NewJob(call("send"), job_id=f"mine-{n}") for n in (3, 1, 2, 0)])
    assert queue.claim(0) is None

    queue.resume(task="send")

    assert claimed(queue) == ids
