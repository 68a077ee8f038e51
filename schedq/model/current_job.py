"""What a handler can find out about the job it runs."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from schedq.errors import UsageError
from schedq.model.records import ClaimedJob


class CurrentJob:
    """The job that the calling handler runs.

    Attributes:
        id: the job's id; use it as the key that makes effects idempotent.
        attempts: claims so far, this one included.
        claim_token: the token of this attempt.
        deadline: when the attempt times out, as an aware datetime; None without a timeout.
        queue: name of its queue.
        task: name of its task, or 'handler'.
        worker: id of the worker that runs it; '' if none does.
        headers: texts by name that its producer gave it; read-only.
    """

    def __init__(
        self,
        job: ClaimedJob,
        *,
        deadline: float | None,
        renew: Callable[[], bool],
        arenew: Callable[[], Awaitable[bool]],
        queue: str = "",
        task: str = "",
        worker: str = "",
    ) -> None:
        self.id = job.id
        self.attempts = job.attempts
        self.claim_token = job.claim_token
        self.headers = job.headers
        self.queue = queue
        self.task = task
        self.worker = worker
        self.deadline = None if deadline is None else datetime.fromtimestamp(deadline, UTC)
        self._renew = renew
        self._arenew = arenew
        self._is_cancelled = False

    def __repr__(self) -> str:
        return f"CurrentJob({self.id!r}, attempts={self.attempts})"

    @property
    def is_cancelled(self) -> bool:
        """The job was asked to stop, lost its lease or timed out: the handler should end soon."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Set `is_cancelled`; the worker calls this."""
        self._is_cancelled = True

    def renew(self) -> bool:
        """Renew the lease now; False if it is lost. Workers renew it automatically; this blocks for a round trip."""
        return self._renew()

    async def arenew(self) -> bool:
        """`renew` for async handlers."""
        return await self._arenew()


context: Final[contextvars.ContextVar[CurrentJob]] = contextvars.ContextVar("schedq_current_job")
"""Set by the worker around each call of a handler."""


def current_job() -> CurrentJob:
    """The job that the calling handler runs.

    Raises:
        UsageError: the caller is not a handler.
    """
    try:
        return context.get()
    except LookupError:
        raise UsageError("current_job() was called outside a handler") from None


def running_job() -> CurrentJob | None:
    """The job that the calling handler runs; None outside a handler."""
    return context.get(None)
