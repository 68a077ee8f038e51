"""Which function runs a payload: user code is found by name among the functions that the application registered.

Nothing from Redis is unpickled, evaluated or imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from schedq.errors import UsageError
from schedq.task import Task


class Found:
    """A registered function, looked at once."""

    __slots__ = ("backoff", "function", "is_async", "max_attempts", "timeout_ms")

    def __init__(self, function: Callable[..., Any], task: Task[..., Any] | None) -> None:
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is async def
        )
        self.max_attempts = task.max_attempts if task else None
        self.backoff = task.backoff if task else None
        self.timeout_ms = task.timeout_ms if task else None


class Call:
    """What a worker is to do for one payload.

    Attributes:
        function: what to call.
        args: its positional arguments.
        kwargs: its keyword arguments.
        name: for logs: the task's name, or 'handler'.
        max_attempts, backoff, timeout_ms: the task's own, or None.
        is_async: the function is a coroutine function.
    """

    __slots__ = ("args", "backoff", "function", "is_async", "kwargs", "max_attempts", "name", "timeout_ms")

    def __init__(self, name: str, found: Found, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.name = name
        self.function = found.function
        self.is_async = found.is_async
        self.args = args
        self.kwargs = kwargs
        self.max_attempts = found.max_attempts
        self.backoff = found.backoff
        self.timeout_ms = found.timeout_ms


class NoHandler(LookupError):  # noqa: N818 - a fact about a payload, handled by the worker
    """Nothing in this process can run the payload; perhaps a newer release of the application can."""


class Registry:
    """The functions that an application registered for one queue, by name."""

    def __init__(self, queue_name: str) -> None:
        self._queue_name = queue_name
        self._tasks: dict[str, Task[..., Any]] = {}
        self._found: dict[str, Found] = {}
        self._handler: Found | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tasks."""
        return tuple(self._tasks)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is registered, so that no job could run."""
        return not self._tasks and self._handler is None

    def add(self, task: Task[..., Any]) -> None:
        """Register a task.

        Raises:
            UsageError: another function has this name already.
        """
        other = self._tasks.get(task.name)
        if other is not None and not _is_same(other.function, task.function):
            raise UsageError(
                f"queue {self._queue_name} has a task {task.name!r} already ({_place(other.function)}); "
                f"give {_place(task.function)} another name="
            )
        self._tasks[task.name] = task
        self._found[task.name] = Found(task.function, task)

    def set_handler(self, function: Callable[..., Any]) -> None:
        """Register the function for payloads that are no task call.

        Raises:
            UsageError: there is one already, or this is no function.
        """
        if not callable(function):
            raise UsageError(f"a handler must be a function, got {function!r}")
        if self._handler is not None and not _is_same(self._handler.function, function):
            raise UsageError(f"queue {self._queue_name} has a handler already ({_place(self._handler.function)})")
        self._handler = Found(function, None)

    def find(self, payload: Any) -> Call:
        """What to do for a payload.

        A payload is a task call iff it is an object whose keys are `task` and, optionally, `args` and `kwargs`.

        Raises:
            NoHandler: nothing here can run it.
        """
        if not is_task_call(payload):
            if self._handler is None:
                raise NoHandler("this worker has no handler for payloads that are no task call")
            return Call("handler", self._handler, (payload,), {})
        found = self._found.get(payload["task"])
        if found is None:
            raise NoHandler(f"this worker has no task {payload['task']!r}")
        return Call(payload["task"], found, payload.get("args") or (), payload.get("kwargs") or {})


def is_task_call(payload: object) -> bool:
    """Whether a payload asks for a task by name."""
    return (
        isinstance(payload, dict)
        and isinstance(payload.get("task"), str)
        and payload.keys() <= {"task", "args", "kwargs"}
        and isinstance(payload.get("args", []), list)
        and isinstance(payload.get("kwargs", {}), dict)
    )


def _place(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '?')}.{getattr(function, '__qualname__', function)}"


def _is_same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """The same function, also when its module was loaded anew."""
    return one is other or (_place(one) == _place(other) and "<locals>" not in _place(one))
