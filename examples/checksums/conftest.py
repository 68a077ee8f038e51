"""Each test starts with an empty server, which the pytest plugin of schedq gives it."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def own_server(schedq_tester: object) -> None:
    """An empty queue on virtual time."""
