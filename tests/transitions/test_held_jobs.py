"""What can be done with the jobs of a paused task, and with all jobs of a task."""

from __future__ import annotations

import pytest

from schedq import QueueFull
from schedq.inspect.export import exported
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.transitions.test_pause_task import call, claimed, enqueued, held, paused, queue

__all__ = ["paused", "queue"]


def test_they_count_as_pending(paused: tuple[Handle, list[str], str]):
    queue, ids, later = paused

    stats = queue.stats()

    assert (stats["pending_depth"], stats["held_depth"], stats["paused_tasks"]) == (4, 3, 1)
    assert [job.id for job in queue.list_pending()] == [*ids, later]
    assert [job.id for job in queue.list_pending(1, 2)] == ids[1:]
    assert [job.id for job in queue.list_pending(2, 2)] == [ids[2], later]
    assert [job.id for job in queue.list_pending(3, 2)] == [later]
    assert {job.status for job in queue.list_pending()} == {"pending"}
    assert all(job.run_at_ms == 0 for job in queue.list_pending())


def test_they_are_found(paused: tuple[Handle, list[str], str]):
    queue, ids, later = paused
    every = [*ids, later]

    page = queue.inspector.find("pending")
    assert ([job.id for job in page.jobs], page.total, page.cursor) == (every, 4, None)
    assert all(job.run_at_ms == 0 for job in page.jobs)
    assert [job.id for job in queue.inspector.find("pending", task="send").jobs] == every
    found, cursor = [], None
    while True:
        page = queue.inspector.find("pending", limit=1, cursor=cursor)
        found += [job.id for job in page.jobs]
        assert page.total == 4
        if not (cursor := page.cursor):
            break
    assert found == every


def test_one_is_cancelled(paused: tuple[Handle, list[str], str]):
    queue, ids, later = paused

    assert queue.cancel(ids[1]) == "cancelled"

    assert queue.places() == {"pending": [ids[0], ids[2], later], "cancelled": [ids[1]]}
    assert queue.requeue(ids[1]) is True
    queue.resume(task="send")
    assert claimed(queue) == [ids[0], ids[2], later, ids[1]]


def test_one_is_deleted(paused: tuple[Handle, list[str], str]):
    queue, ids, later = paused

    assert queue.inspector.act("delete", [ids[1], later]).done == 2

    assert queue.places() == {"pending": [ids[0], ids[2]]}


@pytest.mark.parametrize("action", ["cancel", "delete"])
def test_all_are_acted_on(paused: tuple[Handle, list[str], str], action: str):
    queue, ids, later = paused
    (other,) = enqueued(queue, "report")

    acted = queue.inspector.act_on(action, "pending", task="send")

    assert (acted.done, acted.refused, acted.looked) == (4, 0, 5)
    assert queue.state().ids("pending") == [other]
    assert held(queue) == []


def test_they_are_purged(paused: tuple[Handle, list[str], str]):
    queue, _, _ = paused

    assert queue.purge() == 4

    assert queue.places() == {}
    assert queue.list_paused_tasks().keys() == {"send"}


def test_why_says_that_the_task_is_paused(paused: tuple[Handle, list[str], str], clock: Clock):
    queue, ids, later = paused
    (due,) = enqueued(queue, "send", delay=1)
    (other,) = enqueued(queue, "report")
    clock.pass_time(60)

    for job_id in (*ids, later, due):
        why = queue.inspector.why(job_id)
        assert (why.reason, why.text) == ("task_paused", "the task 'send' is paused, for 1 min now")
        assert why.facts == {"task": "send", "paused_since_ms": clock.now_ms - 60_000}
    assert queue.inspector.why(other).reason != "task_paused"
    queue.pause()
    assert queue.inspector.why(ids[0]).reason == "paused"


def test_they_are_exported(paused: tuple[Handle, list[str], str]):
    queue, ids, _ = paused

    entries = [exported(job, "pending") for job in queue.inspector.find("pending").jobs]

    assert [entry["id"] for entry in entries][:3] == ids
    assert all("run_at_ms" not in entry for entry in entries)


def test_max_pending_counts_them(make_queue: MakeQueue):
    queue = make_queue(max_pending=3)
    enqueued(queue, "send", "send")
    queue.pause(task="send")
    assert queue.claim(0) is None
    enqueued(queue, "send")

    with pytest.raises(QueueFull):
        enqueued(queue, "send")


def test_the_id_of_one_is_taken(paused: tuple[Handle, list[str], str]):
    queue, ids, _ = paused

    assert queue.enqueue(call("send"), job_id=ids[0]) == ids[0]

    assert len(queue.state().ids("pending")) == 4


def test_a_second_entry_of_one_is_dropped(paused: tuple[Handle, list[str], str]):
    queue, ids, later = paused
    queue.redis.rpush(queue.keys.pending, ids[1])

    assert queue.claim(0) is None

    assert held(queue) == [*ids, later]
    assert queue.stats()["strays_total"] == 1


def test_one_whose_data_is_gone_is_noted_once_it_is_resumed(paused: tuple[Handle, list[str], str]):
    queue, ids, later = paused
    queue.redis.delete(queue.keys.job(ids[0]))

    queue.resume(task="send")

    assert claimed(queue) == [ids[1], ids[2], later]
    assert queue.state().ids("broken") == [ids[0]]


# -- cancelling all jobs of a task


def test_all_waiting_jobs_of_a_task_are_cancelled(queue: Handle):
    running, other = enqueued(queue, "send", "report")
    job = queue.claim(0)
    ids = enqueued(queue, "send", "report", "send")
    later, others = enqueued(queue, "send", "report", delay=60)

    assert queue.cancel_task("send") == 3

    assert queue.places() == {
        "processing": [running],
        "pending": [other, ids[1]],
        "delayed": [others],
        "cancelled": [later, ids[0], ids[2]],
    }
    assert [(entry.move, entry.note) for entry in queue.inspector.log()] == [("act cancel", "task send: 3 done")]
    assert queue.complete(job) is True


def test_running_jobs_of_a_task_are_asked_to_stop_if_wanted(queue: Handle):
    running, waiting = enqueued(queue, "send", "send")
    job = queue.claim(0)

    assert queue.cancel_task("send", running=True) == 2

    assert queue.places() == {"processing": [running], "cancelled": [waiting]}
    assert "stop" in queue.fields(running)
    queue.fail(job, "stopped")


def test_jobs_of_a_paused_task_are_cancelled_too(paused: tuple[Handle, list[str], str]):
    queue, ids, later = paused

    assert queue.cancel_task("send") == 4

    assert queue.places() == {"cancelled": [*ids, later]}
