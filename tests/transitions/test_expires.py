"""Jobs that must begin by an instant, and are cancelled if they have not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from schedq import Discard, JobCancelled, NewJob, UsageError
from schedq.inspect.export import exported
from schedq.schedules.fire import DefinitionCache, fire_due
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.queue.test_results import when_listening


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Iterator[Handle]:
    return make_queue(clock=clock)


def at(clock: Clock, seconds: float) -> datetime:
    return datetime.fromtimestamp(clock.now + seconds, UTC)


@pytest.mark.parametrize("form", ["seconds", "timedelta", "datetime"])
def test_a_job_begins_until_it_expires_and_is_cancelled_after(queue: Handle, clock: Clock, form: str):
    expires = {"seconds": 60, "timedelta": timedelta(minutes=1), "datetime": at(clock, 60)}[form]
    begins, expired = queue.enqueue_many(["begins", "expires"], expires=expires)

    clock.pass_time(59.999)
    assert queue.claim(0).id == begins
    clock.pass_time(0.001)
    assert queue.claim(0) is None

    assert queue.places() == {"processing": [begins], "cancelled": [expired]}
    assert queue.fields(expired)["cancel_reason"] == "expired"
    assert queue.state().totals() == {"enqueued_total": 2, "cancelled_total": 1}


def test_an_expired_job_lets_those_behind_it_run(queue: Handle, clock: Clock):
    ids = queue.enqueue_many([NewJob(n, expires=1 if n % 2 else None) for n in range(600)])
    clock.pass_time(2)

    claimed = [queue.claim(0).id for _ in range(300)]

    assert claimed == ids[::2]
    assert queue.claim(0) is None
    assert queue.places() == {"processing": claimed, "cancelled": ids[1::2]}


def test_a_claim_finds_the_first_job_behind_many_expired_ones(queue: Handle, clock: Clock):
    queue.enqueue_many(range(1000), expires=1)
    clock.pass_time(2)
    there = queue.enqueue("there")

    assert queue.claim(0).id == there


def test_a_delayed_job_expires_too(queue: Handle, clock: Clock):
    job_id = queue.enqueue("later", delay=30, expires=60)
    clock.pass_time(61)

    assert queue.claim(0) is None

    assert queue.places() == {"cancelled": [job_id]}


def end(queue: Handle, clock: Clock, how: str) -> None:
    """End the first attempt without finishing the job."""
    job = queue.claim(0)
    if how == "fail":
        queue.fail(job, "no")
    elif how == "release":
        queue.release(job)
    elif how == "snooze":
        queue.snooze(job, 1)
    else:
        clock.pass_time(11)
        queue.reclaim_stuck()


@pytest.mark.parametrize("expires", ["relative", "absolute"])
@pytest.mark.parametrize("due", ["relative", "absolute"])
def test_a_job_that_would_expire_before_it_is_due_is_refused(queue: Handle, clock: Clock, due: str, expires: str):
    limit = {"expires": 60 if expires == "relative" else at(clock, 60)}

    def later(seconds: float) -> dict[str, Any]:
        return {"delay": seconds} if due == "relative" else {"run_at": at(clock, seconds)}

    with pytest.raises(UsageError, match="would expire before it is due"):
        queue.enqueue("late", **later(60), **limit)
    assert queue.places() == {}

    begins = queue.enqueue("in time", **later(59), **limit)
    assert queue.places() == {"delayed": [begins]}


def test_of_many_jobs_only_those_that_would_expire_first_are_refused(queue: Handle, clock: Clock):
    rows = [NewJob(n, job_id=f"j{n}", run_at=at(clock, 10 * n + 1), expires=30) for n in range(6)]

    with pytest.raises(UsageError, match=r"job j3 .* \(and 2 more\); all others were stored"):
        queue.enqueue_many(rows)

    assert queue.places() == {"delayed": ["j0", "j1", "j2"]}


@pytest.mark.parametrize("how", ["fail", "release", "snooze", "lose the lease"])
def test_a_job_that_has_begun_no_longer_expires(queue: Handle, clock: Clock, how: str):
    job_id = queue.enqueue("begun", expires=60)
    end(queue, clock, how)

    clock.pass_time(3600)

    assert queue.claim(0).id == job_id


def test_a_requeued_job_no_longer_expires(queue: Handle, clock: Clock):
    job_id = queue.enqueue("expired", expires=60)
    clock.pass_time(61)
    queue.claim(0)

    assert queue.requeue(job_id) is True

    assert queue.claim(0).id == job_id
    assert "cancel_reason" not in queue.fields(job_id)


def test_a_caller_that_waits_for_an_expired_job_is_notified(queue: Handle, clock: Clock):
    job_id = queue.enqueue("expired", expires=60)
    clock.pass_time(61)
    queue.claim(0)

    with pytest.raises(JobCancelled, match=f"job {job_id} was cancelled: it expired"):
        queue.result(job_id, 0)
    with pytest.raises(JobCancelled, match="it expired"):
        queue.gather_results([job_id], 0)


def test_an_expiry_is_announced_and_logged_as_a_cancellation(make_queue: MakeQueue, clock: Clock):
    queue, listener = make_queue("announced", clock=clock), make_queue("announced", clock=clock)
    job_id = queue.enqueue("expired", expires=60)
    clock.pass_time(61)
    events = listener.events(timeout=60)
    first = listener.start_iteration(events)
    when_listening(queue, queue.keys.events)
    queue.claim(0)

    told = first.result(60)
    assert (told["id"], told["status"], told["reason"]) == (job_id, "cancelled", "expired")
    events.close()
    assert [(entry.move, entry.id) for entry in queue.inspector.log()] == [("cancelled", job_id)]


def test_why_says_when_a_job_expires_and_that_it_did(queue: Handle, clock: Clock):
    job_id = queue.enqueue("expires", expires=60)

    assert queue.inspector.why(job_id).text.endswith("; it expires in 1 min")
    clock.pass_time(61)
    assert queue.inspector.why(job_id).text.endswith("; it has expired, and the next claim cancels it")
    queue.claim(0)

    why = queue.inspector.why(job_id)
    assert (why.reason, why.facts["cancel_reason"]) == ("cancelled", "expired")
    assert why.text.endswith(": it expired 1.0 s ago, before it began")


def test_a_paused_queue_cancels_nothing(queue: Handle, clock: Clock):
    job_id = queue.enqueue("expired", expires=60)
    queue.pause()
    clock.pass_time(61)

    assert queue.claim(0) is None

    assert queue.places() == {"pending": [job_id]}


def test_a_list_of_another_type_holds_up_no_claim_and_is_repaired_later(queue: Handle, clock: Clock):
    expired = queue.enqueue("expired", expires=60)
    there = queue.enqueue("there")
    queue.redis.set(queue.keys.cancelled, "what is this")
    clock.pass_time(61)

    assert queue.claim(0).id == there

    queue.redis.delete(queue.keys.cancelled)
    assert queue.reclaim_stuck() == []
    assert queue.places() == {"processing": [there], "cancelled": [expired]}


@pytest.mark.breaks("totals", because="jobs were trimmed")
def test_the_history_of_cancelled_jobs_keeps_its_limit(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, failed_history=2, min_keep=0, retry_for=0)
    ids = queue.enqueue_many(range(5), expires=1)
    clock.pass_time(2)

    assert queue.claim(0) is None

    assert queue.places() == {"cancelled": ids[-2:]}


@pytest.mark.parametrize("text", ["", "soon", "+", "+soon", "0", "+0", "-1"])
def test_an_expiry_that_makes_no_sense_holds_up_no_job(queue: Handle, clock: Clock, text: str):
    job_id = queue.enqueue("foreign")
    queue.redis.hset(queue.keys.job(job_id), "expires", text)
    clock.pass_time(3600)

    assert queue.claim(0).id == job_id


def test_a_job_that_another_program_enqueued_may_expire(queue: Handle, clock: Clock):
    for name, expires in (("absolute", clock.now_ms + 60_000), ("relative", "+60000")):
        queue.redis.hset(queue.keys.job(name), mapping={"payload": "1", "expires": expires})
        queue.redis.lpush(queue.keys.pending, name)
    queue.redis.hset(queue.keys.stats, "enqueued_total", 2)
    clock.pass_time(61)

    assert queue.claim(0).id == "relative"  # it does not say when it was enqueued

    assert queue.places() == {"cancelled": ["absolute"], "processing": ["relative"]}


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"expires": 0}, "more than 0"),
        ({"expires": -1}, "negative"),
        ({"expires": "soon"}, "expires must be"),
        ({"expires": datetime(2030, 1, 1)}, "timezone-aware"),
        ({"expires": 60, "delay": 60}, "before it is due"),
        ({"expires": datetime(2030, 1, 1, tzinfo=UTC), "run_at": 1_900_000_000}, "before it is due"),
    ],
)
def test_an_invalid_expiry_is_refused(queue: Handle, options: dict[str, Any], what: str):
    with pytest.raises(UsageError, match=what):
        queue.enqueue("refused", **options)
    assert queue.places() == {}


# -- tasks and schedules


def test_a_task_may_say_that_its_calls_expire(queue: Handle, clock: Clock):
    task = queue.task(name="greet")(lambda name: None)

    (job_id,) = queue.enqueue_many([task.options(expires=60).with_args("Ada")])

    assert queue.fields(job_id)["expires"] == "+60000"
    clock.pass_time(61)
    assert queue.claim(0) is None
    assert queue.places() == {"cancelled": [job_id]}


def test_the_jobs_of_a_schedule_may_expire(queue: Handle, clock: Clock):
    queue.schedules.upsert("tick", every=3600, payload="tick", expires=60)
    queue.schedules.trigger("tick")
    (job,) = queue.list_pending()

    clock.pass_time(61)

    assert queue.claim(0) is None
    assert queue.places() == {"cancelled": [job.id]}


def test_the_slots_of_a_schedule_make_jobs_that_expire(queue: Handle, clock: Clock):
    queue.schedules.upsert("tick", every=3600, payload="tick", expires=60)
    clock.pass_time(3600)
    queue.drive(fire_due(queue.settings, DefinitionCache()))
    (job,) = queue.list_pending()

    assert job.fields["expires"] == "+60000"


def test_a_job_that_is_late_by_its_jitter_expires_later_too(queue: Handle, clock: Clock):
    queue.schedules.upsert("tick", every=3600, payload="tick", jitter=600, expires=1)
    claimed = set()
    for _ in range(5):
        clock.pass_time(3600 - clock.now % 3600)
        queue.drive(fire_due(queue.settings, DefinitionCache()))
        ((job_id, due_ms),) = queue.redis.zrange(queue.keys.delayed, 0, 0, withscores=True)
        clock.pass_time(due_ms / 1000 - clock.now + 0.9)
        assert queue.claim(0).id == job_id
        claimed.add(job_id)

    assert len(claimed) == 5


def test_an_exported_job_keeps_its_expiry(make_queue: MakeQueue, clock: Clock):
    old, new = make_queue(clock=clock), make_queue(clock=clock)
    job_id = old.enqueue("moves", expires=60)
    entry = exported(old.get_job(job_id), "pending")
    clock.pass_time(30)

    assert new.inspector.import_jobs([entry, {**entry, "id": "bad", "expires": "soon"}]).stored == 1

    clock.pass_time(31)
    assert new.claim(0) is None
    assert new.places() == {"cancelled": [job_id]}


def test_a_failed_job_does_not_count_as_expired(queue: Handle, clock: Clock):
    job_id = queue.enqueue("fails", expires=60)
    queue.fail(queue.claim(0), Discard("no"))
    clock.pass_time(61)

    assert queue.inspector.why(job_id).reason == "failed"


@pytest.mark.parametrize("expires", [60, "datetime"])
def test_no_job_is_put_off_to_when_it_has_expired(queue: Handle, clock: Clock, expires: Any):
    job_id = queue.enqueue(1, delay=10, expires=at(clock, 60) if expires == "datetime" else expires)
    before = queue.dump()

    for when in ({"delay": 60}, {"run_at": at(clock, 3600)}):
        with pytest.raises(
            UsageError, match=rf"{job_id} must begin before 2027-01-15T08:01:00\+00:00.*can't be due at"
        ):
            queue.reschedule(job_id, **when)
    assert queue.dump() == before
    assert queue.inspector.act("reschedule", [job_id], delay=60).refused == 1
    assert queue.inspector.act_on("reschedule", "delayed", delay=60).refused == 1

    assert queue.reschedule(job_id, delay=59)
    clock.pass_time(59)
    assert queue.claim(0).id == job_id


def test_a_retry_is_put_off_beyond_the_expiry_that_its_job_had(queue: Handle, clock: Clock):
    job_id = queue.enqueue(1, expires=60)
    queue.fail(queue.claim(0))

    assert queue.reschedule(job_id, delay=3600)
