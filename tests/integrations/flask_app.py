"""A Flask application whose tasks use what belongs to its application context; child processes load it too."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

from flask import Flask, current_app, g
from flask.globals import _cv_app
from sqlalchemy import Column, Engine, Integer, MetaData, String, Table, create_engine, select
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import QueuePool

from schedq import Depends, Fixed, Queue, current_job
from schedq.integrations.flask import FlaskContext
from schedq.worker.application import Loaded
from tests.worker.layers import handler

metadata = MetaData()
notes = Table("notes", metadata, Column("id", Integer, primary_key=True), Column("text", String(100)))


class Site(NamedTuple):
    """The application, its database, its tasks, and the errors that its teardown functions got."""

    app: Flask
    engine: Engine
    tasks: dict[str, Any]
    ended: list[str]

    def texts(self) -> list[str]:
        """What is committed."""
        with self.engine.connect() as connection:
            return [*connection.execute(select(notes.c.text)).scalars()]

    def connections(self) -> int:
        """How many are in use."""
        assert isinstance(self.engine.pool, QueuePool)
        return self.engine.pool.checkedout()


def define(queue: Any, url: str, *, isolates: bool = False) -> Site:
    """Create the application, with a session for each context as Flask-SQLAlchemy has it."""
    app, ended, engine = Flask("store"), list[str](), create_engine(url)
    db: scoped_session[Session] = scoped_session(sessionmaker(engine), scopefunc=lambda: id(_cv_app.get()))

    @app.teardown_appcontext
    def end(error: BaseException | None) -> None:
        db.remove()
        ended.append("" if error is None else f"{type(error).__name__}: {error}")

    def work(text: str, how: str = "well") -> list[object]:
        """Return the application, what another attempt has left behind, and the process."""
        left, g.text = g.get("text"), text
        db.execute(notes.insert().values(text=text))
        if how == "wait":
            while not current_job().is_cancelled:
                time.sleep(0.01)
        if how == "hang":
            time.sleep(600)
        if how == "fail" or (how == "first" and current_job().attempts == 1):
            raise ValueError(text)
        db.commit()
        return [current_app.name, left, os.getpid()]

    def tenant() -> str:
        return f"tenant of {current_app.name}"

    def depends(*, tenant: str = Depends(tenant)) -> str:
        return tenant

    async def adepends(*, tenant: str = Depends(tenant)) -> str:
        return tenant

    queue.around(FlaskContext(app))
    options = {"backoff": Fixed(0), "max_attempts": 2}
    tasks = {kind: queue.task(name=kind, **options)(handler(kind, work)) for kind in ("plain", "async", "awaitable")}
    tasks |= {each.__name__: queue.task(each) for each in (depends, adepends)}
    if isolates:
        tasks["isolated"] = queue.task(name="isolated", isolate=True, **options)(work)
    return Site(app, engine, tasks, ended)


def load(name: str, redis: str, url: str) -> Loaded:
    """Create the application in a child."""
    queue = Queue(name, redis=redis, visibility_ms=30_000)
    define(queue, url, isolates=True)
    return Loaded([queue], ())
