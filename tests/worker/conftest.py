"""Workers and their logs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from schedq.isolation.settings import IsolationSettings
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.proxy import Proxy
from tests.servers import Server
from tests.worker import isolated_app
from tests.worker.crew import Crew, Gate, renew_every
from tests.worker.layers import Trail
from tests.worker.processes import Start

Logs = Callable[[], list[str]]


@pytest.fixture
def door() -> str:
    """A worker serves queues of either client; the tests here need only one."""
    return "blocking"


@pytest.fixture
def queue(make_queue: MakeQueue) -> Handle:
    """A queue whose leases outlast any pause of the machine, although workers renew them every second."""
    queue = make_queue(visibility_ms=30_000)
    renew_every(1, queue)
    return queue


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Holds handlers until it is opened, at the latest at the end of the test."""
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A proxy between a queue and its server."""
    with Proxy(server) as proxy:
        yield proxy


@pytest.fixture
def crew(make_queue: MakeQueue, gate: Gate) -> Iterator[Crew]:
    """Starts workers; they are stopped after the test, before the state of the queues is checked."""
    crew = Crew()
    yield crew
    gate.open()
    crew.end()


@pytest.fixture
def spare(make_queue: MakeQueue) -> Handle:
    """A queue without jobs. A worker that has it, too, sends no claim behind its wait."""
    queue = make_queue()
    queue.task(name="never")(lambda: None)
    return queue


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
    monkeypatch.setattr("schedq.worker.wrapped_call.HOOKS_S", 0.2)


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


@pytest.fixture
def start(queue: Handle, crew: Crew) -> Start:
    """Starts a worker of the isolated tasks; returns it and the tasks."""

    def started(*, middleware: bool = False, concurrency: int = 2, **options: Any) -> Any:
        names = {"kill_after", "jobs_per_child", "memory_limit"} & options.keys()
        settings = {name: options.pop(name) for name in names}
        tasks = isolated_app.define(queue.queue, middleware=middleware)
        load = partial(isolated_app.load, queue.name, queue.server.unix_url, middleware)
        isolation = IsolationSettings(load=load, **settings)
        post = crew.start(queue, concurrency=concurrency, isolation=isolation, **options)
        return post, tasks

    return started
