"""Entries of cancelled jobs in a `pending` that is too long to search, when nothing else is left of the jobs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schedq import Discard, JobGone, NewJob
from schedq.model.ids import new_request
from schedq.model.records import Settlement
from schedq.transitions import claim
from scripts.tools.settling import settle_all
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.transitions.scenes import one_door

LONG = 10_050
Loss = Callable[[Handle, list[str]], None]


def trimmed(queue: Handle, ids: list[str]) -> None:
    """Their records are trimmed by `failed_history`."""
    queue.reclaim_stuck()


def deleted(queue: Handle, ids: list[str]) -> None:
    """An operator deletes them."""
    assert queue.inspector.act("delete", ids).done == len(ids)


GONE = pytest.mark.breaks("totals", because="records were trimmed, what was counted was not")
LOSSES = pytest.mark.parametrize("lose", [pytest.param(trimmed, marks=GONE), deleted])


def a_long_queue(make_queue: MakeQueue, lose: Loss, count: int = 40) -> tuple[Handle, list[str], list[str]]:
    """A queue, the ids of cancelled jobs without a record, and the ids of the others."""
    history = 0 if lose is trimmed else 1000
    queue = make_queue(failed_history=history, min_keep=0, retry_for=0)
    ids = queue.enqueue_many([NewJob("x" * 100, job_id=f"job-{n}") for n in range(LONG)])
    gone, others = ids[:count], ids[count:]
    for job_id in gone:
        assert queue.cancel(job_id) == "cancelled"
    lose(queue, gone)
    assert queue.redis.llen(queue.keys.cancelled) == 0
    assert queue.redis.lrange(queue.keys.pending, -count, -1)[::-1] == gone
    return queue, gone, others


def drain(queue: Handle) -> list[str]:
    """Claim and complete all; returns the ids in the order of the claims."""
    found: list[str] = []
    while True:
        got = queue._ask(claim.claim(queue.settings, new_request(), 500))
        found += [job.id for job in got.jobs]
        ended = [Settlement("complete", job.id, job.claim_token, text="1") for job in got.jobs]
        queue._drive(settle_all(queue.settings, ended))
        if not got.jobs and not got.has_more:
            return found


@one_door
@LOSSES
def test_such_an_entry_is_dropped_and_leaves_no_note(make_queue: MakeQueue, lose: Loss):
    queue, gone, others = a_long_queue(make_queue, lose)

    assert drain(queue) == others

    assert queue.list_broken() == []
    assert queue.stats()["strays_total"] == len(gone)
    assert not set(gone) & set(queue.state().jobs())


@one_door
@LOSSES
@pytest.mark.breaks("places", because="the entries of these jobs are still to be met")
def test_nothing_is_to_be_had_of_such_a_job(make_queue: MakeQueue, lose: Loss):
    queue, gone, _ = a_long_queue(make_queue, lose)

    assert queue.get_job(gone[0]) is None
    assert queue.requeue(gone[0]) is False
    assert queue.cancel(gone[0]) == "no"
    assert queue.inspector.act("delete", gone[:1]).done == 0
    with pytest.raises(JobGone):
        queue.wait(gone[0], 0)
    assert set(queue.fields(gone[0])) == {"status", "entry_left", "tombstone"}


@one_door
@GONE
@pytest.mark.breaks("places", because="the entries of these jobs are still to be met")
@pytest.mark.parametrize("options", [{}, {"must_create": True}, {"reuse_id": True}, {"delay": 60}])
def test_its_id_may_be_used_again_and_the_new_job_waits_for_its_turn(make_queue: MakeQueue, options: dict[str, bool]):
    queue, gone, _ = a_long_queue(make_queue, trimmed)

    assert queue.enqueue("new", job_id=gone[0], **options) == gone[0]

    entries = queue.redis.lrange(queue.keys.pending, 0, -1)
    assert entries.count(gone[0]) == (0 if "delay" in options else 1)
    assert options == {"delay": 60} or entries[0] == gone[0]
    assert queue.get_job(gone[0]).payload == "new"


@one_door
@GONE
def test_the_second_entry_of_a_requeued_job_leaves_no_note_either(make_queue: MakeQueue):
    queue = make_queue(failed_history=0, min_keep=0, retry_for=0)
    ids = queue.enqueue_many(range(LONG))
    keeping = make_queue(queue.name)
    keeping.cancel(ids[0])
    assert keeping.requeue(ids[0])
    assert queue.fail(queue.claim(0), Discard())
    assert queue.get_job(ids[0]) is None

    assert drain(queue) == ids[1:]

    assert queue.list_broken() == []
    assert ids[0] not in queue.state().jobs()


@one_door
def test_once_its_second_entry_was_met_a_requeued_job_is_like_any_other(make_queue: MakeQueue):
    queue = make_queue()
    ids = queue.enqueue_many(range(LONG))
    queue.cancel(ids[0])
    queue.requeue(ids[0])

    assert drain(queue) == ids

    assert "entry_left" not in queue.fields(ids[0])


@one_door
def test_an_entry_that_a_worker_of_an_older_release_dropped_is_not_missed(make_queue: MakeQueue):
    queue = make_queue()
    ids = queue.enqueue_many(range(LONG))
    queue.cancel(ids[0])
    queue.redis.lrem(queue.keys.pending, -1, ids[0])

    assert queue.enqueue("new", job_id=ids[0], reuse_id=True) == ids[0]

    entries = queue.redis.lrange(queue.keys.pending, 0, -1)
    assert (entries.count(ids[0]), entries[0]) == (1, ids[0])


@one_door
def test_a_purge_counts_a_cancelled_job_once_and_leaves_nothing(make_queue: MakeQueue):
    queue = make_queue()
    ids = queue.enqueue_many(range(LONG))
    for job_id in ids[:3]:
        queue.cancel(job_id)
    queue.requeue(ids[2])

    assert queue.purge() == LONG

    assert queue.places() == {}
    assert queue.state().jobs() == {}


@one_door
@GONE
def test_a_purge_deletes_the_remains_of_trimmed_jobs_too(make_queue: MakeQueue):
    queue, _, others = a_long_queue(make_queue, trimmed)

    assert queue.purge() == len(others)

    assert queue.places() == {}
    assert queue.state().jobs() == {}


@one_door
@GONE
@pytest.mark.parametrize("reused", [False, True], ids=["left", "reused"])
def test_each_entry_of_a_job_that_was_cancelled_and_requeued_again_and_again_is_known(
    make_queue: MakeQueue, reused: bool
):
    queue = make_queue(failed_history=0, min_keep=0, retry_for=0)
    ids = queue.enqueue_many([NewJob("x", job_id=f"job-{n}") for n in range(LONG)])
    keeping = make_queue(queue.name)
    for _ in range(2):
        keeping.cancel(ids[0])
        assert keeping.requeue(ids[0])
    keeping.cancel(ids[0])
    assert queue.redis.lrange(queue.keys.pending, 0, -1).count(ids[0]) == 3
    queue.reclaim_stuck()
    if reused:
        queue.enqueue("new", job_id=ids[0])

    assert drain(queue) == ids[1:] + ids[:1] * reused

    assert queue.list_broken() == []
    assert (ids[0] in queue.state().jobs()) is reused


@one_door
def test_of_a_job_that_is_cancelled_again_in_a_shorter_queue_nothing_is_left(make_queue: MakeQueue):
    queue = make_queue()
    ids = queue.enqueue_many(range(LONG))
    queue.cancel(ids[-1])
    assert queue.requeue(ids[-1])
    for _ in range(200):
        queue.complete(queue.claim(0))

    assert queue.cancel(ids[-1]) == "cancelled"
    assert queue.inspector.act("delete", [ids[-1]]).done == 1

    assert queue.fields(ids[-1]) == {}
    assert ids[-1] not in queue.redis.lrange(queue.keys.pending, 0, -1)
