"""The tests use their own server, and each test starts with an empty queue."""

from __future__ import annotations

import os

import pytest

# Before the application is imported: a queue without redis= reads it when it is made.
os.environ["SCHEDQ_REDIS_URL"] = f"embedded://.pytest-redis-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"

from mandelbrot.tasks import queue


@pytest.fixture(autouse=True)
def empty_queue() -> None:
    """Delete the jobs of the test before."""
    queue.purge()
