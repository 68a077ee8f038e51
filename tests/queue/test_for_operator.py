"""A process without the application's code uses the settings that workers stored, and finds queues and workers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from schedq import AsyncQueue, BrokenNote, Queue
from schedq.model.settings import KEEP_ALL
from schedq.transitions import announce, heartbeat
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle, Loop
from tests.servers import Server


@pytest.fixture
def visit(door: str, server: Server, loop: Loop) -> Any:
    """Makes a queue with this name, as a tool does."""
    made: list[Handle] = []

    def make(name: str, at: Server = server) -> Handle:
        kind = Queue if door == "blocking" else AsyncQueue
        made.append(Handle(kind.for_operator(name, redis=at.unix_url, retry_for=1), at, loop))
        return made[-1]

    yield make
    for handle in made:
        handle.close()


def test_a_visitor_knows_no_settings_and_trims_nothing(visit: Any):
    settings = visit("mail").settings

    assert (settings.completed_history, settings.failed_history, settings.retry_for) == (KEEP_ALL, KEEP_ALL, 1)


def test_a_tool_uses_the_settings_that_workers_stored(make_queue: MakeQueue, visit: Any):
    queue = make_queue(visibility_ms=77_000, failed_history=7, max_payload=9, min_keep=0.5, retry_for=0.5)
    queue._ask(announce.announce(queue.settings))
    visitor = visit(queue.name)

    visitor.load_settings()

    found = visitor.settings
    assert (found.visibility_ms, found.failed_history, found.completed_history, found.max_payload) == (
        77_000,
        7,
        100_000,
        9,
    )
    assert visitor.queue._client._queue.retry_for == 0.5  # otherwise a repeated request might not be recognized
    assert not found.listed
    assert visitor.queue.aio.settings == found
    assert visitor.stats()["visibility_ms"] == 77_000


def test_a_tool_that_finds_no_settings_trims_nothing(visit: Any, queue: Handle):
    visitor = visit(queue.name)

    visitor.load_settings()

    assert visitor.settings.failed_history == KEEP_ALL


def test_a_visitor_leaves_no_name_behind(visit: Any, server: Server):
    visitor = visit("never-was")

    visitor.stats()

    assert not visitor.redis.sismember("schedq:queues", "never-was")
    assert "never-was" not in visitor.list_queues()


def test_queues_are_listed_that_hold_something(door: str, visit: Any, make_queue: MakeQueue):
    with Server() as own:
        kept = make_queue("mail", at=own)
        kept.enqueue(1)
        make_queue("looked-at", at=own).stats()
        kept.redis.sadd("schedq:queues", "no name:", "*")

        assert visit("x", own).list_queues() == ["mail"]


@pytest.mark.breaks("totals", "status", because="another program keeps its own")
def test_a_scan_finds_queues_of_other_programs(queue: Handle, visit: Any):
    queue.redis.rpush(queue.keys.pending, "theirs")
    visitor = visit("x")

    assert queue.name not in visitor.list_queues()
    assert queue.name in visitor.list_queues(scan=True)


def test_live_workers_report_what_they_run(make_queue: MakeQueue):
    queue = make_queue()
    jobs = [{"id": "a", "task": "send"}]
    facts: dict[str, str | int] = {
        "host": "vm",
        "pid": 7,
        "started_at_ms": 5,
        "concurrency": 10,
        "running": 1,
        "jobs": json.dumps(jobs),
    }
    queue._ask(heartbeat.beat(queue.settings, "w-1", facts | {"tasks": '["send","nap"]'}))
    queue._ask(heartbeat.beat(queue.settings, "w-2", {"jobs": "{", "tasks": "[1]", "pid": "x"}))
    queue._ask(heartbeat.beat(queue.settings, "w-3", {"pid": 1}))
    queue.redis.delete(queue.keys.worker("w-3"))  # its TTL ended

    found = {worker.id: worker for worker in queue.list_workers()}

    assert found.keys() == {"w-1", "w-2"}
    one = found["w-1"]
    assert (one.host, one.pid, one.started_at_ms, one.concurrency, one.running) == ("vm", 7, 5, 10, 1)
    assert (one.jobs, one.tasks, one.is_stopping) == (tuple(jobs), ("send", "nap"), False)
    assert one.has_handler  # written by a release that did not store it
    assert (found["w-2"].jobs, found["w-2"].tasks, found["w-2"].pid) == ((), (), 0)


@pytest.mark.breaks("layout", because="a worker's key holds another program's string")
def test_a_worker_whose_data_is_damaged_does_not_hide_the_others(queue: Handle):
    for name in ("w-1", "w-2"):
        queue._ask(heartbeat.beat(queue.settings, name, {"pid": 1}))
    queue.redis.delete(queue.keys.worker("w-1"))
    queue.redis.set(queue.keys.worker("w-1"), "x", px=60_000)

    assert [worker.id for worker in queue.list_workers()] == ["w-2"]


def test_notes_about_broken_ids_are_listed(make_queue: MakeQueue, clock: Clock):
    queue = make_queue(clock=clock)
    (job_id,) = queue.enqueue_many([1])
    queue.redis.delete(queue.keys.job(job_id))
    queue.claim(0)

    (note,) = queue.list_broken()

    assert (note.id, note.at_ms) == (job_id, clock.now_ms)
    assert note.reason
    assert queue.list_broken(offset=1) == []


@pytest.mark.breaks("totals", because="the note is another program's")
def test_an_unreadable_note_is_shown_unchanged(make_queue: MakeQueue):
    queue = make_queue()
    queue.redis.lpush(queue.keys.broken, '{"id":"a"}')

    assert queue.list_broken() == [BrokenNote("", '{"id":"a"}', 0)]
