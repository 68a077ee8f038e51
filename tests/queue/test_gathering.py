"""The results of many jobs in few round trips."""

from __future__ import annotations

import random
from datetime import date
from typing import Any

import pytest

from schedq import ArgumentsError, Discard, Job, JobCancelled, JobFailed, JobGone, UsageError
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.queue.test_results import when_listening


def finished(queue: Handle, count: int) -> list[str]:
    """Jobs that have completed, each with its number as the result."""
    ids: list[str] = queue.enqueue_many(range(count))
    complete_all(queue)
    return ids


def complete_all(queue: Handle) -> None:
    worker = queue.queue.blocking  # whichever client gathers
    while (job := worker.claim(0)) is not None:
        worker.complete(job, job.payload)


def settled(jobs: list[Any]) -> list[Any]:
    return [type(found) if isinstance(found, Exception) else found for found in jobs]


def test_the_results_come_in_the_order_of_the_jobs(queue: Handle):
    ids = finished(queue, 5)

    assert queue.gather_results(ids) == [0, 1, 2, 3, 4]
    assert queue.gather_results(reversed(ids), timeout=0) == [4, 3, 2, 1, 0]
    assert queue.gather_results([ids[2], queue.job(ids[1]), ids[2]]) == [2, 1, 2]
    assert queue.gather_results([]) == []


def test_a_thousand_finished_jobs_take_four_round_trips(queue: Handle):
    ids = finished(queue, 1000)

    with queue.server.requests() as sent:
        assert queue.gather_results(ids) == [*range(1000)]

    # A client that is some seconds old adds the queue's name to the list of queues again.
    names = [request.name for request in sent if request.name != "SADD"]
    assert names == ["HMGET"] * 1000
    assert round_trips(queue, ids) == [250] * 4


def round_trips(queue: Handle, ids: list[str]) -> list[int]:
    """How many requests each round trip of `gather_results` carried."""
    client: Any = queue.queue._client
    execute, sizes = client.execute, list[int]()

    def counted(operations: Any) -> Any:
        sizes.append(len(operations))
        return execute(operations)

    client.execute = counted
    try:
        queue.gather_results(ids)
    finally:
        del client.execute
    return sizes


@pytest.mark.parametrize("order", ["as enqueued", "reversed", "shuffled"])
def test_a_thousand_running_jobs_take_few_round_trips_in_whatever_order_they_end(make_queue: MakeQueue, order: str):
    queue, worker = make_queue("gathered"), make_queue("gathered").queue.blocking
    ids = queue.enqueue_many(range(1000))
    running: list[Any] = [worker.claim(0) for _ in ids]
    if order == "reversed":
        running.reverse()
    elif order == "shuffled":
        random.Random(7).shuffle(running)
    with queue.server.requests() as sent:
        future = queue.start("gather_results", ids, 60)
        when_listening(queue, queue.keys.waiter(ids[-1]))
        for job in running:
            worker.complete(job, job.payload)

        assert future.result(60) == [*range(1000)]

    waits = [request for request in sent if request.name == "SUBSCRIBE"]
    assert 1 <= len(waits) <= 40


# -- jobs without a result


def test_a_job_without_a_result_raises_as_result_does(queue: Handle):
    ids = finished(queue, 2)
    failed, cancelled = queue.enqueue("fails"), queue.enqueue("cancelled", delay=60)
    queue.fail(queue.claim(0), Discard("no such user"))
    queue.cancel(cancelled)

    with pytest.raises(JobFailed, match="no such user"):
        queue.gather_results([ids[0], failed, cancelled, ids[1]], timeout=0)
    with pytest.raises(JobCancelled, match=cancelled):
        queue.gather_results([ids[0], cancelled, failed], timeout=0)
    with pytest.raises(JobGone, match="never-was"):
        queue.gather_results(["never-was", failed])


def test_errors_can_take_the_places_of_results(queue: Handle):
    (done,) = finished(queue, 1)
    failed = queue.enqueue("fails")
    queue.fail(queue.claim(0), Discard("no such user"))
    waiting = queue.enqueue("waits")

    found = queue.gather_results([failed, done, "never-was", waiting], timeout=0, return_exceptions=True)

    assert settled(found) == [JobFailed, 0, JobGone, TimeoutError]
    assert found[0].error == "no such user"
    assert str(found[3]) == f"job {waiting} is still pending"


def test_a_job_that_fails_ends_the_wait_for_others(make_queue: MakeQueue):
    queue, worker = make_queue("fails-early"), make_queue("fails-early")
    ids = queue.enqueue_many(["fails", "continues"])
    future = queue.start("gather_results", ids, 60)
    when_listening(queue, queue.keys.waiter(ids[1]))

    worker.fail(worker.claim(0), Discard("no such user"))

    with pytest.raises(JobFailed, match="no such user"):
        future.result(30)


def test_a_job_deleted_meanwhile_raises_job_gone(make_queue: MakeQueue):
    queue, operator = make_queue("deleted"), make_queue("deleted")
    ids = [*finished(queue, 1), queue.enqueue("deleted")]
    future = queue.start("gather_results", ids, 60, return_exceptions=True)
    when_listening(queue, queue.keys.waiter(ids[1]))

    operator.purge()

    assert settled(future.result(30)) == [0, JobGone]


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_the_timeout_is_for_all_of_them(queue: Handle, timeout: float):
    ids = [*finished(queue, 1), *queue.enqueue_many(["one", "two"])]

    with pytest.raises(TimeoutError, match=f"job {ids[1]} is still pending"):
        queue.gather_results(ids, timeout)


def test_jobs_of_another_queue_are_refused(make_queue: MakeQueue):
    here, there = make_queue(), make_queue()

    with pytest.raises(UsageError, match="is in queue"):
        here.gather_results([there.job("one")])


@pytest.mark.parametrize(("jobs", "timeout"), [("one", None), (["not an id"], None), ([], -1), (7, None)])
def test_wrong_arguments_are_refused(queue: Handle, jobs: Any, timeout: Any):
    with pytest.raises(UsageError):
        queue.gather_results(jobs, timeout)


# -- types of results


def tomorrow(day: date) -> date:
    return day.replace(day=day.day + 1)


def test_results_have_the_types_of_their_tasks(queue: Handle):
    task = queue.task(tomorrow)
    jobs: list[Job[date]] = task.enqueue_many([((date(2030, 1, 1),), {}), ((date(2030, 1, 2),), {})])
    results = ["2030-01-02", "no date"]
    for result in results:
        queue.complete(queue.claim(0), result)

    found = queue.gather_results(jobs, return_exceptions=True)

    assert settled(found) == [date(2030, 1, 2), ArgumentsError]
    assert queue.gather_results([job.id for job in jobs]) == results
