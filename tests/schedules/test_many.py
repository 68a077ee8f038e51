"""Ten thousand schedules: how many requests they cost, due at once and idle."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from schedq import Queue
from schedq.link import Link, Outage
from schedq.operations import upkeep
from schedq.operations.firing import MOST_FIRED, Memory, fire_due
from schedq.operations.schedules import register
from schedq.schedule import Definition
from schedq.scheduler import Scheduler
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
        link = Link(queue, Outage("test"))
        promotion = await link.ask(upkeep.promote(queue.settings, 1, "me"))
        scheduler = Scheduler(queue.settings, link)
        before = scripts(own_server)
        for _ in range(50):
            assert await scheduler.look(promotion) == (False, promotion.next_slot_ms)
        assert scripts(own_server) == before
        await link.aclose()

    asyncio.run(go())


def test_all_due_at_once_cost_two_scripts_a_batch(queue: Queue, own_server: Server, clock: Clock):
    memory, fired, ticks, has_more = Memory(), 0, 0, True
    clock.pass_time(3600)
    before = scripts(own_server)
    while has_more:
        found = queue._drive(fire_due(queue.settings, memory))
        fired, ticks, has_more = fired + found.jobs, ticks + 1, found.has_more

    assert fired == queue.stats()["pending_depth"] == MANY
    assert scripts(own_server) - before <= 2 * (MANY // MOST_FIRED + 1) + 2 * ticks + 1


def test_what_is_known_is_not_read_again(queue: Queue, own_server: Server, clock: Clock):
    memory = Memory()
    for _ in range(2):
        clock.pass_time(3600)
        with own_server.client() as client:
            client.config_resetstat()
        while queue._drive(fire_due(queue.settings, memory)).has_more:
            pass

    with own_server.client() as client:
        assert "cmdstat_hgetall" not in client.info("commandstats")
