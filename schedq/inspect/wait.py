"""Waiting for a job's end: how often to look, the caller's result, and why nothing may be stored about a job."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Final

from schedq.errors import JobCancelled, JobFailed, JobGone, SchedqError
from schedq.inspect.stats import JobStatus
from schedq.model import lifecycle
from schedq.model.checks import whole_number
from schedq.model.ids import made_at_ms
from schedq.model.payload import UnreadablePayload, decode
from schedq.model.records import whole
from schedq.model.settings import HIGH_MEMORY_HISTORY, Settings
from schedq.model.times import wall_ns
from schedq.transitions import Operation, Pipeline, pairs
from schedq.transitions.announce import read_settings

POLL_S: Final = 1.0
"""Seconds between two polls while no message arrives, because messages may be lost."""
_MOMENT_S: Final = 5
"""Tolerance for a producer's clock, in seconds."""


def milliseconds(value: object) -> int:
    """Return a `timeout_ms` if it is valid.

    Raises:
        UsageError: it is not a whole number from 0 to a day.
    """
    return whole_number("timeout_ms", value, 0, 86_400_000)


def event(text: str) -> dict[str, Any] | None:
    """The content of a message on the `events` channel; None if another program wrote something else there."""
    try:
        found = decode(text)
    except UnreadablePayload:
        return None
    return found if isinstance(found, dict) else None


def ended(job_id: str, job: JobStatus) -> Any:
    """The result of a job.

    Raises:
        JobFailed, JobCancelled: there is none.
        TimeoutError: the job has not finished.
    """
    if job.status == lifecycle.COMPLETED:
        try:
            return decode(job.result) if job.result else None
        except UnreadablePayload:
            return job.result
    if job.status == lifecycle.FAILED:
        raise JobFailed(job_id, job.last_error)
    if job.status == lifecycle.CANCELLED:
        why = f": it {job.cancel_reason}" if job.cancel_reason else ""
        raise JobCancelled(f"job {job_id} was cancelled{why}")
    raise TimeoutError(f"job {job_id} is still {job.status}")


def absent(queue: Settings, job_id: str) -> Generator[Pipeline, Any, JobGone]:
    """The error if nothing is stored about a job; it names the setting that keeps results for longer."""
    (error,) = yield from all_absent(queue, [job_id])
    return error


def all_absent(queue: Settings, job_ids: Sequence[str]) -> Generator[Pipeline, Any, list[JobGone]]:
    """`absent` for each of several jobs, in one round trip."""
    key = queue.keys.stats
    totals, stored = yield [Operation(f"read {key}", None, (), ("HGETALL", key), pairs), read_settings(queue)]
    facts: dict[str, str] = {} if isinstance(totals, SchedqError) else totals
    settings = queue if isinstance(stored, SchedqError) else queue.with_fields(stored)
    trimmed, memory_high_at_ms = whole(facts.get("trimmed_total")), whole(facts.get("memory_high_at_ms"))
    has_own_ttls = "own_ttls" in facts
    return [
        _gone(queue.name, job_id, _reasons(settings, job_id, trimmed, memory_high_at_ms, has_own_ttls=has_own_ttls))
        for job_id in job_ids
    ]


def _gone(queue_name: str, job_id: str, reasons: Sequence[str]) -> JobGone:
    first = f"nothing is stored about job {job_id} in queue {queue_name}: trimmed, purged, or never there"
    return JobGone("; ".join([first, *reasons]))


def _reasons(settings: Settings, job_id: str, trimmed: int, memory_high_at_ms: int, *, has_own_ttls: bool) -> list[str]:
    made = made_at_ms(job_id)
    age_s = None if made is None else wall_ns() / 1e9 - made / 1000
    may_be_expired = age_s is None or age_s > settings.completed_ttl - _MOMENT_S
    reasons = []
    if settings.completed_history == 0 or settings.completed_ttl == 0:
        name = "completed_history" if settings.completed_history == 0 else "completed_ttl"
        reasons.append(f"this queue keeps no results ({name}=0): raise {name} to keep them")
    if trimmed:
        limit = "" if settings.completed_history < 0 else f"={settings.completed_history}"
        reasons.append(
            f"completed_history{limit} has deleted {trimmed:,} results of this queue early: raise it to keep more"
        )
        is_less_kept = not 0 <= settings.completed_history <= HIGH_MEMORY_HISTORY
        if is_less_kept and memory_high_at_ms and (made is None or memory_high_at_ms >= made):
            reasons[-1] += (
                f", and maxmemory: while Redis uses over 80 % of it, only {HIGH_MEMORY_HISTORY:,} results are kept"
            )
    if may_be_expired and settings.completed_ttl:
        reasons.append(
            f"results expire after completed_ttl={settings.completed_ttl:g} seconds: raise it to keep them longer"
        )
    if has_own_ttls:
        reasons.append("jobs or tasks of this queue have a completed_ttl or failed_ttl of their own")
    return reasons
