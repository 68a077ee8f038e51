"""What the doctor says of batches."""

from __future__ import annotations

from typing import Any

from schedq import Queue
from tests.doctor.conftest import Examine


def test_the_keys_of_a_batch_are_no_queue(mail: Queue, diagnosis: Examine, client: Any) -> None:
    """One of them ends as a list of failed jobs does."""
    mail.enqueue(1)
    client.lpush("queue:mail:group:b:failed", "0 0 no")

    assert "name-invalid" not in diagnosis().codes


def test_a_queue_of_that_name_is_named_otherwise(mail: Queue, diagnosis: Examine, client: Any) -> None:
    client.lpush("queue:no name:failed", "1")

    assert diagnosis()["name-invalid"].examples == ("no name",)
