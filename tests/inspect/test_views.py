"""Looking at a queue: totals, pages, one job."""

from __future__ import annotations

from typing import Any

import pytest

from schedq import Conflict, Discard, JobRecord, UsageError
from schedq.transitions import heartbeat
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle

GUIDE = {
    "enqueued_total",
    "completed_total",
    "failed_total",
    "reclaimed_total",
    "pending_depth",
    "processing_depth",
    "completed_depth",
    "failed_depth",
    "visibility_ms",
}


def test_an_empty_queue_has_all_its_figures(queue: Handle):
    stats = queue.stats()

    now_ms = stats.pop("now_ms")
    assert now_ms > 1_700_000_000_000
    assert stats.keys() > GUIDE
    assert stats.pop("visibility_ms") == 10_000
    assert stats.pop("next_due_ms") is stats.pop("paused_since_ms") is None
    assert stats.pop("outbox_oldest_ms") is stats.pop("outbox_at_ms") is None
    assert set(stats.values()) == {0}


def test_totals_and_depths_match_what_happened(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock, visibility_ms=5000)
    queue.enqueue_many(range(7))
    queue.enqueue(1, delay=60)
    queue.complete(queue.claim(0))
    queue.fail(queue.claim(0), Discard())
    queue.fail(queue.claim(0))
    queue.snooze(queue.claim(0), 500)
    queue.release(queue.claim(0))
    queue.claim(0)
    clock.pass_time(5)
    queue.reclaim_stuck()
    queue.promote_due()
    queue.claim(0)
    queue.cancel(queue.list_pending()[-1].id)

    stats = queue.stats()

    assert {name: value for name, value in stats.items() if value} == {
        "enqueued_total": 8,
        "completed_total": 1,
        "failed_total": 1,
        "retried_total": 1,
        "promoted_total": 1,
        "snoozed_total": 1,
        "released_total": 1,
        "reclaimed_total": 1,
        "cancelled_total": 1,
        "pending_depth": 2,
        "processing_depth": 1,
        "leases_depth": 1,
        "delayed_depth": 2,
        "completed_depth": 1,
        "failed_depth": 1,
        "cancelled_depth": 1,
        "next_due_ms": clock.now_ms + 55_000,
        "now_ms": clock.now_ms,
        "visibility_ms": 5000,
    }


@pytest.mark.breaks("totals", because="the totals are damaged by hand")
def test_damaged_totals_read_as_nothing(queue: Handle):
    queue.enqueue(1)
    queue.redis.hset(queue.keys.stats, mapping={"enqueued_total": "many", "other": "x", "new_total": "3"})

    stats = queue.stats()

    assert stats["enqueued_total"] == 0
    assert stats["new_total"] == 3
    assert "other" not in stats


def test_a_worker_that_gave_no_sign_for_long_does_not_count(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    queue._ask(heartbeat.beat(queue.settings, "w-1", {"pid": 7}))
    clock.pass_time(30)
    assert queue.stats()["workers"] == 1
    clock.pass_time(1)
    assert queue.stats()["workers"] == 0


# -- pages

LISTS = ["pending", "delayed", "processing", "completed", "failed", "cancelled"]


def fill(queue: Handle, place: str, count: int) -> list[str]:
    """Jobs in a place, in the order in which its page shows them."""
    ids: list[str] = queue.enqueue_many(range(count), delay=60 if place == "delayed" else None)
    if place == "cancelled":
        for job_id in ids:
            queue.cancel(job_id)
    elif place in ("processing", "completed", "failed"):
        for _ in ids:
            job = queue.claim(0)
            if place == "completed":
                queue.complete(job, "done")
            elif place == "failed":
                queue.fail(job, Discard("no use"))
    return ids if place in ("pending", "delayed") else ids[::-1]


@pytest.mark.parametrize("place", LISTS)
def test_every_place_is_shown_in_pages(queue: Handle, place: str):
    ids = fill(queue, place, 25)
    show: Any = getattr(queue, f"list_{place}")

    assert [record.id for record in show()] == ids
    pages = [show(offset=offset, limit=10) for offset in (0, 10, 20, 30)]

    assert [[record.id for record in page] for page in pages] == [ids[:10], ids[10:20], ids[20:], []]
    assert {record.status for record in show()} == {place}
    assert show(5, 1)[0].id == ids[5]


@pytest.mark.parametrize("place", LISTS)
def test_an_empty_place_is_an_empty_page(queue: Handle, place: str):
    assert getattr(queue, f"list_{place}")() == []


@pytest.mark.parametrize(
    "arguments", [{"offset": -1}, {"offset": 1.0}, {"limit": 0}, {"limit": 1001}, {"limit": None}], ids=repr
)
def test_a_page_that_makes_no_sense_is_refused(queue: Handle, arguments: Any):
    with pytest.raises(UsageError):
        queue.list_pending(**arguments)


def test_a_page_is_at_most_a_megabyte_but_at_least_one_job(make_queue: MakeQueue):
    queue = make_queue(max_payload=2_000_000)
    queue.enqueue_many(["x" * 1_500_000, "y" * 400_000, "z" * 400_000, "w" * 400_000])

    assert [record.payload[0] for record in queue.list_pending()] == ["x"]
    assert [record.payload[0] for record in queue.list_pending(offset=1)] == ["y", "z"]


def test_a_long_page_is_read_in_short_parts(queue: Handle):
    ids = queue.enqueue_many(range(500))

    with queue.server.requests() as sent:
        page = queue.list_pending(offset=10, limit=450)

    assert [record.id for record in page] == ids[10:460]
    assert [request.name for request in sent].count("EVALSHA") == 3


@pytest.mark.breaks("layout", "status", because="some data is deleted and replaced by hand")
def test_a_page_shows_what_can_be_shown(queue: Handle):
    gone, odd, huge, good = queue.enqueue_many(range(4))
    queue.redis.delete(queue.keys.job(gone), queue.keys.job(odd))
    queue.redis.set(queue.keys.job(odd), "what is this")
    queue.redis.hset(queue.keys.job(huge), mapping={f"field-{n}": n for n in range(5000)})

    page = queue.list_pending()

    assert [record.id for record in page] == [gone, odd, huge, good]
    assert [record.status for record in page] == ["", "", "", "pending"]


@pytest.mark.breaks("totals", "status", because="another program scheduled the job")
def test_a_delayed_page_shows_when_jobs_of_any_program_are_due(queue: Handle):
    for job_id, due in {"half": 1_900_000_000_000.5, "never": "inf"}.items():
        queue.redis.hset(queue.keys.job(job_id), mapping={"payload": "1"})
        queue.redis.zadd(queue.keys.delayed, {job_id: due})

    assert [record.run_at_ms for record in queue.list_delayed()] == [1_900_000_000_001, 253_402_300_799_999]


# -- one job


def test_a_missing_job_is_none(queue: Handle):
    assert queue.get_job("never-was") is None


@pytest.mark.breaks("totals", because="another program made the job")
def test_what_makes_no_sense_in_a_record_reads_as_nothing(queue: Handle):
    fields = {
        "payload": "{",
        "status": "pending",
        "attempts": "x",
        "enqueued_at_ms": "-5",
        "max_attempts": "0",
        "history": 'no json\n[1]\n{"attempt":1}',
        "result": "undefined",
        "progress": '{"done":-1}',
        "meta": "[1]",
        "more": "of it",
    }
    queue.redis.hset(queue.keys.job("theirs"), mapping=fields)
    queue.redis.lpush(queue.keys.pending, "theirs")

    assert queue.get_job("theirs") == JobRecord(
        id="theirs",
        status="pending",
        payload=None,
        attempts=0,
        max_attempts=None,
        enqueued_at_ms=0,
        run_at_ms=0,
        claimed_at_ms=0,
        started_at_ms=0,
        completed_at_ms=0,
        result=None,
        result_error="",
        last_error="",
        last_error_at_ms=0,
        worker="",
        crashes=0,
        history=({"attempt": 1},),
        fields=fields,
    )


@pytest.mark.breaks("layout", "places", because="the string at a job's key is another program's")
def test_a_job_whose_key_is_not_a_hash_is_reported(queue: Handle):
    queue.redis.set(queue.keys.job("odd"), "what is this")

    with pytest.raises(Conflict, match="WRONGTYPE"):
        queue.get_job("odd")
