"""The process that a worker starts ahead of a timeout, for the next job."""

from __future__ import annotations

import pytest

from tests.doors import Handle
from tests.waiting import until
from tests.worker.processes import Start, outcome

pytestmark = pytest.mark.processes


def test_the_process_for_the_next_job_starts_before_the_timeout(queue: Handle, start: Start):
    _, tasks = start(concurrency=1)
    late = tasks["loop_in_c"].enqueue()
    following = tasks["process_began"].enqueue()

    timed_out = outcome(queue, late.id)

    assert timed_out.last_error == "TimeoutError: timed out after 2.5 s"
    assert outcome(queue, following.id).result < timed_out.last_error_at_ms / 1000


def test_no_more_functions_run_than_the_worker_has_slots(queue: Handle, start: Start):
    """The process for the next job is idle until the other one is ended, whatever waits for a process."""
    _, tasks = start(concurrency=2)
    late = tasks["loop_in_c"].options(timeout=6).enqueue()
    until(lambda: queue.get_job(late.id).status == "processing")
    handed = tasks["hand_over_two"].enqueue(8)

    ended_at = outcome(queue, late.id).last_error_at_ms

    # The slot is free as soon as the process is gone, shortly before the failure is recorded. The idle process has been
    # ready for some seconds by then.
    assert outcome(queue, handed.id).result[1] * 1000 > ended_at - 500
