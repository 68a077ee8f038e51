"""A handle on a job that was enqueued: its state, its result, a way to cancel it."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

from schedq.aliases import JobAliases
from schedq.inspect import stats, wait
from schedq.model.lifecycle import Cancellation
from schedq.model.records import JobRecord
from schedq.model.settings import Settings
from schedq.model.times import Duration
from schedq.queue.conversion import Conversion
from schedq.queue.requests import AnyRequest, Connections, acarry_out, carry_out, is_finished, result
from schedq.transitions import RoundTrips, cancel, unwrap

R = TypeVar("R")
T = TypeVar("T")


class Job(JobAliases, Generic[R]):
    """A handle on one job; `arecord`, `astatus` and so on are awaited. Making one asks Redis nothing.

    Attributes:
        id: the job's id.
        created: whether the `enqueue` that returned it has created the job; False if one of this id was there already.
            None for a handle that was made by id.
    """

    __slots__ = ("_connections", "_conversion", "created", "id")

    def __init__(
        self,
        job_id: str,
        connections: Connections,
        *,
        created: bool | None = None,
        conversion: Conversion | None = None,
    ) -> None:
        self.id = job_id
        self.created = created
        self._connections = connections
        self._conversion = conversion

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def record(self) -> JobRecord | None:
        """All that is stored of it; None if nothing is."""
        return self._run(stats.get_job(self._connections.settings, self.id))

    def status(self) -> str:
        """Where it is: one of `lifecycle.JOB_STATES`.

        Raises:
            JobGone: nothing is stored of it.
        """
        return self._run(_status(self._connections.settings, self.id))

    def wait(self, timeout: Duration | None = None) -> bool:
        """Wait until it is completed, failed or cancelled; False when `timeout` (seconds) ran out first.

        Raises:
            JobGone: nothing is stored of it.
        """
        return self._run(is_finished(self._connections.settings, self.id, timeout))

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for what it returns, at most `timeout` seconds; None waits for ever.

        Raises:
            JobFailed, JobCancelled, JobGone: there will be no result.
            TimeoutError: it is not finished yet.
        """
        return self._read(self._run(result(self._connections.settings, self.id, timeout)))

    def cancel(self) -> Cancellation:
        """Cancel it if it waits, ask it to stop if it runs: "cancelled", "asked", or "no" if it is finished."""
        return self._run(cancel.cancel(self._connections.settings, self.id))

    async def arecord(self) -> JobRecord | None:
        """`record` for asyncio."""
        return await self._arun(stats.get_job(self._connections.settings, self.id))

    async def astatus(self) -> str:
        """`status` for asyncio."""
        return await self._arun(_status(self._connections.settings, self.id))

    async def await_end(self, timeout: Duration | None = None) -> bool:
        """`wait` for asyncio."""
        return await self._arun(is_finished(self._connections.settings, self.id, timeout))

    async def aresult(self, timeout: Duration | None = None) -> R:
        """`result` for asyncio."""
        return self._read(await self._arun(result(self._connections.settings, self.id, timeout)))

    async def acancel(self) -> Cancellation:
        """`cancel` for asyncio."""
        return await self._arun(cancel.cancel(self._connections.settings, self.id))

    def _read(self, found: Any) -> R:
        return cast(R, found if self._conversion is None else self._conversion.decode_result(found))

    def _run(self, request: AnyRequest[T]) -> T:
        return carry_out(self._connections.blocking, request)

    async def _arun(self, request: AnyRequest[T]) -> T:
        return await acarry_out(self._connections.aio, request)


def _status(queue: Settings, job_id: str) -> RoundTrips[str]:
    (answer,) = yield [stats.get_job(queue, job_id)]
    record: JobRecord | None = unwrap(answer)
    if record is None:
        raise (yield from wait.absent(queue, job_id))
    return record.status
