"""Each test starts with an empty server, on virtual time, and with a new shop."""

from __future__ import annotations

import pytest

from workflows import expenses, ladder, nightly, orders, signup


@pytest.fixture(autouse=True)
def own_stores(schedq_tester: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "shop", orders.Shop())
    stores = (expenses.asked, expenses.paid, signup.unsubscribed, signup.sent, nightly.done, nightly.broken)
    for store in (*stores, ladder.without_gpu, ladder.ran):
        store.clear()
