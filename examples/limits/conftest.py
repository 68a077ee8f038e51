"""Each test starts with an empty server and on virtual time."""

from __future__ import annotations

import pytest

from limits import imports, search


@pytest.fixture(autouse=True)
def own_server(schedq_tester: object) -> None:
    """Empty queues, and empty stores."""
    imports.ledger.clear()
    search.index.clear()
