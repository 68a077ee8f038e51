"""Each test has its own database and an empty server, which the pytest plugin of schedq gives it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from orders import database
from orders.api import app
from orders.tasks import Bank, get_bank
from schedq.testing import override


@pytest.fixture(autouse=True)
def own_stores(schedq_tester: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty queue, and a database in a folder of the test."""
    monkeypatch.setenv(database.URL, f"sqlite:///{tmp_path}/orders.db")


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
