"""What the tests of workflows share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from schedq.testing import QueueTester, queue_tester, replacement


@pytest.fixture
def tester(monkeypatch: pytest.MonkeyPatch) -> Iterator[QueueTester]:
    """The queues of this test on an empty server and in virtual time.

    Queues that other tests of this process have left are no part of it: their schedules would fire for a month.
    """
    monkeypatch.setattr(replacement, "known_queues", list)
    with queue_tester() as found:
        yield found
