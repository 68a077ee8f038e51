"""A queue that is not used any more: what it costs Redis, and what is there when it is used again."""

from __future__ import annotations

import pytest

from schedq.inspect import samples
from schedq.inspect.archive import archive_page
from schedq.inspect.samples import rate
from schedq.transitions import announce, count_tasks, heartbeat
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle

pytestmark = pytest.mark.breaks("totals", because="the records of completed jobs have expired")
DAY_H = 24


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock)


def look(queue: Handle) -> None:
    """What the promoter does every 10 s."""
    queue.redis.set(queue.keys.promoter, "me", px=3_600_000)
    queue._ask(samples.take(queue.settings, "me"))
    queue.redis.delete(queue.keys.promoter)


def rest(queue: Handle, clock: Clock, hours: int) -> None:
    for _ in range(hours):
        look(queue)
        clock.pass_time(3600)
    look(queue)


def end_one(queue: Handle) -> str:
    """One job that has completed, whose record is gone."""
    job_id = queue.enqueue({"task": "hello"})
    assert queue.complete(queue.claim(0))
    queue.redis.delete(queue.keys.job(job_id))
    queue.redis.delete(queue.keys.completed, queue.keys.wake)
    return str(job_id)


def names(queue: Handle) -> set[str]:
    return {key.removeprefix(queue.keys.prefix) for key in queue.redis.scan_iter(queue.keys.prefix + "*")}


def test_a_queue_that_was_used_once_costs_700_bytes(queue: Handle, clock: Clock):
    queue._ask(announce.announce(queue.settings))
    end_one(queue)
    beat = heartbeat.beat(queue.settings, "w-1", {"pid": 1})
    queue.execute([beat, count_tasks.count_tasks(queue.settings, "w-1", 1, {"hello": "1 0 0 0 1|1 1478|1:1|22:1"})])
    queue._ask(heartbeat.leave(queue.settings, "w-1", "me"))

    rest(queue, clock, 8 * DAY_H + 1)

    assert names(queue) == {"stats", "settings", "task_stats"}
    costs = {name: queue.redis.memory_usage(queue.keys.prefix + name, samples=0) for name in names(queue)}
    in_table, in_set_of_queues = 16, 64
    assert sum(costs.values()) + in_table * len(costs) + in_set_of_queues <= 700, costs
    stats = queue.stats()
    assert (stats["enqueued_total"], stats["completed_total"]) == (1, 1)


@pytest.mark.parametrize("hours", [DAY_H, 8 * DAY_H - 1])
def test_until_then_its_log_and_samples_are_there(queue: Handle, clock: Clock, hours: int):
    end_one(queue)

    rest(queue, clock, hours)

    assert {"log", "samples"} <= names(queue)


def test_workers_that_come_and_go_do_not_use_a_queue(queue: Handle, clock: Clock):
    end_one(queue)
    for number in range(8 * DAY_H + 2):
        beat = heartbeat.beat(queue.settings, f"w-{number}", {"pid": 1})
        queue._ask(beat)
        rest(queue, clock, 1)
        queue._ask(heartbeat.leave(queue.settings, f"w-{number}", ""))

    assert not {"log", "samples"} & names(queue)


def test_while_jobs_wait_nothing_is_deleted(queue: Handle, clock: Clock):
    end_one(queue)
    queue.enqueue(1, delay=30 * 86_400)

    rest(queue, clock, 9 * DAY_H)

    assert {"log", "samples"} <= names(queue)


def test_a_log_to_which_an_operator_added_is_kept_as_long(queue: Handle, clock: Clock):
    end_one(queue)
    rest(queue, clock, 8 * DAY_H - 1)
    queue.pause()
    queue.resume()

    rest(queue, clock, 8 * DAY_H - 2)
    assert {"log", "samples"} <= names(queue)
    rest(queue, clock, 3)

    assert not {"log", "samples"} & names(queue)


def test_a_log_that_a_group_of_consumers_reads_is_kept(queue: Handle, clock: Clock):
    end_one(queue)
    queue.redis.xgroup_create(queue.keys.log, "auditors")

    rest(queue, clock, 9 * DAY_H)

    assert names(queue) >= {"log"}
    assert "samples" not in names(queue)


def test_rates_show_the_job_with_which_a_queue_is_used_again(queue: Handle, clock: Clock):
    end_one(queue)
    rest(queue, clock, 9 * DAY_H)
    clock.pass_time(10)
    end_one(queue)

    look(queue)

    found = queue.inspector.samples()
    assert [(each.completed_total, clock.now_ms - each.at_ms) for each in found] == [(1, 10_000), (2, 0)]
    assert rate(found, queue.stats(), clock.now_ms + 1, 60).completed > 0
    rest(queue, clock, 9 * DAY_H)
    assert not {"log", "samples"} & names(queue)


def test_samples_that_a_worker_of_the_release_before_took_meanwhile_are_kept(queue: Handle, clock: Clock):
    end_one(queue)
    rest(queue, clock, 9 * DAY_H)
    queue.redis.lpush(queue.keys.samples, f'{{"at_ms":{clock.now_ms},"enqueued_total":1,"completed_total":1}}')
    clock.pass_time(10)

    look(queue)

    assert [each.completed_total for each in queue.inspector.samples()] == [1, 1]
    assert "unused" not in queue.redis.hgetall(queue.keys.stats)


@pytest.mark.parametrize("has_read", [True, False])
def test_an_archive_misses_only_entries_that_it_had_not_read(queue: Handle, clock: Clock, has_read: bool):
    end_one(queue)
    position = queue._drive(archive_page(queue.settings, "")).position
    if not has_read:
        end_one(queue)
    rest(queue, clock, 9 * DAY_H)
    assert queue._drive(archive_page(queue.settings, position)).gap is None  # nothing follows yet
    last = end_one(queue)

    page = queue._drive(archive_page(queue.settings, position))

    assert [line["id"] for line in page.lines] == [last]
    assert (page.gap is None) is has_read
