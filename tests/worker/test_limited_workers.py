"""Workers limited to some tasks: `only` and `exclude`."""

from __future__ import annotations

import json
import time
from functools import partial

import pytest

from schedq import Job, UsageError, Worker
from schedq.model.graph import FLOW_TASK
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, Gate, Post


@pytest.fixture
def queue(make_queue: MakeQueue) -> Handle:
    queue = make_queue()
    for name in ("send", "report", "resize"):
        queue.task(name=name)(lambda: None)
    return queue


def enqueue(queue: Handle, *tasks: str) -> list[Job[object]]:
    return [queue.job(job_id) for job_id in queue.enqueue_many([{"task": task} for task in tasks])]


def is_idle(post: Post) -> bool:
    return post.queue_worker.fetcher.is_idle


def are_completed(jobs: list[Job[object]]) -> bool:
    return {*statuses(jobs)} == {"completed"}


def start_idle(queue: Handle, crew: Crew, *choices: str) -> None:
    """Start a worker for each choice of a task, '' for all, one after the other."""
    for task in choices:
        post = crew.start(queue, only=[task] if task else ())
        until(partial(is_idle, post))


def longest_s(queue: Handle, task: str) -> float:
    """Enqueue jobs, each when the one before it has ended. Returns the time that the slowest took."""
    took = []
    for _ in range(8):
        began = time.monotonic()
        jobs = enqueue(queue, task)
        until(partial(are_completed, jobs))
        took.append(time.monotonic() - began)
    return max(took)


def statuses(jobs: list[Job[object]]) -> list[str]:
    return [job.record().status for job in jobs]


def test_a_worker_runs_only_the_chosen_tasks(queue: Handle, crew: Crew) -> None:
    jobs = enqueue(queue, "report", "send", "resize", "send")

    crew.start(queue, only=["send"])

    until(lambda: statuses(jobs).count("completed") >= 2)
    assert statuses(jobs) == ["pending", "completed", "pending", "completed"]


def test_a_worker_runs_all_tasks_but_the_excluded(queue: Handle, crew: Crew) -> None:
    jobs = enqueue(queue, "report", "send", "resize")

    crew.start(queue, exclude=["send", "resize"])

    until(lambda: "completed" in statuses(jobs))
    assert statuses(jobs) == ["completed", "pending", "pending"]


@pytest.mark.usefixtures("rare_looks")
@pytest.mark.parametrize("task", ["send", "report", "resize"])
def test_the_worker_that_may_run_a_job_is_woken_for_it(queue: Handle, crew: Crew, task: str) -> None:
    """Whoever takes the marker first; a promoter's look would come only after half a minute."""
    start_idle(queue, crew, "send", "report", "resize", "send", "send")

    assert longest_s(queue, task) < 20


@pytest.mark.usefixtures("rare_looks")
def test_an_unlimited_worker_is_woken_for_jobs_that_others_pass_over(queue: Handle, crew: Crew) -> None:
    start_idle(queue, crew, "send", "send", "")

    assert longest_s(queue, "report") < 20


@pytest.mark.usefixtures("rare_looks")
def test_a_busy_worker_finds_later_what_others_passed_over(queue: Handle, crew: Crew, gate: Gate) -> None:
    gate.task(queue)
    busy = crew.start(queue, only=["hold", "report"], concurrency=1)
    (held,) = enqueue(queue, "hold")
    gate.until_held()
    other = crew.start(queue, only=["send"])
    until(lambda: other.queue_worker.fetcher.is_idle)

    (job,) = enqueue(queue, "report")
    until(lambda: queue.redis.zcard(queue.keys.held) == 1)
    gate.open()

    until(lambda: statuses([held, job]) == ["completed", "completed"], within=20)
    assert busy.is_working


def test_a_burst_of_a_limited_worker_ends_when_it_has_nothing_to_run(queue: Handle, crew: Crew) -> None:
    jobs = enqueue(queue, "report", "send", "report")

    post = crew.start(queue, only=["send"], burst=True)
    post.join(60)

    assert statuses(jobs) == ["pending", "completed", "pending"]


def test_redis_knows_which_tasks_it_takes(queue: Handle, crew: Crew) -> None:
    queue.handler(lambda payload: None)
    limited, other = crew.start(queue, only=["send"]), crew.start(queue, exclude=["send"])

    def said(worker_id: str) -> tuple[list[str], str | None]:
        found = queue.redis.hgetall(queue.keys.worker(worker_id))
        return json.loads(found.get("tasks", "[]")), found.get("has_handler")

    ids = limited.worker.id, other.worker.id
    until(lambda: all(queue.redis.hexists(queue.keys.worker(worker_id), "has_handler") for worker_id in ids))
    assert [*map(said, ids)] == [(["send"], "0"), (["report", "resize", FLOW_TASK], "1")]


def test_why_says_that_no_worker_takes_the_task(queue: Handle, crew: Crew) -> None:
    post = crew.start(queue, only=["send"])
    (job,) = enqueue(queue, "report")
    until(lambda: queue.redis.zcard(queue.keys.held) == 1)
    until(lambda: queue.redis.exists(queue.keys.worker(post.worker.id)))

    assert job.why().reason == "no_task"


def test_payloads_for_the_handler_are_left_to_others_by_only(queue: Handle, crew: Crew) -> None:
    queue.handler(lambda payload: "handled")
    job = queue.job(queue.enqueue({"plain": 1}))
    crew.start(queue, only=["send"])
    until(lambda: queue.redis.zcard(queue.keys.held) == 1)

    crew.start(queue, exclude=["send"])

    assert job.result(timeout=60) == "handled"


def test_its_first_line_in_the_log_names_the_tasks_that_it_takes(queue: Handle, crew: Crew, logs: Logs) -> None:
    crew.start(queue, exclude=["report"])

    (line,) = until(lambda: [line for line in logs() if "ready for " in line])
    assert f"ready for {queue.queue.name} (send, resize)" in line


def test_wrong_choices_are_refused(queue: Handle, make_queue: MakeQueue) -> None:
    with pytest.raises(UsageError, match=r"there is no task 'sent'; the tasks are: send, report, resize"):
        Worker([queue.queue], only=["sent"])
    with pytest.raises(UsageError, match=r"there is no task 'sent'"):
        Worker([queue.queue], exclude=["sent"])
    with pytest.raises(UsageError, match="not both: got send and report"):
        Worker([queue.queue], only=["send"], exclude=["report"])
    with pytest.raises(UsageError, match="has no task that this worker may run"):
        Worker([queue.queue], exclude=["send", "report", "resize"])
    with pytest.raises(UsageError, match="must be a list of names"):
        Worker([queue.queue], only="send")
    with pytest.raises(UsageError, match="must be a list of names"):
        Worker([queue.queue], only=[1])  # type: ignore[list-item]
    other = make_queue()
    other.task(name="greet")(lambda: None)
    with pytest.raises(UsageError, match=f"queue {other.queue.name} has no task that this worker may run, only greet"):
        Worker([queue.queue, other.queue], only=["send"])
