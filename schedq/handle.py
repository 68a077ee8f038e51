"""The handle on a job that was enqueued: how it stands, what it returned, a word to stop it."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from schedq.errors import JobGone
from schedq.instants import Duration
from schedq.job import ClaimedJob, JobRecord
from schedq.lifecycle import Cancellation

R = TypeVar("R")


class BlockingDoor(Protocol):
    """What a task and a job need of the blocking queue."""

    def enqueue(self, payload: Any, *args: Any, **options: Any) -> str:
        """Store a job; its id."""
        ...

    def enqueue_many(self, jobs: Any, *args: Any, **options: Any) -> list[str]:
        """Store jobs; their ids."""
        ...

    def _create(self, payload: Any, **options: Any) -> tuple[str, bool]:
        """Store a job with an id of the caller's; its id, and whether it is new."""
        ...

    def _create_many(self, jobs: Any) -> list[tuple[str, bool]]:
        """The same for several `NewJob`s."""
        ...

    def get_job(self, job_id: str) -> JobRecord | None:
        """All that is stored of a job."""
        ...

    def cancel(self, job_id: str) -> Cancellation:
        """Cancel a job."""
        ...

    def renew(self, job: ClaimedJob) -> bool:
        """Let a lease begin anew."""
        ...

    def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """Wait for a job's result."""
        ...

    def wait(self, job_id: str, timeout: Duration | None = None) -> bool:
        """Wait for a job's end."""
        ...

    def _absent(self, job_id: str) -> JobGone:
        """Why nothing is stored of a job."""
        ...


class AsyncDoor(Protocol):
    """What a task and a job need of the asyncio queue."""

    async def enqueue(self, payload: Any, *args: Any, **options: Any) -> str:
        """Store a job; its id."""
        ...

    async def enqueue_many(self, jobs: Any, *args: Any, **options: Any) -> list[str]:
        """Store jobs; their ids."""
        ...

    async def _create(self, payload: Any, **options: Any) -> tuple[str, bool]:
        """Store a job with an id of the caller's; its id, and whether it is new."""
        ...

    async def _create_many(self, jobs: Any) -> list[tuple[str, bool]]:
        """The same for several `NewJob`s."""
        ...

    async def get_job(self, job_id: str) -> JobRecord | None:
        """All that is stored of a job."""
        ...

    async def cancel(self, job_id: str) -> Cancellation:
        """Cancel a job."""
        ...

    async def renew(self, job: ClaimedJob) -> bool:
        """Let a lease begin anew."""
        ...

    async def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """Wait for a job's result."""
        ...

    async def wait(self, job_id: str, timeout: Duration | None = None) -> bool:
        """Wait for a job's end."""
        ...

    async def _absent(self, job_id: str) -> JobGone:
        """Why nothing is stored of a job."""
        ...


class Doors(Protocol):
    """The two ways to one queue."""

    @property
    def blocking(self) -> BlockingDoor:
        """The queue for threads."""
        ...

    @property
    def aio(self) -> AsyncDoor:
        """The queue for an event loop."""
        ...


class Job(Generic[R]):
    """A handle on one job, with a twin that is awaited for every verb. Making one asks Redis nothing.

    Attributes:
        id: the job's id.
        created: whether the `enqueue` that returned it has created the job; False if one of this id was there already.
            None for a handle that was made by id.
    """

    __slots__ = ("_doors", "created", "id")

    def __init__(self, job_id: str, doors: Doors, *, created: bool | None = None) -> None:
        self.id = job_id
        self.created = created
        self._doors = doors

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def record(self) -> JobRecord | None:
        """All that is stored of it; None if nothing is."""
        return self._doors.blocking.get_job(self.id)

    def status(self) -> str:
        """Where it is: one of `lifecycle.PLACES`.

        Raises:
            JobGone: nothing is stored of it.
        """
        record = self.record()
        if record is None:
            raise self._doors.blocking._absent(self.id)
        return record.status

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until it is completed, failed or cancelled; False when `timeout` (seconds) ran out first.

        Raises:
            JobGone: nothing is stored of it.
        """
        return self._doors.blocking.wait(self.id, timeout)

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for what it returns, at most `timeout` seconds; None waits for ever.

        Raises:
            JobFailed, JobCancelled, JobGone: there will be no result.
            TimeoutError: it is not finished yet.
        """
        found: R = self._doors.blocking.result(self.id, timeout)
        return found

    def cancel(self) -> Cancellation:
        """Cancel it if it waits, ask it to stop if it runs: "cancelled", "asked", or "no" if it is finished."""
        return self._doors.blocking.cancel(self.id)

    async def arecord(self) -> JobRecord | None:
        """Twin of `record`."""
        return await self._doors.aio.get_job(self.id)

    async def astatus(self) -> str:
        """Twin of `status`."""
        record = await self.arecord()
        if record is None:
            raise await self._doors.aio._absent(self.id)
        return record.status

    async def await_(self, timeout: Duration | None = None) -> bool:
        """Twin of `wait`."""
        return await self._doors.aio.wait(self.id, timeout)

    async def aresult(self, timeout: Duration | None = None) -> R:
        """Twin of `result`."""
        found: R = await self._doors.aio.result(self.id, timeout)
        return found

    async def acancel(self) -> Cancellation:
        """Twin of `cancel`."""
        return await self._doors.aio.cancel(self.id)
