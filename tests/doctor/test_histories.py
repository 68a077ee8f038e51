"""The histories of finished jobs: what is about to be deleted from them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from schedq import Discard, Queue
from tests.cli.scenes import claimed
from tests.doctor.conftest import Examine


@pytest.mark.parametrize(
    ("limit", "dropped_h", "level"),
    [
        (10, None, "warning"),
        (8, 30, "warning"),
        (8, 3, "error"),
        (11, None, ""),
        (11, 3, ""),
        (0, None, ""),
        (-1, 3, ""),
    ],
)
def test_failed_jobs_that_are_about_to_be_dropped_are_reported(
    mail: Queue, diagnosis: Examine, client: Any, limit: int, dropped_h: int | None, level: str
):
    client.hset("queue:mail:settings", "failed_history", limit)
    for _ in range(8):
        mail.enqueue(1)
        mail.fail(claimed(mail), Discard("no"))
    if dropped_h:
        at_ms = int(time.time() * 1000) - 3_600_000 * dropped_h
        client.hset("queue:mail:stats", mapping={"failed_dropped_total": 12, "failed_dropped_at_ms": at_ms})

    found = diagnosis()

    assert ("failed-nearly-full" in found.codes) == bool(level)
    if level:
        it = found["failed-nearly-full"]
        assert (it.level, it.value) == (level, 8)
        rest = "; 12 were deleted so far, the last one 3 h ago" if level == "error" else ""
        assert it.says == f"8 failed jobs are kept, {80 if limit == 10 else 100} % of failed_history{rest}"
        assert it.remedy.startswith("requeue or purge them: schedq requeue --failed --queue mail, ")
