"""Schedules in an application's code: stored when a worker starts, untouched by deploys that change nothing."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator

import pytest
from freezegun import freeze_time

from schedq import Queue, Task, UsageError
from schedq.testing import run_due, wall_clock
from schedq.worker import Worker
from tests.conftest import MakeQueue
from tests.doors import Clock, Handle
from tests.schedules.scenes import HOUR, MINUTE, acts, ids, jobs, tick
from tests.servers import Server


@pytest.fixture
def queue(make_queue: MakeQueue, clock: Clock) -> Handle:
    return make_queue(clock=clock)


@pytest.fixture
def deploy(make_queue: MakeQueue, queue: Handle, clock: Clock) -> MakeQueue:
    """Another process with the same queue."""
    return lambda: make_queue(queue.name, clock=clock)


def work(depth: int = 0) -> None:
    """The scheduled function."""


def test_a_decorated_function_is_a_task_and_asks_redis_nothing(queue: Handle):
    decorated = queue.cron("0 3 * * *", tz="Europe/Berlin", args=[1])(work)

    assert isinstance(decorated, Task)
    assert decorated() is None
    assert queue.registry.names == ("work",)
    assert queue.state().keys == {}


def test_a_task_may_have_several_schedules(queue: Handle):
    @queue.cron("0 3 * * *", id="night", kwargs={"deep": True})
    @queue.every(HOUR)
    @queue.task(max_attempts=7)
    async def clean(deep: bool = False) -> None: ...

    assert queue.schedules.register().created == ("clean", "night")
    night = queue.schedules.get("night")
    assert night.payload == {"task": "clean", "kwargs": {"deep": True}}
    assert night.fields["max_attempts"] == "7"


def test_two_schedules_of_one_id_are_refused(queue: Handle):
    queue.cron("0 3 * * *")(work)

    with pytest.raises(UsageError, match="another id="):
        queue.cron("0 4 * * *")(work)
    with pytest.raises(UsageError, match="bad"):
        queue.cron("bad", id="bad")(work)


def test_an_unchanged_schedule_keeps_its_slot_through_a_deploy(queue: Handle, deploy: MakeQueue, clock: Clock):
    queue.every(HOUR)(work)
    queue.schedules.register()
    clock.pass_time(HOUR + 1)  # the deploy comes just after the slot, which has not been fired

    after = deploy()
    after.every(HOUR)(work)
    assert after.schedules.register().unchanged == ("work",)

    assert tick(after).jobs == 1
    assert jobs(after) == ids("work", 60)
    assert acts(after) == ["schedule create work"]


def test_a_changed_option_keeps_the_slot_and_a_changed_expression_counts_from_now(
    queue: Handle, deploy: MakeQueue, clock: Clock
):
    queue.every(HOUR)(work)
    queue.schedules.register()
    clock.pass_time(HOUR + 1)

    options = deploy()
    options.every(HOUR, overlap="skip", args=[1])(work)
    assert options.schedules.register().changed == ("work",)
    assert options.schedules.get("work").next_slot_ms == clock.now_ms - 1000

    expression = deploy()
    expression.every(2 * MINUTE)(work)
    assert expression.schedules.register().changed == ("work",)
    assert expression.schedules.get("work").next_slot_ms == clock.now_ms - 1000 + 120_000
    assert "overlap" in expression.schedules.get("work").fields
    assert expression.schedules.get("work").fields["overlap"] == "allow"


def test_a_pause_outlives_a_deploy(queue: Handle, deploy: MakeQueue, clock: Clock):
    queue.every(HOUR)(work)
    queue.schedules.register()
    queue.schedules.pause("work")

    after = deploy()
    after.every(MINUTE)(work)
    after.schedules.register()
    clock.pass_time(HOUR)

    assert tick(after).jobs == 0
    assert after.schedules.get("work").state == "paused"
    assert after.schedules.resume("work")
    clock.pass_time(MINUTE)
    assert tick(after).jobs == 1


def test_schedules_removed_from_the_code_are_reported_and_deleted_only_on_request(queue: Handle, deploy: MakeQueue):
    queue.every(HOUR, id="old")(work)
    queue.every(HOUR, id="stays")(work)
    queue.schedules.register()
    queue.schedules.upsert("made-by-hand", every=HOUR, task="work")
    queue.schedules.upsert("of-others", every=HOUR, task="work", owner="others")

    after = deploy()
    after.every(HOUR, id="stays")(work)

    assert after.schedules.register().missing == ("old",)
    assert after.schedules.get("old") is not None
    assert after.schedules.register(prune=True).removed == ("old",)
    assert [record.id for record in after.schedules.list()] == ["made-by-hand", "of-others", "stays"]


def test_code_that_has_lost_its_last_schedule_still_reports_it(queue: Handle, deploy: MakeQueue):
    queue.every(HOUR)(work)
    queue.schedules.register()

    after = deploy()
    after.task(work)

    assert after.schedules.register().missing == ("work",)


def test_two_versions_side_by_side_do_not_fight(queue: Handle, deploy: MakeQueue):
    queue.every(2 * HOUR, version=2)(work)
    queue.every(HOUR, id="new", version=2)(work)
    queue.schedules.register()

    old = deploy()
    old.every(HOUR, version=1)(work)

    found = old.schedules.register(prune=True)
    assert (found.kept, found.missing, found.removed) == (("work",), (), ())
    assert queue.schedules.register().unchanged == ("new", "work")


def test_an_ended_schedule_continues_when_it_is_given_more_runs(queue: Handle, deploy: MakeQueue, clock: Clock):
    queue.every(MINUTE, max_runs=1)(work)
    queue.schedules.register()
    clock.pass_time(MINUTE)
    tick(queue)
    assert queue.schedules.register().unchanged == ("work",)

    after = deploy()
    after.every(MINUTE, max_runs=2)(work)
    after.schedules.register()
    clock.pass_time(MINUTE)

    assert tick(after).jobs == 1
    assert after.schedules.get("work").state == "ended"


# -- who starts


@pytest.fixture
def application(server: Server) -> Iterator[Queue]:
    with Queue(f"q-{uuid.uuid4().hex[:12]}", redis=server.unix_url) as queue:
        yield queue
        with server.client() as client:
            client.unlink(*client.keys(queue.settings.keys.prefix + "*"))


def test_a_worker_that_starts_writes_them_and_its_promoter_fires_them(
    application: Queue, caplog: pytest.LogCaptureFixture
):
    ran = []

    @application.every(1, id="often")
    def tick_often() -> None:
        ran.append(1)

    application.schedules.upsert("old", every=HOUR, task="tick_often", owner="tests")

    async def go() -> None:
        worker = Worker([application], concurrency=2)
        running = asyncio.create_task(worker.run())
        async with asyncio.timeout(60):
            while len(ran) < 3:
                await asyncio.sleep(0.05)
        worker.stop()
        await running

    with caplog.at_level(logging.INFO, "schedq"):
        asyncio.run(go())

    fired = [slot for slot in application.schedules.get("often").slots if slot.outcome == "fired"]
    assert len({slot.slot_ms for slot in fired}) == len(fired) >= 3
    assert {slot.slot_ms % 1000 for slot in fired} == {0}
    assert "schedule often: new" in caplog.messages
    assert any(text.startswith("schedule old: no longer in the code") for text in caplog.messages)


def test_a_frozen_clock_drives_them(application: Queue):
    ran = []
    queue = Queue(application.name, redis=application.address.label, clock=wall_clock)

    @queue.cron("0 3 * * *", tz="Europe/Berlin")
    def nightly() -> None:
        ran.append(wall_clock())

    with queue, freeze_time("2026-03-27 12:00:00") as frozen:
        assert run_due(queue) == 0
        for _ in range(4):
            frozen.tick(86_400)
            assert run_due(queue) == 1

    assert [slot.slot_ms for slot in application.schedules.get("nightly").slots][::-1] == [
        1774663200000,  # 28 March, 03:00 +01:00
        1774746000000,  # 29 March, 03:00 +02:00
        1774832400000,
        1774918800000,
    ]


def test_run_due_runs_what_handlers_bring_on(application: Queue):
    clock = Clock()
    queue = Queue(application.name, redis=application.address.label, clock=clock)
    ran = []

    @queue.every(MINUTE)
    def tick_on() -> None:
        ran.append(clock())
        if len(ran) < 5:
            clock.pass_time(MINUTE)

    with queue:
        run_due(queue)
        clock.pass_time(MINUTE)
        assert run_due(queue) == 5
