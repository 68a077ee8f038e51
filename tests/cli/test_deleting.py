"""`schedq delete`, and `schedq enqueue --wait D`."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from schedq import Discard, Queue
from tests.cli.conftest import Run
from tests.cli.scenes import claimed, one_of_each
from tests.waiting import until


def test_jobs_are_deleted_by_their_ids(run: Run, queue: Queue, state: Any):
    one_of_each(queue)

    said = run("delete", "failed", "pending", "failed", "--yes")

    assert said.lines == ["failed: deleted", "pending: deleted"]
    assert queue.get_job("failed") is None
    assert sorted(state().jobs()) == ["cancelled", "completed", "delayed", "processing"]


def test_a_running_job_is_not_deleted(run: Run, queue: Queue, state: Any):
    one_of_each(queue)

    said = run("delete", "processing", "nowhere", "--yes", "--json")

    assert said.code == 1
    assert [(job["id"], job["answer"], job["state"]) for job in said.json["jobs"]] == [
        ("processing", "no", "processing"),
        ("nowhere", "no", "gone"),
    ]
    assert "a running job can't be deleted" in run("delete", "processing", "--yes").complaint


def test_nothing_is_deleted_unasked(run: Run, queue: Queue):
    queue.enqueue(1, job_id="a")

    said = run("delete", "a")

    assert (said.code, "add --yes; nothing was done" in said.complaint) == (1, True)
    assert queue.job("a").status() == "pending"


def ends(queue: Queue, result: object) -> threading.Thread:
    """Runs the next job."""

    def work() -> None:
        until(lambda: queue.stats()["pending_depth"])
        job = claimed(queue)
        queue.fail(job, result) if isinstance(result, Discard) else queue.complete(job, result)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize(
    "words", [["--wait", "60", "mail", "1"], ["mail", "--wait", "1m", "1"], ["mail", "1", "--wait"]]
)
def test_enqueue_waits_for_the_result(words: list[str], run: Run, queue: Queue):
    thread = ends(queue, {"sent": True})

    said = run("enqueue", *words)
    thread.join()

    assert (said.code, said.out) == (0, '{"sent":true}\n')


def test_enqueue_waits_for_a_failure(run: Run, queue: Queue):
    thread = ends(queue, Discard("no such user"))

    said = run("enqueue", "--queue", "mail", "--wait", "60", "--task", "send")
    thread.join()

    assert (said.code, said.out) == (1, "")
    assert "failed: no such user" in said.err


def test_enqueue_stops_waiting_in_time(run: Run, queue: Queue):
    said = run("enqueue", "mail", "1", "--wait", "0.01")

    assert (said.code, said.out) == (1, "")
    assert "has not ended" in said.err or "pending" in said.err
    assert queue.stats()["pending_depth"] == 1


def test_a_number_after_wait_is_the_payload_if_there_is_no_other(run: Run, queue: Queue):
    thread = ends(queue, "done")

    said = run("enqueue", "mail", "--wait", "5")
    thread.join()

    assert (said.code, said.out) == (0, '"done"\n')
    assert queue.list_completed()[0].payload == 5
