"""How long finished jobs are kept."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from schedq import Discard, JobGone, Queue
from schedq.model.ids import new_request
from schedq.model.records import Settlement
from schedq.model.settings import KEEP_ALL, Settings
from schedq.transitions import announce, claim, reclaim
from scripts.tools.settling import settle_all
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.servers import Server
from tests.transitions.scenes import one_door

TRIMMED = pytest.mark.breaks("totals", because="histories were trimmed, what was counted was not")


def finish(queue: Handle, count: int, end: str = "completed") -> list[str]:
    ids: list[str] = queue.enqueue_many(range(count))
    for job_id in ids:
        if end == "cancelled":
            queue.cancel(job_id)
        else:
            job = queue.claim(0)
            assert queue.complete(job) if end == "completed" else queue.fail(job, Discard())
    return ids


def complete_many(queue: Handle, count: int) -> list[str]:
    """Complete `count` jobs in a few requests."""
    ids: list[str] = queue.enqueue_many(range(count))
    for first in range(0, count, 150):
        claimed = queue._ask(claim.claim(queue.settings, new_request(), 150)).jobs
        ended = [Settlement("complete", job.id, job.claim_token, text="1") for job in claimed]
        assert first + len(claimed) <= count
        assert set(queue._drive(settle_all(queue.settings, ended))) == {"OK"}
    return ids


def sweep(queue: Handle, times: int = 1) -> reclaim.Sweep:
    """Run `passes` passes of a reclaimer; returns the result of the last one."""
    for _ in range(times):
        found: reclaim.Sweep = queue._drive(reclaim.sweep(queue.settings))
    return found


@one_door
def test_all_results_of_a_fan_out_can_be_read_for_ten_minutes(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    ids = complete_many(queue, 3000)

    clock.pass_time(599)
    complete_many(queue, 150)
    sweep(queue, 5)

    assert all(queue.result(job_id, 0) == 1 for job_id in ids)
    assert queue.stats()["trimmed_total"] == 0


@TRIMMED
@one_door
def test_results_that_go_early_are_counted_oldest_first(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, completed_history=200)
    ids = complete_many(queue, 300)
    clock.pass_time(31)
    newest = complete_many(queue, 150)

    found = sweep(queue, 2)

    assert queue.places() == {"completed": [*ids[-50:], *newest]}
    assert queue.stats()["trimmed_total"] == found.trimmed == 250
    assert (found.kept_ms, found.is_memory_high) == (31_000, False)


@TRIMMED
@one_door
def test_results_that_were_not_to_be_kept_do_not_count_as_deleted_early(make_queue: MakeQueue):
    queue = make_queue(completed_history=0, min_keep=0, retry_for=0)
    complete_many(queue, 30)

    sweep(queue)

    assert queue.places() == {}
    assert queue.stats()["trimmed_total"] == 0


@one_door
@pytest.mark.parametrize("used", [0.7, 0.9])
def test_a_redis_that_is_nearly_full_keeps_a_thousand_results(make_queue: MakeQueue, clock: Clock, used: float):
    with Server(maxmemory_policy="noeviction") as server:
        queue = make_queue(at=server, clock=clock)
        ids = complete_many(queue, 1500)
        queue.redis.config_set("maxmemory", int(queue.redis.info("memory")["used_memory"] / used))
        sweep(queue)
        assert len(queue.places()["completed"]) == 1500, "what has just ended is kept for min_keep"
        clock.pass_time(31)
        (newest,) = complete_many(queue, 1)

        found = sweep(queue, 4)

        assert queue.places()["completed"] == [*(ids[-999:] if used > 0.8 else ids), newest]
        assert found.is_memory_high == (used > 0.8)
        assert queue.stats()["trimmed_total"] == found.trimmed == (501 if used > 0.8 else 0)
        with pytest.raises(JobGone, match="keep more, and maxmemory: while") if used > 0.8 else nullcontext():
            queue.result(ids[0], 0)


@TRIMMED
@one_door
def test_a_minute_after_memory_was_high_all_results_are_kept_again(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, min_keep=0, retry_for=0)
    complete_many(queue, 1050)
    queue.redis.hset(queue.keys.stats, "memory_high_at_ms", clock.now_ms)

    clock.pass_time(59)
    complete_many(queue, 150)
    assert len(queue.places()["completed"]) == 1000
    clock.pass_time(1)
    complete_many(queue, 150)

    assert len(queue.places()["completed"]) == 1150


@TRIMMED
def test_the_error_for_a_trimmed_result_says_why_and_which_setting_helps(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, completed_history=5, min_keep=0, retry_for=0)
    queue._ask(announce.announce(queue.settings))
    lost = finish(queue, 8)[0]
    producer = make_queue(queue.name, clock=clock)

    for ask in (producer.result, producer.wait):
        with pytest.raises(JobGone, match=f"{lost}.*completed_history=5 has deleted 3 results.*raise it to keep more$"):
            ask(lost, 0)
    job = producer.job(lost)
    with pytest.raises(JobGone, match="completed_history=5 has deleted 3 results"):
        job.status() if isinstance(producer.queue, Queue) else producer.run(job.astatus())


def test_the_error_for_an_expired_result_names_completed_ttl(make_queue: MakeQueue):
    queue = make_queue(completed_ttl=2, min_keep=0, retry_for=0)

    with pytest.raises(JobGone, match="completed_ttl=2 seconds: raise it") as gone:
        queue.result("my-own-id", 0)

    assert "completed_history" not in str(gone.value)


def test_a_completed_record_expires_and_no_other_does(make_queue: MakeQueue):
    queue = make_queue(completed_ttl=100)
    (completed,) = finish(queue, 1)
    (failed,) = finish(queue, 1, "failed")
    (cancelled,) = finish(queue, 1, "cancelled")

    assert 99_000 < queue.redis.pttl(queue.keys.job(completed)) <= 100_000
    assert queue.redis.pttl(queue.keys.job(failed)) == -1
    assert queue.redis.pttl(queue.keys.job(cancelled)) == -1


def test_it_never_expires_before_min_keep(make_queue: MakeQueue):
    queue = make_queue(completed_ttl=1, min_keep=30)
    (job_id,) = finish(queue, 1)

    assert 29_000 < queue.redis.pttl(queue.keys.job(job_id)) <= 30_000


@TRIMMED
def test_what_finished_before_the_clock_went_back_an_hour_does_not_stay_for_that_hour(
    make_queue: MakeQueue, clock: Clock
):
    queue = make_queue(clock=clock, completed_history=3)
    clock.pass_time(3600)
    finish(queue, 5)
    clock.pass_time(-3600)
    finish(queue, 1)
    clock.pass_time(31)
    newest = finish(queue, 2)

    kept = queue.places()["completed"]

    assert (len(kept), kept[-2:]) == (3, newest)


@TRIMMED
@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
def test_the_newest_records_are_kept_and_older_ones_deleted(make_queue: MakeQueue, clock: Clock, end: str):
    queue = make_queue(clock=clock, completed_history=3, failed_history=3)
    old = finish(queue, 5, end)
    clock.pass_time(31)
    new = finish(queue, 2, end)

    assert queue.places() == {end: [old[-1], *new]}
    assert sorted(queue.state().jobs()) == sorted([old[-1], *new])


DROPS = {
    "the end of a later job": lambda queue: finish(queue, 1, "failed"),
    "a reclaimer": lambda queue: queue.reclaim_stuck(),
    "the claim of a job without a payload": lambda queue: lose_payload(queue),
}


def lose_payload(queue: Handle) -> None:
    job_id = queue.enqueue(1)
    queue.redis.hdel(queue.keys.job(job_id), "payload")
    assert queue.claim(0) is None


@TRIMMED
@pytest.mark.parametrize("drop", DROPS.values(), ids=DROPS)
@pytest.mark.parametrize(
    ("end", "limit", "dropped"), [("failed", 3, True), ("cancelled", 3, False), ("failed", 0, False)]
)
@one_door
def test_failed_jobs_that_are_dropped_are_counted_unless_none_was_to_be_kept(
    make_queue: MakeQueue, clock: Clock, drop: Any, end: str, limit: int, dropped: bool
):
    queue = make_queue(clock=clock, failed_history=limit)
    finish(queue, 5, end)
    clock.pass_time(31)

    drop(queue)
    queue.reclaim_stuck()

    kept, failed = len(queue.places().get(end, ())), queue.stats()["failed_total"]
    assert queue.stats()["failed_dropped_total"] == (failed - kept if dropped else 0)
    assert queue.redis.hget(queue.keys.stats, "failed_dropped_at_ms") == (str(clock.now_ms) if dropped else None)


@TRIMMED
@one_door
def test_a_queue_without_a_limit_keeps_all_failed_jobs_and_forgets_those_that_expired(
    make_queue: MakeQueue, clock: Clock
):
    queue = make_queue(clock=clock, failed_history=None)
    ids = finish(queue, 30, "failed")
    clock.pass_time(3600)
    sweep(queue)
    assert queue.places() == {"failed": ids}
    assert (queue.settings.failed_history, queue.settings.to_fields()["failed_history"]) == (KEEP_ALL, "-1")

    queue.redis.delete(*[queue.keys.job(job_id) for job_id in ids[:9]])
    sweep(queue)

    assert queue.places() == {"failed": ids[9:]}


@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
def test_just_finished_jobs_are_kept_whatever_the_limits(make_queue: MakeQueue, clock: Clock, end: str):
    """A request repeated up to `min_keep` later must find what it did before."""
    queue = make_queue(clock=clock, completed_history=0, failed_history=0)

    ids = finish(queue, 20, end)
    clock.pass_time(29.999)
    queue.reclaim_stuck()

    assert queue.places() == {end: ids}


@TRIMMED
@pytest.mark.parametrize("end", ["completed", "failed", "cancelled"])
def test_a_history_of_0_keeps_nothing_after_min_keep(make_queue: MakeQueue, clock: Clock, end: str):
    queue = make_queue(clock=clock, completed_history=0, failed_history=0)
    finish(queue, 20, end)
    clock.pass_time(30)

    queue.reclaim_stuck()

    assert queue.places() == {}
    assert queue.state().jobs() == {}


@TRIMMED
@pytest.mark.parametrize("end", ["completed", "failed"])
def test_a_min_keep_of_0_keeps_nothing(make_queue: MakeQueue, end: str):
    queue = make_queue(completed_history=0, failed_history=0, min_keep=0)

    finish(queue, 3, end)

    assert queue.places() == {}
    assert queue.state().jobs() == {}


@TRIMMED
def test_a_ttl_of_0_keeps_nothing(make_queue: MakeQueue):
    queue = make_queue(completed_ttl=0, min_keep=0)

    finish(queue, 3)

    assert queue.places() == {}


@TRIMMED
@one_door
def test_many_more_than_the_cap_are_trimmed_in_small_steps(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, completed_history=10)
    ids = finish(queue, 600)
    clock.pass_time(31)

    queue.reclaim_stuck()
    assert queue.redis.llen(queue.keys.completed) == 400
    for _ in range(5):
        queue.reclaim_stuck()

    assert queue.places() == {"completed": ids[-10:]}


@pytest.mark.parametrize("end", ["pending", "delayed", "processing", "failed"])
def test_trimming_deletes_a_record_only_if_it_belongs_to_that_list(make_queue: MakeQueue, clock: Clock, end: str):
    """An id may be in a history although its job is live again; that job is not touched."""
    queue = make_queue(clock=clock, completed_history=0)
    job_id = queue.enqueue(1, delay=600 if end == "delayed" else None)
    if end == "processing":
        queue.claim(0)
    elif end == "failed":
        queue.fail(queue.claim(0), Discard())
    queue.redis.lpush(queue.keys.completed, job_id)
    before = queue.fields(job_id)

    queue.reclaim_stuck()

    assert queue.places() == {end: [job_id]}
    assert queue.fields(job_id) == before


@TRIMMED
@pytest.mark.parametrize("end", ["completed", "failed"])
def test_entries_of_records_that_have_expired_go_too(make_queue: MakeQueue, end: str):
    queue = make_queue()
    ids = finish(queue, 300, end)
    queue.redis.delete(*[queue.keys.job(job_id) for job_id in ids[:250]])

    queue.reclaim_stuck()
    assert queue.state().ids(end) == ids[200:]
    queue.reclaim_stuck()

    assert queue.state().ids(end) == ids[250:]


@one_door
def test_a_process_that_does_not_know_the_settings_trims_nothing(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, completed_history=1000)
    ids = finish(queue, 1020)
    clock.pass_time(3600)

    queue._drive(reclaim.sweep(queue.settings.without_application()))

    assert queue.places() == {"completed": ids}


def test_what_an_application_wrote_down_is_what_another_process_reads(make_queue: MakeQueue):
    queue = make_queue(visibility_ms=7000, completed_history=5, failed_history=6, min_keep=8, completed_ttl=9.5)

    queue._ask(announce.announce(queue.settings))
    stored = queue._ask(announce.read_settings(queue.settings))
    found = Settings(queue.name, tagged=queue.settings.tagged).without_application().with_fields(stored)

    assert found == queue.settings


def test_the_settings_of_a_queue_without_any_cost_redis_little(make_queue: MakeQueue):
    """A worker of the release before may have stored all of them."""
    queue = make_queue()
    queue.redis.hset(queue.keys.settings, mapping=Settings("other", max_attempts=9, replicas=2).to_fields())

    queue._ask(announce.announce(queue.settings))

    assert queue.redis.hgetall(queue.keys.settings) == {"failed_history": "10000"}
    assert queue.redis.memory_usage(queue.keys.settings, samples=0) <= 120
    stored = queue._ask(announce.read_settings(queue.settings))
    stranger = Settings(queue.name, tagged=queue.settings.tagged).without_application()
    assert stranger.with_fields(stored) == queue.settings


def test_settings_that_make_no_sense_are_passed_over(make_queue: MakeQueue):
    queue = make_queue()
    queue.redis.hset(
        queue.keys.settings,
        mapping={"visibility_ms": "soon", "max_attempts": "0", "min_keep": "nan", "backoff": "{", "new_one": "1"},
    )

    stored = queue._ask(announce.read_settings(queue.settings))

    assert Settings(queue.name).without_application().with_fields(stored) == Settings(queue.name).without_application()
