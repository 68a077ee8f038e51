"""Claims limited to some tasks: they leave other jobs to others, in their order, and wake those."""

from __future__ import annotations

from typing import Any

import pytest

from schedq.model.ids import new_request
from schedq.transitions import claim, promote, unwrap
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock)


def enqueued(queue: Handle, *tasks: str, **options: Any) -> list[str]:
    ids: list[str] = queue.enqueue_many([{"task": task} for task in tasks], **options)
    return ids


def claimed(queue: Handle, *only: str, limit: int = 100) -> list[str]:
    """Claim until no more jobs wait for this caller; returns their ids."""
    found: list[str] = []
    while True:
        asked = claim.claim(queue.settings, new_request(), limit, only=only or None)
        answer = unwrap(queue.execute([asked])[0])
        found += [job.id for job in answer.jobs]
        if not answer.has_more or not answer.jobs:
            return found


def markers(queue: Handle) -> set[str]:
    return {name for name in queue.state().keys if name.startswith("wake")}


def test_a_claim_takes_only_the_jobs_of_its_tasks(queue: Handle):
    ids = enqueued(queue, "send", "report", "send", "resize")

    assert claimed(queue, "send", "resize") == [ids[0], ids[2], ids[3]]
    assert queue.places()["pending"] == [ids[1]]
    assert queue.stats()["pending_depth"] == 1


def test_others_take_what_it_passed_over_in_its_order(queue: Handle):
    ids = enqueued(queue, "report", "send", "report", "resize", "report")
    assert claimed(queue, "send") == [ids[1]]

    assert claimed(queue, "report") == [ids[0], ids[2], ids[4]]
    assert claimed(queue) == [ids[3]]
    assert not queue.redis.exists(queue.keys.held, queue.keys.lanes)


def test_a_claim_of_any_task_takes_jobs_that_were_passed_over(queue: Handle):
    ids = enqueued(queue, "report", "report")
    assert claimed(queue, "send") == []

    assert claimed(queue) == ids


def test_a_task_keeps_its_order_even_if_only_its_first_jobs_were_passed_over(queue: Handle):
    first = enqueued(queue, "report", "send", "report")
    assert claimed(queue, "send") == [first[1]]
    second = enqueued(queue, "report", "report")

    assert claimed(queue, limit=3) == [first[0], first[2], *second]


def test_jobs_of_a_paused_task_stay_whoever_claims(queue: Handle):
    ids = enqueued(queue, "send", "report")
    queue.pause(task="send")

    assert claimed(queue, "send") == []
    assert claimed(queue, "report") == [ids[1]]

    queue.resume(task="send")
    assert claimed(queue, "send") == [ids[0]]


@pytest.mark.parametrize("payload", ["text", {"tasks": 1}, [1], None, {"task": "send", "more": 1}])
def test_a_payload_that_calls_no_task_has_the_empty_name(queue: Handle, payload: object):
    job_id = queue.enqueue(payload)

    assert claimed(queue, "send") == []
    assert claimed(queue, "send", "") == [job_id]


def test_names_may_contain_anything(queue: Handle):
    names = ["a b", "söndag ü", 'quote"', "back\\slash", "new\nline", "a:b"]
    ids = dict(zip(names, enqueued(queue, *names), strict=True))

    for name in names:
        assert claimed(queue, name) == [ids[name]]


def test_a_claim_that_passes_jobs_over_wakes_those_who_may_take_them(queue: Handle):
    enqueued(queue, "report")
    queue.redis.delete(queue.keys.wake)  # a worker limited to `send` has taken it

    assert claimed(queue, "send") == []

    assert markers(queue) == {"wake_held", "wake:report"}


def test_whoever_takes_the_general_marker_passes_it_on(queue: Handle):
    """It may have been meant for jobs that were passed over before."""
    enqueued(queue, "report")
    assert claimed(queue, "send") == []
    queue.redis.delete(queue.keys.wake, *queue.keys.wakes_of(), *queue.keys.wakes_of(["report"]))

    assert claimed(queue, "send") == []

    assert markers(queue) == {"wake_held", "wake:report"}


def test_workers_limited_to_different_tasks_do_not_wake_each_other_forever(queue: Handle):
    """No worker here takes these jobs: none of their claims sets a marker that one of them waits for."""
    enqueued(queue, "report", "resize")
    queue.redis.delete(queue.keys.wake)

    assert claimed(queue, "send") == []
    assert claimed(queue, "greet") == []

    waited_for = {*queue.keys.wakes_of(["send"]), *queue.keys.wakes_of(["greet"])}
    assert not queue.redis.exists(*waited_for)


def test_a_claim_that_leaves_jobs_of_its_own_sets_its_marker_again(queue: Handle):
    enqueued(queue, "report", "report", "report")
    assert claimed(queue, "send") == []
    queue.redis.delete(queue.keys.wake, *queue.keys.wakes_of(), *queue.keys.wakes_of(["report"]))

    unwrap(queue.execute([claim.claim(queue.settings, new_request(), 1, only=("report",))])[0])

    assert markers(queue) == {"wake_held", "wake:report"}


def test_the_promoter_sets_lost_markers_again(queue: Handle):
    (report, _) = enqueued(queue, "report", "send")
    assert claimed(queue, "nothing") == []
    queue.redis.delete(queue.keys.wake, *queue.keys.wakes_of(), *queue.keys.wakes_of(["report", "send"]))

    look = unwrap(queue.execute([promote.promote(queue.settings, 100, "me")])[0])

    assert look.woken_for == report
    assert markers(queue) == {"wake_held", "wake:report", "wake:send"}
    assert unwrap(queue.execute([promote.promote(queue.settings, 100, "me")])[0]).woken_for == ""


def test_a_worker_that_leaves_puts_the_markers_back(queue: Handle):
    enqueued(queue, "report")
    assert claimed(queue, "send") == []
    queue.redis.delete(queue.keys.wake, *queue.keys.wakes_of(), *queue.keys.wakes_of(["report"]))

    assert unwrap(queue.execute([promote.wake(queue.settings)])[0]) is True

    assert markers(queue) == {"wake_held", "wake:report"}


def test_a_paused_queue_wakes_nobody(queue: Handle):
    enqueued(queue, "report")
    assert claimed(queue, "send") == []
    queue.pause()
    queue.redis.delete(*queue.keys.wakes_of(), *queue.keys.wakes_of(["report"]))

    assert unwrap(queue.execute([promote.promote(queue.settings, 100, "me")])[0]).woken_for == ""
    assert unwrap(queue.execute([promote.wake(queue.settings)])[0]) in (True, False)

    assert markers(queue) == set()


def test_a_long_queue_of_other_jobs_is_passed_in_steps(queue: Handle):
    others = enqueued(queue, *["report"] * 1000)
    (mine,) = enqueued(queue, "send")
    found: list[str] = []
    for calls in range(1, 20):  # noqa: B007 - it is used below
        answer = unwrap(queue.execute([claim.claim(queue.settings, new_request(), 10, only=("send",))])[0])
        found += [job.id for job in answer.jobs]
        if not answer.has_more:
            break

    assert found == [mine]
    assert 3 <= calls <= 5
    assert claimed(queue) == others


def test_suspects_of_other_tasks_are_left_to_others_as_well(queue: Handle):
    (job_id,) = enqueued(queue, "report")
    queue.redis.hset(queue.keys.job(job_id), "crashes", 2)

    assert claimed(queue, "send") == []
    assert queue.places() == {"pending": [job_id]}
    assert claimed(queue, "report") == [job_id]
