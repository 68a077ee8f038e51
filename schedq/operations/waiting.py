"""Waiting for a job's end: how often to look, and what an end means to who waits."""

from __future__ import annotations

from typing import Any, Final

from schedq import lifecycle
from schedq.errors import JobCancelled, JobFailed, UsageError
from schedq.operations.views import Standing
from schedq.payload import UnreadablePayload, decode

POLL_S: Final = 1.0
"""Seconds between two looks while no message comes: messages may be lost."""


def milliseconds(value: object) -> int:
    """Return a `timeout_ms` if it is one.

    Raises:
        UsageError: no whole number of 0 to a day.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 86_400_000:
        raise UsageError(f"timeout_ms must be a whole number of 0 to 86,400,000, got {value!r}")
    return value


def event(text: str) -> dict[str, Any] | None:
    """What a message on the `events` channel says; None if it is another program's and says nothing to us."""
    try:
        found = decode(text)
    except UnreadablePayload:
        return None
    return found if isinstance(found, dict) else None


def ended(job_id: str, standing: Standing) -> Any:
    """The result of a job that stands so.

    Raises:
        JobFailed, JobCancelled: there is none.
        TimeoutError: it is not finished.
    """
    if standing.status == lifecycle.COMPLETED:
        try:
            return decode(standing.result) if standing.result else None
        except UnreadablePayload:
            return standing.result
    if standing.status == lifecycle.FAILED:
        raise JobFailed(job_id, standing.last_error)
    if standing.status == lifecycle.CANCELLED:
        raise JobCancelled(f"job {job_id} was cancelled")
    raise TimeoutError(f"job {job_id} is still {standing.status}")
