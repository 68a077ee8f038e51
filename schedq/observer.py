"""What a worker tells those who watch it: attempts, leases, progress. Watching changes nothing of what happens.

While nobody watches nothing is made and nobody called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Literal

from schedq.job import ClaimedJob
from schedq.logger import log

Outcome = Literal["completed", "retry", "failed", "snoozed", "released", "cancelled", "lost"]
"""How an attempt ends, in the words of a job's history; `lost`: its lease had become another's."""


@dataclass(frozen=True, slots=True, eq=False)
class AttemptFacts:
    """One attempt that a worker began. The same object is told at its start, around its handler and at its end.

    Attributes:
        queue: name of the queue.
        worker: id of the worker.
        task: name of the task, 'handler', or '' if nothing here can run the job.
        job: what was claimed; `attempts` is this attempt's number.
        lateness_ms: from when the job was due (or enqueued, if it never waited) to this claim, on Redis's clock. What
            an earlier attempt took that was lost or released is in it. None if its producer did not say when that was.
    """

    queue: str
    worker: str
    task: str
    job: ClaimedJob
    lateness_ms: int | None


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt ended, as this worker decided; Redis hears it a moment later.

    Attributes:
        outcome: in one word.
        duration_s: seconds since it began, on this process's monotonic clock.
        error: in brief, or ''.
        delay_ms: until the job is due again, for retry and snoozed.
        exception: what the handler raised, for retry, failed, snoozed and cancelled; None if it raised nothing. It
            holds the handler's frames with their variables: who keeps it keeps them.
    """

    outcome: Outcome
    duration_s: float
    error: str = ""
    delay_ms: int = 0
    exception: BaseException | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Vital:
    """How a worker serves one of its queues at this instant.

    Attributes:
        queue: its name.
        in_flight: attempts that the worker holds.
        lost_for_s: seconds for which its Redis has not answered; 0 while it does.
    """

    queue: str
    in_flight: int
    lost_for_s: float


class Observer:
    """Override what you want to hear. All but `around` is called on the worker's event loop and must not wait.

    What an observer raises is logged once and goes no further.
    """

    def worker_started(self, worker: str, queues: Sequence[str]) -> None:
        """The worker of this id is about to claim jobs of these queues."""

    def worker_stopping(self, worker: str) -> None:
        """It was told to stop: it claims no more."""

    def worker_stopped(self, worker: str) -> None:
        """It has gone."""

    def attempt_started(self, attempt: AttemptFacts) -> None:
        """An attempt began."""

    def around(self, attempt: AttemptFacts) -> AbstractContextManager[object] | None:  # noqa: ARG002 - to be overridden
        """What the handler's call is done within, in the handler's own task or thread; None: nothing.

        Its exit sees what the handler raises, and can't swallow it. It is left only when the handler has really ended,
        for a plain one that overran its timeout after `attempt_ended`; and it is asked for a second time, on the loop,
        for a plain function that returned an awaitable.
        """
        return None

    def attempt_ended(self, attempt: AttemptFacts, end: AttemptEnd) -> None:
        """An attempt ended; once for each that was told to have started."""

    def lease_lost(self, queue: str, job_id: str) -> None:
        """What became of an attempt of this worker could not be told, for the job is another's."""

    def jobs_reclaimed(self, queue: str, job_ids: Sequence[str]) -> None:
        """The promoter in this process took back what another worker held for longer than its lease."""

    def claim_answered(self, queue: str, jobs: int, has_more: bool) -> None:  # noqa: FBT001 - a fact, not a switch
        """Redis answered a claim with so many jobs, and said whether more wait."""

    def claim_refused(self, queue: str, why: str) -> None:
        """Redis refused a claim; it is tried again every second."""

    def beat_answered(self, queue: str) -> None:
        """Redis answered a sign of life, one every 10 s."""

    def went_round(self, queue: str) -> None:
        """The queue's pump looked whether there is something to do."""


everywhere: Final[list[Observer]] = []
"""Those that watch every worker that this process makes from now on."""


class Observers(Observer):
    """All that watch a worker, told one after the other.

    Attributes:
        is_watched: there are any; who tells asks this before it makes what it would tell.
    """

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._all = tuple(observers)
        self.is_watched = bool(self._all)
        self._failed: set[tuple[int, str]] = set()

    def has(self, kind: type[Observer]) -> bool:
        """Whether one of this kind is among them."""
        return any(isinstance(observer, kind) for observer in self._all)

    def worker_started(self, worker: str, queues: Sequence[str]) -> None:
        """Tell all."""
        self._tell("worker_started", worker, queues)

    def worker_stopping(self, worker: str) -> None:
        """Tell all."""
        self._tell("worker_stopping", worker)

    def worker_stopped(self, worker: str) -> None:
        """Tell all."""
        self._tell("worker_stopped", worker)

    def attempt_started(self, attempt: AttemptFacts) -> None:
        """Tell all."""
        self._tell("attempt_started", attempt)

    def around(self, attempt: AttemptFacts) -> AbstractContextManager[object]:
        """What each of them wants the call to be done within, the first outermost."""
        return _Around(self, attempt)

    def attempt_ended(self, attempt: AttemptFacts, end: AttemptEnd) -> None:
        """Tell all."""
        self._tell("attempt_ended", attempt, end)

    def lease_lost(self, queue: str, job_id: str) -> None:
        """Tell all."""
        self._tell("lease_lost", queue, job_id)

    def jobs_reclaimed(self, queue: str, job_ids: Sequence[str]) -> None:
        """Tell all."""
        self._tell("jobs_reclaimed", queue, job_ids)

    def claim_answered(self, queue: str, jobs: int, has_more: bool) -> None:  # noqa: FBT001 - as in Observer
        """Tell all."""
        self._tell("claim_answered", queue, jobs, has_more)

    def claim_refused(self, queue: str, why: str) -> None:
        """Tell all."""
        self._tell("claim_refused", queue, why)

    def beat_answered(self, queue: str) -> None:
        """Tell all."""
        self._tell("beat_answered", queue)

    def went_round(self, queue: str) -> None:
        """Tell all."""
        self._tell("went_round", queue)

    def wrapped(self, attempt: AttemptFacts, function: Callable[[], Any]) -> Callable[[], Any]:
        """A plain function, to be called within what the observers want around it."""

        def call() -> Any:
            with _Around(self, attempt):
                return function()

        return call

    def awrapped(self, attempt: AttemptFacts, function: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        """Twin of `wrapped` for what is awaited."""

        async def call() -> Any:
            with _Around(self, attempt):
                return await function()

        return call

    def entered(self, attempt: AttemptFacts) -> list[tuple[Observer, AbstractContextManager[object]]]:
        """Enter what the observers want around a call; what fails is left out."""
        found: list[tuple[Observer, AbstractContextManager[object]]] = []
        for observer in self._all:
            try:
                context = observer.around(attempt)
                if context is not None:
                    context.__enter__()
                    found.append((observer, context))
            except BaseException as error:  # noqa: BLE001 - whoever watches may not disturb
                self.complain(observer, "around", error)
        return found

    def complain(self, observer: Observer, event: str, error: BaseException) -> None:
        """Log what an observer raised, the first time that this one does so there."""
        if (id(observer), event) not in self._failed:
            self._failed.add((id(observer), event))
            name = type(observer).__name__
            log.error("observer %s: %s failed; further ones are not logged", name, event, exc_info=error)

    def _tell(self, event: str, *facts: object) -> None:
        for observer in self._all:
            try:
                getattr(observer, event)(*facts)
            except BaseException as error:  # noqa: BLE001 - whoever watches may not disturb
                self.complain(observer, event, error)


class OnLoop(Observers):
    """Tells observers on the worker's event loop what a thread beside it saw, as soon as the loop turns."""

    def __init__(self, observers: Observers, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.is_watched = observers.is_watched
        self._observers = observers
        self._loop = loop

    def _tell(self, event: str, *facts: object) -> None:
        if self.is_watched:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._observers._tell, event, *facts)


class _Around:
    """What the observers want around one call. No generator: its frames would stand in the handler's traceback."""

    __slots__ = ("_attempt", "_entered", "_observers")

    def __init__(self, observers: Observers, attempt: AttemptFacts) -> None:
        self._observers = observers
        self._attempt = attempt
        self._entered: list[tuple[Observer, AbstractContextManager[object]]] = []

    def __enter__(self) -> None:
        self._entered = self._observers.entered(self._attempt)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for observer, context in reversed(self._entered):
            try:
                context.__exit__(kind, error, trace)
            except BaseException as problem:  # noqa: BLE001 - whoever watches may not disturb
                if problem is not error:
                    self._observers.complain(observer, "around", problem)


NOBODY: Final = Observers()
