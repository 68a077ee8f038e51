"""Callers' own ids that are already taken: refused, replaced, or reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from schedq import Conflict, Discard, NewJob, Queue, QueueFull, Task, UsageError
from schedq.model.records import Options
from schedq.queue.job import Job
from schedq.transitions import enqueue, scripts
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.proxy import Proxy
from tests.servers import Server

STATES = ["pending", "delayed", "processing", "completed", "failed", "cancelled"]
FINISHED = STATES[3:]


def bring(queue: Handle, state: str, payload: object = "old") -> None:
    """Job `a` in that state."""
    queue.enqueue(payload, job_id="a", delay=60 if state == "delayed" else None)
    if state == "cancelled":
        queue.cancel("a")
    elif state not in ("pending", "delayed"):
        job = queue.claim(0)
        if state == "completed":
            queue.complete(job, "old result")
        elif state == "failed":
            queue.fail(job, Discard("old error"))


def made(queue: Handle, payload: object = 1, **options: Any) -> Job[Any]:
    """A call of a task with the caller's own id."""
    chosen = _task(queue).options(job_id="a", **options)
    if isinstance(queue.queue, Queue):
        job: Job[Any] = chosen.enqueue(payload)
    else:
        job = queue.run(chosen.aenqueue(payload))
    return job


def _task(queue: Handle) -> Any:
    return Task(lambda n: n, queue.queue.connections, name="count")


@pytest.mark.parametrize("state", STATES)
def test_an_id_that_must_be_new_is_refused_in_whatever_state_its_job_is(queue: Handle, state: str):
    bring(queue, state)
    before = queue.dump()

    for payload in ("old", "new"):
        with pytest.raises(Conflict, match=rf"job a of queue .* already exists \({state}\)"):
            queue.enqueue(payload, job_id="a", must_create=True)

    assert queue.dump() == before


def test_an_id_that_must_be_new_and_is_new_is_stored(queue: Handle):
    assert queue.enqueue(1, job_id="a", must_create=True) == "a"
    assert queue.enqueue(1, job_id="b", reuse_id=True, delay=60) == "b"

    assert queue.places() == {"pending": ["a"], "delayed": ["b"]}


@pytest.mark.parametrize("state", FINISHED)
@pytest.mark.parametrize("later", [False, True], ids=["now", "later"])
def test_a_finished_job_whose_id_is_used_again_is_replaced_with_its_record(queue: Handle, state: str, later: bool):
    bring(queue, state)
    others = queue.enqueue_many(["other"])

    assert queue.enqueue("new", job_id="a", reuse_id=True, max_attempts=2, delay=60 if later else None) == "a"

    assert queue.places() == {"pending": others, "delayed": ["a"]} if later else {"pending": [*others, "a"]}
    record = queue.get_job("a")
    assert (record.payload, record.attempts, record.max_attempts) == ("new", 0, 2)
    assert (record.result, record.last_error, record.completed_at_ms, record.history) == (None, "", 0, ())
    assert queue.redis.ttl(queue.keys.job("a")) == -1
    queue.claim(0)
    if not later:
        assert queue.complete(queue.claim(0), "new result")
        assert queue.result("a", 0) == "new result"
        assert queue.places()["completed"] == ["a"]


@pytest.mark.parametrize("state", ["pending", "delayed", "processing"])
@pytest.mark.parametrize("payload", ["old", "new"])
def test_a_job_that_waits_or_runs_is_never_replaced(queue: Handle, state: str, payload: str):
    bring(queue, state)
    before = queue.dump()

    with pytest.raises(Conflict, match=f"job a of queue .* is {state}"):
        queue.enqueue(payload, job_id="a", reuse_id=True)

    assert queue.dump() == before


def test_each_job_of_a_batch_has_its_own_result(queue: Handle):
    bring(queue, "completed")
    queue.enqueue("waits", job_id="b")

    with pytest.raises(Conflict, match="job b .* is pending"):
        queue.enqueue_many([NewJob(n, job_id=f"{job_id}") for n, job_id in enumerate("abc")], reuse_id=True)
    with pytest.raises(Conflict, match="job a .* already exists"):
        queue.enqueue_many(
            [
                NewJob(1, job_id="d", must_create=True),
                NewJob(1, job_id="a", must_create=True),
                NewJob("waits", job_id="b"),
                5,
            ]
        )

    (fresh,) = set(queue.places()["pending"]) - set("abcd")
    assert queue.places() == {"pending": ["b", "a", "c", "d", fresh]}


@pytest.mark.parametrize("wish", ["must_create", "reuse_id"])
def test_the_same_new_id_twice_in_a_batch_is_a_conflict(queue: Handle, wish: str):
    with pytest.raises(Conflict, match="job a "):
        queue.enqueue_many([NewJob(1, job_id="a"), NewJob(1, job_id="a")], **{wish: True})

    assert queue.places() == {"pending": ["a"]}


def test_many_finished_jobs_are_replaced_in_one_call(queue: Handle):
    ids = queue.enqueue_many([NewJob(n, job_id=f"job-{n}") for n in range(300)])
    while job := queue.claim(0):
        queue.complete(job)

    assert queue.enqueue_many([NewJob(n, job_id=job_id) for n, job_id in enumerate(ids)], reuse_id=True) == ids

    assert queue.places() == {"pending": ids}


def test_a_full_queue_leaves_the_finished_job_unchanged(make_queue: MakeQueue):
    queue = make_queue(max_pending=1)
    bring(queue, "failed")
    queue.enqueue("waits")
    before = queue.dump()

    with pytest.raises(QueueFull):
        queue.enqueue("new", job_id="a", reuse_id=True)

    assert queue.dump() == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"must_create": True}, "must_create needs a job_id of your own"),
        ({"reuse_id": True}, "reuse_id needs a job_id of your own"),
        ({"job_id": "a", "must_create": True, "reuse_id": True}, "must_create or reuse_id, not both"),
        ({"job_id": "a", "must_create": 1}, "must_create must be True or False, got 1"),
        ({"job_id": "a", "reuse_id": "yes"}, "reuse_id must be True or False, got 'yes'"),
    ],
)
def test_wishes_that_make_no_sense_are_refused(queue: Handle, options: dict[str, Any], words: str):
    with pytest.raises(UsageError, match=words):
        queue.enqueue(1, **options)
    if "job_id" not in options:
        for jobs in ([1], [NewJob(1, job_id="b"), NewJob(1)]):
            with pytest.raises(UsageError, match=words):
                queue.enqueue_many(jobs, **options)

    assert queue.places() == {}


# -- what a task's handle says


def test_a_handle_says_whether_its_enqueue_has_created_the_job(queue: Handle):
    assert [made(queue).created, made(queue).created] == [True, False]
    assert _plain(queue).created is True
    assert queue.job("a").created is None
    with pytest.raises(Conflict, match="another payload"):
        made(queue, 2)


@pytest.mark.parametrize("state", FINISHED)
def test_a_handle_says_that_the_job_has_finished_long_ago_or_was_replaced(queue: Handle, state: str):
    bring(queue, state, {"task": "count", "args": [1]})

    assert made(queue).created is False
    with pytest.raises(Conflict):
        made(queue, must_create=True)
    assert made(queue, reuse_id=True).created is True

    assert queue.places() == {"pending": ["a"]}


def test_handles_of_a_batch_say_it_too(queue: Handle):
    task = _task(queue).options(job_id="a")
    calls: Any = [((1,), {}), ((1,), {})]

    def many(task: Any) -> list[Any]:
        if isinstance(queue.queue, Queue):
            found: list[Any] = task.enqueue_many(calls)
        else:
            found = queue.run(task.aenqueue_many(calls))
        return found

    assert [job.created for job in many(task)] == [True, False]
    assert [job.created for job in many(_task(queue))] == [True, True]


def test_without_the_option_nothing_more_is_sent_or_stored(queue: Handle):
    queue.enqueue(1, job_id="a")
    _plain(queue)

    for job_id in queue.places()["pending"]:
        assert set(queue.fields(job_id)) == {"id", "payload", "status", "attempts", "enqueued_at_ms"}


def _plain(queue: Handle) -> Job[Any]:
    task = _task(queue)
    found: Job[Any] = task.enqueue(1) if isinstance(queue.queue, Queue) else queue.run(task.aenqueue(1))
    return found


# -- a lost reply


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server) as proxy:
        yield proxy


@pytest.fixture
def far(make_queue: MakeQueue, proxy: Proxy) -> Handle:
    """A queue whose requests go through the proxy."""
    queue = make_queue(url=proxy.url)
    queue.redis.script_load(scripts.load("enqueue").source)
    return queue


@pytest.mark.parametrize("way", ["reply", "request"])
@pytest.mark.parametrize("wish", ["must_create", "reuse_id"])
def test_a_request_that_is_sent_again_knows_the_job_that_it_made(far: Handle, proxy: Proxy, way: str, wish: str):
    if wish == "reuse_id":
        bring(far, "completed")
    getattr(proxy, f"lose_{way}")(scripts.load("enqueue").sha)

    assert far.enqueue("new", job_id="a", **{wish: True}) == "a"

    assert proxy.faults == 1
    assert far.places() == {"pending": ["a"]}
    assert far.state().totals()["enqueued_total"] == (2 if wish == "reuse_id" else 1)


def test_a_handle_says_created_also_if_the_first_reply_was_lost(far: Handle, proxy: Proxy):
    proxy.lose_reply(scripts.load("enqueue").sha)

    assert made(far).created is True
    assert proxy.faults == 1
    assert made(far).created is False


def test_a_job_that_ran_before_its_enqueue_was_sent_again_is_not_replaced(queue: Handle):
    bring(queue, "completed")
    prepared = enqueue.prepare(queue.settings, "new", Options(job_id="a", reuse_id=True))
    request = enqueue.create(queue.settings, prepared)
    assert queue._ask(request) == ("a", True)
    queue.complete(queue.claim(0), "new result")

    assert queue._ask(request) == ("a", True)

    assert queue.result("a", 0) == "new result"
    assert queue.places() == {"completed": ["a"]}


@pytest.mark.parametrize("wish", ["must_create", "reuse_id"])
def test_the_error_for_a_missing_replica_says_which_options_to_leave_out(queue: Handle, wish: str):
    options = Options(job_id="a", must_create=wish == "must_create", reuse_id=wish == "reuse_id")
    prepared = enqueue.prepare(queue.settings, 1, options)

    told = enqueue.enqueue(queue.settings, prepared).unconfirmed("a", "0 of 1 replicas confirmed it")

    assert "enqueue again with job_id='a', without must_create and reuse_id, to wait again" in str(told)
