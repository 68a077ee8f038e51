"""`batch` and `chain` of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from schedq.aliases import renamed_option
from schedq.model.records import NewJob
from schedq.model.times import Duration
from schedq.queue.requests import Connections
from schedq.queue.task import Task

if TYPE_CHECKING:  # imported when it is used: most programs have no batches
    from schedq.queue.batches import AsyncBatch, Batch


class BatchMethods:
    """Batches and chains of a blocking queue."""

    connections: Connections

    @renamed_option("keep", "ttl")
    def batch(
        self,
        id: str,  # noqa: A002 - what it is called everywhere
        task: Task[..., Any] | None = None,
        *,
        concurrency: int | None = None,
        tolerate: float = 0,
        then: Task[..., Any] | NewJob | None = None,
        otherwise: Task[..., Any] | NewJob | None = None,
        results: bool = True,
        ttl: Duration = 604_800,
        close_within: Duration | None = 3600,
    ) -> Batch:
        """Return a batch of calls of one task, to be filled in a `with` block; without a task, a handle on one.

        Making it sends nothing. The children become jobs at most `concurrency` at a time, so a batch of a million takes
        little memory. It has completed when all have ended and at most `tolerate` of them failed.

        Args:
            id: 1 to 40 characters of `A-Z a-z 0-9 _ -`; the same id again is the same batch.
            task: what each child calls, with the options that its jobs have.
            concurrency: the most children that wait or run at the same time, 1 to 1000; None for 1000.
            tolerate: how many children may fail, as a number, or as a share below 1.
            then: the call that is made when it has completed: a task, which is given the `BatchResults`, or
                `task.with_args(...)`, in which `RESULT` stands for them.
            otherwise: the call that is made when it has failed, as `then`.
            results: whether what the children return is kept for `then` and `result`, at most 64 MiB.
            ttl: how long its record is kept after its end; seconds or a timedelta, at least a minute.
            close_within: how long after its last page a batch fails whose producer has gone; None for never.

        Raises:
            UsageError: an argument is invalid.
        """
        from schedq.queue.batches import Batch, BatchOptions

        options = BatchOptions(concurrency, tolerate, then, otherwise, results, ttl, close_within)
        return Batch(self.connections, id, task, options)

    def chain(self, *calls: Task[..., Any] | NewJob, id: str | None = None) -> Batch:  # noqa: A002 - as `batch`
        """Enqueue calls of which each begins when the one before has completed; returns a handle on all of them.

        A call is `task.with_args(...)`, in which `RESULT` stands for what the one before returned. A task stands for
        `task.with_args(RESULT)`, or, as the first, for a call without arguments. If a call fails, the rest is not made;
        `retry` continues there.

        Args:
            calls: 1 to 1000 calls of tasks of this queue.
            id: as that of a batch: the same id again is the same chain; by default a new one.

        Raises:
            UsageError, ArgumentsError: a call or the id is invalid.
            Conflict: a chain or a batch of this id exists with other calls.
            QueueFull, NotAcknowledged, StoreUnavailable: as `Queue.enqueue`.
        """
        from schedq.queue.batches import Batch, begin_chain

        name, steps = begin_chain(self.connections, calls, id)
        self.connections.blocking.drive(steps)
        return Batch(self.connections, name)


class AsyncBatchMethods:
    """Batches and chains of an asyncio queue."""

    connections: Connections

    @renamed_option("keep", "ttl")
    def batch(
        self,
        id: str,  # noqa: A002 - what it is called everywhere
        task: Task[..., Any] | None = None,
        *,
        concurrency: int | None = None,
        tolerate: float = 0,
        then: Task[..., Any] | NewJob | None = None,
        otherwise: Task[..., Any] | NewJob | None = None,
        results: bool = True,
        ttl: Duration = 604_800,
        close_within: Duration | None = 3600,
    ) -> AsyncBatch:
        """`Queue.batch` for asyncio: filled in an `async with` block."""
        from schedq.queue.batches import AsyncBatch, BatchOptions

        options = BatchOptions(concurrency, tolerate, then, otherwise, results, ttl, close_within)
        return AsyncBatch(self.connections, id, task, options)

    async def chain(self, *calls: Task[..., Any] | NewJob, id: str | None = None) -> AsyncBatch:  # noqa: A002 - as `batch`
        """`Queue.chain` for asyncio."""
        from schedq.queue.batches import AsyncBatch, begin_chain

        name, steps = begin_chain(self.connections, calls, id)
        await self.connections.aio.drive(steps)
        return AsyncBatch(self.connections, name)
