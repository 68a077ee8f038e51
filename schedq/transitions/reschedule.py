"""Change when a delayed job is due."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from schedq.errors import UsageError
from schedq.model.expiry import ExpiryError
from schedq.model.ids import new_request
from schedq.model.keys import checked_id
from schedq.model.settings import Settings
from schedq.transitions import Binding, Operation
from schedq.transitions.enqueue import when

_RESCHEDULE: Final = Binding("reschedule", "request", "id", "mode", "ms")


def one_time(delay: object, run_at: object) -> tuple[str, int]:
    """Like `enqueue.when`, but one of the two must be given.

    Raises:
        UsageError: neither or both are given, or one is invalid.
    """
    if delay is None and run_at is None:
        raise UsageError("give delay or run_at; to run the job now, use run_now")
    return when(delay, run_at)


def reschedule(queue: Settings, job_id: str, mode: str, ms: int) -> Operation[bool]:
    """Change when a delayed job is due: `mode` and `ms` as `enqueue.when` returns them.

    The reply is an ExpiryError if the job would expire before it is due.
    """
    return Operation(
        "reschedule",
        *_RESCHEDULE(queue, request=new_request(), id=checked_id(job_id), mode=mode, ms=ms),
        lambda reply: _is_moved(job_id, reply),
    )


def _is_moved(job_id: str, reply: str) -> bool:
    if not reply.startswith("expires"):
        return reply == "yes"
    expiry, due = (datetime.fromtimestamp(int(ms) / 1000, UTC).isoformat() for ms in reply.split()[1:])
    raise ExpiryError(
        f"job {job_id} must begin before {expiry}, when it expires, so it can't be due at {due}: choose an earlier "
        f"time, or cancel it and enqueue it with a later expires"
    )


def to_time(queue: Settings, job_id: str, delay: object, run_at: object) -> Operation[bool]:
    """Change when a delayed job is due to one of `delay` and `run_at`.

    Raises:
        UsageError: as `one_time`.
    """
    return reschedule(queue, job_id, *one_time(delay, run_at))


def to_now(queue: Settings, job_id: str) -> Operation[bool]:
    """Make a delayed job due now, next in line."""
    return reschedule(queue, job_id, "in", 0)
