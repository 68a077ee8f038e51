"""An application whose tasks write in a session per attempt; child processes load it too."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, create_engine, select
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import QueuePool

from schedq import Depends, Discard, Fixed, Queue, Retry, current_job
from schedq.integrations.sqlalchemy import session_per_attempt
from schedq.worker.application import Loaded

metadata = MetaData()
WAITING: list[str] = []
"""What waits to be asked to end, and returns then."""
notes = Table("notes", metadata, Column("id", Integer, primary_key=True), Column("text", String(100)))


class App(NamedTuple):
    """The queue's tasks and the engine of the plain ones."""

    engine: Engine
    tasks: dict[str, Any]

    def texts(self) -> list[str]:
        """What is committed."""
        with self.engine.connect() as connection:
            return [*connection.execute(select(notes.c.text).order_by(notes.c.id)).scalars()]

    def connections(self) -> int:
        """How many are in use."""
        assert isinstance(self.engine.pool, QueuePool)
        return self.engine.pool.checkedout()


def define(queue: Any, url: str, *, isolates: bool = False) -> App:
    """Register the tasks with a queue."""
    engine = create_engine(url)
    get_session = session_per_attempt(sessionmaker(engine))
    new_async_session = async_sessionmaker[AsyncSession]()
    aget_session = session_per_attempt(new_async_session)

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        async_engine = create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:"))
        new_async_session.configure(bind=async_engine)
        yield
        await async_engine.dispose()

    def plain(text: str, how: str = "well", *, session: Session = Depends(get_session)) -> int:
        session.execute(notes.insert().values(text=text))
        if how == "wait":
            WAITING.append(text)
            while not current_job().is_cancelled:
                time.sleep(0.01)
        elif how == "hang":
            time.sleep(600)
        elif how == "commit":
            session.commit()
            session.execute(notes.insert().values(text=f"{text} again"))
        end(how)
        return os.getpid()

    async def coro(text: str, how: str = "well", *, session: AsyncSession = Depends(aget_session)) -> int:
        await session.execute(notes.insert().values(text=text))
        if how == "wait":
            WAITING.append(text)
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(600)
        elif how == "hang":
            await asyncio.sleep(600)
        elif how == "commit":
            await session.commit()
            await session.execute(notes.insert().values(text=f"{text} again"))
        end(how)
        return os.getpid()

    def isolated(text: str, how: str = "well", *, session: Session = Depends(get_session)) -> int:
        return plain(text, how, session=session)

    queue.lifespan = lifespan
    options = {"backoff": Fixed(0), "max_attempts": 2}
    found = {each.__name__: queue.task(**options)(each) for each in (plain, coro)}
    if isolates:  # such a worker starts child processes
        found["isolated"] = queue.task(isolate=True, **options)(isolated)
    return App(engine, found)


def end(how: str) -> None:
    """End as the test wants."""
    if how in ("error", "commit") or (how == "first" and current_job().attempts == 1):
        raise RuntimeError("no")
    if how == "retry" and current_job().attempts == 1:
        raise Retry(0)
    if how == "discard":
        raise Discard("no")


def load(name: str, redis: str, url: str) -> Loaded:
    """Create the application in a child."""
    queue = Queue(name, redis=redis, visibility_ms=30_000)
    define(queue, url, isolates=True)
    return Loaded([queue], ())
