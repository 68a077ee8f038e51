"""FastAPI: queues that live as long as the application, dependencies of endpoints, and 503 while Redis is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final

try:
    from fastapi import Depends, FastAPI, Request
    from fastapi.requests import HTTPConnection
    from fastapi.responses import JSONResponse
except ImportError as error:
    raise ImportError("schedq.integrations.fastapi needs FastAPI: pip install fastapi") from error

from schedq.connection.resolver import in_thread
from schedq.dependencies.declaration import Marker
from schedq.dependencies.lifespan import Resources
from schedq.dependencies.providers import Injection, Values
from schedq.errors import StoreUnavailable, UsageError
from schedq.logs import log
from schedq.model.escaping import harmless
from schedq.queue.queue import AsyncQueue, Queue, QueueBase
from schedq.worker import Worker

_KEY: Final = "schedq"
_CLEANUP_S: Final = 30.0
AppLifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
"""What FastAPI takes as `lifespan`."""
Provide = Callable[[HTTPConnection], Coroutine[Any, Any, Any]]


@dataclass(frozen=True, slots=True)
class _Running:
    """What a running application has: its queues, and the values that live as long as itself."""

    queues: tuple[QueueBase, ...]
    resources: Resources


def lifespan(
    *queues: QueueBase, around: AppLifespan | None = None, worker: Callable[[], Worker] | None = None
) -> Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]:
    """Return a lifespan for `FastAPI(lifespan=...)`. It needs no Redis at the start, and closes connections at the end.

    Args:
        queues: those that the application uses. The first one is what `QueueDep` and `AsyncQueueDep` give to endpoints.
        around: the application's own lifespan. It is entered first and left last.
        worker: makes a worker, which runs in the application's event loop. At the end it stops gracefully.

    Raises:
        UsageError: no queue is given.
    """
    if not queues or not all(isinstance(queue, QueueBase) for queue in queues):
        raise UsageError(f"lifespan takes the queues of the application, as in lifespan(queue), got {queues!r:.200}")

    @asynccontextmanager
    async def running(app: Any) -> AsyncIterator[Mapping[str, Any]]:
        async with AsyncExitStack() as stack:
            for queue in queues:
                stack.push_async_callback(queue.aio.aclose)
            found = None if around is None else await stack.enter_async_context(around(app))
            resources = Resources((), in_thread)
            stack.push_async_callback(resources.close, _CLEANUP_S)
            if worker is not None:
                await stack.enter_async_context(_working(worker()))
            yield {**(found or {}), _KEY: _Running(queues, resources)}

    return running


@asynccontextmanager
async def _working(worker: Worker) -> AsyncIterator[None]:
    running = asyncio.create_task(worker.run())
    running.add_done_callback(_log_failure)
    try:
        yield
    finally:
        worker.stop()
        await running


def _log_failure(running: asyncio.Task[None]) -> None:
    if not running.cancelled() and (error := running.exception()) is not None:
        log.error("the worker in the web application has failed", exc_info=error)


def _running(connection: HTTPConnection) -> _Running:
    found = getattr(connection.state, _KEY, None)
    if not isinstance(found, _Running):
        raise UsageError(
            "the application has not been started with FastAPI(lifespan=schedq.integrations.fastapi.lifespan(queue)); "
            "in a test, write: with TestClient(app) as client"
        )
    return found


async def get_queue(connection: HTTPConnection) -> Queue:
    """Return the first queue of the application's `lifespan`, for plain endpoints."""
    return _running(connection).queues[0].blocking


async def get_async_queue(connection: HTTPConnection) -> AsyncQueue:
    """Return the first queue of the application's `lifespan`, for async endpoints."""
    return _running(connection).queues[0].aio


QueueDep = Annotated[Queue, Depends(get_queue)]
AsyncQueueDep = Annotated[AsyncQueue, Depends(get_async_queue)]
_provided: Final[dict[Callable[..., Any], Provide]] = {}


def resource(function: Callable[..., Any]) -> Provide:
    """Return a dependency whose value lives as long as the application: `fastapi.Depends(resource(pool))`.

    It is created when it is needed for the first time. In a task, it lives as long as the worker.

    Args:
        function: as of `schedq.Depends`, for example the `lifespan` of a queue.

    Raises:
        UsageError: it is not callable.
    """
    if not callable(function):
        raise UsageError(f"resource takes a function, got {function!r:.200}")
    if function in _provided:
        return _provided[function]
    marker = Marker(function, "worker")

    def task(*, value: Any = marker) -> Any:
        return value

    injection = Injection(task, frozenset({"value"}))

    async def provide(connection: HTTPConnection) -> Any:
        resources, values = _running(connection).resources, Values()
        for need in injection.order(resources).of_worker:
            values[need.key] = await resources.get(need, values)
        return values.arguments(injection.needs)["value"]

    vars(provide)[Marker.ATTRIBUTE] = marker
    _provided[function] = provide
    return provide


def add_exception_handlers(app: FastAPI, *, retry_after: int = 5) -> None:
    """Let endpoints that raise `StoreUnavailable` respond with the status 503 and the header `Retry-After`.

    Args:
        app: the application.
        retry_after: seconds after which the client may try again.
    """

    async def unavailable(request: Request, error: Exception) -> JSONResponse:
        log.warning("%s %s: status 503, because %s", request.method, harmless(request.url.path), error)
        detail = {"detail": "the job queue is not available; try again later"}
        return JSONResponse(detail, 503, {"Retry-After": str(retry_after)})

    app.add_exception_handler(StoreUnavailable, unavailable)
