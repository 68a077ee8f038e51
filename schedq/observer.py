"""What a worker reports to its observers: attempts, leases, progress. Observers can't change what happens.

Without observers, no report is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from schedq.aliases import name_now
from schedq.model.records import ClaimedJob

Outcome = Literal["completed", "retry", "failed", "snoozed", "released", "suspended", "cancelled", "lost"]
"""How an attempt ends, in the words of a job's history.

`lost`: another worker had taken over the job. `suspended`: a workflow waits, and continues in another attempt.
"""


@dataclass(frozen=True, slots=True, eq=False)
class AttemptFacts:
    """One attempt that a worker began. Observers and middleware receive the same object at each of its stages.

    Attributes:
        queue: name of the queue.
        worker: id of the worker.
        task: name of the task, 'handler', or '' if nothing here can run the job.
        job: what was claimed; `attempts` is this attempt's number.
        lateness_ms: time from when the job was due (or enqueued, if it was not delayed) to this claim, on Redis's
            clock. Includes the time of earlier attempts that were lost or released. None if its producer did not store
            that time.
    """

    queue: str
    worker: str
    task: str
    job: ClaimedJob
    lateness_ms: int | None


def attempt_facts(queue: str, worker: str, task: str, job: ClaimedJob) -> AttemptFacts:
    """Return the facts of an attempt that begins."""
    due_at_ms = job.run_at_ms or job.enqueued_at_ms
    lateness_ms = max(0, job.claimed_at_ms - due_at_ms) if due_at_ms else None
    return AttemptFacts(queue, worker, task, job, lateness_ms)


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt ended, as this worker decided; it is written to Redis a moment later.

    Attributes:
        outcome: in one word.
        duration_s: seconds since it began, on this process's monotonic clock.
        error: in brief, or ''.
        delay_ms: until the job is due again, for retry and snoozed.
        exception: what the handler raised, for retry, failed, snoozed and cancelled; None if it raised nothing. It
            holds the handler's frames with their variables: an observer that keeps it keeps them.
    """

    outcome: Outcome
    duration_s: float
    error: str = ""
    delay_ms: int = 0
    exception: BaseException | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class QueueHealth:
    """How a worker is serving one of its queues right now.

    Attributes:
        queue: its name.
        in_flight: attempts that the worker is responsible for.
        lost_for_s: seconds since its Redis stopped responding; 0 while it responds.
    """

    queue: str
    in_flight: int
    lost_for_s: float


class Observer:
    """Gets notified of what a worker does. Override the methods that you need.

    All except `around` run on the worker's event loop and must not block.
    An exception that an observer raises is logged once and not propagated.
    """

    def worker_started(self, worker: str, queues: Sequence[str]) -> None:
        """The worker of this id is about to claim jobs of these queues."""

    def worker_stopping(self, worker: str) -> None:
        """The worker was asked to stop; it claims no further jobs."""

    def worker_stopped(self, worker: str) -> None:
        """The worker has exited."""

    def attempt_started(self, attempt: AttemptFacts) -> None:
        """An attempt has begun."""

    def around(self, attempt: AttemptFacts) -> AbstractContextManager[object] | None:  # noqa: ARG002 - to be overridden
        """Return a context manager to wrap the handler's call, in the handler's own task or thread, or None.

        Its `__exit__` sees what the handler raises but can't suppress it. It exits only when the handler has really
        ended: for a plain handler that overran its timeout, that is after `attempt_ended`. For a plain function that
        returned an awaitable, `around` is called a second time, on the loop.
        """
        return None

    def attempt_ended(self, attempt: AttemptFacts, end: AttemptEnd) -> None:
        """An attempt has ended; called once for each reported start."""

    def lease_lost(self, queue: str, job_id: str) -> None:
        """The result of an attempt was discarded because another worker has taken over the job."""

    def jobs_reclaimed(self, queue: str, job_ids: Sequence[str]) -> None:
        """The promoter in this process reclaimed jobs whose leases had expired."""

    def claim_answered(self, queue: str, jobs: int, has_more: bool) -> None:  # noqa: FBT001 - a fact, not a switch
        """A claim returned this many jobs, and whether more are waiting."""

    def claim_refused(self, queue: str, why: str) -> None:
        """Redis refused a claim; the worker retries every second."""

    def beat_answered(self, queue: str) -> None:
        """Redis accepted a heartbeat. One is sent every 10 s."""

    def went_round(self, queue: str) -> None:
        """The queue's fetcher checked for work."""


everywhere: Final[list[Observer]] = []
"""The observers of every worker that this process creates from now on."""


def __getattr__(name: str) -> Any:
    if now := name_now(name):
        return globals()[now]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
