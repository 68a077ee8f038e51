"""One attempt at a job: its states, every legal way between them, and all attempts that a worker holds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from weakref import WeakSet

from schedq.model.current_job import CurrentJob
from schedq.model.escaping import harmless
from schedq.model.progress import Reporters
from schedq.model.records import ClaimedJob, Settlement
from schedq.model.times import monotonic
from schedq.observer import AttemptFacts


@dataclass(frozen=True, slots=True)
class Transition:
    """One way from state to state.

    Attributes:
        name: the verb.
        sources: states that it may start from.
        target: the state that it leads to.
    """

    name: str
    sources: tuple[str, ...]
    target: str


class IllegalTransition(RuntimeError):  # noqa: N818 - a mistake in this package, never in an application
    """The table has no way from the one state to the other."""


class StateName(StrEnum):
    """A state of such a table; as a key it costs no more than a string, which `Enum` would hash in Python."""

    __hash__ = str.__hash__


def targets(table: Sequence[Transition]) -> Mapping[str, frozenset[str]]:
    """For each state of the table, the states that may follow it."""
    states = {state for each in table for state in (*each.sources, each.target)}
    return {state: frozenset(each.target for each in table if state in each.sources) for state in states}


class AttemptState(StateName):
    """Where an attempt is.

    Attributes:
        CLAIMED: its handler has yet to begin.
        RUNNING: its handler runs.
        TIMED_OUT: its timeout has struck, and the handler was told to end.
        LOST: the lease is another worker's; whatever the handler does, nothing is written.
        RELEASED: the worker stops; the handler was told to end, and the job is given back.
        FINISHED: how it ends is decided, and Redis has yet to hear it. A plain handler that overran its timeout still
            runs.
        SETTLED: Redis has heard it, or need not.
        ABANDONED: the worker has gone and waits no longer.
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
"""How the attempt ends is not decided yet."""
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
    """One attempt under way.

    Attributes:
        job: what was claimed.
        queue: name of its queue.
        worker: id of this worker.
        state: where it is.
        is_stop_requested: somebody cancelled the job; any end but success makes it a cancelled one.
        settlement: how it ends, once it is finished.
        name: of the task, for logs.
        current: what the handler can know of it; None until the handler is called.
        facts: what observers were told of it; None if there are none.
        began_at: when, on the monotonic clock.
        task: runs the handler.
        thread_id: of the thread that a plain handler runs in, while it does.
        timeout_s: what it may take, or None.
        ends_at: when its timeout strikes, on the monotonic clock, if its dependencies took time before the handler.
        is_cleaning_up: its handler has ended and its dependencies are being cleaned up, which nothing interrupts.
        apart: a task for its plain handler alone, while the middleware in `task` waits for that.
        leave: lets the middleware continue with an error, though the handler's thread has not ended.
        is_left: it has.
        foreseen: what was raised, the error that it counts as, and the end that a hook was notified of.
    """

    job: ClaimedJob
    queue: str = ""
    worker: str = ""
    state: AttemptState = CLAIMED
    is_stop_requested: bool = False
    settlement: Settlement | None = None
    name: str = ""
    current: CurrentJob | None = None
    facts: AttemptFacts | None = None
    began_at: float = 0.0
    task: asyncio.Task[None] | None = field(default=None)
    thread_id: int | None = None
    timeout_s: float | None = None
    ends_at: float | None = None
    is_cleaning_up: bool = False
    apart: asyncio.Task[None] | None = None
    leave: Callable[[BaseException], None] | None = None
    is_left: bool = False
    foreseen: tuple[BaseException, BaseException, Settlement] | None = None

    def become(self, state: AttemptState) -> None:
        """Go on to another state.

        Raises:
            IllegalTransition: the table has no way there.
        """
        if state not in _LEGAL[self.state]:
            raise IllegalTransition(f"attempt at job {self.job.id}: {self.state} can't become {state}")
        self.state = state

    @property
    def is_suspect(self) -> bool:
        """The job lost two leases or more: it may kill its worker."""
        return self.job.crashes >= 2

    @property
    def can_be_cancelled(self) -> bool:
        """Whether a cancellation reaches what runs; it does not reach a thread."""
        return self.thread_id is None or self.is_left

    def timeout_error(self) -> TimeoutError:
        """The error of an attempt that has timed out."""
        return TimeoutError(f"timed out after {self.timeout_s or 0:g} s")

    def fields(self, error: str = "") -> dict[str, object]:
        """What a line of the log about it carries; see `schedq.logs`."""
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
        """Tell the handler to end: an async one is cancelled, a plain one can see it in `current_job()`.

        Before the handler is called nothing is cancelled: a task that is cancelled before it starts never runs, and
        could not say how the attempt ended.
        """
        if self.current is not None:
            self.current.cancel()
            task = self.apart or self.task
            if task is not None and not self.is_cleaning_up:
                task.cancel()


class InFlight:
    """The attempts of one queue in one process: those to be settled, and those whose handlers have yet to end.

    Most are both. Any thread may read; they change on the worker's event loop only.

    Args:
        interrupt: tells the handler of an attempt to end, on the worker's loop.
        reporters: collects what handlers report.

    Attributes:
        running: the attempts whose handlers have yet to end, also those that nobody waits for any more.
        reporters: what handlers report.
    """

    def __init__(
        self, interrupt: Callable[[Attempt], None] = Attempt.interrupt, reporters: Reporters | None = None
    ) -> None:
        self._interrupt = interrupt
        self._attempts: dict[str, Attempt] = {}
        self.running: set[Attempt] = set()
        self.reporters = reporters or Reporters()
        self.changed = threading.Event()
        self._listeners = [self.changed]
        _all.add(self)

    def __len__(self) -> int:
        return len(self._attempts)

    def listen(self, event: threading.Event) -> None:
        """Also set this event when an attempt is added; the listener clears it."""
        self._listeners.append(event)

    def add(self, attempt: Attempt) -> None:
        """A job was claimed. An older attempt at it is told to end: its lease must have ended unnoticed."""
        older = self._attempts.get(attempt.job.id)
        self._attempts[attempt.job.id] = attempt
        for event in self._listeners:
            if not event.is_set():
                event.set()
        if older is not None:
            self.lose(older)

    def remove(self, attempt: Attempt) -> None:
        """An attempt has been settled, or was lost."""
        if self._attempts.get(attempt.job.id) is attempt:
            del self._attempts[attempt.job.id]
        if self.reporters.by_token:
            self.reporters.forget(attempt.job.claim_token)

    def start(self, attempt: Attempt, task: asyncio.Task[None]) -> None:
        """The task that runs the handler of an attempt has been made."""
        attempt.task = task
        self.running.add(attempt)

    def stopped(self, attempt: Attempt) -> None:
        """The handler of an attempt has really ended."""
        self.running.discard(attempt)

    def lose(self, attempt: Attempt) -> None:
        """The job is another worker's. An attempt that has finished by now was not lost."""
        if attempt.state in OPEN and attempt.state is not LOST:
            attempt.become(LOST)
            self._interrupt(attempt)

    def request_stop(self, attempt: Attempt) -> bool:
        """Somebody cancelled the job. Returns False if that comes too late, or not for the first time."""
        if attempt.state not in OPEN or attempt.is_stop_requested:
            return False
        attempt.is_stop_requested = True
        self._interrupt(attempt)
        return True

    def release(self) -> list[asyncio.Task[None]]:
        """Tell all handlers to end, so that their jobs are given back; returns the tasks of those that still run."""
        open_ones = [attempt for attempt in self.all() if attempt.state in OPEN]
        for attempt in open_ones:
            if attempt.state not in (LOST, RELEASED):
                attempt.become(RELEASED)
            self._interrupt(attempt)
        return [attempt.task for attempt in open_ones if attempt.task is not None]

    def abandon(self) -> list[asyncio.Task[None]]:
        """Wait for no handler any more, not even for a plain one that can't be stopped; returns their tasks."""
        for attempt in self.running:
            attempt.become(ABANDONED)
            attempt.interrupt()
        return [attempt.task for attempt in self.running if attempt.task is not None]

    def all(self) -> list[Attempt]:
        """The attempts to be settled."""
        return list(self._attempts.values())  # in one step, which no other thread can interrupt


_all: Final[WeakSet[InFlight]] = WeakSet()


def running_attempts() -> list[Attempt]:
    """All attempts of this process whose handlers have yet to end. Any thread may ask."""
    return [attempt for in_flight in list(_all) for attempt in list(in_flight.running)]
