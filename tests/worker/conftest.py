"""Workers and their logs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.worker.crew import Crew, Gate
from tests.worker.layers import Trail

Logs = Callable[[], list[str]]


@pytest.fixture
def door() -> str:
    """A worker serves queues of either client; the tests here need only one."""
    return "blocking"


@pytest.fixture
def queue(make_queue: MakeQueue) -> Handle:
    """A queue with short leases and immediate retries."""
    return make_queue(visibility_ms=3000)


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Holds handlers until it is opened, at the latest at the end of the test."""
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def crew(make_queue: MakeQueue, gate: Gate) -> Iterator[Crew]:
    """Starts workers; they are stopped after the test, before the state of the queues is checked."""
    crew = Crew()
    yield crew
    gate.open()
    crew.end()


@pytest.fixture
def trail() -> Trail:
    """Middleware that records what it sees."""
    return Trail()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that was asked to end may keep running for a twentieth of the usual time."""
    monkeypatch.setattr("schedq.worker.stuck._FIRST_WAIT_S", 0.05)
    monkeypatch.setattr("schedq.worker.worker._LEAST_PATIENCE_S", 0.1)
    monkeypatch.setattr("schedq.worker.executor._THREAD_PATIENCE_S", 0.1)
    monkeypatch.setattr("schedq.worker.wrapped_call._AFTER_TIMEOUT_S", 0.2)


@pytest.fixture
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Promoters check once in half a minute, so anything earlier was a notification."""
    monkeypatch.setattr("schedq.background.promoter._LONGEST_SLEEP_S", 30)


@pytest.fixture
def logs(caplog: pytest.LogCaptureFixture) -> Logs:
    """What schedq has logged so far, from level info on: `LEVEL sentence`."""
    caplog.set_level(logging.INFO, logger="schedq")

    def read() -> list[str]:
        return [f"{entry.levelname} {entry.getMessage()}" for entry in caplog.records if entry.name == "schedq"]

    return read
