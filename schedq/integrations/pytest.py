"""The plugin of pytest. It imports nothing of schedq but the lazy package itself until a test uses a fixture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # pytest loads the plugin in every project of the environment
    from schedq.queue.queue import Queue
    from schedq.testing import EagerQueues, QueueTester


@pytest.fixture(scope="session")
def schedq_server() -> Iterator[str]:
    """The URL of an embedded server for the tests of this process, in a temporary folder."""
    from schedq.testing.server import running_server

    with running_server() as url:
        yield url


@pytest.fixture
def schedq_tester(schedq_server: str) -> Iterator[QueueTester]:
    """All queues of the process on the empty server and on virtual time; it runs jobs and knows what was enqueued."""
    from schedq.testing import queue_tester

    with queue_tester(schedq_server) as tester:
        yield tester


@pytest.fixture
def schedq_queue(schedq_tester: QueueTester) -> Iterator[Queue]:  # noqa: ARG001 - it replaces the server
    """A queue on virtual time for tasks that the test defines itself."""
    from schedq.queue.queue import Queue

    with Queue("test") as queue:
        yield queue


@pytest.fixture
def schedq_eager() -> Iterator[EagerQueues]:
    """All queues of the process without a server: a job runs when it is enqueued, before `enqueue` returns."""
    from schedq.testing import eager

    with eager() as queues:
        yield queues
