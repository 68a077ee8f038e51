"""A server on which nothing is wrong, and what the doctor finds there once a test has done its damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import redis

from schedq import Queue
from schedq.doctor.checks import Finding
from schedq.doctor.examination import Report, examine
from tests.servers import Server
from tests.waiting import until
from tests.worker.conftest import crew, gate
from tests.worker.crew import Crew, beat_every

__all__ = ["crew", "gate"]

BY_THE_MACHINE = {"clock-jump", "clock-offset", "latency-high", "latency-stalls", "scripts-slow", "version-known-bad"}
"""What a machine or a server of the tests may have for reasons of its own."""


@dataclass(frozen=True)
class Found:
    """What an examination found."""

    report: Report

    @property
    def codes(self) -> set[str]:
        """The findings that want something done, whatever the machine is like."""
        return {found.code for found in self.report.findings if found.level != "note"} - BY_THE_MACHINE

    @property
    def notes(self) -> set[str]:
        """Those that want nothing."""
        return {found.code for found in self.report.findings if found.level == "note"}

    def __getitem__(self, code: str) -> Finding:
        """The one finding of a kind."""
        (found,) = (found for found in self.report.findings if found.code == code)
        return found


Examine = Callable[..., Found]


@pytest.fixture(scope="session")
def ward() -> Iterator[Server]:
    """A server as the README wants it; its queues are those of one test."""
    with Server(appendonly=True, maxmemory="1gb", maxmemory_policy="noeviction") as server:
        yield server


@pytest.fixture
def client(ward: Server) -> Iterator[redis.Redis]:
    """A plain client of that server, which is empty."""
    with ward.client() as client:
        client.flushall()
        client.config_resetstat()
        yield client


@pytest.fixture
def mail(ward: Server, client: Any) -> Iterator[Queue]:
    """A queue."""
    with Queue("mail", redis=ward.unix_url) as queue:
        yield queue


@pytest.fixture
def keys(mail: Queue) -> Any:
    """Its keys."""
    return mail.settings.keys


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process takes over in these tests, so do not wait for one."""
    monkeypatch.setattr("schedq.doctor.examination._HANDOVER_S", 0)
    monkeypatch.setattr("schedq.doctor.examination._AGAIN_S", 0)


@pytest.fixture
def diagnosis(ward: Server, client: Any) -> Examine:
    """Examines that server."""

    def diagnosis(*names: str, **options: Any) -> Found:
        return Found(examine(ward.unix_url, names, **options))

    return diagnosis


@pytest.fixture
def tended(mail: Queue, keys: Any, client: Any, crew: Crew, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """The queue with a worker at it, that has taken up its work."""
    # The promoter stays one if its thread pauses, and what a test writes about the worker stays until it is examined.
    monkeypatch.setattr("schedq.transitions.promote.PROMOTER_LEASE_MS", 60_000)
    beat_every(20, monkeypatch)

    @mail.handler
    def handle(payload: Any) -> None:
        if payload == "fail":
            raise ValueError(payload)

    crew.start(_Holder(mail), concurrency=2)
    until(lambda: mail.stats()["workers"] and client.exists(keys.promoter, keys.settings) == 2, within=60)
    return mail


@dataclass
class _Holder:
    queue: Queue
