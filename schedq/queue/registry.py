"""Which function runs a payload: user code is looked up by name among the functions the application registered.

Nothing from Redis is unpickled, evaluated or imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from schedq.errors import UsageError
from schedq.model.callables import check_kinds, is_same, place_of, runnable
from schedq.model.graph import FLOW_TASK
from schedq.model.headers import merged_headers
from schedq.model.payload import decoded
from schedq.model.records import NewJob
from schedq.model.tasks import TaskOptions, is_task_call, task_call
from schedq.model.times import Duration
from schedq.queue.around import AttemptContext
from schedq.queue.handler import Handler, Invocation
from schedq.queue.middleware import Middleware
from schedq.queue.requests import Connections
from schedq.queue.task import Task

if TYPE_CHECKING:  # most programs only enqueue
    from schedq.observer import Observer
    from schedq.schedules.definition import Definition, ScheduleOptions


class _NoPayload:
    """Stands for an argument that was not given, because None is a valid payload."""

    def __repr__(self) -> str:
        return "…"


NO_PAYLOAD: Final = _NoPayload()


class NoHandler(LookupError):  # noqa: N818 - a fact about a payload, handled by the worker
    """Nothing in this process can run the payload; a newer release of the application may.

    Attributes:
        task: the name of the missing task; '' if the handler is missing.
    """

    def __init__(self, message: str, task: str = "") -> None:
        super().__init__(message)
        self.task = task


class Registry:
    """The functions that an application registered for one queue, by name, and what it attached to the queue.

    Attributes:
        middleware: runs around each attempt, outermost first.
        around: make context managers around the function of each attempt, outermost first.
        observers: hear what workers do for this queue.
        runner: names the process that runs jobs, for errors.
        imported: the modules that were imported to find functions, for errors.
        connections: of the queue, once it has them.
    """

    def __init__(self, queue_name: str) -> None:
        self._queue_name = queue_name
        self._has_started = False
        self.middleware: list[Middleware] = []
        self.around: list[AttemptContext] = []
        self.observers: list[Observer] = []
        self.runner = "this worker"
        self.imported: Sequence[str] = ()
        self._tasks: dict[str, Task[..., Any]] = {}
        self._handlers: dict[str, Handler] = {}
        self._handler: Handler | None = None
        self._flow_task: Task[..., Any] | None = None
        self.connections: Connections | None = None
        self._schedules: dict[str, tuple[Definition, str]] = {}
        self._digests: dict[str, str] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tasks."""
        return tuple(self._tasks)

    @property
    def served(self) -> tuple[str, ...]:
        """The names of the tasks whose jobs a worker can run: with those of the application, that of the library."""
        return (*self._tasks, FLOW_TASK) if self._tasks else ()

    @property
    def workflows(self) -> tuple[str, ...]:
        """The names of the tasks that are workflows."""
        own = tuple(name for name, handler in self._handlers.items() if handler.workflow is not None)
        return (*own, FLOW_TASK) if self._tasks else own

    def plain_names(self) -> tuple[str, ...]:
        """The names of the tasks that are none."""
        return tuple(name for name, handler in self._handlers.items() if handler.workflow is None)

    @property
    def registered(self) -> tuple[object, ...]:
        """The tasks, and the function for payloads that are not task calls."""
        handlers = () if self._handler is None else (self._handler.function,)
        return (*self._tasks.values(), *handlers)

    @property
    def options(self) -> dict[str, TaskOptions]:
        """The options of each task, by name."""
        return {name: task.own_options for name, task in self._tasks.items()}

    @property
    def has_handler(self) -> bool:
        """Whether there is a function for payloads that are not task calls."""
        return self._handler is not None

    @property
    def schedules(self) -> tuple[Definition, ...]:
        """The schedules declared in code."""
        return tuple(definition for definition, _ in self._schedules.values())

    def schedule(self, schedule_id: str) -> Definition | None:
        """The schedule of this id that is declared in code, or None."""
        found = self._schedules.get(schedule_id)
        return None if found is None else found[0]

    @property
    def definitions(self) -> tuple[str, ...]:
        """Digests of the schedules declared in code."""
        return tuple(self._digests.values())

    @property
    def owners(self) -> frozenset[str]:
        """Packages whose schedules this code may report as missing: its own, even those without a schedule left."""
        packages = {owner_of(found.function) for found in (*self._handlers.values(), *filter(None, [self._handler]))}
        return frozenset(packages | {definition.owner for definition, _ in self._schedules.values()}) - {""}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is registered, so no job could run."""
        return not self._tasks and self._handler is None

    @property
    def has_plain_functions(self) -> bool:
        """Whether a registered function is not a coroutine function, so it runs in a thread."""
        return not all(found.is_async for found in [*self._handlers.values(), *filter(None, [self._handler])])

    @property
    def has_isolated_tasks(self) -> bool:
        """Whether a task runs in a child process, wherever the worker runs others."""
        return any(found.is_isolated for found in self._handlers.values())

    def start(self) -> None:
        """A worker starts with what is attached; from now on nothing more can be."""
        self._has_started = True

    def check_in_time(self, method: str) -> None:
        """Check that something can still be attached, by this method of the queue.

        Raises:
            UsageError: a worker of the queue has started, and would not know of it.
        """
        if self._has_started:
            raise UsageError(
                f"queue {self._queue_name}: a worker of it has started in this process, so {method} comes too late; "
                "call it in the module that defines the queue, or in one that the worker imports"
            )

    def add(self, task: Task[..., Any]) -> None:
        """Register a task.

        Raises:
            UsageError: another function already has this name, or the library's own task.
        """
        if task.name == FLOW_TASK:
            raise UsageError(f"a task can't be called {FLOW_TASK!r}: the library's own task for flows is")
        other = self._tasks.get(task.name)
        if other is not None and not is_same(other.function, task.function):
            raise UsageError(
                f"queue {self._queue_name} has a task {task.name!r} already ({place_of(other.function)}); "
                f"give {place_of(task.function)} another name="
            )
        self._tasks[task.name] = task
        self._handlers[task.name] = task._handler

    def add_schedule(self, definition: Definition, function: Callable[..., Any]) -> None:
        """Register a schedule; a worker stores it when it starts.

        Raises:
            UsageError: another schedule already has this id.
        """
        other = self._schedules.get(definition.id)
        if other is not None and other != (definition, place_of(function)):
            raise UsageError(
                f"queue {self._queue_name} has a schedule {definition.id!r} already ({other[1]}); "
                f"give the one of {place_of(function)} another id="
            )
        self._schedules[definition.id] = (definition, place_of(function))
        self._digests[definition.id] = definition.digest

    def set_handler(self, function: Callable[..., Any]) -> None:
        """Register the function for payloads that are not task calls.

        Raises:
            UsageError: there is one already, or this is not a function.
        """
        function = runnable(function, "handler")
        handler = Handler("handler", function, converts=False)
        if not handler.parameters.least <= 1 <= handler.parameters.most:
            raise UsageError(
                f"a handler takes one argument, the payload; {place_of(function)} can't be called like that"
            )
        if self._handler is not None and not is_same(self._handler.function, function):
            raise UsageError(f"queue {self._queue_name} has a handler already ({place_of(self._handler.function)})")
        self._handler = handler

    def get(self, name: object) -> Task[..., Any] | None:
        """The task of this name, or None."""
        found = self._tasks.get(name) if isinstance(name, str) else None
        return self._library_task() if found is None and name == FLOW_TASK else found

    def _library_task(self) -> Task[..., Any] | None:
        """The task that runs declared graphs."""
        if self._flow_task is None and self.connections is not None:
            from schedq.queue.flow import flow_task  # most processes have no flows

            self._flow_task = flow_task(self.connections)
        return self._flow_task

    def task_of(self, payload: Any) -> Task[..., Any] | None:
        """The task that a payload calls; None if it is not a task call, or the task is not registered."""
        return self.get(payload["task"]) if is_task_call(payload) else None

    def find(self, payload: Any) -> Invocation:
        """The call to make for a payload.

        A payload is a task call if and only if it is an object with the key `task` and optionally `args` and `kwargs`.

        Raises:
            NoHandler: nothing here can run it.
        """
        if not is_task_call(payload):
            if self._handler is None:
                raise self._missing("handler for payloads that are not task calls")
            return Invocation(self._handler, (payload,), {})
        handler = self._handlers.get(payload["task"])
        if handler is None and (found := self.get(payload["task"])) is not None:
            handler = found._handler
        if handler is None:
            raise self._missing(f"task {payload['task']!r:.200}", payload["task"])
        return Invocation(handler, payload.get("args") or (), payload.get("kwargs") or {})

    def _missing(self, what: str, task: str = "") -> NoHandler:
        modules = f"; it has imported {', '.join(self.imported)}" if self.imported else ""
        return NoHandler(f"{self.runner} has no {what}{modules}", task)


def scheduled_payload(
    schedule_id: str,
    task: Task[..., Any] | str | None,
    payload: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    *,
    known: Task[..., Any] | None = None,
) -> tuple[Any, ScheduleOptions]:
    """The payload of a schedule's jobs, and the options of its task.

    Args:
        schedule_id: for errors.
        task: a task, or its name.
        payload: a payload, or `NO_PAYLOAD` if there is a task.
        args: positional arguments of each call of the task.
        kwargs: keyword arguments of each call of the task.
        known: the registered task of that name, if any.

    Raises:
        ArgumentsError: the task can't be called with these arguments.
        UsageError: neither or both of task and payload are given, or arguments without a task.
    """
    if (task is None) == (payload is NO_PAYLOAD):
        raise UsageError(f"schedule {schedule_id!r} needs a task or a payload, one of the two")
    if isinstance(task, Task):
        new = task.new_job(args, kwargs or {})
        own: ScheduleOptions = {"max_attempts": new.max_attempts, "backoff": new.backoff, "timeout": new.timeout}
        own |= {"headers": new.headers, "completed_ttl": new.completed_ttl, "failed_ttl": new.failed_ttl}
        own["expires"] = cast(Duration | None, new.expires)  # `define` refuses a datetime
        return new.payload, own | _gate_of(new)
    if task is not None:
        check_kinds(task, args, kwargs)
        if known is not None:
            new = known.new_job(args, kwargs or {})
            return new.payload, _gate_of(new)
        return task_call(task, args, kwargs or {}), {}
    if args or kwargs:
        raise UsageError(f"schedule {schedule_id!r}: args and kwargs go with a task, not with a payload")
    return payload, {}


def _gate_of(job: NewJob) -> ScheduleOptions:
    return {"gate": job.gate, "key": cast(str | None, job.key)} if job.gate is not None else {}


def updated_payload(
    old: Definition,
    task: Task[..., Any] | str | None,
    payload: Any,
    args: Sequence[Any] | None,
    kwargs: Mapping[str, Any] | None,
    known: Callable[[str], Task[..., Any] | None],
) -> tuple[Any, ScheduleOptions]:
    """The payload of a schedule's jobs after a change, `NO_PAYLOAD` if it stays as it is, and their gate and key.

    The gate follows the task, and the key the arguments, unless the schedule has a gate of its own.

    Args:
        old: the schedule before.
        task: another task, or its name; None for the same.
        payload: another payload, or `NO_PAYLOAD`.
        args: other positional arguments; None for the same.
        kwargs: other keyword arguments; None for the same.
        known: returns the registered task of a name, if any.

    Raises:
        ArgumentsError: the task can't be called with these arguments.
        UsageError: there is no task, or a payload too.
    """
    if (task, args, kwargs) == (None, None, None):
        return payload, {}
    if payload is not NO_PAYLOAD:
        raise UsageError(f"schedule {old.id!r} has a task or a payload, one of the two")
    call = decoded(old.payload)
    before = call if is_task_call(call) else {}
    named = before.get("task") if task is None else task
    args = before.get("args", ()) if args is None else args
    kwargs = before.get("kwargs", {}) if kwargs is None else kwargs
    found = known(named) if isinstance(named, str) else None
    new, own = scheduled_payload(old.id, named, NO_PAYLOAD, args, kwargs, known=found)
    gate = own.get("gate")
    follows = task is not None or (gate is not None and getattr(gate, "name", gate) == old.gate)
    follows = follows and (found is not None or isinstance(named, Task))
    return new, {"gate": gate, "key": own.get("key")} if follows else {}


def schedule_options(own: ScheduleOptions, given: ScheduleOptions) -> ScheduleOptions:
    """The options of a schedule: those of its task, and its own, which take precedence; headers are merged."""
    options: ScheduleOptions = {**own, **given}
    options["headers"] = merged_headers(own.get("headers"), given.get("headers"))
    return options


def owner_of(function: Callable[..., Any]) -> str:
    """The owner of a function's schedules: its top-level package."""
    return place_of(function).partition(".")[0].strip("?")
