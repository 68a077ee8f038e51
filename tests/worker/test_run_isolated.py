"""Functions that async handlers hand to the child processes of their worker."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.doors import Handle
from tests.waiting import until
from tests.worker.processes import Start, is_alive, outcome, written_pid

pytestmark = pytest.mark.processes


def test_an_async_handler_hands_functions_to_processes(queue: Handle, start: Start):
    post, tasks = start()
    job = tasks["hand_over"].options(headers={"tenant": "acme"}).enqueue()

    found = outcome(queue, job.id)

    facts, fields, pids = found.result
    assert facts == ["date", job.id, {"tenant": "acme"}, queue.name, "hand_over", True]
    assert fields == {"job_id": job.id, "queue": queue.name, "task": "hand_over", "attempt": 1, "tenant": "acme"}
    assert (found.progress.done, found.progress.total, found.progress.note) == (1, 2, "half")
    assert found.meta == {"seen": True}
    isolated = outcome(queue, tasks["pid"].enqueue().id).result
    pool = post.worker._isolation._pool
    assert pool is not None
    assert len(pool.pids) <= 2, "as many as there are slots"
    assert {*pids, isolated} <= {*pool.pids}, "isolated tasks share the processes"  # one may be ready later
    assert os.getpid() not in pids

    errors = outcome(queue, tasks["hand_over_failures"].enqueue().id).result
    names, texts, traces = zip(*errors, strict=True)
    assert names == ("OutOfStockError", "UnreadableError", "ProcessDied", "ProcessDied", "UsageError", "UsageError")
    assert texts[:3] == ("no such thing", "1 of 2", "its process ended with exit code 3")
    assert "signal 11 (SIGSEGV" in texts[3]
    assert "a function at the top of a module, and arguments that can be pickled" in texts[4]
    assert "takes a plain function, got the async" in texts[5]
    assert [f"in {name}" in traces[at] for at, name in ((0, "fail"), (1, "fail_unreadably"), (3, "crash"))] == [
        True
    ] * 3
    in_thread = outcome(queue, tasks["hand_over_in_a_thread"].enqueue().id)
    assert in_thread.last_error == (
        "UsageError: run_isolated() is for async handlers; give a plain task isolate=True instead"
    )


def test_an_async_handler_that_is_cancelled_ends_the_process_of_its_function(
    queue: Handle, start: Start, tmp_path: Path
):
    _, tasks = start(kill_after=0.1, concurrency=1)
    job = tasks["hand_over_and_ignore"].enqueue(str(tmp_path / "pid"))
    pid = until(lambda: written_pid(tmp_path / "pid"))

    queue.cancel(job.id)

    assert outcome(queue, job.id).status == "cancelled"
    assert outcome(queue, tasks["pid"].enqueue().id).status == "completed"
    until(lambda: not is_alive(pid))
