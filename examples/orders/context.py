"""The tenant and the id of the current request or job. Both travel in the headers of jobs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

tenant: ContextVar[str] = ContextVar("tenant", default="")
request_id: ContextVar[str] = ContextVar("request_id", default="")


@contextmanager
def working_for(tenant_name: str, request: str) -> Iterator[None]:
    """Set both in this block."""
    tokens = tenant.set(tenant_name), request_id.set(request)
    try:
        yield
    finally:
        tenant.reset(tokens[0])
        request_id.reset(tokens[1])


class Context(logging.Filter):
    """Adds both to each log line."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every line."""
        record.tenant, record.request_id = tenant.get(), request_id.get()
        return True
