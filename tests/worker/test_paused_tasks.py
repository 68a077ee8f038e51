"""Workers and the paused tasks of their queue."""

from __future__ import annotations

import time

import pytest

from schedq import current_job
from tests.doors import Handle
from tests.waiting import until
from tests.worker.crew import Crew, Gate, asked
from tests.worker.test_queues import until_blocked


@pytest.fixture
def ran(queue: Handle) -> list[str]:
    """The ids of the jobs that ran, of the tasks `send` and `report`."""
    found: list[str] = []
    for task in ("send", "report"):
        queue.task(name=task)(lambda: found.append(current_job().id))
    return found


def test_workers_run_other_tasks_while_one_is_paused(queue: Handle, crew: Crew, ran: list[str]) -> None:
    queue.pause(task="send")
    sends = [queue.enqueue({"task": "send"}) for _ in range(30)]
    report = queue.enqueue({"task": "report"})
    crew.start(queue, concurrency=1)

    until(lambda: ran)
    later = queue.enqueue({"task": "report"}, delay=0.1)
    until(lambda: len(ran) == 2)

    assert ran == [report, later]
    assert queue.places()["pending"] == sends


@pytest.mark.usefixtures("rare_looks")
def test_a_resumed_task_runs_at_once_and_in_order(queue: Handle, crew: Crew, ran: list[str]) -> None:
    queue.pause(task="send")
    sends = [queue.enqueue({"task": "send"}) for _ in range(30)]
    crew.start(queue, concurrency=1)
    until(lambda: queue.stats()["held_depth"] == len(sends))
    until_blocked(queue)
    assert ran == []

    resumed = time.time()
    assert queue.resume(task="send")

    until(lambda: len(ran) == len(sends))
    assert ran == sends
    assert time.time() - resumed < 25


def test_idle_workers_do_not_look_at_held_jobs_again_and_again(queue: Handle, crew: Crew, ran: list[str]) -> None:
    queue.pause(task="send")
    queue.enqueue_many([{"task": "send"}] * 1000)
    crew.start(queue)
    until(lambda: queue.stats()["held_depth"] == 1000)
    until_blocked(queue)

    with queue.server.requests() as requests:
        time.sleep(1.5)

    assert len(asked(requests, queue, "claim")) <= 1
    assert ran == []


def test_jobs_that_run_when_their_task_is_paused_continue(queue: Handle, crew: Crew, gate: Gate) -> None:
    hold = gate.task(queue)
    crew.start(queue)
    job = hold.enqueue()
    gate.until_held()

    queue.pause(task=hold)
    gate.open()

    assert job.result(60) == "held"


def test_a_worker_that_stops_gives_a_job_of_a_paused_task_back(queue: Handle, crew: Crew, gate: Gate) -> None:
    hold = gate.task(queue)
    waiting = hold.options(delay=3600).enqueue()
    post = crew.start(queue, grace=0.1)
    job = hold.enqueue()
    gate.until_held()
    queue.pause(task="hold")
    queue.run_now(waiting.id)
    until(lambda: queue.stats()["held_depth"])

    post.stop()
    post.join()
    crew.start(queue)
    until(lambda: queue.stats()["held_depth"] == 2)

    assert queue.places()["pending"] == [job.id, waiting.id]
