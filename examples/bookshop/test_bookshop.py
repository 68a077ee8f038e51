from datetime import timedelta

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from bookshop.tasks import queue, relay
from schedq import StoreUnavailable
from schedq.testing import QueueTester


def test_an_order_is_confirmed(client: TestClient, schedq_tester: QueueTester) -> None:
    order = client.post("/orders", json={"customer": "ada@example.org"}).json()
    assert client.get(f"/orders/{order['number']}").json()["status"] == "new"

    assert relay.send() == 2
    assert schedq_tester.run_due() == 1

    assert client.get(f"/orders/{order['number']}").json()["status"] == "confirmed"
    job = client.get(f"/jobs/{order['job']}").json()
    assert job == {"status": "completed", "result": "mail to ada@example.org: order 1 is confirmed"}


def test_the_customer_is_asked_after_two_weeks(client: TestClient, schedq_tester: QueueTester) -> None:
    client.post("/orders", json={"customer": "ada@example.org"})
    relay.send()

    assert schedq_tester.fast_forward(timedelta(days=13)) == 1
    assert schedq_tester.fast_forward(timedelta(days=2)) == 1


def test_a_failed_attempt_is_rolled_back_and_repeated(
    client: TestClient, schedq_tester: QueueTester, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = client.post("/orders", json={"customer": "ada@example.org"}).json()["number"]
    relay.send()

    with monkeypatch.context() as broken:
        broken.setattr(Session, "commit", lambda self: self.connection().exec_driver_sql("no SQL"))
        schedq_tester.run_due()
    assert client.get(f"/orders/{number}").json()["status"] == "new"

    schedq_tester.fast_forward(timedelta(minutes=5))
    assert client.get(f"/orders/{number}").json()["status"] == "confirmed"


def test_a_catalog_is_sent(client: TestClient, schedq_tester: QueueTester) -> None:
    job = queue.job(client.post("/catalogs", json={"customer": "ada@example.org"}).json()["job"])
    schedq_tester.run_due()
    assert job.result(timeout=0) == "catalog sent to ada@example.org"


def test_orders_are_taken_while_redis_is_unavailable(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(address: str) -> None:
        raise StoreUnavailable(f"no Redis for {address}")

    monkeypatch.setattr("bookshop.api.send_catalog.aenqueue", away)

    assert client.post("/orders", json={"customer": "ada@example.org"}).status_code == 202
    response = client.post("/catalogs", json={"customer": "ada@example.org"})
    assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
