"""Right calls: every line must pass the type checker, and a comment says which type it reveals."""

from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any, Literal, reveal_type

import fastapi
from fastapi import FastAPI
from flask import Flask
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from schedq import (
    AsyncQueue,
    AttemptEnd,
    AttemptFacts,
    CallNext,
    ClaimedJob,
    CurrentJob,
    Depends,
    EnqueueFacts,
    Fixed,
    Flow,
    FlowNode,
    Job,
    Middleware,
    NewJob,
    Observer,
    Queue,
    Worker,
    current_job,
    inherit_headers,
    track,
)
from schedq.integrations.fastapi import AsyncQueueDep, QueueDep, add_exception_handlers, resource
from schedq.integrations.fastapi import lifespan as serving
from schedq.integrations.flask import FlaskContext
from schedq.integrations.sqlalchemy import session_per_attempt

queue = Queue("mail", redis="redis://localhost", backoff=Fixed(5), clock=lambda: 0.0)


@queue.task
def send(to: str, subject: str = "hi") -> int:
    return len(to + subject)


@queue.task(name="fetch", max_attempts=5, timeout=30, durability="memory")
async def fetch(url: str) -> bytes:
    return url.encode()


@queue.task(backoff=lambda attempt, error: attempt * 2.0)
def flaky() -> None:
    reveal_type(current_job().id)  # R: str
    current_job().progress(1, 2.5, "note")
    current_job().update_meta({"page": 1}, rows=[2])
    reveal_type(current_job().meta)  # R: Mapping[str, Any]
    reveal_type(track([1, 2]))  # R: Iterator[int]
    reveal_type(track(fetched(), total=5, note="pages"))  # R: AsyncIterator[bytes]


async def fetched() -> AsyncIterator[bytes]:
    yield b""


@queue.handler
def handle(payload: dict[str, str]) -> str:
    return payload["kind"]


reveal_type(send("ada"))  # R: int
reveal_type(send.enqueue("ada"))  # R: Job[int]
reveal_type(send.enqueue("ada", subject="later"))  # R: Job[int]
reveal_type(send.enqueue("ada").result(timeout=5))  # R: int
reveal_type(fetch.enqueue("https://example.org"))  # R: Job[bytes]
reveal_type(fetch.enqueue("https://example.org").result())  # R: bytes
reveal_type(send.options(delay=60).enqueue("ada"))  # R: Job[int]
reveal_type(fetch.options(run_at=datetime(2030, 1, 1, tzinfo=UTC)).enqueue("a"))  # R: Job[bytes]
reveal_type(send.enqueue_many([(("a",), {}), (("b",), {"subject": "c"})]))  # R: list[Job[int]]
reveal_type(fetch.enqueue_many([(("a",), {})]))  # R: list[Job[bytes]]
reveal_type(send.with_args("a", subject="c"))  # R: NewJob
reveal_type(send.enqueue_many([send.with_args("a"), (("b",), {})]))  # R: list[Job[int]]
reveal_type(send.options(queue=Queue("other")).enqueue("a"))  # R: Job[int]
reveal_type(flaky.enqueue())  # R: Job[None]
reveal_type(handle({"kind": "a"}))  # R: str

job: Job[int] = send.enqueue("ada")
reveal_type(job.status())  # R: str
reveal_type(job.wait(1))  # R: bool
reveal_type(job.created)  # R: bool | None
reveal_type(job.reschedule(delay=5))  # R: bool
reveal_type(job.why())  # R: Why
reveal_type(job.timeline())  # R: Timeline | None
reveal_type(job.progress())  # R: Progress | None
reveal_type(job.wait(1, on_progress=lambda progress: print(progress.fraction)))  # R: bool
stats = queue.stats()
reveal_type(stats.pending_depth)  # R: int
reveal_type(stats.next_due_ms)  # R: int | None
reveal_type(stats["pending_depth"])  # R: int
reveal_type(stats["paused_since_ms"])  # R: int | None
cancellation: Literal["cancelled", "asked", "no"] = job.cancel()

reveal_type(queue.enqueue({"kind": "email"}, delay=timedelta(minutes=5)))  # R: str
reveal_type(queue.enqueue_many([{"n": 1}, NewJob({"n": 2}, job_id="two")]))  # R: list[str]
reveal_type(queue.enqueue(1, durability="fsync"))  # R: str
reveal_type(queue.enqueue(1, job_id="one", must_create=True))  # R: str
reveal_type(queue.enqueue_many([NewJob(1, job_id="one", reuse_id=True)]))  # R: list[str]
reveal_type(send.options(job_id="one", reuse_id=True).enqueue("ada"))  # R: Job[int]
reveal_type(send.options(durability="replicated").enqueue("ada"))  # R: Job[int]
claimed = queue.claim(timeout_ms=0)
reveal_type(claimed)  # R: ClaimedJob | None
if claimed is not None:
    reveal_type(queue.complete(claimed, {"sent": True}))  # R: bool
    kept: ClaimedJob = claimed
events: Generator[dict[str, object], None, None] = queue.events(timeout=1)
reveal_type(queue.aio)  # R: AsyncQueue
asked: Literal["cancelled", "asked", "no"] = queue.cancel("one")
reveal_type(queue.list_failed(limit=10))  # R: list[JobRecord]
reveal_type(queue.wait("one", timeout=1))  # R: bool
reveal_type(queue.gather_results([job], timeout=1))  # R: list[int]
reveal_type(queue.gather_results([job], return_exceptions=True))  # R: list[int | Exception]
reveal_type(queue.gather_results(["one", job]))  # R: list[Any]
reveal_type(queue.pause())  # R: None
reveal_type(queue.inspector.why("one"))  # R: Why
reveal_type(queue.inspector.find("failed", task="send"))  # R: JobPage
reveal_type(queue.schedules.get("nightly"))  # R: ScheduleRecord | None
reveal_type(queue.schedules.pause("nightly"))  # R: bool


async def main(aqueue: AsyncQueue) -> None:
    reveal_type(await send.aenqueue("ada"))  # R: Job[int]
    reveal_type(await (await fetch.aenqueue("a")).aresult())  # R: bytes
    reveal_type(await fetch("a"))  # R: bytes
    reveal_type(await aqueue.gather_results([job], timeout=1))  # R: list[int]
    reveal_type(await aqueue.claim())  # R: ClaimedJob | None
    reveal_type(await aqueue.enqueue({"kind": "email"}, delay=60))  # R: str
    reveal_type(await aqueue.list_failed(limit=10))  # R: list[JobRecord]
    reveal_type(await aqueue.inspector.why("one"))  # R: Why
    reveal_type(await aqueue.schedules.get("nightly"))  # R: ScheduleRecord | None
    reveal_type(aqueue.blocking)  # R: Queue
    async for event in aqueue.events():
        reveal_type(event["id"])  # R: Any

    @aqueue.task
    async def later(n: int) -> str:
        return str(n)

    reveal_type(later.enqueue(1))  # R: Job[str]


# -- dependencies


@asynccontextmanager
async def lifespan() -> AsyncIterator[bytes]:
    yield b"pool"


@contextmanager
def managed() -> Iterator[bytes]:
    yield b"pool"


def session() -> Iterator[int]:
    yield 1


async def asession() -> AsyncIterator[int]:
    yield 1


async def client() -> float:
    return 1.0


class Settings:
    debug = True


injecting = Queue("injecting", lifespan=lifespan)


@injecting.task
def charge(
    order: int,
    *,
    pool: bytes = Depends(lifespan),
    other: bytes = Depends(managed, scope="worker"),
    db: int = Depends(session),
    adb: int = Depends(asession),
    http: float = Depends(client),
    settings: Settings = Depends(Settings),
    job: CurrentJob = Depends(current_job),
    orm: Session = Depends(session_per_attempt(sessionmaker())),
    aorm: AsyncSession = Depends(session_per_attempt(async_sessionmaker())),
) -> bool:
    return settings.debug


reveal_type(charge.enqueue(1))  # R: Job[bool]


# -- FastAPI

app = FastAPI(lifespan=serving(queue, Queue("other"), worker=partial(Worker, [queue], concurrency=2)))
add_exception_handlers(app, retry_after=10)
FastAPI(lifespan=serving(queue.aio, around=serving(queue)))
Pool = Annotated[bytes, fastapi.Depends(resource(lifespan))]
Orm = Annotated[Session, fastapi.Depends(session_per_attempt(sessionmaker()))]


@app.get("/jobs/{job_id}")
async def status(job_id: str, queue: AsyncQueueDep, pool: Pool, session: Orm) -> bool:
    reveal_type(pool)  # R: bytes
    reveal_type(session)  # R: Session
    return await queue.get_job(job_id) is not None


@app.get("/depth")
def depth(queue: QueueDep) -> int:
    reveal_type(queue)  # R: Queue
    return queue.stats().pending_depth


# -- headers


@injecting.before_enqueue
def tag(job: EnqueueFacts) -> None:
    job.headers["tenant"] = job.headers.get("locale", "none")
    reveal_type(job.task)  # R: str | None


injecting.before_enqueue(inherit_headers("tenant"))
injecting.before_enqueue(lambda job: job.headers.setdefault("tenant", "acme"))
reveal_type(charge.options(headers={"tenant": "acme"}).enqueue(1))  # R: Job[bool]
reveal_type(current_job().headers["tenant"])  # R: str
charge.options(headers=current_job().headers)


# -- middleware, hooks, observers


async def plain_layer(attempt: AttemptFacts, call_next: CallNext) -> object:
    reveal_type(attempt.job.attempts)  # R: int
    reveal_type(await call_next())  # R: Any
    return await call_next()


@queue.use
async def timing(attempt: AttemptFacts, call_next: CallNext) -> Any:
    return await call_next()


class Layer:
    async def __call__(self, attempt: AttemptFacts, call_next: CallNext) -> Any:
        return await call_next()


class Watch(Observer):
    def attempt_ended(self, attempt: AttemptFacts, end: AttemptEnd) -> None: ...


@queue.around
@contextmanager
def surrounding(attempt: AttemptFacts) -> Iterator[None]:
    yield


queue.around(FlaskContext(Flask("shop")))
queue.around(lambda attempt: Flask(attempt.task).app_context())
layers: list[Middleware] = [plain_layer, timing, Layer()]
reveal_type(queue.use(Layer()))  # R: Layer
reveal_type(queue.observe(Watch()))  # R: Watch
Worker([queue], middleware=[timing, Layer()], observers=[Watch()])
reveal_type(Queue("other").register(send).enqueue("ada"))  # R: Job[int]


def on_success(attempt: AttemptFacts, result: int) -> None: ...


async def on_failure(attempt: AttemptFacts, error: BaseException) -> None: ...


def on_retry(attempt: AttemptFacts, error: Exception | BaseException, delay: float) -> str:
    return f"{attempt.task}: {error} {delay}"


@queue.task(
    on_success=on_success,
    on_failure=on_failure,
    on_retry=on_retry,
    retry_on=(ConnectionError, TimeoutError),
    discard_on=ValueError,
)
def hooked(n: int) -> int:
    return n


reveal_type(hooked.enqueue(1))  # R: Job[int]
queue.task(on_failure=lambda attempt, error: print(attempt.job.id, error))(print)


@queue.flow
def declared(flow: Flow, where: str) -> FlowNode[bytes]:
    reveal_type(flow.call(send, where))  # R: FlowNode[int]
    many = flow.map(fetch, flow.call(fetch, where).result.splitlines())
    reveal_type(many.result)  # R: BatchResults[bytes]
    flow.options(name="late", after=many, when="ended").call(send, to=where)
    return flow.first(flow.call(fetch, where), flow.call(fetch, "b"))


@queue.flow(run_timeout=60)
def undeclared(flow: Flow) -> None:
    flow.call(declared, "x")


reveal_type(declared.enqueue("x"))  # R: Job[bytes]
reveal_type(undeclared.enqueue())  # R: Job[None]
some = queue.flow("some")
reveal_type(some.start())  # R: Job[None]
reveal_type(some.start(some.call(declared, "x"), job_id="a"))  # R: Job[bytes]
