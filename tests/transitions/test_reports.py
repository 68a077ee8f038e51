"""Progress and meta in Redis: written by the holder of the job only, and gone when the next attempt begins."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schedq import ClaimedJob, Discard, Progress
from schedq.model.progress import ProgressReport
from schedq.transitions import renew
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.servers import Server


def report(
    queue: Handle, job: ClaimedJob, done: float, *, meta: str = "", number: int = 0, token: str = ""
) -> list[str]:
    """Send one report, as a worker does."""
    made = ProgressReport.of(job.id, token or job.claim_token, (done, 10, ""), meta, number=number)
    words: list[str] = queue.execute([renew.renew(queue.settings, (), [made])])[0]
    return words


def claimed(queue: Handle, **options: Any) -> ClaimedJob:
    """A job that is running."""
    queue.enqueue(1, **options)
    job: ClaimedJob = queue.claim(0)
    return job


def test_a_report_is_in_the_record_with_the_time_of_redis(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    job = claimed(queue)
    clock.pass_time(5)

    assert report(queue, job, 3, meta='{"page":1}') == ["OK"]

    record = queue.get_job(job.id)
    assert record.progress == Progress(3, 10, "", clock.now_ms)
    assert record.meta == {"page": 1}
    assert json.loads(record.fields["progress"]) == {
        "done": 3, "total": 10, "attempt": 1, "report": 0, "at_ms": clock.now_ms,
    }  # fmt: skip


def test_a_report_renews_the_lease(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, visibility_ms=10_000)
    job = claimed(queue)
    clock.pass_time(9)

    assert queue.renew(job, progress=Progress(1)) is True

    clock.pass_time(9)
    assert queue.reclaim_stuck() == []
    assert queue.get_job(job.id).progress.done == 1


def test_with_another_token_nothing_is_written(queue: Handle):
    job = claimed(queue)
    before = queue.dump()

    assert report(queue, job, 3, meta="{}", token="other.1") == ["LOST"]

    assert queue.dump() == before


@pytest.mark.parametrize("end", ["complete", "fail", "release"])
def test_after_the_end_of_its_attempt_a_report_changes_nothing(queue: Handle, end: str):
    job = claimed(queue)
    getattr(queue, end)(job)
    before = queue.dump()

    assert report(queue, job, 3) == ["LOST"]
    assert queue.renew(job, progress=Progress(4)) is False

    assert queue.dump() == before


def test_a_frozen_worker_that_continues_changes_nothing_of_the_next_attempt(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    old = claimed(queue)
    report(queue, old, 9, meta='{"of":"the first"}')
    clock.pass_time(3600)
    assert queue.reclaim_stuck() == [old.id]
    new = queue.claim(0)
    report(queue, new, 1)

    assert report(queue, old, 10, meta='{"of":"the first"}') == ["LOST"]

    record = queue.get_job(old.id)
    assert (record.progress.done, record.meta) == (1, {})


@pytest.mark.parametrize("end", ["killed", "retry", "snooze", "release", "requeue"])
def test_the_next_attempt_begins_with_nothing(make_queue: MakeQueue, clock: Clock, end: str):
    queue = make_queue(clock=clock)
    job = claimed(queue)
    report(queue, job, 9, meta='{"page":1}')
    if end == "killed":
        clock.pass_time(3600)
        assert queue.reclaim_stuck() == [job.id]
    elif end == "requeue":
        queue.fail(job, Discard("no"))
        assert queue.requeue(job.id)
    elif end == "retry":
        queue.fail(job, "no")
    else:
        getattr(queue, end)(job, *([60] if end == "snooze" else []))
    clock.pass_time(3600)

    assert queue.claim(0).id == job.id

    assert not {"progress", "meta"} & queue.fields(job.id).keys()
    record = queue.get_job(job.id)
    assert (record.progress, record.meta) == (None, {})


@pytest.mark.parametrize("end", ["complete", "fail for good", "cancel"])
def test_a_finished_job_keeps_what_its_last_attempt_reported(queue: Handle, end: str):
    job = claimed(queue)
    report(queue, job, 9, meta='{"page":1}')
    if end == "complete":
        queue.complete(job)
    elif end == "cancel":
        queue.cancel(job.id)
        queue.fail(job)
    else:
        queue.fail(job, Discard("no"))

    record = queue.get_job(job.id)
    assert (record.progress.done, record.meta) == (9, {"page": 1})


def test_a_job_that_waits_for_its_next_attempt_still_shows_how_far_the_last_one_came(queue: Handle):
    job = claimed(queue)
    report(queue, job, 9)
    queue.fail(job, "no")

    assert queue.get_job(job.id).progress.done == 9


@pytest.mark.parametrize("end", ["snooze", "release"])
def test_an_attempt_that_was_given_back_shows_nothing(queue: Handle, end: str):
    job = claimed(queue)
    report(queue, job, 9)
    getattr(queue, end)(job, *([60] if end == "snooze" else []))

    assert queue.get_job(job.id).progress is None


def test_a_report_that_comes_late_does_not_replace_a_newer_one(queue: Handle):
    job = claimed(queue)
    report(queue, job, 5, meta='{"page":5}', number=5)
    before = queue.fields(job.id)["progress"]

    assert report(queue, job, 4, meta='{"page":4}', number=4) == ["OK"]
    assert report(queue, job, 5, meta='{"page":5}', number=5) == ["OK"]

    assert queue.fields(job.id)["progress"] == before
    assert queue.fields(job.id)["meta"] == '{"page":5}'
    report(queue, job, 10, number=10)
    assert queue.get_job(job.id).progress.done == 10


def test_a_report_of_meta_only_has_no_progress(queue: Handle):
    job = claimed(queue)
    made = ProgressReport.of(job.id, job.claim_token, None, '{"page":1}', number=1)
    queue.execute([renew.renew(queue.settings, (), [made])])

    record = queue.get_job(job.id)
    assert (record.progress, record.meta) == (None, {"page": 1})
    queue.release(job)
    queue.claim(0)
    assert "meta" not in queue.fields(job.id)


@pytest.mark.parametrize("garbage", ["", "{", "50 %", '{"report":x,"at_ms":1}', "x" * 100_000, b"\xff\xfe"])
def test_garbage_in_the_fields_holds_up_nothing(queue: Handle, garbage: str | bytes):
    job_id = queue.enqueue(1)
    queue.redis.hset(queue.keys.job(job_id), mapping={"progress": garbage, "meta": garbage})
    job = queue.claim(0)
    assert not {"progress", "meta"} & queue.fields(job_id).keys()
    queue.redis.hset(queue.keys.job(job_id), mapping={"progress": garbage, "meta": garbage})

    record = queue.get_job(job_id)
    assert (record.progress, record.meta) == (None, {})
    assert report(queue, job, 3, number=1) == ["OK"]
    assert queue.get_job(job_id).progress.done == 3
    assert queue.complete(job) is True


def test_a_field_meta_of_another_program_stays_until_a_handler_writes_its_own(queue: Handle):
    job_id = queue.enqueue(1)
    queue.redis.hset(queue.keys.job(job_id), "meta", '{"theirs":1}')
    queue.claim(0)

    assert queue.fields(job_id)["meta"] == '{"theirs":1}'
    assert queue.get_job(job_id).meta == {}


def test_reports_left_by_an_older_worker_are_not_shown_for_its_attempt(queue: Handle):
    job = claimed(queue)
    report(queue, job, 9, meta='{"page":1}')
    with queue.redis.pipeline(transaction=True) as moves:  # as a release without progress
        moves.hset(queue.keys.job(job.id), mapping={"attempts": 2, "claim_token": "old.1"})
        moves.execute()

    record = queue.get_job(job.id)
    assert (record.progress, record.meta) == (None, {})
    queue.complete(ClaimedJob(job.id, None, 2, "old.1"))


def test_in_a_batch_each_report_and_each_renewal_has_its_own_result(queue: Handle):
    queue.enqueue_many(range(5))
    first, stopped, lost, plain, gone = (queue.claim(0) for _ in range(5))
    queue.cancel(stopped.id)
    queue.release(lost)
    queue.release(gone)
    reports = [
        ProgressReport.of(job.id, job.claim_token, (n, None, ""), number=1)
        for n, job in enumerate((first, stopped, lost), 1)
    ]
    held = [(job.id, job.claim_token) for job in (plain, gone)]

    (words,) = queue.execute([renew.renew(queue.settings, held, reports)])

    assert words == ["OK", "STOP", "LOST", "OK", "LOST"]
    assert [queue.get_job(job.id).progress for job in (lost, plain, gone)] == [None] * 3
    assert [queue.get_job(job.id).progress.done for job in (first, stopped)] == [1, 2]


def test_a_claim_of_a_job_that_reported_nothing_deletes_nothing(queue: Handle):
    job = claimed(queue)
    queue.fail(job)
    queue.run_now(job.id)
    with queue.server.client() as client:
        client.config_resetstat()
        assert queue.claim(0) is not None
        assert "cmdstat_hdel" not in client.info("commandstats")


def test_a_full_redis_still_takes_reports_and_drains(make_queue: MakeQueue):
    with Server() as server:
        queue = make_queue(at=server)
        job = claimed(queue)
        server_client = queue.redis
        server_client.config_set("maxmemory", 1)

        assert queue.renew(job, progress=Progress(3, 10)) is True
        assert queue.complete(job) is True

        assert queue.get_job(job.id).progress.done == 3
        server_client.config_set("maxmemory", 0)
        assert queue.state().broken_laws() == {}
