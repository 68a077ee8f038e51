"""SQLAlchemy: a session per attempt, and an outbox for jobs that exist if, and only if, a transaction commits."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, ParamSpec, Self, TypeVar, overload

try:
    from sqlalchemy import (
        BigInteger,
        Column,
        Connection,
        Dialect,
        Engine,
        Index,
        Insert,
        Integer,
        MetaData,
        String,
        Table,
        Text,
        TypeDecorator,
        text,
        type_coerce,
    )
    from sqlalchemy.dialects.mysql import MEDIUMTEXT
    from sqlalchemy.ext.asyncio import (
        AsyncConnection,
        AsyncEngine,
        AsyncSession,
        async_sessionmaker,
        create_async_engine,
    )
    from sqlalchemy.orm import Session, sessionmaker
    from sqlalchemy.pool import NullPool
except ImportError as error:
    raise ImportError("schedq.integrations.sqlalchemy needs SQLAlchemy: pip install 'schedq[sqlalchemy]'") from error

from schedq.errors import UsageError
from schedq.integrations.outbox import MOST_KEY, Execute, Relay, Transaction, exact_key, new_row
from schedq.model.times import Duration
from schedq.queue.job import Job
from schedq.queue.queue import QueueBase
from schedq.queue.task import Task

P = ParamSpec("P")
S = TypeVar("S", bound=Session)
A = TypeVar("A", bound=AsyncSession)
_MYSQL: Final = ("mysql", "mariadb")
_TEXT: Final = Text().with_variant(MEDIUMTEXT(), *_MYSQL)


class _OrderKey(TypeDecorator[str]):
    """An order key as the database can compare it. Only inserts have it, so that migrations need no import of it."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return exact_key(value) if value is not None and dialect.name in _MYSQL else value


@overload
def session_per_attempt(new_session: async_sessionmaker[A]) -> Callable[[], AsyncIterator[A]]: ...
@overload
def session_per_attempt(new_session: sessionmaker[S]) -> Callable[[], Iterator[S]]: ...
def session_per_attempt(new_session: Any) -> Callable[[], Iterator[Any] | AsyncIterator[Any]]:
    """Return a dependency that gives each attempt a session of its own, for `schedq.Depends` and `fastapi.Depends`.

    The session is committed when the task has returned. It is rolled back when the task raises an error, exceeds its
    timeout, is cancelled or has lost its lease. It is closed in any case. A commit that fails fails the attempt.

    Args:
        new_session: a `sessionmaker` for plain tasks, or an `async_sessionmaker` for async ones. Its engine may be set
            later.

    Raises:
        UsageError: it is neither.
    """
    if isinstance(new_session, async_sessionmaker):

        async def aget_session() -> AsyncIterator[Any]:
            async with new_session() as session:
                yield session
                await session.commit()

        return aget_session
    if not isinstance(new_session, sessionmaker):
        text = "session_per_attempt takes a sessionmaker or an async_sessionmaker"
        raise UsageError(f"{text}, got {new_session!r:.200}")

    def get_session() -> Iterator[Any]:
        with new_session() as session:
            yield session
            session.commit()

    return get_session


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
            mysql_charset="utf8mb4",
            mariadb_charset="utf8mb4",
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
        session.execute(self._insert(row))
        return job

    async def aenqueue(
        self, session: AsyncSession | AsyncConnection, task: Task[P, Any], *args: P.args, **kwargs: P.kwargs
    ) -> Job[Any]:
        """`enqueue` for asyncio."""
        row, job = new_row(task, args, kwargs, self._order_key)
        await session.execute(self._insert(row))
        return job

    def _insert(self, row: Mapping[str, Any]) -> Insert:
        return self.table.insert().values({**row, "order_key": type_coerce(row["order_key"], _OrderKey)})

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
