"""The server: its release, memory, disk, replicas, clock and speed; judged from facts, and as real servers are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from schedq import Queue
from schedq.doctor import probes as probes_module
from schedq.doctor.checks import Finding, findings, plain
from schedq.doctor.examination import examine
from schedq.doctor.probes import SPEED, ClockReading, Conformance, Latency, check_clocks
from schedq.doctor.server import ServerInfo, check_server
from schedq.doctor.workers import LIVENESS, Liveness
from tests.doctor.conftest import Examine, Found
from tests.servers import Server
from tests.waiting import until


def codes(found: Iterator[Finding]) -> list[str]:
    return [finding.code for finding in found]


# -- judged from facts


@pytest.mark.parametrize(
    ("info", "is_bad"),
    [
        ({"redis_version": "6.2.5"}, True),
        ({"redis_version": "6.2.20"}, False),
        ({"redis_version": "7.0.15"}, True),
        ({"redis_version": "7.4.10"}, True),
        ({"redis_version": "7.4.11"}, False),
        ({"redis_version": "8.10.1"}, False),
        ({"redis_version": "9.0.0"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.6"}, True),
        ({"redis_version": "7.2.4", "valkey_version": "8.1.8"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.2"}, False),
        ({"redis_version": "255.255.255"}, False),
        ({}, False),
    ],
)
def test_releases_with_known_vulnerabilities_are_reported(info: dict[str, str], is_bad: bool):
    assert codes(check_server(ServerInfo(info))) == ["version-known-bad"] * is_bad
    for finding in check_server(ServerInfo(info, is_embedded=True)):
        assert "schedq export each queue, and schedq import it into a new folder" in finding.remedy


def test_a_server_that_is_neither_redis_nor_valkey_is_reported():
    assert codes(check_server(ServerInfo({"redis_version": "7.4.0", "dragonfly_version": "df-1.2"}))) == [
        "server-untried"
    ]


@pytest.mark.parametrize(
    ("info", "found"),
    [
        ({"maxmemory": "1000", "used_memory": "100", "maxmemory_policy": "noeviction"}, []),
        ({"maxmemory": "1000", "used_memory": "950"}, ["memory-nearly-full"]),
        ({"maxmemory": "1000", "used_memory": "1001"}, ["memory-full"]),
        ({"maxmemory": "0", "used_memory": "1001"}, ["memory-unlimited"]),
        ({"maxmemory": "10", "maxmemory_policy": "volatile-lru"}, ["eviction"]),
        ({"maxmemory": "10", "evicted_keys": "3"}, ["keys-evicted"]),
        ({"maxclients": "100", "connected_clients": "99"}, ["clients-nearly-full"]),
        ({}, []),
    ],
)
def test_memory_is_judged(info: dict[str, str], found: list[str]):
    assert codes(check_server(ServerInfo(info))) == found


def test_a_server_for_development_needs_no_limit_of_memory():
    assert codes(check_server(ServerInfo({"maxmemory": "0"}, is_embedded=True))) == []


@pytest.mark.parametrize(
    ("info", "config", "found"),
    [
        ({"aof_enabled": "1"}, {"appendfsync": "everysec", "timeout": "0"}, []),
        ({"aof_enabled": "1"}, {"appendfsync": "no"}, ["appendfsync-no"]),
        ({"aof_enabled": "1", "aof_last_write_status": "err"}, {}, ["log-fails"]),
        ({"aof_enabled": "1", "aof_last_bgrewrite_status": "err"}, {}, ["log-rewrite-fails"]),
        ({"aof_enabled": "1", "rdb_last_bgsave_status": "err"}, {}, ["snapshot-fails"]),
        ({"aof_enabled": "0"}, {"save": ""}, ["no-persistence"]),
        ({"aof_enabled": "0"}, {"save": "3600 1"}, ["snapshots-only"]),
        ({"aof_enabled": "0"}, {}, ["snapshots-only"]),
        ({"aof_enabled": "1"}, {"timeout": "300"}, ["connections-time-out"]),
        ({}, {}, []),
    ],
)
def test_persistence_is_judged(info: dict[str, str], config: dict[str, str], found: list[str]):
    assert codes(check_server(ServerInfo(info, config))) == found


@pytest.mark.parametrize(
    ("replica", "found"),
    [
        ("ip=10.0.0.1,port=1,state=online,offset=1000,lag=0", []),
        ("ip=10.0.0.1,port=1,state=online,offset=1000,lag=60", ["replica-behind"]),
        ("ip=10.0.0.1,port=1,state=wait_bgsave,offset=0,lag=0", ["replica-behind"]),
    ],
)
def test_replicas_are_judged(replica: str, found: list[str]):
    account = ServerInfo({"role": "master", "master_repl_offset": "1000", "slave0": replica}, {})

    assert codes(check_server(account)) == found


def test_a_full_script_cache_is_reported():
    assert codes(check_server(ServerInfo({"number_of_cached_scripts": "30"}))) == []
    assert codes(check_server(ServerInfo({"number_of_cached_scripts": "5000"}))) == ["script-cache-full"]
    alive = Liveness(0, 1, True, None, 0, 0, 0, 0, 0, has_script=False)
    assert codes(findings(LIVENESS, alive)) == ["scripts-differ"]
    assert codes(findings(LIVENESS, replace(alive, has_promoter=False))) == ["no-promoter"]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Latency(0.1, 3, 0.3, 4), []),
        (Latency(30, 60, 31, 40), ["latency-high"]),
        (Latency(1, 900, 2, 4), ["latency-stalls"]),
        (Latency(1, 3, 60, 70), ["scripts-slow"]),
    ],
)
def test_latency_is_judged(found: Latency, said: list[str]):
    assert codes(findings(SPEED, found)) == said


def clocks(*offsets_ms: float, trip_ms: float = 2) -> list[ClockReading]:
    return [
        ClockReading(1_800_000_000_000 + 100 * n + offset, 1_800_000_000_000 + 100 * n, 100 * n, trip_ms)
        for n, offset in enumerate(offsets_ms)
    ]


def test_clocks_are_judged():
    assert codes(check_clocks(clocks(3, -4, 0))) == []
    assert codes(check_clocks(clocks(900, 900))) == []
    assert codes(check_clocks(clocks(-1500, -1500))) == ["clock-offset"]
    assert codes(check_clocks(clocks(1500, 1500, trip_ms=4000))) == []  # it may be the trip
    assert codes(check_clocks(clocks(0, 800, 800))) == ["clock-jump"]
    assert codes(check_clocks(clocks(0, -3_600_000))) == ["clock-jump"]
    assert codes(check_clocks([])) == []


def test_a_missing_behavior_is_reported_with_what_was_found():
    found = [*probes_module.check_conformance(Conformance({"an empty list or set no longer exists": "zset"}, 0))]

    assert found[0].says == "this does not hold: an empty list or set no longer exists; the result is zset"
    assert found[0].level == "error"


# -- as real servers are


def test_a_clock_that_differs_from_this_machines_is_reported(
    mail: Queue, diagnosis: Examine, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(probes_module.read_clocks, "__defaults__", (lambda: time.time() - 7300, time.monotonic))

    assert diagnosis("mail")["clock-offset"].says == "Redis's clock is 2 h ahead of this machine's"


def test_every_behavior_that_the_engine_depends_on_is_found_here(mail: Queue, client: Any):
    with Queue("mail", redis=mail.address.label) as queue:
        found = queue._drive(probes_module.read_conformance(queue.settings))

    assert found == Conformance({}, 0)
    assert client.keys("*probe*") == []


def test_a_behavior_that_differs_is_found(mail: Queue, monkeypatch: pytest.MonkeyPatch):
    probes = {
        "lists can sing": ("return redis.call('TYPE', key).ok", "song"),
        "it raises": ("error('x')", ""),
    }
    monkeypatch.setattr(probes_module, "_PROBES", probes)

    found = mail._drive(probes_module.read_conformance(mail.settings))

    assert found.differing["lists can sing"] == "none"
    assert found.differing["it raises"].startswith("error: ")


def test_a_server_without_any_of_them_is_reported():
    with Server(maxmemory="300mb", maxmemory_policy="allkeys-lru") as server:
        with Queue("mail", redis=server.unix_url, allow_eviction=True) as queue:
            queue.enqueue(1)

        found = Found(examine(server.unix_url))

        assert found.codes >= {"eviction", "no-persistence"}
        assert found.report.queues == ["mail"]


def test_a_primary_and_its_replica():
    with (
        Server(appendonly=True, repl_diskless_sync_delay=0) as primary,
        Server() as replica,
        replica.client() as client,
        primary.client() as other,
    ):
        client.execute_command("REPLICAOF", "127.0.0.1", str(primary.port))
        until(lambda: other.info("replication").get("slave0", {}).get("state") == "online")
        until(lambda: client.info("replication")["master_link_status"] == "up")  # it may still load the data

        assert "replicas-not-required" in Found(examine(primary.unix_url)).notes
        found = Found(examine(replica.unix_url))

    assert found.codes & {"redis-refuses", "redis-unavailable"}
    assert "read-only replica" in found.report.findings[0].says


def test_a_server_that_is_down_is_a_finding():
    found = Found(examine("redis://127.0.0.1:1/0"))

    assert found["redis-unavailable"].level == "error"
    assert "127.0.0.1:1" in found["redis-unavailable"].says


def test_a_server_that_dies_meanwhile_is_a_finding(monkeypatch: pytest.MonkeyPatch):
    with Server() as server:
        with Queue("mail", redis=server.unix_url) as queue:
            queue.enqueue(1)
        monkeypatch.setattr("schedq.doctor.examination.probes.read_conformance", lambda _: killed(server))

        found = Found(examine(server.unix_url))

        assert "redis-unavailable" in found.codes
        assert "no-persistence" in found.codes


def killed(server: Server) -> Any:
    server.kill()
    yield [plain("PING")]
    raise AssertionError("it replied")


def test_a_user_with_few_permissions_gets_as_many_checks_as_possible(ward: Server, mail: Queue, client: Any):
    mail.enqueue(1)
    client.execute_command("ACL", "SETUSER", "weak", "reset", "on", ">weak", "~*", "&*", "-@all", "+ping", "+client")

    found = Found(examine(f"redis://weak:weak@127.0.0.1:{ward.port}", ["mail"]))

    assert found["not-permitted"].says.startswith("the Redis user may not use config|get, ")
    assert "weak:weak" not in str(found.report)


def test_a_wrong_password_is_a_finding(ward: Server):
    found = Found(examine(f"redis://nobody:secret@127.0.0.1:{ward.port}"))

    assert "rejects the user name or password" in found["redis-refuses"].says
    assert "secret" not in str(found.report)
