"""Context managers around the function of an attempt, entered where it runs: in its thread, or on the event loop."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from schedq.errors import UsageError
from schedq.model.callables import place_of
from schedq.model.signatures import signature_of

if TYPE_CHECKING:  # programs that only enqueue do not need it
    from schedq.observer import AttemptFacts


class AttemptContext(Protocol):
    """A function that makes a context manager for one attempt."""

    def __call__(self, attempt: AttemptFacts, /) -> AbstractContextManager[object]:
        """Return the context manager."""
        ...


def checked_around(function: object) -> None:
    """Check that this can make a context manager for an attempt.

    Raises:
        UsageError: it can't.
    """
    wanted = "around takes a function (attempt) that returns a context manager"
    if isinstance(function, type) or not callable(function):
        raise UsageError(f"{wanted}, got {function!r:.200}")
    if any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None)))):  # noqa: B004
        raise UsageError(f"{wanted}, but {place_of(function)} is async; write def")
    try:
        signature_of(function).bind(None)
    except ValueError:
        return  # Python does not know its arguments
    except TypeError as error:
        raise UsageError(f"{wanted}, but {place_of(function)} can't be called with one: {error}") from None


class Entered:
    """Enters the context managers of one attempt, the first one outermost. None of them can suppress an error.

    Args:
        functions: make the context managers.
        attempt: the object that they receive.
    """

    __slots__ = ("_attempt", "_functions", "_stack")

    def __init__(self, functions: Sequence[AttemptContext], attempt: AttemptFacts) -> None:
        self._functions = functions
        self._attempt = attempt
        self._stack = ExitStack()

    def __enter__(self) -> None:
        try:
            for function in self._functions:
                self._stack.enter_context(function(self._attempt))
        except BaseException as error:
            self._stack.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
