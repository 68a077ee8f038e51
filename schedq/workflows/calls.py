"""Operations that were called and have not begun. One that is never awaited would silently never run."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from pathlib import PurePath
from typing import Any, TypeVar, cast

from schedq.errors import UsageError

F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, Any]])


class CalledOperation:
    """One call of an operation.

    Attributes:
        method: the method of the context.
        subject: its first argument, or None.
        place: the file and the line.
        coroutine: what it returned, until that has begun or is gone.
    """

    def __init__(self, method: str, subject: object, place: str) -> None:
        self.method, self.subject, self.place = method, subject, place
        self.coroutine: weakref.ref[Any] | None = None

    def __str__(self) -> str:
        return f"ctx.{self.method}({_said(self.subject)}) at {self.place}"


class Calls:
    """The operations of one attempt that have not begun.

    Args:
        dropped: called with what to say of an operation whose coroutine is gone and has never run.
    """

    def __init__(self, dropped: Callable[[str], object]) -> None:
        self._dropped = dropped
        self._loop = asyncio.get_running_loop()
        self._calls: set[CalledOperation] = set()

    def add(self, call: CalledOperation, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Note a call until its coroutine begins."""
        call.coroutine = weakref.ref(coroutine, partial(self._is_gone, call))
        self._calls.add(call)

    def begun(self, call: CalledOperation) -> None:
        """Note that it has begun."""
        self._calls.discard(call)
        call.coroutine = None

    def forget(self) -> None:
        """Branches are ended before they begin: what they hold need not run."""
        self._calls.clear()

    def check(self) -> None:
        """Check that all have begun.

        Raises:
            UsageError: one has not.
        """
        for call in self._calls:
            raise UsageError(_text(call))

    def _is_gone(self, call: CalledOperation, _: object) -> None:
        if call not in self._calls:
            return
        self._calls.discard(call)
        if asyncio._get_running_loop() is self._loop:
            self._dropped(_text(call))
        elif not self._loop.is_closed():  # the garbage collector may run in any thread
            self._loop.call_soon_threadsafe(self._dropped, _text(call))


def operation(method: F) -> F:
    """Let a method of the context be noted when it is called, and not only when it begins."""

    @wraps(method)
    def called(self: Any, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, Any]:
        calls: Calls = self._run.calls
        frame = sys._getframe(1)
        place = f"{PurePath(frame.f_code.co_filename).name}:{frame.f_lineno}"
        call = CalledOperation(method.__name__, args[0] if args else None, place)

        async def begin() -> Any:
            calls.begun(call)
            return await method(self, *args, **kwargs)

        begin.__name__, begin.__qualname__ = method.__name__, method.__qualname__  # for Python's own warning
        work = begin()
        calls.add(call, work)
        return work

    return cast(F, called)


def _said(subject: object) -> str:
    name = getattr(subject, "name", getattr(subject, "__name__", None))
    if isinstance(name, str) and callable(subject):
        return name
    return repr(subject)[:40] if isinstance(subject, (str, int, float)) else "" if subject is None else "..."


def _text(call: CalledOperation) -> str:
    return (
        f"{call} was called and never awaited, so it did not run: write await ctx.{call.method}(...), or give it to "
        "ctx.gather or ctx.first"
    )
