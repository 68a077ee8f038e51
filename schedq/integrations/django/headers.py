"""Headers for the jobs of tasks of Django's framework, whose calls have no place for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from schedq.model.headers import stored_headers

_headers: ContextVar[Mapping[str, str] | None] = ContextVar("schedq_job_headers", default=None)


@contextmanager
def job_headers(headers: Mapping[str, str]) -> Iterator[None]:
    """Give these headers to the jobs that this thread or asyncio task enqueues in the block.

    Headers of an outer block remain, unless this one has the same name.

    Raises:
        UsageError: they are not a mapping of names to texts, or they are too large.
    """
    stored_headers(headers)
    both = {**(_headers.get() or {}), **headers}
    stored_headers(both)
    token = _headers.set(both)
    try:
        yield
    finally:
        _headers.reset(token)


def given_headers() -> Mapping[str, str] | None:
    """Return the headers of the blocks around this call, or None."""
    return _headers.get()
