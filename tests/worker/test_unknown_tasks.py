"""Workers that lack the task of a job: what they do with it, and what they log."""

from __future__ import annotations

import pytest

from schedq import JobFailed
from schedq.model.graph import FLOW_TASK
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, beat_every


def about(logs: Logs, words: str) -> list[str]:
    return [line for line in logs() if words in line]


def test_it_is_logged_once_a_minute_for_each_task_with_the_workers_own_tasks(
    queue: Handle, crew: Crew, logs: Logs
) -> None:
    queue.task(name="send")(lambda: None)
    queue.task(name="archive")(lambda: None)
    crew.start(queue)

    ids = queue.enqueue_many([*({"task": "resize"} for _ in range(5)), {"task": "scan"}, {"kind": "email"}])
    until(lambda: len(queue.places().get("delayed", [])) == 7)

    (said,) = about(logs, "no task 'resize'")
    assert said.startswith("WARNING")
    assert "put back for up to 3600 s without using up attempts (is a deployment in progress?)" in said
    assert said.endswith("this worker's tasks: archive, send")
    assert len(about(logs, "no task 'scan'")) == 1
    assert len(about(logs, "no handler for payloads that are not task calls")) == 1
    until(
        lambda: {queue.fields(job_id)["attempts"] for job_id in ids} == {"0"}
    )  # they are claimed again after a second


def test_finally_the_job_fails_with_an_error_that_names_the_task(make_queue: MakeQueue, crew: Crew, logs: Logs) -> None:
    queue = make_queue(unknown_for=0.3)
    queue.task(name="send")(lambda: None)
    crew.start(queue)
    job_id = queue.enqueue({"task": "resize"}, max_attempts=1)

    with pytest.raises(JobFailed, match=r"no task 'resize'; no worker that has it took the job within 0.3 s"):
        queue.result(job_id, 60)

    assert len(about(logs, f"ERROR job {job_id}: this worker has no task 'resize'")) == 1


def test_a_worker_that_has_the_task_gets_the_job_and_no_trace_is_left(queue: Handle, crew: Crew) -> None:
    queue.task(name="send")(lambda: None)
    crew.start(queue)
    job_id = queue.enqueue({"task": "resize"}, max_attempts=1)
    until(lambda: "unknown_since_ms" in queue.fields(job_id))

    newer = Handle(type(queue.queue)(queue.name, redis=queue.server.unix_url), queue.server, queue._loop)
    newer.task(name="resize")(lambda: "resized")
    crew.start(newer)

    assert newer.result(job_id, 60) == "resized"
    record = newer.get_job(job_id)
    assert (record.attempts, "unknown_since_ms" in record.fields) == (1, False)
    newer.close()


def test_a_worker_learns_that_another_one_has_the_task(
    queue: Handle, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat_every(0.1, monkeypatch)
    queue.task(name="send")(lambda: None)
    first = crew.start(queue)
    newer = Handle(type(queue.queue)(queue.name, redis=queue.server.unix_url), queue.server, queue._loop)
    newer.task(name="resize")(lambda: "resized")
    queue.enqueue({"task": "scan"})
    unknown = first.queue_worker.fetcher.dispatcher.unknown
    until(lambda: unknown.is_curious)
    assert not unknown._elsewhere

    crew.start(newer)

    until(lambda: unknown._elsewhere == {"resize", FLOW_TASK})
    newer.close()
