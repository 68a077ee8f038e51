"""Progress as other programs see it: asked for, listened to, and reported by a claim made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from schedq import Progress, current_job
from schedq.testing import as_job, run_due
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.queue.test_results import when_listening
from tests.servers import Request
from tests.transitions.scenes import held
from tests.waiting import until


def asks(requests: list[Request], queue: Handle) -> int:
    """How many requests were about the queue's jobs."""
    return sum(any(word.startswith(queue.keys.jobs) for word in request.words) for request in requests)


def test_a_job_has_the_progress_of_its_last_attempt(queue: Handle):
    job = held(queue)
    handle = queue.job(job.id)
    assert handle.progress() is None
    assert queue.run(handle.aprogress()) is None

    assert queue.renew(job, progress=Progress(3, 10, "rows")) is True

    for found in (handle.progress(), queue.run(handle.aprogress()), queue.get_job(job.id).progress):
        assert (found.done, found.total, found.note, found.fraction) == (3, 10, "rows", 0.3)
        assert found.at_ms == pytest.approx(queue.stats()["now_ms"], abs=60_000)


def test_a_job_of_which_nothing_is_stored_has_no_progress(queue: Handle):
    assert queue.job("never-was").progress() is None


@pytest.fixture
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that waits for a job's end looks by itself once a minute, and else only hears messages."""
    monkeypatch.setattr("schedq.queue.requests.POLL_S", 60)


@pytest.mark.usefixtures("rare_looks")
def test_a_waiting_caller_gets_the_jobs_reports_until_it_ends(queue: Handle):
    job = held(queue)
    queue.renew(job, progress=Progress(1, 3))
    heard: list[Any] = []
    future = queue.start("wait", job.id, 60, on_progress=lambda found: heard.append((found.done, found.note)))
    until(lambda: heard)
    until(lambda: queue.fields(job.id).get("waiter"))

    queue.renew(job, progress=Progress(2, 3))
    queue.renew(job, progress=Progress(3, 3, "last"))
    queue.complete(job)

    assert future.result(60) is True
    assert heard == [(1, ""), (2, ""), (3, "last")]


def test_a_handle_reports_progress_blocking_and_awaited(queue: Handle):
    job = held(queue)
    queue.renew(job, progress=Progress(1))
    queue.complete(job)
    heard: list[Progress] = []

    assert queue.job(job.id).wait(5, on_progress=heard.append) is True
    assert queue.run(queue.job(job.id).await_end(5, on_progress=heard.append)) is True
    assert queue.wait(job.id, 0, on_progress=heard.append) is True

    assert [found.done for found in heard] == [1, 1, 1]


@pytest.mark.usefixtures("rare_looks")
def test_reports_cost_a_caller_that_waits_for_the_end_no_request(queue: Handle):
    job = held(queue)
    future = queue.start("result", job.id, 60)
    when_listening(queue, queue.keys.waiter(job.id))
    until(lambda: queue.fields(job.id).get("waiter"))

    with queue.server.requests() as requests:
        for number in range(50):
            queue.renew(job, progress=Progress(number))
        queue.complete(job, "done")
        assert future.result(60) == "done"

    assert asks(requests, queue) <= 50 + 1 + 2, "it looks at the end"


def test_an_error_of_the_callback_ends_the_wait(queue: Handle):
    job = held(queue)
    queue.renew(job, progress=Progress(1))

    with pytest.raises(ZeroDivisionError):
        queue.wait(job.id, 5, on_progress=lambda found: found.done / 0)

    queue.complete(job)


@pytest.mark.parametrize("text", ['{"status":"progress"}', '{"status":"progress","done":-1}', "5", "{", '{"status":1}'])
def test_messages_of_other_programs_disturb_no_wait(queue: Handle, text: str):
    job = held(queue)
    heard: list[Progress] = []
    future = queue.start("wait", job.id, 60, on_progress=heard.append)
    when_listening(queue, queue.keys.waiter(job.id))

    queue.redis.publish(queue.keys.waiter(job.id), text)
    queue.complete(job)

    assert future.result(60) is True
    assert heard == []


def test_progress_is_an_event_of_the_queue(queue: Handle):
    job = held(queue)
    events = queue.events(60)
    first = queue.start_iteration(events)
    when_listening(queue, queue.keys.events)

    queue.renew(job, progress=Progress(2.5, 10, 'say "hi"'))
    queue.complete(job)

    found = first.result(60)
    assert found == {
        "id": job.id, "status": "progress", "attempts": 1, "at_ms": found["at_ms"],
        "done": 2.5, "total": 10, "note": 'say "hi"',
    }  # fmt: skip
    assert next(events)["status"] == "completed"
    events.close()


def test_run_due_stores_what_a_task_reports(make_queue: MakeQueue):
    queue = make_queue()

    @queue.task(max_attempts=1)
    def work(fails: bool) -> None:
        current_job().progress(3, 10, "rows")
        current_job().update_meta(page=1)
        if fails:
            raise ValueError("no")

    jobs = [work.enqueue(fails) for fails in (False, True)]
    run_due(queue.queue)

    for job in jobs:
        record = job.record()
        assert (record.progress.done, record.progress.note, record.meta) == (3, "rows", {"page": 1})


def test_as_job_shows_what_a_function_reported():
    def work() -> None:
        current_job().progress(1, 2)
        current_job().update_meta(page=1)

    with as_job() as job:
        work()

    assert (job.last_progress, job.meta) == (Progress(1, 2), {"page": 1})
