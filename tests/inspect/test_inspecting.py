"""The inspector, blocking and asyncio."""

from __future__ import annotations

import pytest

from schedq import AttemptRecord, Discard, Fixed, Timeline, Why
from schedq.transitions import heartbeat
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle


def test_both_clients_say_why(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job_id = queue.enqueue(1, delay=240)

    found = queue.inspector.why(job_id)

    assert isinstance(found, Why)
    assert (found.reason, found.text, found.is_known) == ("due_later", "it is due in 4 min", True)
    assert found.facts == {"due_at_ms": clock.now_ms + 240_000, "due_in_ms": 240_000}
    assert found.to_dict() == {
        "reason": "due_later",
        "text": "it is due in 4 min",
        "queue": queue.name,
        "id": job_id,
        "now_ms": clock.now_ms,
        "due_at_ms": clock.now_ms + 240_000,
        "due_in_ms": 240_000,
    }


def test_both_clients_list_workers(queue: Handle):
    assert queue.inspector.why(queue.enqueue(1)).reason == "no_worker"


def test_the_rate_is_that_of_the_jobs_that_ended_recently(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, max_attempts=1)
    queue._ask(heartbeat.beat(queue.settings, "w-1", {"concurrency": 1, "has_handler": 1, "tasks": "[]"}))
    for n in range(300):  # a minute without jobs, then 20 s in which 150 end, every other one failing
        queue.enqueue(n)
        queue.complete(queue.claim(0)) if n % 2 else queue.fail(queue.claim(0))
        if n == 149:
            clock.pass_time(61)
    clock.pass_time(20)
    queue._ask(heartbeat.beat(queue.settings, "w-1", {"concurrency": 1, "has_handler": 1, "tasks": "[]"}))
    queue.enqueue_many(range(600))

    found = queue.inspector.why(queue.enqueue(1))

    # There are records older than a minute, so it is known that nothing ended in the 40 s before.
    assert found.facts["per_second"] == 150 / 60
    assert found.text == "600 jobs ahead of it at 2.5/s (about 4 min)"


@pytest.mark.breaks("totals", because="completed records are trimmed")
def test_a_time_whose_records_were_trimmed_does_not_count_as_idle(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, completed_history=100, min_keep=0, retry_for=0)
    for n in range(400):
        queue.enqueue(n)
        queue.complete(queue.claim(0))
        clock.pass_time(0.01)
    queue.enqueue_many(range(50))

    found = queue.inspector.why(queue.enqueue(1))

    assert found.reason == "ahead"
    assert 95 <= found.facts["per_second"] <= 105


@pytest.mark.parametrize("place", ["newest", "oldest"])
def test_both_ends_of_a_long_queue_are_exact(make_queue: MakeQueue, clock: Clock, place: str):
    queue = make_queue(clock=clock)
    old, new = queue.enqueue("old"), queue.enqueue("new")
    queue.redis.delete(queue.keys.pending)
    queue.redis.lpush(queue.keys.pending, old, *["x"] * 120_000, new)
    try:
        facts = queue.inspector.why(new if place == "newest" else old).facts
    finally:
        queue.purge()
        queue.forget()

    assert (facts["ahead"], facts["is_exact"]) == (120_001 if place == "newest" else 0, True)


# -- timeline


def steps(found: Timeline, clock: Clock) -> list[tuple[int, str]]:
    """What happened, in ms before now."""
    return [
        (step.at_ms - clock.now_ms, f"{step.what} {step.attempt.outcome}" if step.attempt else step.what)
        for step in found.steps
    ]


@pytest.mark.parametrize("end", ["failed", "cancelled"])
def test_a_timeline_says_when_an_ended_job_was_requeued(make_queue: MakeQueue, clock: Clock, end: str):
    queue = make_queue(clock=clock, max_attempts=1)
    job_id = queue.enqueue(1)
    job = queue.claim(0)
    clock.pass_time(1)
    if end == "cancelled":
        queue.cancel(job_id)
    queue.fail(job, "smtp timeout")
    clock.pass_time(1)
    assert "requeued" not in [what for _, what in steps(queue.inspector.timeline(job_id), clock)]
    queue.requeue(job_id)
    clock.pass_time(1)
    queue.complete(queue.claim(0), "sent")

    assert steps(queue.inspector.timeline(job_id), clock) == [
        (-3_000, "enqueued"),
        (-3_000, f"attempt {end}"),
        (-1_000, "requeued"),
        (0, "attempt completed"),
        (0, "completed"),
    ]


def test_a_timeline_shows_a_jobs_whole_history(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, backoff=Fixed(5), max_attempts=2)
    job_id = queue.enqueue(1, delay=10)
    clock.pass_time(10.25)
    job = queue.claim(0)

    found = queue.inspector.timeline(job_id)
    assert steps(found, clock) == [(-10_250, "enqueued"), (-250, "due"), (0, "promoted"), (0, "attempt running")]
    assert (found.id, found.status, found.now_ms, found.ended_at_ms) == (job_id, "processing", clock.now_ms, 0)

    clock.pass_time(2)
    queue.fail(job, "smtp timeout")
    clock.pass_time(1)
    found = queue.inspector.timeline(job_id)
    assert steps(found, clock) == [
        (-13_250, "enqueued"),
        (-3_000, "promoted"),
        (-3_000, "attempt retry"),
        (4_000, "due"),
    ]
    assert found.attempts == (
        AttemptRecord(1, "", clock.now_ms - 3000, clock.now_ms - 1000, 2000, "retry", "smtp timeout"),
    )

    clock.pass_time(4)
    assert queue.promote_due() == 1
    clock.pass_time(3)
    job = queue.claim(0)
    clock.pass_time(0.5)
    queue.fail(job, "again")
    found = queue.inspector.timeline(job_id)
    assert steps(found, clock)[2:] == [
        (-3_500, "due"),
        (-3_500, "promoted"),
        (-500, "attempt failed"),
        (0, "failed"),
    ]
    assert [(attempt.number, attempt.error) for attempt in found.attempts] == [(1, "smtp timeout"), (2, "again")]
    assert found.to_dict()["attempts"][1]["duration_ms"] == 500


def test_a_job_that_completed_at_once_has_an_attempt(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job_id = queue.enqueue(1)
    job = queue.claim(0)
    clock.pass_time(3)
    queue.complete(job)

    found = queue.inspector.timeline(job_id)

    assert "history" not in queue.fields(job_id)
    assert steps(found, clock) == [(-3000, "enqueued"), (-3000, "attempt completed"), (0, "completed")]
    assert found.attempts[0].duration_ms == 3000


def test_a_job_that_runs_and_was_asked_to_stop(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job_id = queue.enqueue(1)
    job = queue.claim(0)
    clock.pass_time(2)
    queue.cancel(job_id)
    clock.pass_time(1)

    found = queue.inspector.timeline(job_id)
    assert steps(found, clock) == [(-3000, "enqueued"), (-3000, "attempt running"), (-1000, "asked to stop")]
    assert found.attempts[0].duration_ms == 3000

    queue.fail(job, Discard())
    assert steps(queue.inspector.timeline(job_id), clock)[1:] == [(-3000, "attempt cancelled"), (0, "cancelled")]


def test_a_job_run_now_was_promoted_then(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job_id = queue.enqueue(1, delay=60)
    clock.pass_time(1)
    queue.run_now(job_id)

    assert steps(queue.inspector.timeline(job_id), clock) == [(-1000, "enqueued"), (0, "due"), (0, "promoted")]


def test_a_requeued_job_is_due_at_once_and_was_not_promoted(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job_id = queue.enqueue(1, delay=1)
    clock.pass_time(1)
    queue.fail(queue.claim(0), Discard("no"))
    clock.pass_time(3600)
    queue.requeue(job_id)

    found = queue.inspector.timeline(job_id)
    assert (found.due_at_ms, found.promoted_at_ms, found.status) == (clock.now_ms, 0, "pending")
    assert [attempt.outcome for attempt in found.attempts] == ["failed"]


def test_attempts_that_were_trimmed_are_counted(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, backoff=Fixed(0), max_attempts=20)
    job_id = queue.enqueue(1)
    for _ in range(13):
        queue.fail(queue.claim(0))

    found = queue.inspector.timeline(job_id)

    assert (len(found.attempts), found.earlier, found.attempts[0].number) == (10, 3, 4)


@pytest.mark.breaks("totals", because="another program counts otherwise")
def test_the_attempt_of_another_program_is_seen_by_its_instants(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    fields = {"payload": "1", "status": "failed", "attempts": 1, "claimed_at_ms": 5000, "last_error_at_ms": 7000}
    queue.redis.hset(queue.keys.job("theirs"), mapping=fields | {"last_error": "no"})
    queue.redis.lpush(queue.keys.failed, "theirs")

    found = queue.inspector.timeline("theirs")

    assert found.attempts == (AttemptRecord(1, "", 5000, 7000, 2000, "failed", "no"),)


def test_a_missing_job_has_no_timeline(queue: Handle):
    assert queue.inspector.timeline("nobody") is None
