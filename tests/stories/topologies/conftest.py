"""Queues on several servers, with workers and producers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from schedq import Queue
from tests.stories.topologies.load import Load
from tests.worker.crew import Crew, Gate

MakeLoad = Callable[..., Load]
Logs = Callable[[], list[str]]


@pytest.fixture
def open_queue() -> Iterator[Callable[..., Queue]]:
    """Opens blocking queues, which are closed after the test."""
    with ExitStack() as stack:
        yield lambda name, url, **settings: stack.enter_context(Queue(name, redis=url, **settings))


@pytest.fixture
def make_load(open_queue: Callable[..., Queue]) -> Iterator[MakeLoad]:
    """Creates queues with jobs to run; producers are stopped after the test."""
    made: list[Load] = []

    def make(name: str, url: str, **settings: Any) -> Load:
        made.append(Load(open_queue(name, url, **settings)))
        return made[-1]

    yield make
    for load in made:
        load.stop()


@pytest.fixture
def crew(make_load: MakeLoad, request: pytest.FixtureRequest) -> Iterator[Crew]:
    """Starts workers, which stop after the test, before the laws are checked."""
    if "make_queue" in request.fixturenames:
        request.getfixturevalue("make_queue")
    crew = Crew()
    yield crew
    crew.end()


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Holds handlers; opened after the test, before the workers stop."""
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def logs(caplog: pytest.LogCaptureFixture) -> Logs:
    """What schedq has logged so far, from level info on: `LEVEL sentence`."""
    caplog.set_level(logging.INFO, logger="schedq")
    return lambda: [f"{entry.levelname} {entry.getMessage()}" for entry in caplog.records if entry.name == "schedq"]
