"""Connections that wait for Redis as long as necessary, and what they log meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import count

import pytest

from schedq import UsageError
from schedq.background.reconnecting_client import Availability, LogThrottle, ReconnectingClient, run_forever
from schedq.errors import Conflict
from schedq.inspect import stats
from schedq.transitions import claim
from tests.conftest import MakeQueue
from tests.servers import Server
from tests.waiting import until
from tests.worker.conftest import Logs
from tests.worker.crew import Crew, asked, broken_laws


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage takes no longer than a few readings of its clock, however slow the machine is."""
    milliseconds = count(1000)
    monkeypatch.setattr("schedq.background.reconnecting_client.monotonic", lambda: next(milliseconds) / 1000)


@pytest.mark.usefixtures("brief")
def test_an_outage_is_logged_once_however_many_clients_notice_it(logs: Logs) -> None:
    outage = Availability("redis://here")

    outage.lost("pump", ConnectionError("reset"))
    outage.lost("waker", ConnectionError("refused"))
    outage.lost("pump", ConnectionError("refused"))
    outage.back("pump")
    assert (outage.losses, len(logs())) == (1, 1)
    outage.back("waker")
    outage.back("waker")
    outage.back("promoter")

    assert outage.losses == 1
    assert [line.split("(")[0] for line in logs()] == [
        "WARNING redis://here: lost ",
        "WARNING redis://here: back after 0.0 s",
    ]


@pytest.mark.usefixtures("brief")
def test_of_a_cluster_only_the_queues_of_the_lost_node_count_as_lost_and_the_log_says_it_once(logs: Logs) -> None:
    cluster = Availability("a node of redis+cluster://here")
    gone, too, other = (cluster.of_queue(name) for name in ("gone", "too", "other"))
    other.has_carried_out("claim")

    gone.lost("pump", ConnectionError("reset"))
    too.lost("waker", ConnectionError("refused"))
    other.back("promoter")
    gone.back("pump")
    assert [each.losses for each in (gone, too, other)] == [1, 1, 0]
    assert [each.lost_for_s > 0 for each in (gone, too, other)] == [False, True, False]
    assert len(logs()) == 1
    too.back("waker")

    assert too.lost_for_s == 0
    assert gone.has_answered and gone.has_let("claim"), "what one node has done, the others will do"
    assert [line.split("(")[0] for line in logs()] == [
        "WARNING a node of redis+cluster://here: lost ",
        "WARNING a node of redis+cluster://here: back after 0.0 s",
    ]


def test_a_closed_client_does_not_prolong_an_outage(logs: Logs) -> None:
    outage = Availability("redis://here")
    outage.lost("pump", ConnectionError())
    outage.forget("pump")

    outage.lost("waker", TimeoutError())

    assert outage.losses == 2
    assert "no reply in time" in logs()[1]


@pytest.mark.usefixtures("brief")
def test_a_client_without_requests_does_not_prolong_an_outage(logs: Logs) -> None:
    outage = Availability("redis://here")
    outage.lost("waker", ConnectionError())

    outage.back("pump")
    assert outage.lost_for_s > 0  # the waker still waits for a reply
    outage.rest("waker")

    assert outage.lost_for_s == 0
    assert [line.split("(")[0] for line in logs()] == [
        "WARNING redis://here: lost ",
        "WARNING redis://here: back after 0.0 s",
    ]
    outage.lost("pump", ConnectionError())
    assert outage.losses == 2


def test_an_outage_lasts_until_a_client_gets_a_reply(logs: Logs) -> None:
    outage = Availability("redis://here")
    outage.lost("waker", ConnectionError())
    outage.back("pump")
    outage.lost("pump", ConnectionError())

    outage.rest("waker")
    outage.rest("pump")
    outage.lost("promoter", ConnectionError())
    assert (outage.lost_for_s > 0, outage.losses) == (True, 1)
    outage.rest("promoter")
    assert outage.lost_for_s > 0
    outage.back("heartbeat")

    assert outage.lost_for_s == 0
    assert len(logs()) == 2


def test_a_request_cancelled_during_an_outage_does_not_prolong_it(make_queue: MakeQueue) -> None:
    with Server() as server:
        queue = make_queue(at=server)
        server.kill()

        async def main() -> tuple[bool, float]:
            outage = Availability("here")
            link, other = ReconnectingClient(queue.queue, outage), ReconnectingClient(queue.queue, outage)
            for asking in (link.ask(stats.stats(queue.settings)), link.connect(lambda: None)):
                with suppress(TimeoutError):
                    await asyncio.wait_for(asking, 0.1)
            was_lost = outage.lost_for_s > 0
            await asyncio.to_thread(server.start)
            await other.ask(stats.stats(queue.settings))
            found = was_lost, outage.lost_for_s
            await link.aclose()
            await other.aclose()
            return found

        assert asyncio.run(asyncio.wait_for(main(), 60)) == (True, 0)


def test_two_alternating_errors_are_logged_once_each(logs: Logs) -> None:
    complaint = LogThrottle()

    for _ in range(50):
        complaint.log("claim", Conflict("bad"))
        complaint.log("ends", Conflict("bad"))

    assert logs() == ["ERROR claim: bad", "ERROR ends: bad"]


def test_errors_that_all_differ_do_not_flood_the_log(logs: Logs) -> None:
    complaint = LogThrottle()

    for number in range(500):
        complaint.log("claim", Conflict(f"bad {number}"))

    assert len(logs()) == 20


def test_a_rejected_step_is_repeated_and_a_usage_error_ends_it(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedq.background.reconnecting_client.REFUSED_S", 0.01)
    answers: Iterator[float | Exception] = iter([Conflict("bad"), Conflict("bad"), 0.0, UsageError("password")])

    async def step() -> float:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(UsageError, match="password"):
        asyncio.run(run_forever("looking", step))
    assert logs() == ["ERROR looking: bad"]


def test_a_request_waits_until_redis_is_available(make_queue: MakeQueue) -> None:
    with Server() as server:
        queue = make_queue(at=server)
        server.kill()

        async def main() -> int:
            link = ReconnectingClient(queue.queue, Availability("here"))
            asking = asyncio.create_task(link.ask(stats.stats(queue.settings)))
            await asyncio.sleep(0.2)
            assert not asking.done()
            await asyncio.to_thread(server.start)
            found = await asking
            await link.aclose()
            return found["pending_depth"]

        assert asyncio.run(asyncio.wait_for(main(), 60)) == 0


def test_a_connected_worker_reconnects_although_eviction_was_turned_on(make_queue: MakeQueue) -> None:
    with Server() as server:
        queue, other = make_queue(at=server), make_queue(at=server)

        async def main() -> tuple[int, bool]:
            outage = Availability("here")
            first, second = ReconnectingClient(queue.queue, outage), ReconnectingClient(queue.queue, outage)
            of_another = ReconnectingClient(other.queue, outage)
            await first.ask(stats.stats(queue.settings))
            queue.redis.config_set("maxmemory-policy", "allkeys-lru")
            found = await second.ask(stats.stats(queue.settings))
            with suppress(TimeoutError):
                await asyncio.wait_for(of_another.connect(lambda: None), 0.2)
            for each in (first, second, of_another):
                await each.aclose()
            return found["pending_depth"], of_another.is_connected

        assert asyncio.run(asyncio.wait_for(main(), 60)) == (0, False)


def test_a_claim_without_a_reply_is_not_sent_again(make_queue: MakeQueue) -> None:
    with Server() as server:
        queue = make_queue(at=server)
        queue.enqueue({})

        async def main() -> list[object]:
            link, failures = ReconnectingClient(queue.queue, Availability("here")), Counter[str]()
            await link.ask(stats.stats(queue.settings))
            server.kill()
            found = await link.execute([claim.claim(queue.settings, "r")], lambda: failures.update(["once"]))
            await link.aclose()
            return [*found, failures["once"]]

        error, failures = asyncio.run(asyncio.wait_for(main(), 60))

    assert "does not respond" in str(error)
    assert failures == 1


def test_a_demoted_server_is_waited_for_without_flooding_the_log(make_queue: MakeQueue, crew: Crew, logs: Logs) -> None:
    with Server(topology="single") as server:
        queue = make_queue(at=server)
        queue.task(name="ok")(lambda: "ok")
        crew.start(queue)
        job_id = queue.enqueue({"task": "ok"})
        assert queue.result(job_id, 60) == "ok"

        with server.client() as client:
            client.execute_command("REPLICAOF", "127.0.0.1", "1")
            with server.requests() as requests:
                until(lambda: [line for line in logs() if "does not serve" in line])
                time.sleep(1.5)
            found = asked(requests, queue)
            assert len(found) < 20 + 13 * (found[-1].at - found[0].at)
            client.execute_command("REPLICAOF", "NO", "ONE")
        assert queue.result(queue.enqueue({"task": "ok"}), 60) == "ok"
        assert crew.all_are_working
        crew.end()
        assert broken_laws(queue) == {}

    assert 1 <= len([line for line in logs() if "does not serve" in line]) <= 3
    assert len(logs()) < 15


def test_outages_that_several_threads_notice_at_once_are_logged_in_order(logs: Logs) -> None:
    outage = Availability("redis://here")

    def notice(who: int) -> None:
        for _ in range(200):
            outage.lost(who, ConnectionError())
            outage.back(who)

    threads = [threading.Thread(target=notice, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    words = [line.split()[2] for line in logs()]
    assert words == ["lost", "back"] * outage.losses
    assert outage.lost_for_s == 0
