"""One attempt at a job: its states, the transitions between them, and the attempts that a worker holds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from weakref import WeakSet

from schedq.errors import Conflict
from schedq.model.current_job import CurrentJob
from schedq.model.escaping import harmless
from schedq.model.progress import Reporters
from schedq.model.records import ClaimedJob, Settlement
from schedq.model.times import monotonic
from schedq.observer import AttemptFacts


@dataclass(frozen=True, slots=True)
class Transition:
    """A transition between states.

    Attributes:
        name: the verb.
        sources: the states that it may start from.
        target: the state that it leads to.
    """

    name: str
    sources: tuple[str, ...]
    target: str


class IllegalTransition(RuntimeError):  # noqa: N818 - a mistake in this package, never in an application
    """The table does not allow this transition."""


class StateName(StrEnum):
    """A state in such a table. `Enum` would hash it in Python code; this hashes as fast as a string."""

    __hash__ = str.__hash__


def targets(table: Sequence[Transition]) -> Mapping[str, frozenset[str]]:
    """Return, for each state of the table, the states that may follow it."""
    states = {state for each in table for state in (*each.sources, each.target)}
    return {state: frozenset(each.target for each in table if state in each.sources) for state in states}


class AttemptState(StateName):
    """The state of an attempt.

    Attributes:
        CLAIMED: the handler has not started.
        RUNNING: the handler is running.
        TIMED_OUT: the timeout has expired, and the handler was asked to end.
        LOST: this worker no longer holds the lease, so nothing is written, whatever the handler does.
        RELEASED: the worker is stopping. The handler was asked to end, and the job will be released.
        FINISHED: the outcome is decided, but not yet written to Redis. A plain handler that overran its timeout may
            still be running.
        SETTLED: the outcome is in Redis, or need not be written.
        ABANDONED: the worker has stopped and no longer waits for the handler.
    """

    CLAIMED = "claimed"
    RUNNING = "running"
    TIMED_OUT = "timed out"
    LOST = "lost"
    RELEASED = "released"
    FINISHED = "finished"
    SETTLED = "settled"
    ABANDONED = "abandoned"


CLAIMED, RUNNING, TIMED_OUT, LOST, RELEASED, FINISHED, SETTLED, ABANDONED = AttemptState
OPEN: Final = (CLAIMED, RUNNING, TIMED_OUT, RELEASED, LOST)
"""The states in which the outcome is not decided yet."""
TRANSITIONS: Final = (
    Transition("begin", (CLAIMED,), RUNNING),
    Transition("time_out", (RUNNING,), TIMED_OUT),
    Transition("lose", (CLAIMED, RUNNING, TIMED_OUT, RELEASED), LOST),
    Transition("release", (CLAIMED, RUNNING, TIMED_OUT), RELEASED),
    Transition("finish", (CLAIMED, RUNNING, TIMED_OUT, RELEASED), FINISHED),
    Transition("drop", (LOST,), SETTLED),
    Transition("settle", (FINISHED, ABANDONED), SETTLED),
    Transition("abandon", (*OPEN, FINISHED, SETTLED), ABANDONED),
)
_LEGAL: Final = targets(TRANSITIONS)


@dataclass(eq=False, slots=True)
class Attempt:
    """An attempt in progress.

    Attributes:
        job: the claimed job.
        queue: the name of its queue.
        worker: the id of this worker.
        state: its state.
        is_suspect: when it was claimed, the job had lost two leases or more, so that it may be killing its workers. A
            workflow run that makes progress clears the count in `job`.
        is_stop_requested: the job was cancelled; any outcome except success counts as cancelled.
        settlement: the outcome, once it is decided.
        name: the name of the task, for logs.
        current: the object that `current_job()` returns to the handler; None until the handler is called.
        facts: the object that observers receive; None if there are none.
        began_at: the start, on the monotonic clock.
        ended_at: when its outcome was decided, on the same clock.
        task: the asyncio task that runs the handler.
        thread_id: the id of the thread that a plain handler is running in.
        limit_s: the timeout in seconds, or None.
        timeout_s: the same, or None if another process measures it.
        ends_at: the time on the monotonic clock at which the timeout expires; set if dependencies, middleware or hooks
            share it with the handler.
        is_cleaning_up: the handler has ended and its dependencies are being cleaned up. Nothing interrupts that.
        apart: a separate asyncio task for a plain handler, on which the middleware in `task` waits.
        leave: lets the middleware continue with an error although the handler's thread has not ended.
        is_left: the middleware has continued in this way.
        foreseen: the exception that was raised, the error that it counts as, and the outcome that a hook was given.
    """

    job: ClaimedJob
    queue: str = ""
    worker: str = ""
    state: AttemptState = CLAIMED
    is_suspect: bool = False
    is_stop_requested: bool = False
    settlement: Settlement | None = None
    name: str = ""
    current: CurrentJob | None = None
    facts: AttemptFacts | None = None
    began_at: float = 0.0
    ended_at: float = 0.0
    task: asyncio.Task[None] | None = field(default=None)
    thread_id: int | None = None
    limit_s: float | None = None
    timeout_s: float | None = None
    ends_at: float | None = None
    is_cleaning_up: bool = False
    apart: asyncio.Task[None] | None = None
    leave: Callable[[BaseException], None] | None = None
    is_left: bool = False
    foreseen: tuple[BaseException, BaseException, Settlement] | None = None

    def become(self, state: AttemptState) -> None:
        """Move to another state.

        Raises:
            IllegalTransition: the table does not allow it.
        """
        if state not in _LEGAL[self.state]:
            raise IllegalTransition(f"attempt at job {self.job.id}: {self.state} can't become {state}")
        self.state = state

    @property
    def can_be_cancelled(self) -> bool:
        """Whether a cancellation reaches the running code. It does not reach a thread."""
        return self.thread_id is None or self.is_left

    def timeout_error(self) -> TimeoutError:
        """Return the error of an attempt that has timed out, or that the worker ends for another reason."""
        is_ended = self.limit_s is None
        return TimeoutError("the worker ends this attempt" if is_ended else f"timed out after {self.limit_s:g} s")

    def check_counts(self) -> None:
        """Raise an error if the attempt has failed while its function was still running, and could not be interrupted.

        Without this, what surrounds the function would commit the work of an attempt that has failed.
        """
        if self.state is LOST:
            raise Conflict(f"job {self.job.id}: this worker has lost its lease")
        if self.state not in OPEN or (self.state is TIMED_OUT and self.is_left):
            raise self.timeout_error()
        if self.is_left:
            raise Conflict(f"job {self.job.id}: its middleware did not wait for the function")

    def fields(self, error: str = "") -> dict[str, object]:
        """Return the fields of a log line about this attempt; see `schedq.logs`."""
        found: dict[str, object] = {
            "job_id": harmless(self.job.id),
            "queue": self.queue,
            "task": harmless(self.name),
            "attempt": self.job.attempts,
            "worker": self.worker,
        }
        if self.began_at:
            found["duration_s"] = round(monotonic() - self.began_at, 6)
        if self.job.headers:
            found["headers"] = self.job.headers
        return found | ({"error": error} if error else {})

    def interrupt(self) -> None:
        """Ask the handler to end: an async one is cancelled, a plain one can see it in `current_job()`.

        Nothing is cancelled before the handler is called. An asyncio task that is cancelled before it starts never
        runs, so the attempt would never get an outcome.
        """
        if self.current is not None:
            self.current.cancel()
            task = self.apart or self.task
            if task is not None and not self.is_cleaning_up:
                task.cancel()


class InFlight:
    """The attempts of one queue in one process: those to be settled, and those whose handlers are still running.

    Most are both. Any thread may read them; only the worker's event loop changes them.

    Args:
        interrupt: asks the handler of an attempt to end, on the worker's loop.
        reporters: collects what handlers report.

    Attributes:
        running: the attempts whose handlers are still running, including those that the worker no longer waits for.
        reporters: what handlers have reported.
    """

    def __init__(
        self, interrupt: Callable[[Attempt], None] = Attempt.interrupt, reporters: Reporters | None = None
    ) -> None:
        self._interrupt = interrupt
        self._attempts: dict[str, Attempt] = {}
        self.running: set[Attempt] = set()
        self.reporters = reporters or Reporters()
        self._listeners: list[threading.Event] = []
        _all.add(self)

    def __len__(self) -> int:
        return len(self._attempts)

    def listen(self, event: threading.Event) -> None:
        """Also set this event when an attempt is added. The listener clears it."""
        self._listeners.append(event)

    def add(self, attempt: Attempt) -> None:
        """Add an attempt at a claimed job.

        An older attempt at the same job counts as lost: its lease must have ended without this worker noticing.
        """
        older = self._attempts.get(attempt.job.id)
        self._attempts[attempt.job.id] = attempt
        for event in self._listeners:
            if not event.is_set():
                event.set()
        if older is not None:
            self.lose(older)

    def remove(self, attempt: Attempt) -> None:
        """Remove an attempt that was settled or lost."""
        if self._attempts.get(attempt.job.id) is attempt:
            del self._attempts[attempt.job.id]
        if self.reporters.by_token:
            self.reporters.forget(attempt.job.claim_token)

    def tokens(self) -> set[str]:
        """Return the claim tokens of all attempts."""
        return {attempt.job.claim_token for attempt in self.all()}

    def unknown(self, jobs: Sequence[ClaimedJob], known: set[str]) -> list[ClaimedJob]:
        """Return those of some claimed jobs whose attempts are not here, without those whose tokens are `known`."""
        known = known | self.tokens()
        return [job for job in jobs if job.claim_token not in known]

    def start(self, attempt: Attempt, task: asyncio.Task[None]) -> None:
        """Store the asyncio task that runs the handler of an attempt."""
        attempt.task = task
        self.running.add(attempt)

    def stopped(self, attempt: Attempt) -> None:
        """Record that the handler of an attempt has really ended."""
        self.running.discard(attempt)

    def lose(self, attempt: Attempt) -> None:
        """Mark an attempt as lost and interrupt it, unless its outcome is already decided."""
        if attempt.state in OPEN and attempt.state is not LOST:
            attempt.become(LOST)
            self._interrupt(attempt)

    def request_stop(self, attempt: Attempt) -> bool:
        """Interrupt an attempt whose job was cancelled. Returns False if it is too late or was requested before."""
        if attempt.state not in OPEN or attempt.is_stop_requested:
            return False
        attempt.is_stop_requested = True
        self._interrupt(attempt)
        return True

    def release(self) -> list[asyncio.Task[None]]:
        """Ask all handlers to end, so that their jobs can be released. Returns the tasks of those still running."""
        open_ones = [attempt for attempt in self.all() if attempt.state in OPEN]
        for attempt in open_ones:
            if attempt.state not in (LOST, RELEASED):
                attempt.become(RELEASED)
            self._interrupt(attempt)
        return [attempt.task for attempt in open_ones if attempt.task is not None]

    def abandon(self) -> list[asyncio.Task[None]]:
        """Stop waiting for handlers, even for plain ones, which can't be stopped. Returns their tasks."""
        for attempt in self.running:
            attempt.become(ABANDONED)
            attempt.interrupt()
        return [attempt.task for attempt in self.running if attempt.task is not None]

    def all(self) -> list[Attempt]:
        """Return the attempts to be settled."""
        return list(self._attempts.values())  # a single step, which no other thread can interrupt


_all: Final[WeakSet[InFlight]] = WeakSet()


def running_attempts() -> list[Attempt]:
    """Return all attempts of this process whose handlers are still running. Any thread may call it."""
    return [attempt for in_flight in list(_all) for attempt in list(in_flight.running)]
