"""What a job's handle does besides waiting and cancelling; a producer's role may not do it."""

from __future__ import annotations

import pytest

from schedq import UsageError
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.queue.test_tasks import call, send


def test_a_handle_changes_when_its_job_runs(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job = call(queue, queue.task(send).options(delay=60), "enqueue", "ada")

    assert call(queue, job, "reschedule", delay=300) is True
    assert call(queue, job, "record").run_at_ms == clock.now_ms + 300_000
    with pytest.raises(UsageError, match="delay or run_at"):
        call(queue, job, "reschedule")
    assert call(queue, job, "run_now") is True
    assert call(queue, job, "record").run_at_ms == clock.now_ms

    queue.promote_due()
    queue.claim(0)
    assert call(queue, job, "run_now") is call(queue, job, "reschedule", delay=1) is False


def test_a_handle_requeues_its_job(queue: Handle):
    job = call(queue, queue.task(send), "enqueue", "ada")
    assert call(queue, job, "requeue") is False

    call(queue, job, "cancel")

    assert call(queue, job, "requeue") is True
    assert queue.places() == {"pending": [job.id]}


def test_a_handle_explains_why_its_job_waits_and_what_happened_to_it(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job = call(queue, queue.task(send).options(delay=60), "enqueue", "ada")

    assert call(queue, job, "why") == queue.inspector.why(job.id)
    assert call(queue, job, "why").reason == "due_later"
    assert call(queue, job, "timeline") == queue.inspector.timeline(job.id)
    assert [event.what for event in call(queue, job, "timeline").steps] == ["enqueued", "due"]
    assert call(queue, queue.job("never-was"), "timeline") is None
