"""`durability="fsync"`: a call returns only when the job is on the disk, and fails where that can't be guaranteed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from schedq import NotAcknowledged, StoreUnavailable, UsageError
from schedq.model.durability import Wait
from tests.conftest import MakeQueue
from tests.servers import Server
from tests.stories.durability.conftest import PATIENCE_S, can_wait_for_a_disk
from tests.stories.topologies.cluster import ask
from tests.waiting import until

DISK = Wait.of("fsync", 1, 5)


@pytest.fixture(scope="module")
def disk() -> Iterator[Server]:
    """A server that writes to its disk before it replies."""
    with Server(topology="single", appendonly=True, appendfsync="always") as disk:
        if not can_wait_for_a_disk(disk):
            pytest.skip("Redis before 7.2 has no WAITAOF")
        yield disk


def test_after_a_kill_no_confirmed_job_is_missing(make_queue: MakeQueue, disk: Server):
    queue = make_queue(at=disk, durability="fsync", retry_for=0)
    answered: list[str] = []

    def produce(_: int) -> None:
        with suppress(StoreUnavailable):
            while True:
                with suppress(NotAcknowledged):  # within a second
                    answered.append(queue.enqueue("x" * 500))
                    answered.extend(queue.enqueue_many(range(20), delay=3600))

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(produce, n) for n in range(4)]
        until(lambda: len(answered) > 300, within=PATIENCE_S)
        disk.kill()
        for future in futures:
            future.result(PATIENCE_S)
    disk.start()

    stored = queue.state()
    assert set(answered) - {*stored.ids("pending"), *stored.ids("delayed")} == set()


def test_a_call_waits_for_the_disk_once(make_queue: MakeQueue, disk: Server):
    queue = make_queue(at=disk, retry_for=30)
    queue.enqueue("warm up", durability="fsync")

    with disk.requests() as seen:
        queue.enqueue("one", durability="fsync")
        queue.enqueue_many(range(150), durability="fsync")

    assert [request.words for request in seen if request.name == "WAITAOF"] == [("WAITAOF", "1", "0", "30000")] * 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"appendonly": False}, "keeps no append-only file: set appendonly yes"),
        ({"appendonly": True, "appendfsync": "no"}, r"\(appendfsync no\): set appendfsync always"),
    ],
    ids=["no file", "no fsync"],
)
def test_a_server_without_a_disk_is_refused_and_nothing_is_stored(
    make_queue: MakeQueue, options: dict[str, Any], told: str
):
    with Server(topology="single", **options) as server:
        queue = make_queue(at=server, durability="fsync")
        expected = told if can_wait_for_a_disk(server) else "has no WAITAOF, which needs Redis 7.2 or Valkey"

        for call in (lambda: queue.enqueue(1), lambda: queue.enqueue_many([1, 2])):
            with pytest.raises(UsageError, match=expected) as refused:
                call()
            assert "nothing was stored" in str(refused.value)

        assert queue.dump() == {}
        assert queue.enqueue(1, durability="memory")


def test_a_server_that_replies_before_it_has_written_is_refused(make_queue: MakeQueue, disk: Server):
    """Valkey with appendfsync everysec: a power failure loses what WAITAOF has confirmed."""
    ask(disk, "CONFIG", "SET", "appendfsync", "everysec")
    queue = make_queue(at=disk, durability="fsync")

    with pytest.raises(UsageError, match=r"\(appendfsync everysec\): set appendfsync always there"):
        queue.enqueue(1)
    ask(disk, "CONFIG", "SET", "appendfsync", "always")

    assert queue.enqueue(1)


@pytest.mark.parametrize(
    ("version", "policy", "is_believed"),
    [
        ({"redis_version": "7.2.4"}, "everysec", True),
        ({"redis_version": "7.2.4"}, "always", True),
        ({"redis_version": "7.2.4"}, "no", False),
        ({"redis_version": "7.2.4"}, "", True),
        ({"redis_version": "7.4.1"}, "everysec", False),
        ({"redis_version": "7.4.1"}, "always", True),
        ({"redis_version": "8.2.0"}, "everysec", True),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, "everysec", False),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, "", False),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, "always", True),
        ({}, "", True),
    ],
)
def test_only_servers_that_wait_for_the_disk_are_trusted(version: dict[str, str], policy: str, is_believed: bool):
    facts = {**version, "aof_enabled": "1"} | ({"appendfsync": policy} if policy else {})

    if is_believed:
        DISK.check(facts, "here")
    else:
        with pytest.raises(UsageError, match="durability='fsync': here .*appendfsync always"):
            DISK.check(facts, "here")


def test_a_disk_that_did_not_confirm_in_time_is_reported():
    assert DISK.shortfall([1, 0]) == ""
    assert DISK.shortfall([0, 0]) == "the disk did not confirm it within 5 s (durability='fsync')"
