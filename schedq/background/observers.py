"""Calls observers so that none of them can disturb the work or another observer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec

from schedq.logs import log
from schedq.observer import AttemptFacts, Observer

P = ParamSpec("P")


class Observers:
    """All observers of a worker, notified one after the other.

    Attributes:
        is_watched: there is at least one. Callers check this before they build the arguments of a notification.
    """

    def __init__(self, observers: Sequence[Observer] = ()) -> None:
        self._all = tuple(observers)
        self.is_watched = bool(self._all)
        self._failed: set[tuple[int, str]] = set()

    def has(self, kind: type[Observer]) -> bool:
        """Whether there is an observer of this class."""
        return any(isinstance(observer, kind) for observer in self._all)

    def has_this(self, observer: Observer) -> bool:
        """Whether this one is among them."""
        return any(each is observer for each in self._all)

    def and_also(self, others: Sequence[Observer]) -> Observers:
        """These and others, each once. What one of them raises is logged once, also if it is among both."""
        more = list({id(each): each for each in others if not self.has_this(each)}.values())
        if not more:
            return self
        found = Observers([*self._all, *more])
        found._failed = self._failed
        return found

    def notify(self, event: Callable[Concatenate[Any, P], object], *facts: P.args, **named: P.kwargs) -> None:
        """Call this method of every observer.

        Args:
            event: the method, as `Observer.attempt_started`.
            facts: its arguments.
            named: always empty, because observers get their arguments by position.
        """
        for observer in self._all:
            try:
                getattr(observer, event.__name__)(*facts, **named)
            except BaseException as error:  # noqa: BLE001 - an observer may not disturb the work
                self.log_failure(observer, event.__name__, error)

    def around(self, attempt: AttemptFacts) -> Around:
        """Return a context manager that enters the observers' `around` for a call."""
        return Around(self._all, attempt, self.log_failure)

    def log_failure(self, observer: Observer, event: str, error: BaseException) -> None:
        """Log an observer's exception, but only the first for this observer and this method."""
        if (id(observer), event) not in self._failed:
            self._failed.add((id(observer), event))
            name = type(observer).__name__
            log.error("observer %s: %s failed; further failures are not logged", name, event, exc_info=error)


class WorkerObservers:
    """All observers of one worker. Its own get every event; those of a queue get only the events of that queue.

    An observer that is attached in several places gets each event once.

    Args:
        own: the worker's observers.
        queues: the name of each queue, and its observers.

    Attributes:
        by_queue: for each queue, the observers that get its events.
    """

    def __init__(self, own: Observers, queues: Sequence[tuple[str, Sequence[Observer]]]) -> None:
        self.by_queue = [own.and_also(attached) for _, attached in queues]
        self._worker: list[tuple[Observers, list[str]]] = [(own, [name for name, _ in queues])]
        others: dict[int, tuple[Observers, list[str]]] = {}
        for name, attached in queues:
            for observer in attached:
                if not own.has_this(observer):
                    others.setdefault(id(observer), (Observers([observer]), []))[1].append(name)
        self._worker += others.values()

    def started(self, worker: str) -> None:
        """Tell all that the worker has started."""
        for observers, names in self._worker:
            observers.notify(Observer.worker_started, worker, list(dict.fromkeys(names)))

    def notify(self, event: Callable[[Any, str], object], worker: str) -> None:
        """Tell all what the worker does as a whole."""
        for observers, _ in self._worker:
            observers.notify(event, worker)


class LoopObservers(Observers):
    """Passes notifications from another thread to the observers, on the worker's event loop."""

    def __init__(self, observers: Observers, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.is_watched = observers.is_watched
        self._observers = observers
        self._loop = loop

    def notify(self, event: Callable[Concatenate[Any, P], object], *facts: P.args, **named: P.kwargs) -> None:
        """Call this method of every observer, on the worker's loop."""
        if self.is_watched:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(partial(self._observers.notify, event, *facts, **named))


class Around:
    """Enters the observers' `around` for one call. A generator would add its frames to the handler's traceback."""

    __slots__ = ("_attempt", "_entered", "_log_failure", "_observers")

    def __init__(
        self,
        observers: Sequence[Observer],
        attempt: AttemptFacts,
        log_failure: Callable[[Observer, str, BaseException], None],
    ) -> None:
        self._observers = observers
        self._attempt = attempt
        self._log_failure = log_failure
        self._entered: list[tuple[Observer, AbstractContextManager[object]]] = []

    def __enter__(self) -> None:
        for observer in self._observers:
            try:
                context = observer.around(self._attempt)
                if context is not None:
                    context.__enter__()
                    self._entered.append((observer, context))
            except BaseException as error:  # noqa: BLE001 - an observer may not disturb the work
                self._log_failure(observer, "around", error)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for observer, context in reversed(self._entered):
            try:
                context.__exit__(kind, error, trace)
            except BaseException as problem:  # noqa: BLE001 - an observer may not disturb the work
                if problem is not error:
                    self._log_failure(observer, "around", problem)


NO_OBSERVERS: Final = Observers()
