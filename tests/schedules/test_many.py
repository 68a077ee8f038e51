"""Ten thousand schedules: how many requests they cost, due at once and idle."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from schedq import Queue
from schedq.background.reconnecting_client import Availability, ReconnectingClient
from schedq.background.scheduler import Scheduler
from schedq.schedules.definition import Definition
from schedq.schedules.fire import MOST_FIRED, DefinitionCache, fire_due
from schedq.schedules.register import register
from schedq.transitions import promote
from tests.doors import Clock
from tests.servers import Server

MANY = 10_000


@pytest.fixture(scope="module")
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture(scope="module")
def queue(own_server: Server, clock: Clock) -> Iterator[Queue]:
    with Queue(f"q-{uuid.uuid4().hex[:12]}", redis=own_server.unix_url, clock=clock) as queue:
        definitions = [Definition(f"s{number}", "1", cron="0 * * * *", tz="Europe/Berlin") for number in range(MANY)]
        queue._drive(register(queue.settings, definitions, [], prune=False))
        yield queue


def scripts(server: Server) -> int:
    """How many scripts have been run so far."""
    with server.client() as client:
        found: int = client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)
        return found


def test_an_idle_scheduler_sends_nothing_however_many_there_are(queue: Queue, own_server: Server):
    async def go() -> None:
        link = ReconnectingClient(queue, Availability("test"))
        promotion = await link.ask(promote.promote(queue.settings, 1, "me"))
        scheduler = Scheduler(queue.settings, link)
        before = scripts(own_server)
        for _ in range(50):
            assert await scheduler.look(promotion) == (False, promotion.next_slot_ms)
        assert scripts(own_server) == before
        await link.aclose()

    asyncio.run(go())


def test_all_due_at_once_cost_two_scripts_a_batch(queue: Queue, own_server: Server, clock: Clock):
    memory, fired, ticks, has_more = DefinitionCache(), 0, 0, True
    clock.pass_time(3600)
    before = scripts(own_server)
    while has_more:
        found = queue._drive(fire_due(queue.settings, memory))
        fired, ticks, has_more = fired + found.jobs, ticks + 1, found.has_more

    assert fired == queue.stats()["pending_depth"] == MANY
    assert scripts(own_server) - before <= 2 * (MANY // MOST_FIRED + 1) + 2 * ticks + 1


def test_known_definitions_are_not_read_again(queue: Queue, own_server: Server, clock: Clock):
    memory = DefinitionCache()
    for _ in range(2):
        clock.pass_time(3600)
        with own_server.client() as client:
            client.config_resetstat()
        while queue._drive(fire_due(queue.settings, memory)).has_more:
            pass

    with own_server.client() as client:
        assert "cmdstat_hgetall" not in client.info("commandstats")


# -- those that wait for their last run


WAITING = 1500


@pytest.fixture
def crowd(own_server: Server) -> Iterator[tuple[Queue, Clock]]:
    """A queue whose 1,500 schedules all wait for their last runs; three more become due half a minute later."""
    clock = Clock()
    with Queue(f"q-{uuid.uuid4().hex[:12]}", redis=own_server.unix_url, clock=clock) as queue:
        waiting = [
            Definition(f"wait{number}", "1", every_ms=60_000, overlap="queue_one", owner="t")
            for number in range(WAITING)
        ]
        later = [Definition(f"later{number}", "2", every_ms=30_000, start_ms=1_800_000_090_000) for number in range(3)]
        queue._drive(register(queue.settings, [*waiting, *later], [], prune=False))
        clock.pass_time(60)
        while queue._drive(fire_due(queue.settings, DefinitionCache())).moved:
            pass
        assert queue.stats()["pending_depth"] == WAITING
        yield queue, clock


async def looks(queue: Queue, link: ReconnectingClient, scheduler: Scheduler) -> int:
    """Look as a promoter does until nothing is left to do; returns how often it looked."""
    for count in range(1, 20):
        promotion = await link.ask(promote.promote(queue.settings, 1, "me"))
        is_again, _ = await scheduler.look(promotion)
        if not is_again:
            return count
    raise AssertionError("it never rests")


def test_waiting_schedules_do_not_delay_others(crowd: tuple[Queue, Clock], own_server: Server):
    queue, clock = crowd

    async def go() -> None:
        link = ReconnectingClient(queue, Availability("test"))
        scheduler = Scheduler(queue.settings, link)
        clock.pass_time(30)  # later0 to later2 are due, for the first time
        assert await looks(queue, link, scheduler) <= 2
        assert queue.stats()["pending_depth"] == WAITING + 3

        clock.pass_time(30)  # all are
        await looks(queue, link, scheduler)
        assert queue.stats()["pending_depth"] == WAITING + 6

        clock.pass_time(30)  # those that wait are still waiting
        before = scripts(own_server)
        assert await looks(queue, link, scheduler) <= 2
        assert queue.stats()["pending_depth"] == WAITING + 9
        assert scripts(own_server) - before < 60, "what waits is looked at in turn, so many a second"
        await link.aclose()

    asyncio.run(go())


def test_each_that_waits_is_fired_when_its_last_run_has_ended(
    crowd: tuple[Queue, Clock], monkeypatch: pytest.MonkeyPatch
):
    queue, clock = crowd
    monkeypatch.setattr("schedq.background.scheduler._TICK_S", 0.0)

    async def go() -> None:
        link = ReconnectingClient(queue, Availability("test"))
        scheduler = Scheduler(queue.settings, link)
        clock.pass_time(60)
        await looks(queue, link, scheduler)
        first, last = (queue.get_job(f"wait{number}-1800000060000") for number in (0, WAITING - 1))
        for job in (first, last):
            assert job is not None
            assert queue.cancel(job.id) == "cancelled"

        for _ in range(6):
            await looks(queue, link, scheduler)

        assert [queue.get_job(f"wait{number}-1800000120000") is not None for number in (0, 1, WAITING - 1)] == [
            True,
            False,
            True,
        ]
        await link.aclose()

    asyncio.run(go())
