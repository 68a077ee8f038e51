"""Everything schedq raises, grouped by who must act.

    SchedqError
    ├── UsageError (also a ValueError)   fix the call or the configuration
    │   ├── ArgumentsError (a TypeError)  the arguments are not those of the task's function
    │   └── ClosedError                  the queue was closed
    ├── Conflict                         decide: what is stored contradicts what was asked
    ├── StoreUnavailable                 try later: Redis did not answer, or not usefully
    │   ├── QueueFull                    memory, or `max_pending`; nothing of the refused job is left behind
    │   └── NotAcknowledged              stored on the primary, not known to be as sure as was asked for
    ├── JobFailed                        the job awaited has failed for good
    ├── JobCancelled                     the job awaited was cancelled
    └── JobGone                          the job awaited was trimmed, purged, or never there

A wait that runs out raises the built-in `TimeoutError`.
"""

from __future__ import annotations

from collections.abc import Sequence


class SchedqError(Exception):
    """The root of the tree; catch it to catch all of schedq's own errors."""


class UsageError(SchedqError, ValueError):
    """The call or the configuration is wrong; the message names the value and the way out."""


class ArgumentsError(UsageError, TypeError):
    """A task can't be called with these arguments; the message names the task, what is wrong and its signature."""


class ClosedError(UsageError):
    """The queue was closed: a blocking one before the call, an asyncio one, or its event loop, while it waited."""


class Conflict(SchedqError):  # noqa: N818 - a public name of the design
    """What is stored contradicts what was asked; the message names the key or the id."""


class StoreUnavailable(SchedqError):  # noqa: N818 - a public name of the design
    """Redis did not answer in time, or refuses to serve; the call may be repeated later.

    Attributes:
        job_ids: ids of the jobs of an enqueue that may be stored, and are not known to be. Enqueue them again with
            these ids (`job_id=`): one that is stored already is not stored twice. Empty if the call was no enqueue.
    """

    def __init__(self, message: str, job_ids: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.job_ids: tuple[str, ...] = tuple(job_ids)

    @property
    def job_id(self) -> str:
        """The id of the one job that was to be enqueued; '' if the call was another one, or about several."""
        return self.job_ids[0] if len(self.job_ids) == 1 else ""


class QueueFull(StoreUnavailable):
    """The queue takes no more: Redis's memory is full, or `max_pending` jobs wait.

    Attributes:
        stored: ids of an `enqueue_many` that were accepted before the queue was full; empty for one job.
    """

    def __init__(self, message: str, stored: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.stored: tuple[str, ...] = tuple(stored)


class NotAcknowledged(StoreUnavailable):
    """New jobs are stored on the primary, and replicas or the disk did not confirm them in time.

    They will run, unless the primary is lost before it has passed them on. To have them confirmed, enqueue them again
    with the ids in `stored`: nothing changes then but that it is waited for anew.

    Attributes:
        stored: ids of the jobs that are stored.
    """

    def __init__(self, message: str, stored: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.stored: tuple[str, ...] = tuple(stored)


class JobFailed(SchedqError):  # noqa: N818 - a public name of the design
    """The job has failed for good.

    Attributes:
        job_id: the job.
        error: its last error, as stored.
    """

    def __init__(self, job_id: str, error: str) -> None:
        super().__init__(f"job {job_id} failed: {error}")
        self.job_id = job_id
        self.error = error


class JobCancelled(SchedqError):  # noqa: N818 - a public name of the design
    """The job was cancelled."""


class JobGone(SchedqError):  # noqa: N818 - a public name of the design
    """Nothing is stored under this id: trimmed, purged, or never there."""
