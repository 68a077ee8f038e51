"""Everything schedq raises, grouped by what to do about it.

    SchedqError
    ├── UsageError (also a ValueError)   fix the call or the configuration
    │   ├── ArgumentsError (a TypeError)  the arguments do not match the task's function
    │   ├── ClosedError                  the queue was closed
    │   └── StepChanged                  the code of a workflow does not fit the record of a run
    ├── Conflict                         decide: what is stored contradicts what was asked
    ├── StoreUnavailable                 try later: Redis did not reply, or refused
    │   ├── QueueFull                    memory, or `max_pending`; nothing of the refused job is left behind
    │   └── NotAcknowledged              stored on the primary, but not confirmed by replicas or disk
    ├── StepFailed                       a step of a workflow has failed for good
    ├── RecordFull                       a run of a workflow has recorded as much as it may
    ├── JobFailed                        the awaited job failed permanently
    ├── JobCancelled                     the awaited job was cancelled
    ├── BatchFailed                      the awaited batch or chain failed: too many children did
    ├── BatchCancelled                   the awaited batch or chain was cancelled
    └── JobGone                          the awaited job was trimmed, purged, or never existed

A wait that times out raises the built-in `TimeoutError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class SchedqError(Exception):
    """The base class of all of schedq's own errors."""


class UsageError(SchedqError, ValueError):
    """The call or the configuration is wrong; the message names the value and says how to correct it."""


class ArgumentsError(UsageError, TypeError):
    """A task can't be called with these arguments; the message names the task, what is wrong and its signature."""


class ClosedError(UsageError):
    """The queue was closed before the call or, for an asyncio queue, while the call waited."""


class Conflict(SchedqError):  # noqa: N818 - a public name of the design
    """What is stored contradicts what was asked; the message names the key or the id."""


class RecordFull(SchedqError):  # noqa: N818 - a public name of the design
    """The record of a workflow's run has no room for one more outcome; the message says how much it keeps."""


class StoreUnavailable(SchedqError):  # noqa: N818 - a public name of the design
    """Redis did not reply in time, or rejects the request for now; the call may be repeated later.

    Attributes:
        job_ids: ids of the jobs that an enqueue may have stored, without confirmation. Enqueue them again with these
            ids (`job_id=`): a job that is already stored is not stored twice. Empty if the call was not an enqueue.
    """

    def __init__(self, message: str, job_ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.job_ids: tuple[str, ...] = tuple(job_ids)

    @property
    def job_id(self) -> str:
        """The id of the job to be enqueued; '' for any other call, or for several jobs."""
        return self.job_ids[0] if len(self.job_ids) == 1 else ""


class QueueFull(StoreUnavailable):
    """The queue accepts no more jobs: Redis's memory is full, or `max_pending` jobs are waiting.

    Attributes:
        stored: ids of an `enqueue_many` that were accepted before the queue was full; empty for one job.
    """

    def __init__(self, message: str, stored: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.stored: tuple[str, ...] = tuple(stored)


class NotAcknowledged(StoreUnavailable):
    """New jobs are stored on the primary, but replicas or the disk did not confirm them in time.

    They will run unless the primary is lost before it has replicated them. To have them confirmed, enqueue them again
    with the ids in `stored`: this stores nothing new, it only waits for the confirmation again.

    Attributes:
        stored: ids of the jobs that are stored.
    """

    def __init__(self, message: str, stored: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.stored: tuple[str, ...] = tuple(stored)


class StepChanged(UsageError):  # noqa: N818 - a public name of the design
    """An operation of a workflow is of another kind than in the record of the run: the code was changed.

    The record is kept. Run the job with code that fits, and requeue it if it has failed.
    """


class StepFailed(SchedqError):  # noqa: N818 - a public name of the design
    """A step of a workflow has failed for good; raised again in each later attempt of the run.

    Attributes:
        step: the step's name in the record.
        error: its last error, as stored.
    """

    def __init__(self, step: str, error: str) -> None:
        super().__init__(f"step {step}: {error}")
        self.step = step
        self.error = error

    def __reduce__(self) -> tuple[type[StepFailed], tuple[str, str]]:
        return type(self), (self.step, self.error)


class JobFailed(SchedqError):  # noqa: N818 - a public name of the design
    """The job failed permanently.

    Attributes:
        job_id: the job.
        error: its last error, as stored.
    """

    def __init__(self, job_id: str, error: str) -> None:
        super().__init__(f"job {job_id} failed: {error}")
        self.job_id = job_id
        self.error = error


class JobCancelled(SchedqError):  # noqa: N818 - a public name of the design
    """The job was cancelled, or expired before it began."""


class MapFailed(StepFailed):
    """More of the jobs of `ctx.map` have failed than it tolerates; raised again in each later attempt of the run.

    Attributes:
        batch_id: the batch of these jobs: `queue.batch(batch_id).failures()`.
        failed: how many of them failed.
        total: how many there are.
    """

    def __init__(self, step: str, error: str, batch_id: str, failed: int, total: int) -> None:
        super().__init__(step, error)
        self.batch_id = batch_id
        self.failed = failed
        self.total = total

    def __reduce__(self) -> tuple[type[MapFailed], tuple[Any, ...]]:
        return type(self), (self.step, self.error, self.batch_id, self.failed, self.total)


class BatchFailed(SchedqError):  # noqa: N818 - as JobFailed
    """A batch or a chain failed: more of its children did than it tolerates.

    Attributes:
        batch_id: its id.
        failed: how many of its children failed.
        total: how many children it has.
    """

    def __init__(self, batch_id: str, failed: int, total: int, error: str = "", *, is_chain: bool = False) -> None:
        what = "chain" if is_chain else "batch"
        super().__init__(f"{what} {batch_id} failed: {error or f'{failed} of {total} children failed'}")
        self.batch_id = batch_id
        self.failed = failed
        self.total = total


class BatchCancelled(SchedqError):  # noqa: N818 - as JobCancelled
    """The batch or chain was cancelled."""


class JobGone(SchedqError):  # noqa: N818 - a public name of the design
    """Nothing is stored under this id: the job was trimmed, purged, or never existed."""
