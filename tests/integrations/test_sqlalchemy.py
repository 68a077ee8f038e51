"""A session per attempt: committed when the task has returned, and rolled back however else the attempt ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from sqlalchemy import MetaData, create_engine, event
from sqlalchemy.orm import Session, sessionmaker

from schedq import Depends, UsageError
from schedq.integrations.sqlalchemy import Outbox, session_per_attempt
from schedq.isolation.settings import IsolationSettings
from schedq.testing import run_due
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.integrations import session_app
from tests.integrations.session_app import App
from tests.waiting import until
from tests.worker.crew import Crew, renew_every
from tests.worker.layers import take_away
from tests.worker.processes import outcome

KINDS = ["plain", "coro"]
ROLLED_BACK = {"error": "RuntimeError: no", "discard": "no"}


@pytest.fixture
def door() -> str:
    return "blocking"


@pytest.fixture
def queue(make_queue: MakeQueue) -> Handle:
    queue = make_queue(visibility_ms=30_000)
    renew_every(1, queue)
    return queue


@pytest.fixture
def app(queue: Handle, url: str, request: pytest.FixtureRequest) -> Iterator[App]:
    isolates = "isolated" in request.node.name
    session_app.WAITING.clear()
    app = session_app.define(queue.queue, url, isolates=isolates)
    session_app.metadata.drop_all(app.engine)
    session_app.metadata.create_all(app.engine)
    yield app
    app.engine.dispose()


@pytest.fixture
def crew(make_queue: MakeQueue, app: App) -> Iterator[Crew]:
    crew = Crew()
    yield crew
    crew.end()
    assert app.connections() == 0


@pytest.mark.parametrize("by", ["a worker", "run_due"])
def test_what_a_task_wrote_is_committed_only_if_it_returned(queue: Handle, app: App, crew: Crew, by: str):
    hows = ["well", *ROLLED_BACK]
    jobs = {
        (kind, how): app.tasks[kind].options(max_attempts=1).enqueue(f"{kind} {how}", how)
        for kind in KINDS
        for how in hows
    }

    if by == "run_due":
        run_due(queue.queue)
    else:
        crew.start(queue, concurrency=1)

    for (_, how), job in jobs.items():
        assert outcome(queue, job.id).last_error == ROLLED_BACK.get(how, "")
    assert app.texts() == ["plain well", "coro well"]


@pytest.mark.parametrize("how", ["first", "retry"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_attempt_does_not_see_what_the_first_one_wrote(
    queue: Handle, app: App, crew: Crew, kind: str, how: str
):
    job = app.tasks[kind].enqueue("note", how)
    crew.start(queue)

    found = outcome(queue, job.id)

    assert (found.status, found.attempts) == ("completed", 2)
    assert app.texts() == ["note"]


def test_a_timeout_rolls_back(queue: Handle, app: App, crew: Crew):
    job = app.tasks["coro"].options(timeout=1, max_attempts=1).enqueue("note", "hang")
    crew.start(queue)

    assert outcome(queue, job.id).last_error == "TimeoutError: timed out after 1 s"
    assert app.texts() == []


@pytest.mark.processes
def test_a_timeout_rolls_back_an_isolated_task(queue: Handle, app: App, crew: Crew, url: str):
    start_isolated(queue, crew, url)
    job = app.tasks["isolated"].options(timeout=2, max_attempts=1).enqueue("note", "hang")

    assert outcome(queue, job.id).last_error == "TimeoutError: timed out after 2 s"
    assert app.texts() == []


def test_a_plain_task_that_returns_after_its_timeout_commits_nothing(queue: Handle, app: App, crew: Crew):
    job = app.tasks["plain"].options(timeout=1, max_attempts=1).enqueue("note", "wait")
    crew.start(queue, concurrency=1)
    assert outcome(queue, job.id).last_error == "TimeoutError: timed out after 1 s"

    after = app.tasks["plain"].enqueue("after")  # in the only slot, so the thread has ended before

    assert outcome(queue, after.id).status == "completed"
    assert app.texts() == ["after"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_attempt_that_has_lost_its_lease_commits_nothing_although_it_returns(
    queue: Handle, app: App, crew: Crew, kind: str
):
    job = app.tasks[kind].enqueue("note", "wait")
    crew.start(queue, concurrency=1)
    until(lambda: session_app.WAITING)
    other = take_away(queue, job.id)

    after = app.tasks[kind].enqueue("after")

    assert outcome(queue, after.id).status == "completed"
    assert app.texts() == ["after"]
    assert queue.complete(other)


def test_a_cancelled_job_commits_nothing(queue: Handle, app: App, crew: Crew):
    job = app.tasks["coro"].enqueue("note", "hang")
    crew.start(queue)
    until(lambda: queue.get_job(job.id).status == "processing")

    queue.cancel(job.id)

    assert outcome(queue, job.id).status == "cancelled"
    assert app.texts() == []


@pytest.mark.processes
def test_an_isolated_task_has_connections_of_its_own(queue: Handle, app: App, crew: Crew, url: str):
    with app.engine.connect():  # the worker's engine has a connection that a child must not use
        start_isolated(queue, crew, url)
        jobs = [app.tasks["isolated"].enqueue(how, how) for how in ("well", "first")]
        found = [outcome(queue, job.id) for job in jobs]

    assert [each.status for each in found] == ["completed"] * 2
    assert os.getpid() not in {each.result for each in found}
    assert sorted(app.texts()) == ["first", "well"]


def start_isolated(queue: Handle, crew: Crew, url: str) -> None:
    load = partial(session_app.load, queue.name, queue.server.unix_url, url)
    crew.start(queue, isolation=IsolationSettings(load=load))


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_may_commit_a_part_itself(queue: Handle, app: App, crew: Crew, kind: str):
    job = app.tasks[kind].options(max_attempts=1).enqueue("note", "commit")
    crew.start(queue)

    assert outcome(queue, job.id).status == "failed"
    assert app.texts() == ["note"]


def test_a_commit_that_fails_fails_the_attempt(queue: Handle, app: App, crew: Crew):
    def refuse(session: Session) -> None:
        raise RuntimeError("the database is full")

    new_session = sessionmaker(app.engine)
    event.listen(new_session, "before_commit", refuse)
    get_session = session_per_attempt(new_session)

    @queue.task(max_attempts=1)
    def fails(*, session: Session = Depends(get_session)) -> None:
        session.execute(session_app.notes.insert().values(text="note"))

    crew.start(queue)

    assert outcome(queue, fails.enqueue().id).last_error == "RuntimeError: the database is full"
    assert app.texts() == []


def test_a_job_in_the_outbox_of_the_session_exists_only_if_the_attempt_committed(queue: Handle, app: App, crew: Crew):
    metadata = MetaData()
    outbox = Outbox(metadata, "outbox_of_sessions")
    metadata.drop_all(app.engine)
    metadata.create_all(app.engine)
    get_session = session_per_attempt(sessionmaker(app.engine))

    @queue.task(max_attempts=1)
    def order(how: str, *, session: Session = Depends(get_session)) -> str:
        job = outbox.enqueue(session, app.tasks["plain"], how)
        session_app.end(how)
        return job.id

    crew.start(queue)
    jobs = [order.enqueue(how) for how in ("error", "well")]
    assert [outcome(queue, job.id).status for job in jobs] == ["failed", "completed"]

    assert outbox.relay(app.engine, [queue.queue]).send() == 1

    assert outcome(queue, jobs[1].result(0)).status == "completed"
    assert app.texts() == ["well"]


def test_something_else_than_a_sessionmaker_is_refused():
    engine = create_engine("sqlite://")
    wrong: Callable[[Any], object] = session_per_attempt

    with pytest.raises(UsageError, match="takes a sessionmaker or an async_sessionmaker, got Engine"):
        wrong(engine)


@pytest.mark.parametrize(
    ("module", "missing"), [("sqlalchemy", "sqlalchemy"), ("flask", "flask"), ("fastapi", "fastapi")]
)
def test_a_missing_framework_is_named_with_the_command_that_installs_it(module: str, missing: str):
    program = f"import sys; sys.modules[{missing!r}] = None; import schedq.integrations.{module}"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert f"ImportError: schedq.integrations.{module} needs" in done.stderr
    assert "pip install " in done.stderr.splitlines()[-1]
