"""The keys of a server are scanned once for all its queues."""

from __future__ import annotations

from typing import Any

from schedq import Queue
from tests.doctor.conftest import Examine


def test_all_queues_share_the_pages_of_keys_and_each_gets_its_own(mail: Queue, diagnosis: Examine, client: Any) -> None:
    """With a prefix in common, and more keys than a page has."""

    def scans() -> int:
        return int(client.info("commandstats").get("cmdstat_scan", {"calls": 0})["calls"])

    def counted() -> tuple[Any, int]:
        before = scans()
        return diagnosis(), scans() - before

    for name in ("mai", "mail2"):
        client.lpush(f"queue:{name}:pending", "a")
        client.hset(f"queue:{name}:job:a", mapping={"payload": "1", "status": "pending"})
        client.hset(f"queue:{name}:job:of-{name}", mapping={"payload": "1", "status": "pending"})
    client.mset({f"queue:mail:other:{number}": "1" for number in range(2000)})
    _, few = counted()
    for number in range(20):
        client.lpush(f"queue:other{number}:pending", "a")
        client.hset(f"queue:other{number}:job:a", mapping={"payload": "1", "status": "pending"})

    found, many = counted()

    orphans = {(it.queue, it.examples) for it in found.report.findings if it.code == "orphan"}
    assert {("mai", ("of-mai",)), ("mail2", ("of-mail2",))} <= orphans
    assert len(found.report.queues) == 22
    assert many <= few + 2
