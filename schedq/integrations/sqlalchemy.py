"""An outbox for SQLAlchemy: jobs that are enqueued if, and only if, the application's transaction commits."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final, ParamSpec, Self

from sqlalchemy import BigInteger, Column, Connection, Engine, Index, Integer, MetaData, String, Table, Text, text
from sqlalchemy.dialects.mysql import MEDIUMTEXT
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from schedq.integrations.outbox import MOST_KEY, Execute, Relay, Transaction, new_row
from schedq.model.times import Duration
from schedq.queue.job import Job
from schedq.queue.queue import QueueBase
from schedq.queue.task import Task

P = ParamSpec("P")
_TEXT: Final = Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb")


class Outbox:
    """A table of jobs in the application's database.

    Args:
        metadata: of the application's tables, so that `create_all` or Alembic creates this one too.
        name: its name.

    Attributes:
        table: the table.
    """

    def __init__(self, metadata: MetaData, name: str = "schedq_outbox") -> None:
        self._order_key: str | None = None
        self.table = Table(
            name,
            metadata,
            Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
            Column("job_id", String(64), nullable=False),
            Column("queue", String(64), nullable=False),
            Column("order_key", String(MOST_KEY)),
            Column("payload", _TEXT, nullable=False),
            Column("options", _TEXT, nullable=False),
            Column("created_at_ms", BigInteger, nullable=False),
            Column("started_at_ms", BigInteger),
            Column("sent_at_ms", BigInteger),
            Column("held", Text),
            Index(f"{name}_unsent", "sent_at_ms", "seq"),
            sqlite_autoincrement=True,
        )

    def ordered(self, key: str) -> Self:
        """Return a copy whose jobs are enqueued in the order in which their rows with this key were written."""
        made = copy.copy(self)
        made._order_key = key
        return made

    def enqueue(self, session: Session | Connection, task: Task[P, Any], *args: P.args, **kwargs: P.kwargs) -> Job[Any]:
        """Write a call of the task, with the task's options, in the transaction of the session.

        Raises:
            ArgumentsError, UsageError: as `Task.enqueue`; nothing is written.
        """
        row, job = new_row(task, args, kwargs, self._order_key)
        session.execute(self.table.insert().values(row))
        return job

    async def aenqueue(
        self, session: AsyncSession | AsyncConnection, task: Task[P, Any], *args: P.args, **kwargs: P.kwargs
    ) -> Job[Any]:
        """`enqueue` for asyncio."""
        row, job = new_row(task, args, kwargs, self._order_key)
        await session.execute(self.table.insert().values(row))
        return job

    def relay(
        self,
        engine: Engine | AsyncEngine,
        queues: Sequence[QueueBase],
        *,
        poll: Duration = 0.5,
        keep: Duration = 86_400,
    ) -> Relay:
        """Return a relay for the rows of these queues.

        Args:
            engine: of an `AsyncEngine`, only the URL is used, because the relay has an event loop of its own.
            queues: the queues.
            poll: seconds or a timedelta between two looks at the table.
            keep: seconds or a timedelta until a sent row is deleted.
        """
        run = _blocking(engine) if isinstance(engine, Engine) else _awaited(engine)
        blocking, has_row_locks = [queue.blocking for queue in queues], engine.dialect.name != "sqlite"
        return Relay(blocking, run, self.table.name, has_row_locks=has_row_locks, poll=poll, keep=keep)


def _blocking(engine: Engine) -> Transaction:
    def run(work: Any) -> Any:
        with engine.begin() as connection:
            return work(_execute(connection))

    return run


def _awaited(engine: AsyncEngine) -> Transaction:
    async def run(work: Any) -> Any:
        own = create_async_engine(engine.url, poolclass=NullPool)
        async with own.begin() as connection:
            return await connection.run_sync(lambda plain: work(_execute(plain)))

    return lambda work: asyncio.run(run(work))


def _execute(connection: Connection) -> Execute:
    def execute(sql: str, values: Mapping[str, Any]) -> Sequence[Sequence[Any]]:
        found = connection.execute(text(sql), values)
        return [(*row,) for row in found] if found.returns_rows else []

    return execute
