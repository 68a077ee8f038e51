"""Writes the seconds between the start of the server and the end of the last test to the file TOOK."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedq.testing import QueueTester
from scripts.tools.kit.shop import sent


@pytest.fixture(scope="session", autouse=True)
def took(schedq_server: str) -> Iterator[str]:
    """The URL of the server, which runs."""
    began = time.perf_counter()
    yield schedq_server
    Path(os.environ["TOOK"]).write_text(str(time.perf_counter() - began))


@pytest.fixture(autouse=True)
def mails(schedq_tester: QueueTester) -> list[str]:
    """What the application has sent."""
    sent.clear()
    return sent
