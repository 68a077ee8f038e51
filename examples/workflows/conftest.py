"""Each test starts with an empty server, on virtual time, and with a new shop."""

from __future__ import annotations

import pytest

from workflows import expenses, nightly, orders, signup


@pytest.fixture(autouse=True)
def own_stores(schedq_tester: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "shop", orders.Shop())
    for store in (expenses.asked, expenses.paid, signup.unsubscribed, signup.sent, nightly.done, nightly.broken):
        store.clear()
