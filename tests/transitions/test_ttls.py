"""How long the records of finished jobs are kept, if a job, its task or its queue says so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from schedq import Discard, JobGone, NewJob, UsageError
from schedq.inspect.export import exported
from schedq.model.records import Settlement
from schedq.model.settings import Settings
from schedq.model.tasks import TaskOptions
from schedq.schedules.fire import DefinitionCache, fire_due
from schedq.transitions import announce
from scripts.tools.settling import settle_all
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.scenes import one_door

GONE = pytest.mark.breaks("totals", because="entries of expired records were removed, what was counted was not")
ENDS = ["completed", "failed", "cancelled", "stopped", "lost", "expired", "refused"]
DAY_MS = 86_400_000


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock, max_attempts=1)


def end(queue: Handle, clock: Clock, how: str, job_id: str) -> None:
    """End the only job that waits in one of the ways that jobs end."""
    if how == "cancelled":
        assert queue.cancel(job_id) == "cancelled"
        return
    if how == "refused":
        queue.redis.hdel(queue.keys.job(job_id), "payload")
    if how in ("expired", "refused"):
        clock.pass_time(2)
        assert queue.claim(0) is None
        return
    job = queue.claim(0)
    if how == "completed":
        assert queue.complete(job)
    elif how == "failed":
        assert queue.fail(job, Discard("no"))
    elif how == "stopped":
        queue.cancel(job_id)
        assert queue.fail(job, "stopped")
    else:
        clock.pass_time(11)
        assert queue.reclaim_stuck() == [job_id]


def left_ms(queue: Handle, job_id: str) -> int:
    """The time until its record expires; -1 for never."""
    found: int = queue.redis.pttl(queue.keys.job(job_id))
    return found


def expire(queue: Handle, *job_ids: str) -> None:
    """What Redis does when their time has come, whatever the tests' clock shows."""
    assert all(left_ms(queue, job_id) > 0 for job_id in job_ids)
    queue.redis.delete(*[queue.keys.job(job_id) for job_id in job_ids])


def options_of(how: str, **options: Any) -> dict[str, Any]:
    return options | ({"expires": 1} if how == "expired" else {})


@pytest.mark.parametrize("how", ENDS)
def test_a_record_is_kept_as_long_as_its_job_says(queue: Handle, clock: Clock, how: str):
    job_id = queue.enqueue("work", **options_of(how, completed_ttl=7200, failed_ttl=timedelta(days=1)))

    end(queue, clock, how, job_id)

    wanted = 7_200_000 if how == "completed" else DAY_MS
    assert wanted - 5000 < left_ms(queue, job_id) <= wanted
    assert list(queue.places()) == [
        {"stopped": "cancelled", "expired": "cancelled"}.get(how, how) if how not in ("lost", "refused") else "failed"
    ]


@pytest.mark.parametrize("how", ENDS)
def test_a_queue_may_set_how_long_failed_and_cancelled_jobs_are_kept(make_queue: MakeQueue, clock: Clock, how: str):
    queue = make_queue(clock=clock, max_attempts=1, completed_ttl=7200, failed_ttl=timedelta(days=1))
    queue.execute([announce.announce(queue.settings)])
    job_id = queue.enqueue("work", **options_of(how))

    end(queue, clock, how, job_id)

    wanted = 7_200_000 if how == "completed" else DAY_MS
    assert wanted - 5000 < left_ms(queue, job_id) <= wanted


@pytest.mark.parametrize("how", ["completed", "failed", "stopped", "lost"])
def test_a_task_says_it_for_jobs_that_were_made_by_its_name(queue: Handle, clock: Clock, how: str):
    """The program that made them need not know the task."""
    queue.task(name="report", completed_ttl=7200, failed_ttl=86_400)(lambda: None)
    job_id = queue.enqueue({"task": "report"})
    assert "completed_ttl_ms" not in queue.fields(job_id)

    end(queue, clock, how, job_id)

    wanted = 7_200_000 if how == "completed" else DAY_MS
    assert wanted - 5000 < left_ms(queue, job_id) <= wanted


def test_another_programs_reclaimer_reads_it_from_what_workers_stored(queue: Handle, clock: Clock):
    queue.execute([announce.announce(queue.settings, {"report": TaskOptions(failed_ttl_ms=DAY_MS)})])
    job_id = queue.enqueue({"task": "report"}, max_attempts=1)

    end(queue, clock, "lost", job_id)

    assert DAY_MS - 5000 < left_ms(queue, job_id) <= DAY_MS


@pytest.mark.parametrize("how", ["completed", "failed", "lost"])
def test_a_job_comes_before_its_task_and_that_before_the_queue(make_queue: MakeQueue, clock: Clock, how: str):
    queue = make_queue(clock=clock, max_attempts=1, completed_ttl=100, failed_ttl=100)
    queue.task(name="report", completed_ttl=200, failed_ttl=200)(lambda: None)
    plain, of_task, own = "plain", {"task": "report"}, {"task": "report"}
    found = []
    for payload, options in ((plain, {}), (of_task, {}), (own, {"completed_ttl": 300, "failed_ttl": 300})):
        job_id = queue.enqueue(payload, **options)
        end(queue, clock, how, job_id)
        found.append(round(left_ms(queue, job_id) / 1000, -1))

    assert found == [100, 200, 300]


def test_options_of_a_task_are_stored_with_the_jobs_made_through_it(queue: Handle):
    task = queue.task(name="report", completed_ttl=200, failed_ttl=0)(lambda: None)

    ids = queue.enqueue_many([task.with_args(), task.options(failed_ttl=300).with_args()])

    stored = [(queue.fields(job_id)["completed_ttl_ms"], queue.fields(job_id)["failed_ttl_ms"]) for job_id in ids]
    assert stored == [("200000", "0"), ("200000", "300000")]


def test_jobs_of_a_batch_have_theirs_or_the_common_ones(queue: Handle):
    ids = queue.enqueue_many([1, NewJob(2, completed_ttl=5), NewJob(3, failed_ttl=6)], completed_ttl=100)

    fields = [queue.fields(job_id) for job_id in ids]
    assert [job["completed_ttl_ms"] for job in fields] == ["100000", "5000", "100000"]
    assert [job.get("failed_ttl_ms") for job in fields] == [None, None, "6000"]


@pytest.mark.parametrize("how", ENDS)
def test_no_record_is_deleted_before_min_keep(queue: Handle, clock: Clock, how: str):
    """A request that is sent again must find what it did before."""
    job_id = queue.enqueue("work", **options_of(how, completed_ttl=0, failed_ttl=0))

    end(queue, clock, how, job_id)

    assert 25_000 < left_ms(queue, job_id) <= 30_000


@GONE
@pytest.mark.parametrize("how", ["completed", "failed", "stopped"])
def test_a_ttl_of_0_keeps_nothing_if_min_keep_is_0_too(make_queue: MakeQueue, clock: Clock, how: str):
    queue = make_queue(clock=clock, min_keep=0, retry_for=0)
    job_id = queue.enqueue("work", completed_ttl=0, failed_ttl=0)

    end(queue, clock, how, job_id)

    assert queue.places() == {}
    assert queue.state().jobs() == {}
    assert (
        queue.stats()[
            "completed_total" if how == "completed" else "failed_total" if how == "failed" else "cancelled_total"
        ]
        == 1
    )


def test_attempts_that_do_not_end_a_job_make_nothing_expire(queue: Handle, clock: Clock):
    job_id = queue.enqueue("work", completed_ttl=100, failed_ttl=100, max_attempts=9)
    queue.fail(queue.claim(0), "again")
    clock.pass_time(600)
    queue.snooze(queue.claim(0), 1)
    clock.pass_time(1)
    queue.release(queue.claim(0))

    assert left_ms(queue, job_id) == -1


@pytest.mark.parametrize("how", ["failed", "cancelled", "lost", "expired"])
def test_a_requeued_job_does_not_expire_until_it_fails_again(queue: Handle, clock: Clock, how: str):
    job_id = queue.enqueue("work", **options_of(how, failed_ttl=600))
    end(queue, clock, how, job_id)

    assert queue.requeue(job_id) is True

    assert left_ms(queue, job_id) == -1
    queue.fail(queue.claim(0), Discard("no"))
    assert 595_000 < left_ms(queue, job_id) <= 600_000


@pytest.mark.parametrize("text", ["", "soon", "-1", "nan", "inf", "1e300", "99999999999999999999"])
@pytest.mark.parametrize("how", ["completed", "failed", "cancelled", "lost"])
def test_a_ttl_that_makes_no_sense_is_passed_over(queue: Handle, clock: Clock, how: str, text: str):
    job_id = queue.enqueue("foreign")
    queue.redis.hset(queue.keys.job(job_id), mapping={"completed_ttl_ms": text, "failed_ttl_ms": text})

    end(queue, clock, how, job_id)

    assert left_ms(queue, job_id) == -1 if how != "completed" else 3_595_000 < left_ms(queue, job_id) <= 3_600_000


@pytest.mark.parametrize("option", ["completed_ttl", "failed_ttl"])
@pytest.mark.parametrize("value", [-1, "soon", True, float("nan"), 10**12])
def test_an_invalid_ttl_is_refused(queue: Handle, option: str, value: Any):
    for ask in (
        lambda: queue.enqueue("work", **{option: value}),
        lambda: queue.task(name="t", **{option: value})(lambda: None),
        lambda: queue.schedules.upsert("s", every=60, payload=1, **{option: value}),
        lambda: Settings("mail", **{option: value}),
    ):
        with pytest.raises(UsageError, match=option):
            ask()
    assert queue.places() == {}


def test_results_and_errors_of_expired_records_are_deleted(queue: Handle, clock: Clock):
    job_id = queue.enqueue("work", completed_ttl=60)
    end(queue, clock, "completed", job_id)
    expire(queue, job_id)

    with pytest.raises(JobGone, match="jobs or tasks of this queue have a completed_ttl or failed_ttl of their own"):
        queue.result(job_id, 0)


# -- what other processes know


def test_the_ttls_of_a_queue_are_stored_for_other_processes_and_removed_again(make_queue: MakeQueue):
    queue = make_queue("kept", failed_ttl=60)
    queue.execute([announce.announce(queue.settings)])
    plain = make_queue("kept")
    known = Settings("kept", tagged=queue.settings.tagged)

    (stored,) = plain.execute([announce.read_settings(plain.settings)])
    assert known.with_fields(stored).failed_ttl == 60
    plain.execute([announce.announce(plain.settings)])
    (stored,) = plain.execute([announce.read_settings(plain.settings)])
    assert known.with_fields(stored).failed_ttl is None


# -- schedules, exports


@pytest.mark.parametrize("made_by", ["trigger", "slot"])
def test_the_jobs_of_a_schedule_have_its_ttls(queue: Handle, clock: Clock, made_by: str):
    queue.schedules.upsert("tick", every=3600, payload="tick", completed_ttl=0, failed_ttl=60)
    if made_by == "trigger":
        queue.schedules.trigger("tick")
    else:
        clock.pass_time(3600)
        queue.drive(fire_due(queue.settings, DefinitionCache()))

    (job,) = queue.list_pending()

    assert job.ttls_ms == {"completed_ttl": 0, "failed_ttl": 60_000}


def test_a_schedule_of_a_task_has_the_tasks(queue: Handle):
    task = queue.task(name="tick", completed_ttl=50)(lambda: None)
    queue.schedules.upsert("tick", every=3600, task=task)
    queue.schedules.trigger("tick")

    (job,) = queue.list_pending()

    assert job.ttls_ms == {"completed_ttl": 50_000}


def test_exported_jobs_keep_theirs(make_queue: MakeQueue, clock: Clock):
    old, new = make_queue(clock=clock), make_queue(clock=clock)
    job_id = old.enqueue("moves", completed_ttl=0, failed_ttl=60)
    entry = exported(old.get_job(job_id), "pending")

    assert new.inspector.import_jobs([entry, {**entry, "id": "bad", "failed_ttl_ms": "soon"}]).stored == 1

    assert new.get_job(job_id).ttls_ms == {"completed_ttl": 0, "failed_ttl": 60_000}


# -- what is left in the histories


def finished(queue: Handle, count: int, end: str = "complete", **options: Any) -> list[str]:
    """Finish jobs in few requests; returns their ids, in the order in which they ended."""
    ids: list[str] = queue.enqueue_many([NewJob(n, **options) for n in range(count)])
    endings = []
    while job := queue.claim(0):
        endings.append(Settlement(end, job.id, job.claim_token, text="1", note="1"))
    assert set(queue.drive(settle_all(queue.settings, endings))) == {"OK"}
    return ids


@GONE
@one_door
@pytest.mark.parametrize("end", ["complete", "fail"])
def test_entries_of_expired_records_are_removed_wherever_they_are(make_queue: MakeQueue, clock: Clock, end: str):
    queue = make_queue(clock=clock)
    place = {"complete": "completed", "fail": "failed"}[end]
    ttls = {"completed_ttl": 600, "failed_ttl": 600}
    kept: list[str] = []
    for _ in range(6):
        kept += finished(queue, 220, end)
        expire(queue, *finished(queue, 30, end, **ttls))
    assert len(queue.places()[place]) == 1500

    for _ in range(6):
        queue.reclaim_stuck()

    assert queue.places() == {place: kept}


@GONE
@one_door
def test_a_record_that_is_kept_longer_does_not_keep_entries_of_others(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    (kept,) = finished(queue, 1, completed_ttl=DAY_MS // 1000)
    expire(queue, *finished(queue, 300))

    for _ in range(3):
        queue.reclaim_stuck()

    assert queue.places() == {"completed": [kept]}


@one_door
def test_a_queue_without_its_own_ttls_searches_no_history(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    ids = finished(queue, 10)
    queue.redis.delete(queue.keys.job(ids[5]))

    queue.reclaim_stuck()

    assert queue.places() == {"completed": ids}
    assert queue.redis.hkeys(queue.keys.stats) == ["enqueued_total", "completed_total"]


def test_lists_show_no_job_whose_record_has_expired(queue: Handle, clock: Clock):
    ids = finished(queue, 3, "fail", failed_ttl=60)
    expire(queue, ids[1])

    assert [job.id for job in queue.list_failed()] == [ids[2], ids[0]]
    assert [job.id for job in queue.inspector.find("failed").jobs] == [ids[2], ids[0]]
    assert sum(group.count for group in queue.inspector.errors().groups) == 2


@GONE
def test_requeueing_failed_jobs_passes_over_expired_records(queue: Handle, clock: Clock):
    ids = finished(queue, 8, "fail", failed_ttl=60)
    expire(queue, *ids[:3], ids[5])

    assert queue.requeue_failed(limit=2) == 2
    assert queue.state().ids("pending") == ids[3:5]
    assert queue.requeue_failed() == 2
    assert queue.requeue_failed() == 0

    queue.reclaim_stuck()
    assert queue.places() == {"pending": [ids[3], ids[4], ids[6], ids[7]]}


# -- ids that are used again


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
def test_an_id_may_be_used_again_once_its_record_has_expired(queue: Handle, clock: Clock, how: str):
    options = {"completed_ttl": 60, "failed_ttl": 60}
    queue.enqueue("old", job_id="daily", **options)
    end(queue, clock, how, "daily")
    assert queue.enqueue("old", job_id="daily", **options) == "daily"
    assert list(queue.places()) == [how]
    expire(queue, "daily")

    queue.enqueue("new", job_id="daily", **options)

    assert queue.places() == {"pending": ["daily"]}
    queue.redis.hset(queue.keys.stats, "enqueued_total", 1)
    queue.redis.hset(queue.keys.stats, f"{how}_total", 0)


@GONE
@one_door
def test_an_id_that_is_used_again_leaves_no_entry_in_a_long_history(make_queue: MakeQueue, clock: Clock):
    """Among the newest it is found at once, among the oldest too, and elsewhere by the reclaimer."""
    queue = make_queue(clock=clock)
    options = {"completed_ttl": 60}
    finished(queue, 2100)
    for job_id, more in (("between", 10_100), ("newest", 100)):
        queue.enqueue("old", job_id=job_id, **options)
        queue.complete(queue.claim(0))
        finished(queue, more)
    expire(queue, "between", "newest")

    queue.enqueue("new", job_id="newest")
    queue.enqueue("new", job_id="between")

    assert queue.state().ids("completed").count("newest") == 0
    assert [job.status for job in queue.list_completed(offset=10_000, limit=1000)] == ["completed"] * 999
    for _ in range(26):
        queue.reclaim_stuck()
    assert queue.places()["pending"] == ["newest", "between"]
    assert len(queue.places()["completed"]) == 12_300


@one_door
def test_a_cancelled_job_stays_until_its_entry_in_a_long_pending_is_met(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, failed_ttl=60)
    queue.execute([announce.announce(queue.settings)])
    ids = queue.enqueue_many(range(10_050))

    assert queue.cancel(ids[0]) == "cancelled"
    assert left_ms(queue, ids[0]) == -1

    assert queue.claim(0).id == ids[1]
    assert 55_000 < left_ms(queue, ids[0]) <= 60_000
    assert queue.state().ids("broken") == []
