"""What a worker tells its observers: attempts, leases, progress. Watching changes nothing of what happens.

While nobody watches nothing is made and nobody called.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from schedq.aliases import name_now
from schedq.model.records import ClaimedJob

Outcome = Literal["completed", "retry", "failed", "snoozed", "released", "cancelled", "lost"]
"""How an attempt ends, in the words of a job's history; `lost`: its lease had become another's."""


@dataclass(frozen=True, slots=True, eq=False)
class AttemptFacts:
    """One attempt that a worker began. The same object is told at its start, around its handler and at its end.

    Attributes:
        queue: name of the queue.
        worker: id of the worker.
        task: name of the task, 'handler', or '' if nothing here can run the job.
        job: what was claimed; `attempts` is this attempt's number.
        lateness_ms: from when the job was due (or enqueued, if it never waited) to this claim, on Redis's clock. What
            an earlier attempt took that was lost or released is in it. None if its producer did not say when that was.
    """

    queue: str
    worker: str
    task: str
    job: ClaimedJob
    lateness_ms: int | None


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt ended, as this worker decided; Redis hears it a moment later.

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
    """How a worker serves one of its queues at this instant.

    Attributes:
        queue: its name.
        in_flight: attempts that the worker holds.
        lost_for_s: seconds for which its Redis has not answered; 0 while it does.
    """

    queue: str
    in_flight: int
    lost_for_s: float


class Observer:
    """Override what you want to hear. All but `around` is called on the worker's event loop and must not wait.

    What an observer raises is logged once and goes no further.
    """

    def worker_started(self, worker: str, queues: Sequence[str]) -> None:
        """The worker of this id is about to claim jobs of these queues."""

    def worker_stopping(self, worker: str) -> None:
        """It was told to stop: it claims no further jobs."""

    def worker_stopped(self, worker: str) -> None:
        """It has gone."""

    def attempt_started(self, attempt: AttemptFacts) -> None:
        """An attempt began."""

    def around(self, attempt: AttemptFacts) -> AbstractContextManager[object] | None:  # noqa: ARG002 - to be overridden
        """What the handler's call is done within, in the handler's own task or thread; None: nothing.

        Its exit sees what the handler raises, and can't swallow it. It is left only when the handler has really ended,
        for a plain one that overran its timeout after `attempt_ended`; and it is asked for a second time, on the loop,
        for a plain function that returned an awaitable.
        """
        return None

    def attempt_ended(self, attempt: AttemptFacts, end: AttemptEnd) -> None:
        """An attempt ended; once for each that was told to have started."""

    def lease_lost(self, queue: str, job_id: str) -> None:
        """What became of an attempt of this worker could not be told, for the job is another's."""

    def jobs_reclaimed(self, queue: str, job_ids: Sequence[str]) -> None:
        """The promoter in this process took back what another worker held for longer than its lease."""

    def claim_answered(self, queue: str, jobs: int, has_more: bool) -> None:  # noqa: FBT001 - a fact, not a switch
        """Redis answered a claim with this many jobs, and said whether more wait."""

    def claim_refused(self, queue: str, why: str) -> None:
        """Redis refused a claim; it is tried again every second."""

    def beat_answered(self, queue: str) -> None:
        """Redis answered a sign of life, one every 10 s."""

    def went_round(self, queue: str) -> None:
        """The queue's fetcher looked whether there is something to do."""


everywhere: Final[list[Observer]] = []
"""Those that watch every worker that this process makes from now on."""


def __getattr__(name: str) -> Any:
    if now := name_now(name):
        return globals()[now]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
