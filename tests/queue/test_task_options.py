"""A task's options apply to all of its jobs, including those enqueued by the task's name."""

from __future__ import annotations

import json

import pytest

from schedq import Exponential, Fixed
from schedq.model.tasks import TaskOptions
from schedq.transitions import announce, reclaim
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.scenes import lose


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    """Leases last 10 s on a stopped clock; five attempts, a minute between them."""
    return make_queue(clock=clock, visibility_ms=10_000, max_attempts=5, backoff=Fixed(60))


def written(queue: Handle, **tasks: TaskOptions) -> None:
    """Store task options, as a worker of the application in another process would."""
    queue.queue._client.use(queue.settings)
    queue.execute([announce.announce(queue.settings, tasks)])


def test_a_job_made_by_name_has_the_attempts_of_its_task_when_its_worker_dies(queue: Handle, clock: Clock):
    written(queue, charge=TaskOptions(max_attempts=1))
    job_id = queue.enqueue({"task": "charge", "args": [5]})
    lose(queue, clock)

    assert queue.reclaim_stuck() == [job_id]

    assert queue.places() == {"failed": [job_id]}
    assert queue.get_job(job_id).last_error == "lease expired 1 time"


def test_a_task_with_more_attempts_than_the_queue_gets_them(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, max_attempts=1)
    written(queue, sync=TaskOptions(max_attempts=3))
    job_id = queue.enqueue({"task": "sync"})
    lose(queue, clock)

    assert queue.reclaim_stuck() == [job_id]

    assert queue.places() == {"pending": [job_id]}


def test_from_the_second_lost_lease_on_it_waits_as_its_task_says(queue: Handle, clock: Clock):
    written(queue, sync=TaskOptions(backoff=Exponential(base=7, factor=1)))
    job_id = queue.enqueue({"task": "sync"})
    for _ in range(2):
        lose(queue, clock)
        assert queue.reclaim_stuck() == [job_id]

    assert queue.get_job(job_id).run_at_ms == clock.now_ms + 7000


def test_the_jobs_own_options_override_its_tasks(queue: Handle, clock: Clock):
    written(queue, sync=TaskOptions(max_attempts=1, backoff=Fixed(7)))
    job_id = queue.enqueue({"task": "sync"}, max_attempts=4, backoff=Fixed(9))
    for _ in range(2):
        lose(queue, clock)
        assert queue.reclaim_stuck() == [job_id]

    assert queue.get_job(job_id).run_at_ms == clock.now_ms + 9000


@pytest.mark.parametrize("payload", [{"task": "other"}, {"kind": "email"}, [1], None, {"task": "\ud800"}, "text"])
def test_a_job_of_an_unknown_task_uses_the_queues_options(queue: Handle, clock: Clock, payload: object):
    written(queue, charge=TaskOptions(max_attempts=1))
    job_id = queue.enqueue("to be replaced")
    queue.redis.hset(queue.keys.job(job_id), "payload", json.dumps(payload))
    lose(queue, clock)

    assert queue.reclaim_stuck() == [job_id]

    assert queue.places() == {"pending": [job_id]}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"max_attempts": "1"}', '{"max_attempts": 0, "backoff": 3}', "null"])
def test_damaged_options_of_a_task_are_ignored(queue: Handle, clock: Clock, text: str):
    queue.redis.hset(queue.keys.tasks, "charge", text)
    job_id = queue.enqueue({"task": "charge"})
    for _ in range(2):
        lose(queue, clock)
        assert queue.reclaim_stuck() == [job_id]

    assert queue.get_job(job_id).run_at_ms == clock.now_ms + 60_000


@pytest.mark.breaks("layout", because="the key was replaced by hand")
def test_a_key_of_another_type_in_place_of_the_options_keeps_no_job_back(queue: Handle, clock: Clock):
    queue.redis.set(queue.keys.tasks, "not a hash")
    job_id = queue.enqueue({"task": "charge"})
    lose(queue, clock)

    assert queue.reclaim_stuck() == [job_id]

    assert queue.places() == {"pending": [job_id]}


def test_large_payloads_are_judged_a_megabyte_at_a_time(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, max_payload=800_000)
    written(queue, charge=TaskOptions(max_attempts=1))
    ids = queue.enqueue_many([{"task": "charge", "args": ["x" * 700_000]} for _ in range(3)])
    for _ in ids:
        queue.claim(0)
    clock.pass_time(11)

    taken = [queue.reclaim_stuck() for _ in ids]

    assert sorted(found for some in taken for found in some) == sorted(ids)
    assert all(len(some) == 1 for some in taken)
    assert sorted(queue.places()["failed"]) == sorted(ids)


def test_a_full_pass_of_such_jobs_is_judged_at_once(queue: Handle, clock: Clock):
    written(queue, charge=TaskOptions(max_attempts=1))
    ids = queue.enqueue_many([{"task": "charge"} for _ in range(60)])
    for _ in ids:
        queue.claim(0)
    clock.pass_time(11)

    first = queue.drive(reclaim.sweep(queue.settings))
    rest = queue.drive(reclaim.sweep(queue.settings))

    assert (len(first.taken_back), first.has_more, len(rest.taken_back), rest.has_more) == (50, True, 10, False)
    assert sorted(queue.places()["failed"]) == sorted(ids)


def test_a_process_with_the_code_needs_nothing_written_down(queue: Handle, clock: Clock):
    queue.task(name="charge", max_attempts=1)(lambda: None)
    job_id = queue.enqueue({"task": "charge"})
    lose(queue, clock)

    assert queue.reclaim_stuck() == [job_id]

    assert queue.places() == {"failed": [job_id]}


def test_a_job_claimed_and_failed_manually_has_its_tasks_options(queue: Handle, clock: Clock):
    queue.task(name="charge", max_attempts=1)(lambda: None)
    queue.task(name="sync", backoff=Fixed(7))(lambda: None)
    last, again = queue.enqueue_many([{"task": "charge"}, {"task": "sync"}])
    for _ in range(2):
        queue.fail(queue.claim(0), "no")

    assert queue.places() == {"failed": [last], "delayed": [again]}
    assert queue.get_job(again).run_at_ms == clock.now_ms + 7000


def test_a_queue_whose_tasks_say_nothing_is_swept_in_one_request(queue: Handle, clock: Clock):
    written(queue, plain=TaskOptions())
    queue.enqueue({"task": "plain"})
    lose(queue, clock)
    trips = reclaim.sweep(queue.settings)

    (answer,) = queue.execute(next(trips))

    with pytest.raises(StopIteration):
        trips.send([answer])
    assert not queue.redis.exists(queue.keys.tasks)


def test_options_that_a_task_no_longer_has_are_removed_and_those_of_others_stay(queue: Handle, clock: Clock):
    written(queue, charge=TaskOptions(max_attempts=1), other=TaskOptions(timeout_ms=5))

    written(queue, charge=TaskOptions())

    assert queue.redis.hgetall(queue.keys.tasks) == {"charge": "{}", "other": '{"timeout_ms":5}'}
    queue.enqueue({"task": "charge"})
    job = lose(queue, clock)
    assert queue.reclaim_stuck() == [job.id]
    assert queue.places() == {"pending": [job.id]}


def test_options_survive_being_written_down():
    said = TaskOptions(2, Exponential(base=3, jitter=0.5), 500)

    assert TaskOptions.from_text(said.to_text()) == said
    assert TaskOptions().to_text() == ""


def test_why_says_how_often_a_job_made_by_name_may_be_claimed(queue: Handle, clock: Clock):
    written(queue, sync=TaskOptions(max_attempts=2))
    job_id = queue.enqueue({"task": "sync"})
    queue.fail(queue.claim(0), "no")

    why = queue.inspector.why(job_id)

    assert "1 of 2" in why.text
    assert (why.facts["max_attempts"], why.max_attempts) == (2, 2)
