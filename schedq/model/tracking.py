"""Iterate, and report how far the iteration has come as the progress of the running job."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sized
from contextlib import suppress
from typing import Any, TypeVar, overload

from schedq.model.current_job import CurrentJob, running_job

T = TypeVar("T")


@overload
def track(items: AsyncIterable[T], total: float | None = None, *, note: str = "") -> AsyncIterator[T]: ...
@overload
def track(items: Iterable[T], total: float | None = None, *, note: str = "") -> Iterator[T]: ...
def track(items: Any, total: float | None = None, *, note: str = "") -> Any:
    """Iterate over `items`, and report after each one how many are done; outside a handler, only iterate.

    Args:
        items: an iterable, or an async one for `async for`.
        total: how many there are; by default their `len`, and unknown if they have none.
        note: a short text for people.

    Raises:
        UsageError: `total` or `note` is invalid.
    """
    job = running_job()
    if job is None:
        return aiter(items) if isinstance(items, AsyncIterable) else iter(items)
    if total is None and isinstance(items, Sized):
        with suppress(TypeError):  # some have a `__len__` that raises
            total = len(items)
    job.progress(0, total, note)
    return (_each_async if isinstance(items, AsyncIterable) else _each)(items, job, total, note)


def _each(items: Iterable[T], job: CurrentJob, total: float | None, note: str) -> Iterator[T]:
    for done, item in enumerate(items, 1):
        yield item
        job.progress(done, total, note)


async def _each_async(items: AsyncIterable[T], job: CurrentJob, total: float | None, note: str) -> AsyncIterator[T]:
    done = 0
    async for item in items:
        yield item
        done += 1
        job.progress(done, total, note)
