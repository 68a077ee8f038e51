"""Workers that are watched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.worker.crew import Crew, Gate


@pytest.fixture
def door() -> str:
    """What watches takes the queues of either door; tests here need one."""
    return "blocking"


@pytest.fixture
def queue(make_queue: MakeQueue) -> Handle:
    """A queue whose leases are long, so that a machine that stands still for seconds loses none."""
    return make_queue(visibility_ms=30_000)


@pytest.fixture
def gate() -> Iterator[Gate]:
    """Holds handlers until it is opened, at the end of the test at the latest."""
    gate = Gate()
    yield gate
    gate.open()


@pytest.fixture
def crew(make_queue: MakeQueue, gate: Gate) -> Iterator[Crew]:
    """Starts workers; after the test they leave, before the state of the queues is looked at."""
    crew = Crew()
    yield crew
    gate.open()
    crew.end()
