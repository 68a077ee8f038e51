"""A handle on an enqueued job: its state, its result, and what can be done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from schedq.aliases import JobAliases
from schedq.inspect import flow_control, stats, wait
from schedq.model.lifecycle import Cancellation
from schedq.model.progress import OnProgress, Progress
from schedq.model.records import JobRecord
from schedq.model.settings import Settings
from schedq.model.times import Duration, Instant
from schedq.queue.conversion import Conversion
from schedq.queue.other_engines import OtherJobNames
from schedq.queue.requests import AnyRequest, Connections, acarry_out, carry_out, is_finished, result
from schedq.transitions import Operation, RoundTrips, cancel, requeue, reschedule, send, unwrap

if TYPE_CHECKING:  # imported when they are used
    from schedq.inspect.timeline import Timeline
    from schedq.inspect.why import Why

R = TypeVar("R")
T = TypeVar("T")


class Job(JobAliases, OtherJobNames, Generic[R]):
    """A handle on one job; `arecord`, `astatus` and so on are awaited. Creating a handle sends nothing to Redis.

    Attributes:
        id: the job's id.
        created: True if the `enqueue` that returned this handle created the job, False if a job with this id existed
            already. None for a handle made from an id.
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

    @property
    def queue_name(self) -> str:
        """The name of its queue."""
        return self._connections.settings.name

    def record(self) -> JobRecord | None:
        """Return everything that is stored about the job, or None if nothing is."""
        return self._run(stats.get_job(self._connections.settings, self.id))

    def status(self) -> str:
        """Return the job's state: pending, delayed, processing, completed, failed, cancelled or broken.

        Raises:
            JobGone: nothing is stored about the job.
        """
        return self._run(_status(self._connections.settings, self.id))

    def progress(self) -> Progress | None:
        """Return how far the job's last attempt has come, or None if it reported nothing or the job is not stored."""
        return self._run(stats.read_progress(self._connections.settings, self.id))

    def wait(self, timeout: Duration | None = None, *, on_progress: OnProgress | None = None) -> bool:
        """Wait until the job is completed, failed or cancelled; False if `timeout` (seconds) ran out first.

        Args:
            timeout: seconds or a timedelta; None waits forever.
            on_progress: called with the job's progress, then with each report, as long as it waits. It must not block.

        Raises:
            JobGone: nothing is stored about the job.
        """
        return self._run(is_finished(self._connections.settings, self.id, timeout, on_progress))

    def result(self, timeout: Duration | None = None) -> R:
        """Wait for the job's result, at most `timeout` seconds; None waits forever.

        Raises:
            JobFailed, JobCancelled, JobGone: there will be no result.
            TimeoutError: the job has not finished yet.
        """
        return self._read(self._run(result(self._connections.settings, self.id, timeout)))

    def cancel(self) -> Cancellation:
        """Cancel a waiting job ("cancelled"), or ask a running one to stop ("asked"); "no" if it has finished."""
        return self._run(cancel.cancel(self._connections.settings, self.id))

    def send(self, topic: str, value: Any = None, id: str | None = None) -> bool:  # noqa: A002 - as job ids
        """Send a message to a workflow, which takes it with `receive(topic)`, now or later.

        Args:
            topic: 1 to 64 characters of `A-Z a-z 0-9 _ . -`.
            value: anything that JSON can hold.
            id: sending a message with the same id again changes nothing.

        Returns:
            Whether the message was accepted, also if it was before; False if the job has ended or is not stored.

        Raises:
            UsageError: an argument is invalid, or the job's task is no workflow, as this process or a worker knows.
            QueueFull: the job has not taken 100 messages of this topic, or Redis's memory is full.
        """
        return self._run(_sending(self._connections, self.id, topic, value, id))

    def pause(self) -> bool:
        """Stop a flow from starting new nodes until `resume`; running jobs continue. False if it has ended.

        Raises:
            UsageError: the job is not one of a flow.
        """
        return self._run(_pause(self._connections, self.id, is_paused=True))

    def resume(self) -> bool:
        """Let a flow that was paused continue; False if it has ended.

        Raises:
            UsageError: the job is not one of a flow.
        """
        return self._run(_pause(self._connections, self.id, is_paused=False))

    def requeue(self) -> bool:
        """Run the job again, with its attempts back at 0, if it failed or was cancelled; False if not."""
        return self._run(requeue.requeue(self._connections.settings, self.id))

    def undo(self) -> bool:
        """Undo the steps of a workflow that failed and left them as they were; False if there are none to undo."""
        return self._run(requeue.undo(self._connections.settings, self.id))

    def reschedule(self, *, delay: Duration | None = None, run_at: Instant | None = None) -> bool:
        """Change when the job is due; False if it is not delayed.

        Raises:
            UsageError: neither or both of `delay` and `run_at` are given, or the job would expire before it is due.
        """
        return self._run(reschedule.to_time(self._connections.settings, self.id, delay, run_at))

    def run_now(self) -> bool:
        """Run the job now, next in line; False if it is not delayed."""
        return self._run(reschedule.to_now(self._connections.settings, self.id))

    def why(self) -> Why:
        """Return the one reason why the job is not running now."""
        return self._run(_why(self._connections.settings, self.id))

    def timeline(self) -> Timeline | None:
        """Return the job's history: enqueued, due, promoted, each attempt, its end; None if the job is not stored."""
        return self._run(_timeline(self._connections.settings, self.id))

    async def arecord(self) -> JobRecord | None:
        """`record` for asyncio."""
        return await self._arun(stats.get_job(self._connections.settings, self.id))

    async def astatus(self) -> str:
        """`status` for asyncio."""
        return await self._arun(_status(self._connections.settings, self.id))

    async def aprogress(self) -> Progress | None:
        """`progress` for asyncio."""
        return await self._arun(stats.read_progress(self._connections.settings, self.id))

    async def await_end(self, timeout: Duration | None = None, *, on_progress: OnProgress | None = None) -> bool:
        """`wait` for asyncio."""
        return await self._arun(is_finished(self._connections.settings, self.id, timeout, on_progress))

    async def aresult(self, timeout: Duration | None = None) -> R:
        """`result` for asyncio."""
        return self._read(await self._arun(result(self._connections.settings, self.id, timeout)))

    async def acancel(self) -> Cancellation:
        """`cancel` for asyncio."""
        return await self._arun(cancel.cancel(self._connections.settings, self.id))

    async def asend(self, topic: str, value: Any = None, id: str | None = None) -> bool:  # noqa: A002 - as `send`
        """`send` for asyncio."""
        return await self._arun(_sending(self._connections, self.id, topic, value, id))

    async def apause(self) -> bool:
        """`pause` for asyncio."""
        return await self._arun(_pause(self._connections, self.id, is_paused=True))

    async def aresume(self) -> bool:
        """`resume` for asyncio."""
        return await self._arun(_pause(self._connections, self.id, is_paused=False))

    async def arequeue(self) -> bool:
        """`requeue` for asyncio."""
        return await self._arun(requeue.requeue(self._connections.settings, self.id))

    async def aundo(self) -> bool:
        """`undo` for asyncio."""
        return await self._arun(requeue.undo(self._connections.settings, self.id))

    async def areschedule(self, *, delay: Duration | None = None, run_at: Instant | None = None) -> bool:
        """`reschedule` for asyncio."""
        return await self._arun(reschedule.to_time(self._connections.settings, self.id, delay, run_at))

    async def arun_now(self) -> bool:
        """`run_now` for asyncio."""
        return await self._arun(reschedule.to_now(self._connections.settings, self.id))

    async def awhy(self) -> Why:
        """`why` for asyncio."""
        return await self._arun(_why(self._connections.settings, self.id))

    async def atimeline(self) -> Timeline | None:
        """`timeline` for asyncio."""
        return await self._arun(_timeline(self._connections.settings, self.id))

    def _read(self, found: Any) -> R:
        return cast(R, found if self._conversion is None else self._conversion.decode_result(found))

    def _run(self, request: AnyRequest[T]) -> T:
        return carry_out(self._connections.blocking, request)

    async def _arun(self, request: AnyRequest[T]) -> T:
        return await acarry_out(self._connections.aio, request)


def _sending(connections: Connections, job_id: str, topic: str, value: Any, message_id: str | None) -> Operation[bool]:
    return send.send(connections.settings, job_id, topic, value, message_id, connections.plain_tasks())


def _pause(connections: Connections, job_id: str, *, is_paused: bool) -> RoundTrips[bool]:
    return flow_control.pause(connections.settings, job_id, connections.plain_tasks(), is_paused=is_paused)


def _status(queue: Settings, job_id: str) -> RoundTrips[str]:
    (reply,) = yield [stats.get_job(queue, job_id)]
    record: JobRecord | None = unwrap(reply)
    if record is None:
        raise (yield from wait.absent(queue, job_id))
    return record.status


def _why(queue: Settings, job_id: str) -> RoundTrips[Why]:
    from schedq.inspect.why import why  # imports much that most programs don't need

    return why(queue, job_id)


def _timeline(queue: Settings, job_id: str) -> RoundTrips[Timeline | None]:
    from schedq.inspect.timeline import timeline  # as `_why`

    return timeline(queue, job_id)
