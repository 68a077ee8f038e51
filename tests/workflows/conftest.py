"""Workers that run workflows, and virtual time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from schedq import Fixed
from schedq.testing import QueueTester, queue_tester, replacement
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.worker.conftest import crew, gate, logs
from tests.worker.crew import renew_every
from tests.workflows.world import World

__all__ = ["crew", "door", "gate", "logs", "queue", "tester", "world"]


@pytest.fixture
def door() -> str:
    """A worker serves queues of either client; tests here need one."""
    return "blocking"


@pytest.fixture
def queue(make_queue: MakeQueue) -> Handle:
    """A queue whose retries follow at once, and whose leases outlast any pause of the machine."""
    found = make_queue(visibility_ms=30_000, backoff=Fixed(0))
    renew_every(1, found)
    return found


@pytest.fixture
def world() -> World:
    """What the steps of a test did."""
    return World()


@pytest.fixture
def tester(monkeypatch: pytest.MonkeyPatch) -> Iterator[QueueTester]:
    """The queues of this test on an empty server and in virtual time.

    Queues that other tests of this process have left are no part of it: their schedules would fire for a month.
    """
    monkeypatch.setattr(replacement, "known_queues", list)
    with queue_tester() as found:
        yield found
