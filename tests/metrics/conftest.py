"""Workers that are watched."""

from __future__ import annotations

import pytest

from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.worker.conftest import crew, gate

__all__ = ["crew", "door", "gate", "queue"]


@pytest.fixture
def door() -> str:
    """What watches takes the queues of either door; tests here need one."""
    return "blocking"


@pytest.fixture
def queue(make_queue: MakeQueue) -> Handle:
    """A queue whose leases are long, so that a machine that stalls for seconds loses none."""
    return make_queue(visibility_ms=30_000)
