"""Queues in a FastAPI application: they live as long as it, endpoints get them, and so do tests and tasks."""

import logging
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import fastapi
import pytest
from fastapi import APIRouter, FastAPI, Request, WebSocket
from sqlalchemy import create_engine, event
from sqlalchemy.orm import Session, sessionmaker

from schedq import AsyncQueue, Depends, Queue, UsageError, Worker
from schedq.integrations.fastapi import AsyncQueueDep, QueueDep, add_exception_handlers, lifespan, resource
from schedq.integrations.sqlalchemy import session_per_attempt
from schedq.testing import QueueTester, override
from tests.doors import Handle
from tests.waiting import until

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of Starlette, about the client library that it prefers
    from fastapi.testclient import TestClient


@pytest.fixture
def door() -> str:
    return "blocking"


def test_sync_and_async_endpoints_enqueue_and_an_application_may_start_again(schedq_tester: QueueTester):
    queue = Queue("shop")
    double = queue.task(name="double")(lambda number: 2 * number)
    app = FastAPI(lifespan=lifespan(queue))

    @app.post("/plain/{number}")
    def plain(number: int) -> str:
        return double.enqueue(number).id

    @app.post("/async/{number}")
    async def asynchronous(number: int) -> str:
        return (await double.aenqueue(number)).id

    for _ in range(2):
        with TestClient(app) as client:
            ids = [client.post(f"/{kind}/21").json() for kind in ("plain", "async")]
            assert schedq_tester.run_due() == 2
            assert [queue.job(job_id).result(0) for job_id in ids] == [42, 42]


def test_endpoints_get_the_queue_also_in_routers_and_mounted_applications_and_over_websockets(queue: Handle):
    other, router, mounted = Queue("other"), APIRouter(), FastAPI()
    app = FastAPI(lifespan=lifespan(queue.queue, other))

    @router.get("/plain")
    def plain(queue: QueueDep) -> list[object]:
        assert type(queue) is Queue
        return [queue.name, queue.stats().pending_depth]

    @mounted.get("/async")
    async def asynchronous(queue: AsyncQueueDep) -> list[object]:
        assert type(queue) is AsyncQueue
        return [queue.name, (await queue.stats()).pending_depth]

    @app.websocket("/socket")
    async def socket(websocket: WebSocket, queue: AsyncQueueDep) -> None:
        await websocket.accept()
        await websocket.send_json([queue.name, (await queue.stats()).pending_depth])
        await websocket.close()

    app.include_router(router)
    app.mount("/mounted", mounted)
    queue.enqueue(1)
    with TestClient(app) as client:
        assert client.get("/plain").json() == [queue.name, 1]
        assert client.get("/mounted/async").json() == [queue.name, 1]
        with client.websocket_connect("/socket") as connected:
            assert connected.receive_json() == [queue.name, 1]
    queue.purge()
    other.close()


def test_an_application_that_was_not_started_is_named(queue: Handle):
    app = FastAPI(lifespan=lifespan(queue.queue))

    @app.get("/")
    def plain(queue: QueueDep) -> str:
        return queue.name

    with pytest.raises(UsageError, match=r"in a test, write: with TestClient\(app\) as client"):
        TestClient(app).get("/")


def test_lifespan_takes_queues():
    wrong: Any = lifespan

    for arguments in ((), ("shop",)):
        with pytest.raises(UsageError, match="lifespan takes the queues of the application"):
            wrong(*arguments)


def test_the_applications_own_lifespan_is_around_and_its_state_is_kept(queue: Handle):
    seen: list[str] = []

    @asynccontextmanager
    async def own(app: FastAPI) -> AsyncIterator[dict[str, str]]:
        seen.append(app.title)
        yield {"color": "green"}
        assert await queue.queue.aio.get_job("nothing") is None
        seen.append("the queue still works")

    app = FastAPI(title="Shop", lifespan=lifespan(queue.queue, around=own))

    @app.get("/")
    def color(request: Request) -> str:
        return str(request.state.color)

    with TestClient(app) as client:
        assert client.get("/").json() == "green"
    assert seen == ["Shop", "the queue still works"]


# -- values that live as long as the application


class Pool:
    def __init__(self, name: str) -> None:
        self.name = name


def test_a_value_lives_as_long_as_the_application_and_in_tasks_as_long_as_the_worker(schedq_tester: QueueTester):
    seen: list[str] = []

    @asynccontextmanager
    async def pool() -> AsyncIterator[Pool]:
        seen.append("opened")
        yield Pool("the pool")
        seen.append("closed")

    def users(pool: Annotated[Pool, fastapi.Depends(resource(pool))]) -> Iterator[str]:
        yield f"users in {pool.name}"

    queue, get_pool = Queue("users", lifespan=pool), resource(pool)

    @queue.task
    def task(*, users: str = Depends(users), pool: Pool = Depends(get_pool)) -> str:
        return f"{users}, {pool.name}"

    app = FastAPI(lifespan=lifespan(queue))

    @app.get("/")
    def endpoint(users: Annotated[str, fastapi.Depends(users)]) -> str:
        return users

    with TestClient(app) as client:
        assert seen == []
        assert [client.get("/").json() for _ in range(2)] == ["users in the pool"] * 2
        assert seen == ["opened"]
    assert seen == ["opened", "closed"]

    job = task.enqueue()
    schedq_tester.run_due()
    assert job.result(0) == "users in the pool, the pool"
    assert seen == ["opened", "closed"] * 2

    with override(pool, asynccontextmanager(fake)), TestClient(app) as client:
        assert client.get("/").json() == "users in a fake"
    app.dependency_overrides[resource(pool)] = lambda: Pool("another fake")
    with TestClient(app) as client:
        assert client.get("/").json() == "users in another fake"
    assert len(seen) == 4


async def fake() -> AsyncIterator[Pool]:
    yield Pool("a fake")


def test_a_value_that_could_not_be_created_is_tried_again(queue: Handle):
    attempts: list[None] = []

    async def flaky() -> str:
        attempts.append(None)
        if len(attempts) == 1:
            raise ConnectionError("not yet")
        return "connected"

    app = FastAPI(lifespan=lifespan(queue.queue))

    @app.get("/")
    async def endpoint(value: Annotated[str, fastapi.Depends(resource(flaky))]) -> str:
        return value

    with TestClient(app) as client:
        with pytest.raises(ConnectionError, match="not yet"):
            client.get("/")
        assert client.get("/").json() == "connected"


def test_a_resource_is_a_function():
    wrong: Any = resource

    with pytest.raises(UsageError, match="resource takes a function, got 'pool'"):
        wrong("pool")


# -- a worker in the application


def test_a_worker_in_the_application_runs_jobs_until_the_application_ends(queue: Handle, long_goodbyes: None):
    work = queue.task(name="work")(lambda: "done")
    app = FastAPI(lifespan=lifespan(queue.queue, worker=partial(Worker, [queue.queue], concurrency=2)))

    for _ in range(2):
        with TestClient(app):
            assert work.enqueue().result(60) == "done"
        assert queue.list_workers() == []


def test_a_worker_that_fails_is_logged_at_once_and_fails_the_end(queue: Handle, caplog: pytest.LogCaptureFixture):
    def broken() -> Any:
        raise RuntimeError("no database")

    queue.task(lambda: None, name="nothing")
    queue.queue.lifespan = broken
    app = FastAPI(lifespan=lifespan(queue.queue, worker=partial(Worker, [queue.queue])))

    with caplog.at_level(logging.ERROR, "schedq"), pytest.raises(UsageError, match="no database"), TestClient(app):
        until(lambda: "the worker in the web application has failed" in caplog.text)


# -- errors


def test_endpoints_respond_with_503_while_redis_is_unavailable():
    queue = Queue("away", redis="redis://127.0.0.1:1", retry_for=0)
    work = queue.task(name="work")(lambda: None)
    app = FastAPI(lifespan=lifespan(queue))
    add_exception_handlers(app, retry_after=7)

    @app.post("/plain")
    def plain() -> str:
        return work.enqueue().id

    @app.post("/async")
    async def asynchronous() -> str:
        return (await work.aenqueue()).id

    with TestClient(app) as client:
        for path in ("/plain", "/async"):
            response = client.post(path)
            assert (response.status_code, response.headers["Retry-After"]) == (503, "7")
            assert response.json() == {"detail": "the job queue is not available; try again later"}


@pytest.mark.parametrize(("scope", "status"), [("function", 500), ("request", 200)])
def test_a_session_of_scope_function_is_committed_before_the_response(tmp_path: Path, scope: Any, status: int):
    new_session = sessionmaker(create_engine(f"sqlite:///{tmp_path}/shop.db"))

    def refuse(session: Session) -> None:
        raise RuntimeError("the database is full")

    event.listen(new_session, "before_commit", refuse)
    get_session = session_per_attempt(new_session)
    app = FastAPI()

    @app.post("/")
    def plain(session: Annotated[Session, fastapi.Depends(get_session, scope=scope)]) -> None:
        assert session.is_active

    assert TestClient(app, raise_server_exceptions=False).post("/").status_code == status
