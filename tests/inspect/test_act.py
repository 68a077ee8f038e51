"""Actions on many jobs: exact counts, one entry in the audit log, and nothing half done."""

from __future__ import annotations

from typing import Any

import pytest

from schedq import JobGone, UsageError
from schedq.inspect.bulk import Acted, delete
from schedq.model.records import Settlement
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.inspect.scenes import acts, call, ended, every, failed


def test_the_failed_jobs_of_a_task_are_requeued_and_no_other(queue: Handle):
    ids = failed(queue, [call("send" if n % 3 else "mail", n) for n in range(600)])

    acted = queue.inspector.act_on("requeue", "failed", task="send")

    assert acted == Acted(looked=600, matched=400, done=400, refused=0)
    assert queue.places()["pending"] == [job_id for n, job_id in enumerate(ids) if n % 3]
    assert len(queue.places()["failed"]) == 200


def test_an_act_is_one_line_of_the_log(queue: Handle):
    failed(queue, list(range(20)), "timeout")

    queue.inspector.act_on("requeue", "failed", error="timeout", limit=5, who="ada")

    (line,) = acts(queue)
    assert line.items() >= {"move": "act requeue", "count": "5", "who": "ada"}.items()
    assert line["note"] == "failed jobs, error 'timeout', at most 5: 5 done, 0 refused"
    assert not [fields for _, fields in queue.redis.xrange(queue.keys.log) if fields["move"] == "requeue"]


def test_a_dry_run_counts_and_writes_nothing(queue: Handle):
    failed(queue, list(range(7)))
    before = queue.dump()

    assert queue.inspector.act_on("delete", "failed", text="3", dry_run=True) == Acted(7, 1, 0, 0)

    assert queue.dump() == before


def test_waiting_jobs_are_cancelled_by_state(queue: Handle):
    waiting, later = queue.enqueue_many(range(30)), queue.enqueue_many(range(30), delay=60)

    assert queue.inspector.act_on("cancel", "delayed") == Acted(30, 30, 30, 0)

    assert queue.places() == {"pending": waiting, "cancelled": later}


def test_running_jobs_that_match_are_asked_to_stop(queue: Handle):
    queue.enqueue_many(range(3))
    job = queue.claim(0)

    assert queue.inspector.act_on("cancel", "processing") == Acted(1, 1, 1, 0)

    queue.fail(job, "stopped")
    assert queue.places()["cancelled"] == [job.id]


def test_a_job_that_began_meanwhile_is_refused_and_not_asked_to_stop(queue: Handle):
    """It was pending when it was found, and runs when its turn comes."""
    queue.enqueue_many(range(3))
    held: list[Any] = []

    def progress(acted: Acted) -> None:
        if acted.matched and not held:
            held.append(queue.redis.lrange(queue.keys.pending, -1, -1)[0])
            _claim_behind(queue, held[0])

    acted = queue.inspector.act_on("cancel", "pending", progress=progress)

    assert acted == Acted(looked=3, matched=3, done=2, refused=1)
    assert "stop" not in queue.fields(held[0])


def _claim_behind(queue: Handle, job_id: str) -> None:
    """As another worker does while this client is in use."""
    queue.redis.rpop(queue.keys.pending)
    queue.redis.lpush(queue.keys.processing, job_id)
    queue.redis.zadd(queue.keys.leases, {job_id: 9e12})
    queue.redis.hset(queue.keys.job(job_id), mapping={"status": "processing", "claim_token": "theirs"})


def test_a_job_that_began_meanwhile_is_not_deleted(queue: Handle):
    queue.enqueue_many(range(3))
    held: list[Any] = []

    def progress(acted: Acted) -> None:
        if acted.matched and not held:
            held.append(queue.redis.lrange(queue.keys.pending, -1, -1)[0])
            _claim_behind(queue, held[0])

    assert queue.inspector.act_on("delete", "pending", progress=progress) == Acted(3, 3, 2, 1)

    assert queue.places() == {"processing": held}
    assert queue.fields(held[0])["payload"]


def test_delayed_jobs_get_another_time_once_each(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    ids = [queue.enqueue(n, delay=60 + n) for n in range(500)]

    acted = queue.inspector.act_on("reschedule", "delayed", delay=300)

    assert acted == Acted(looked=500, matched=500, done=500, refused=0)
    state = queue.state()
    assert {state.job(job_id)["run_at_ms"] for job_id in ids} == {str(clock.now_ms + 300_000)}


def test_delayed_jobs_brought_forward_run_in_the_order_they_were_due(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    ids = [queue.enqueue(n, delay=1000 - n) for n in range(400)]
    queue.enqueue("waits", job_id="waits")

    assert queue.inspector.act_on("run_now", "delayed", limit=350).done == 350

    assert queue.places()["pending"] == [*ids[:-351:-1], "waits"]


@pytest.mark.parametrize("state", ["pending", "delayed", "failed", "cancelled", "completed"])
def test_deleted_jobs_leave_nothing_behind(state: str, queue: Handle):
    ids = _all_in(queue, state, 460)
    chosen = [job_id for n, job_id in enumerate(ids) if n % 2]

    acted = queue.inspector.act_on("delete", state, text='"odd"')

    assert acted == Acted(looked=460, matched=230, done=230, refused=0)
    assert sorted(queue.places()[state]) == sorted(set(ids) - set(chosen))
    assert set(queue.state().jobs()) == set(ids) - set(chosen)
    assert queue.stats()["purged_total"] == 230


def _all_in(queue: Handle, state: str, count: int) -> list[str]:
    payloads = ["odd" if n % 2 else "even" for n in range(count)]
    if state == "failed":
        return failed(queue, payloads)
    if state == "completed":
        return ended(queue, payloads, Settlement("complete", "", "", text="null"))
    ids: list[str] = queue.enqueue_many(payloads, delay=60 if state == "delayed" else None)
    if state == "cancelled":
        assert queue.inspector.act("cancel", ids).done == count
    return ids


def test_deleting_in_the_middle_of_a_long_list_removes_the_right_jobs(queue: Handle):
    """Too far from both ends for removing them one by one."""
    ids = queue.enqueue_many(["x" if 2000 <= n < 3000 and n % 10 else "y" for n in range(5000)])

    acted = queue.inspector.act_on("delete", "pending", text='"x"')

    assert acted == Acted(looked=5000, matched=900, done=900, refused=0)
    assert queue.places() == {
        "pending": [job_id for n, job_id in enumerate(ids) if not 2000 <= n < 3000 or n % 10 == 0]
    }


def test_jobs_are_deleted_by_id_wherever_they_rest(queue: Handle):
    (gone,) = failed(queue, [1])
    later, kept = queue.enqueue(2, delay=60), queue.enqueue(3)
    running = queue.enqueue(4)
    queue.requeue(kept)
    held = queue.claim(0)

    acted = queue.inspector.act("delete", [gone, later, held.id, "never"], who="ada")

    assert acted == Acted(looked=4, matched=4, done=2, refused=2)
    assert queue.places() == {"processing": [held.id], "pending": [running]}
    assert queue.complete(held)
    assert acts(queue)[0]["note"] == f"jobs {gone}, {later}, {held.id}, never: 2 done, 2 refused"


def test_a_job_in_a_list_too_long_to_search_is_found_by_its_position(queue: Handle):
    ids = [f"{n:07}" for n in range(120_000)]
    for first in range(0, len(ids), 10_000):
        queue.redis.lpush(queue.keys.pending, *ids[first : first + 10_000])
    for job_id in (ids[60_001], ids[3]):
        queue.redis.hset(queue.keys.job(job_id), mapping={"payload": "1", "status": "pending"})

    assert queue.inspector.act("delete", [ids[60_001], ids[3], ids[5]]) == Acted(3, 3, 2, 1)

    assert queue.redis.lpos(queue.keys.pending, ids[60_001]) is None
    assert queue.redis.llen(queue.keys.pending) == 119_998
    queue.redis.delete(queue.keys.pending, queue.keys.stats)


def test_waiting_for_a_deleted_job_raises_job_gone(queue: Handle):
    job_id = queue.enqueue(1)
    waiting = queue.start("result", job_id, 60)

    queue.inspector.act("delete", [job_id])

    with pytest.raises(JobGone):
        waiting.result(90)


def test_a_deletion_sent_again_counts_the_same(queue: Handle):
    ids = failed(queue, [1, 2])
    operation = delete(queue.settings, "request", [*ids, "never"], "failed")

    answers = queue.execute([operation]) + queue.execute([operation])

    assert answers == [["yes", "yes", "no"]] * 2


def test_jobs_enqueued_meanwhile_stay(queue: Handle):
    queue.enqueue_many(range(500))
    new: list[str] = []

    def progress(_: Acted) -> None:
        job_id = f"new-{len(new)}"
        queue.redis.hset(queue.keys.job(job_id), mapping={"id": job_id, "payload": "1", "status": "pending"})
        queue.redis.lpush(queue.keys.pending, job_id)
        queue.redis.hincrby(queue.keys.stats, "enqueued_total", 1)
        new.append(job_id)

    acted = queue.inspector.act_on("delete", "pending", progress=progress)

    assert acted.done == 500
    assert queue.places() == {"pending": new}


def test_progress_is_called_after_every_batch(queue: Handle):
    queue.enqueue_many(range(900))
    told: list[Acted] = []

    last = queue.inspector.act_on("cancel", "pending", progress=told.append)

    assert told[-1] == last
    assert len(told) > 5
    assert [acted.done for acted in told] == sorted(acted.done for acted in told)


def test_an_act_that_is_broken_off_is_on_record(queue: Handle):
    queue.enqueue_many(range(900))

    def progress(acted: Acted) -> None:
        if acted.done >= 100:
            raise RuntimeError("that is enough")

    with pytest.raises(RuntimeError):
        queue.inspector.act_on("delete", "pending", progress=progress)

    (line,) = acts(queue)
    assert int(line["count"]) == 900 - len(queue.places()["pending"]) > 0


@pytest.mark.parametrize(
    ("action", "state", "more", "says"),
    [
        ("destroy", "failed", {}, "action must be one of"),
        ("requeue", "pending", {}, "state must be one of failed, cancelled"),
        ("delete", "processing", {}, "state must be one of"),
        ("reschedule", "delayed", {}, "give delay or run_at"),
        ("requeue", "failed", {"delay": 5}, "are for reschedule"),
        ("requeue", "failed", {"limit": 0}, "limit must be"),
    ],
)
def test_invalid_arguments_are_refused(action: str, state: str, more: dict[str, Any], says: str, queue: Handle):
    with pytest.raises(UsageError, match=says):
        queue.inspector.act_on(action, state, **more)

    assert acts(queue) == []


def test_the_jobs_that_are_found_and_those_that_remain_add_up(queue: Handle):
    failed(queue, [call("a"), call("b"), call("a")])

    queue.inspector.act_on("delete", "failed", task="a")

    assert len(every(queue, "failed")) == 1
