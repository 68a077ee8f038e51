"""The fields of a job on lines of a log: `JobFields` puts them on an application's own lines.

    handler.addFilter(schedq.logs.JobFields())

Every line that is written while a handler runs then has `job_id`, `queue`, `task`, `attempt` and `worker`, for
whichever formatter the application uses. `schedq worker --log-format json` has that built in.
"""

from __future__ import annotations

import logging
from typing import Final

from schedq.escaping import harmless
from schedq.logger import log
from schedq.observer import AttemptEnd, AttemptFacts, Observer
from schedq.running import running_job

FIELDS: Final = ("job_id", "queue", "task", "attempt", "worker", "duration_s", "lateness_s", "outcome", "error")
"""What lines about an attempt carry as attributes of their record: `duration_s` and `lateness_s` are seconds."""


class JobFields(logging.Filter):
    """Lets every record pass, and gives it the fields of the job that the caller runs, if it runs one.

    For a handler of `logging`. What a record says itself, by `extra=`, stays.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add what is known."""
        job = running_job()
        if job is not None:
            known = {
                "job_id": harmless(job.id),  # another program may have made it
                "queue": job.queue,
                "task": harmless(job.task),
                "attempt": job.attempts,
                "worker": job.worker,
            }
            for name, value in known.items():
                record.__dict__.setdefault(name, value)
        return True


class AttemptLog(Observer):
    """A line of level debug at the start of every attempt, and one at its end; the fields say how long it took."""

    def attempt_started(self, attempt: AttemptFacts) -> None:
        """Say so."""
        log.debug(
            "job %s: %s started, attempt %d",
            attempt.job.id,
            attempt.task or "what nothing here can run",
            attempt.job.attempts,
            extra=_fields(attempt),
        )

    def attempt_ended(self, attempt: AttemptFacts, end: AttemptEnd) -> None:
        """Say how."""
        fields = _fields(attempt) | {"duration_s": round(end.duration_s, 6), "outcome": end.outcome}
        if end.error:
            fields["error"] = end.error
        task = attempt.task or "what nothing here can run"
        log.debug(
            "job %s: %s %s, attempt %d, %.3f s",
            attempt.job.id,
            task,
            end.outcome,
            attempt.job.attempts,
            end.duration_s,
            extra=fields,
        )


def _fields(attempt: AttemptFacts) -> dict[str, str | int | float]:
    fields: dict[str, str | int | float] = {
        "job_id": harmless(attempt.job.id),
        "queue": attempt.queue,
        "task": harmless(attempt.task),
        "attempt": attempt.job.attempts,
        "worker": attempt.worker,
    }
    if attempt.lateness_ms is not None:
        fields["lateness_s"] = attempt.lateness_ms / 1000
    return fields
