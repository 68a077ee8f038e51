"""The tests use their own Redis and database, and each test starts with an empty queue."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

# Before the application is imported: a queue without redis= reads it when it is made.
os.environ["SCHEDQ_REDIS_URL"] = f"embedded://.pytest-redis-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"

from orders import database
from orders.api import app
from orders.tasks import Bank, get_bank, queue
from schedq.testing import override


@pytest.fixture(autouse=True)
def own_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty queue, and a database in a folder of the test."""
    monkeypatch.setenv(database.URL, f"sqlite:///{tmp_path}/orders.db")
    queue.purge()


@pytest.fixture
def client() -> Iterator[TestClient]:
    """The web application."""
    with TestClient(app, headers={"X-Tenant": "acme"}) as client:
        yield client


@pytest.fixture
def bank() -> Iterator[Bank]:
    """The bank that tasks get."""
    bank = Bank()
    with override(get_bank, lambda: bank):
        yield bank
