"""What a handler can find out about the job it runs."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any, Final, ParamSpec, TypeVar

from schedq.errors import UsageError
from schedq.model.progress import Progress, Reporter, Reporters
from schedq.model.records import ClaimedJob
from schedq.model.times import LAST_INSTANT_MS

_SLOT_DIGITS: Final = 12
"""The fewest digits of a slot, in ms since the epoch: slots since 1973."""
P = ParamSpec("P")
T = TypeVar("T")


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
        renew: Callable[[ClaimedJob], bool],
        arenew: Callable[[ClaimedJob], Awaitable[bool]],
        queue: str = "",
        task: str = "",
        worker: str = "",
        reporters: Reporters | None = None,
    ) -> None:
        self.id = job.id
        self.attempts = job.attempts
        self.claim_token = job.claim_token
        self.headers = job.headers
        self.queue = queue
        self.task = task
        self.worker = worker
        self.deadline = None if deadline is None else datetime.fromtimestamp(deadline, UTC)
        self._job = job
        self._renew = renew
        self._arenew = arenew
        self._is_cancelled = False
        self._reporters = reporters
        self._reporter: Reporter | None = None

    def __repr__(self) -> str:
        return f"CurrentJob({self.id!r}, attempts={self.attempts})"

    @property
    def gate(self) -> str:
        """The name of the job's gate; '' without one."""
        return self._job.gate

    @property
    def key(self) -> str:
        """The job's key within its gate; '' without one."""
        return self._job.key

    @property
    def slot(self) -> datetime | None:
        """The instant of its schedule for which it was enqueued, as an aware datetime in UTC; None without one.

        It is the one in the job's id, which is ID-SLOTMS for the jobs of a schedule's slots.
        """
        ms = self._schedule_and_slot()[1]
        return None if ms is None else datetime.fromtimestamp(ms / 1000, UTC)

    @property
    def schedule(self) -> str:
        """The id of the schedule for whose slot it was enqueued; '' without one."""
        return self._schedule_and_slot()[0]

    def _schedule_and_slot(self) -> tuple[str, int | None]:
        schedule, _, text = self.id.rpartition("-")
        # An id with a shorter number, such as order-4711, is one of the application.
        if not schedule or len(text) < _SLOT_DIGITS or not text.isdecimal():
            return "", None
        return (schedule, int(text)) if int(text) <= LAST_INSTANT_MS else ("", None)

    @property
    def is_cancelled(self) -> bool:
        """Whether the handler should end soon: the job was asked to stop, lost its lease or timed out."""
        return self._is_cancelled

    def cancel(self) -> None:
        """Set `is_cancelled`; the worker calls this."""
        self._is_cancelled = True

    def renew(self) -> bool:
        """Renew the lease now, in a round trip; False if it is lost. Workers also renew it automatically."""
        return self._renew(self._job)

    async def arenew(self) -> bool:
        """`renew` for async handlers."""
        return await self._arenew(self._job)

    async def run_isolated(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a plain function in one of the worker's child processes, for async handlers, and return its result.

        `current_job()` works in the function too. When the handler is cancelled, for instance by its timeout, the
        process is ended with SIGTERM, and with SIGKILL after the worker's `kill_after`.

        The function has to be at the top of a module. Its name, arguments and result are pickled.

        Raises:
            ProcessDied: the process has ended before the function, or none could be started.
            UsageError: there is no worker, this is not its event loop, or something can't be pickled.
            Exception: what the function raises; a `RemoteError` of the same name if that can't be pickled.
        """
        if (run := isolated.get(None)) is None:
            raise UsageError("run_isolated() works only in an async handler that a worker runs")
        result: T = await run(self, self._job, partial(function, *args, **kwargs))
        return result

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report how far this attempt has come; the last report counts.

        It returns at once, in an async handler too, and does not fail because Redis is away: the worker sends what has
        changed about twice a second. Any thread may call it on the object that `current_job()` returned.

        Args:
            done: how much is done, a finite number of at least 0.
            total: how much there is to do; None if that is unknown.
            note: a short text for people, shown on one line of at most 200 characters.

        Raises:
            UsageError: a number or the note is invalid.
        """
        (self._reporter or self._first_report()).set_progress(done, total, note)

    @property
    def last_progress(self) -> Progress | None:
        """The last progress that this attempt has reported; None if there is none."""
        return None if self._reporter is None else self._reporter.progress

    def update_meta(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Store facts of your own with the job until its next attempt begins; sent as `progress` is.

        It adds to what this attempt has stored before, as `dict.update` does.

        Raises:
            UsageError: it is not JSON, or with what was stored before it is more than 4,096 bytes; nothing changes.
        """
        if not isinstance(values, Mapping | None):
            raise UsageError(f"update_meta takes a mapping or keywords, got {values!r:.80}")
        (self._reporter or self._first_report()).update_meta({**(values or {}), **more})

    @property
    def meta(self) -> Mapping[str, Any]:
        """A read-only copy of what this attempt has stored with `update_meta`."""
        return MappingProxyType({} if self._reporter is None else self._reporter.meta)

    def _first_report(self) -> Reporter:
        if self._reporters is None:
            self._reporters = Reporters()
        self._reporter = reporter = self._reporters.add(self.id, self.claim_token)
        return reporter


context: Final[contextvars.ContextVar[CurrentJob]] = contextvars.ContextVar("schedq_current_job")
"""Set by the worker around each call of a handler."""
Isolated = Callable[[CurrentJob, ClaimedJob, "partial[Any]"], Awaitable[Any]]
isolated: Final[contextvars.ContextVar[Isolated]] = contextvars.ContextVar("schedq_isolated")
"""Runs functions in child processes; set by the worker once."""


async def run_here(_current: CurrentJob, _job: ClaimedJob, function: partial[Any]) -> Any:
    """Run such a function in this process, as tests do."""
    return function()


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
