"""Orders from the request to the confirmation: transactions, retries, and the headers that go with the jobs."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from decimal import Decimal

import pytest
from fastapi.testclient import TestClient

from orders import context
from orders.tasks import Bank, charge, confirm, queue
from schedq import UsageError
from schedq.testing import QueueTester, run_due


def take(client: TestClient, customer: str = "ada@example.org", **headers: str) -> int:
    response = client.post("/orders", json={"customer": customer, "amount": "19.90"}, headers=headers)
    assert response.status_code == 202, response.text
    return int(response.json()["number"])


def test_an_order_is_charged_and_confirmed(client: TestClient, bank: Bank) -> None:
    number = take(client)
    assert client.get(f"/orders/{number}").json()["status"] == "new"

    run_due(queue)

    assert client.get(f"/orders/{number}").json()["status"] == "confirmed"
    assert bank.charged == {f"order-{number}": Decimal("19.90")}
    assert queue.job(f"confirm-{number}").result(timeout=5) == "mail to ada@example.org: 19.90 charged"


def test_what_a_failed_attempt_wrote_is_rolled_back(client: TestClient, bank: Bank) -> None:
    number = take(client, "slow@example.org")

    assert run_due(queue) == 1  # the bank does not reply, and the job waits for its retry

    assert client.get(f"/orders/{number}").json()["status"] == "new"
    assert queue.job(f"charge-{number}").status() == "delayed"


def test_a_repeated_charge_takes_the_money_once(client: TestClient, bank: Bank, schedq_tester: QueueTester) -> None:
    number = take(client, "slow@example.org")

    schedq_tester.fast_forward()

    assert client.get(f"/orders/{number}").json()["status"] == "confirmed"
    assert list(bank.charged) == [f"order-{number}"]


def test_an_order_that_the_bank_declines_is_not_retried(client: TestClient, bank: Bank) -> None:
    number = take(client, "broke@example.org")

    run_due(queue)

    order = client.get(f"/orders/{number}").json()
    assert (order["status"], order["note"]) == ("declined", "broke@example.org has no money")
    record = queue.get_job(f"charge-{number}")
    assert record is not None
    assert (record.status, record.attempts) == ("failed", 1)


def test_the_request_id_and_the_tenant_go_with_every_job(
    client: TestClient, bank: Bank, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.addFilter(context.Context())
    with caplog.at_level(logging.INFO, "orders"):
        number = take(client, **{"X-Request-ID": "demo-1"})
        run_due(queue)

    for job_id in (f"charge-{number}", f"confirm-{number}"):
        record = queue.get_job(job_id)
        assert record is not None
        assert record.headers == {"tenant": "acme", "request_id": "demo-1"}
    (line,) = [line for line in caplog.records if line.name == "orders"]
    assert (line.getMessage(), vars(line)["request_id"]) == (f"order {number} is charged", "demo-1")


def test_the_order_of_another_tenant_is_not_found(client: TestClient, bank: Bank) -> None:
    number = take(client)

    assert client.get(f"/orders/{number}", headers={"X-Tenant": "other"}).status_code == 404
    with context.working_for("other", "demo-2"):
        job = confirm.enqueue(number)
    run_due(queue)

    record = job.record()
    assert record is not None
    assert (record.status, record.last_error) == ("failed", f"NoSuchOrderError: tenant other has no order {number}")


def test_a_job_without_a_tenant_is_refused_where_it_is_enqueued(client: TestClient) -> None:
    with pytest.raises(UsageError, match="needs a tenant"):
        charge.enqueue(1)

    assert queue.stats()["enqueued_total"] == 0


def test_a_request_without_a_tenant_or_with_a_wrong_amount_is_refused(client: TestClient) -> None:
    assert client.post("/orders", json={"customer": "ada", "amount": "-1"}).status_code == 422
    no_tenant = client.post("/orders", json={"customer": "ada", "amount": "1"}, headers={"X-Tenant": ""})
    assert no_tenant.status_code == 422


def test_a_real_worker_opens_the_database_and_leaves_it(client: TestClient) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-m", "schedq", "worker", "orders.tasks:queue"], stderr=subprocess.PIPE, text=True
    )
    number = take(client)
    deadline = time.monotonic() + 60
    while client.get(f"/orders/{number}").json()["status"] != "confirmed" and time.monotonic() < deadline:
        time.sleep(0.05)
    worker.terminate()
    _, said = worker.communicate(timeout=60)

    assert client.get(f"/orders/{number}").json()["status"] == "confirmed", said
    assert worker.returncode == 0, said
