"""A registered function: how calls of it become payloads, and how a worker calls it for one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from schedq.errors import ArgumentsError, UsageError
from schedq.model import backoff as plans
from schedq.model.callables import Parameters, check_kinds, place_of
from schedq.model.outcome import BackoffFunction, Discard, ErrorRules, ErrorTypes, Policy
from schedq.model.placeholder import REFERENCE, is_reference
from schedq.model.records import ClaimedJob
from schedq.model.settings import Settings, checked_attempts
from schedq.model.tasks import task_call
from schedq.model.times import Duration, checked_timeout, duration_ms
from schedq.queue.conversion import Converter, may_convert
from schedq.queue.hooks import Hooks, OnFailure, OnRetry, OnSuccess
from schedq.queue.requests import Connections
from schedq.queue.workflow import Workflow, run_workflow

if TYPE_CHECKING:
    from schedq.dependencies.providers import Injection

_MOST_SHAPES: Final = 100


class HandlerOptions(TypedDict, total=False):
    """Options of a task that concern its attempts; None means not given."""

    max_attempts: int | None
    backoff: plans.Plan | BackoffFunction | None
    timeout: Duration | None
    completed_ttl: Duration | None
    failed_ttl: Duration | None
    retry_on: ErrorTypes | None
    discard_on: ErrorTypes | None
    on_success: OnSuccess | None
    on_failure: OnFailure | None
    on_retry: OnRetry | None
    isolate: bool | None
    workflow: Workflow | None


class Handler:
    """A registered function and what was found out about it at registration.

    Args:
        converts: whether its annotations say how arguments and results become JSON, as those of tasks do.

    Attributes:
        name: the task's name, or 'handler' for the function that takes other payloads.
        function: what to call.
        is_async: whether calling it returns a coroutine.
        injection: the dependencies that fill in parameters; None if it declares none.
        parameters: those that calls of it give.
        connections: how the results of a batch are read; None for the function that takes other payloads.
        converter: converts them to JSON and back; None if all of them are JSON already.
        max_attempts, backoff, timeout_ms, completed_ttl_ms, failed_ttl_ms, errors, hooks: the task's own, or None.
        workflow: what makes it a workflow, or None.
        entry: what an attempt calls: the function, or for a workflow what adds the context to its arguments.
        is_isolated: it runs in a child process; None leaves that to the worker.
        is_bare: it has neither dependencies nor hooks, and is not isolated.
    """

    __slots__ = (
        "_least",
        "_most",
        "_valid_shapes",
        "backoff",
        "completed_ttl_ms",
        "connections",
        "converter",
        "entry",
        "errors",
        "failed_ttl_ms",
        "function",
        "hooks",
        "injection",
        "is_async",
        "is_bare",
        "is_isolated",
        "max_attempts",
        "name",
        "parameters",
        "timeout_ms",
        "workflow",
    )

    connections: Connections | None

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        converts: bool = True,
        max_attempts: int | None = None,
        backoff: plans.Plan | BackoffFunction | None = None,
        timeout: Duration | None = None,
        completed_ttl: Duration | None = None,
        failed_ttl: Duration | None = None,
        retry_on: ErrorTypes | None = None,
        discard_on: ErrorTypes | None = None,
        on_success: OnSuccess | None = None,
        on_failure: OnFailure | None = None,
        on_retry: OnRetry | None = None,
        isolate: bool | None = None,
        workflow: Workflow | None = None,
    ) -> None:
        self.name, self.function, self.workflow, self.entry, self.connections = name, function, workflow, function, None
        self.is_async = is_async = workflow is not None or _is_async(function)
        self.is_isolated = _checked_isolation(name, function, isolate, is_async=is_async)
        self.injection = _injection_of(function)
        filled_in: Collection[str] = () if self.injection is None else self.injection.names
        if workflow is not None:
            filled_in, self.entry = {workflow.parameter(function), *filled_in}, partial(run_workflow, function)
        self.parameters = Parameters(name, function, left_out=filled_in)
        self._least, self._most = self.parameters.least, self.parameters.most
        self.converter = Converter(name, function, filled_in) if converts and may_convert(function) else None
        self._valid_shapes: set[tuple[Any, ...]] = set()
        self.max_attempts = None if max_attempts is None else checked_attempts(max_attempts)
        self.backoff = backoff
        if backoff is not None and not callable(backoff):
            plans.checked_plan(backoff)
        self.timeout_ms = None if timeout is None else checked_timeout(timeout)
        self.completed_ttl_ms = None if completed_ttl is None else duration_ms(completed_ttl, "completed_ttl")
        self.failed_ttl_ms = None if failed_ttl is None else duration_ms(failed_ttl, "failed_ttl")
        self.errors = ErrorRules.of(retry_on, discard_on)
        self.hooks = Hooks.of(on_success, on_failure, on_retry)
        self.is_bare = self.injection is None and self.hooks is None and not isolate

    def payload(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The payload of a call with these arguments.

        Raises:
            ArgumentsError: the function can't be called with them.
        """
        # Whether a call is valid depends only on how many arguments it has and on their names: valid shapes are cached.
        if args.__class__ is not tuple and args.__class__ is not list:
            check_kinds(self.name, args, kwargs)
        if kwargs:
            if (len(args), *kwargs) not in self._valid_shapes:
                self.check(args, kwargs)
                if len(self._valid_shapes) < _MOST_SHAPES:
                    self._valid_shapes.add((len(args), *kwargs))
        elif not self._least <= len(args) <= self._most:
            self.parameters.check(args, kwargs)
        if self.converter is not None and (conversion := self.converter.conversion) is not None:
            args, kwargs = conversion.encode_arguments(args, kwargs)
        return task_call(self.name, args, kwargs)

    def encoded(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The arguments of a call in JSON types.

        Raises:
            ArgumentsError: the function can't be called with them.
        """
        payload = self.payload(args, kwargs)
        return payload.get("args", ()), payload.get("kwargs", {})

    def stored_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a valid call by the names of their parameters, with defaults, as they are in a payload."""
        args, kwargs = self.parameters.with_defaults(args, kwargs)
        if self.converter is not None and (conversion := self.converter.conversion) is not None:
            args, kwargs = conversion.encode_arguments(args, kwargs)
        return self.parameters.by_name(args, kwargs)

    def policy(self, queue: Settings, job: ClaimedJob) -> Policy:
        """The policy for a job that calls it."""
        return Policy.of(
            queue, job, self.max_attempts, self.backoff, self.completed_ttl_ms, self.failed_ttl_ms, self.errors
        )

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Check that a call may have these arguments.

        Raises:
            ArgumentsError: it may not.
        """
        if self.injection is not None:
            self.injection.check(kwargs)
        self.parameters.check(args, kwargs)


def with_results(
    connections: Connections, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with the results of batches instead of what stands for them."""
    from schedq.queue.batch_results import results_of

    def replaced(value: Any) -> Any:
        return results_of(connections, value) if is_reference(value) else value

    return [replaced(value) for value in args], {name: replaced(value) for name, value in kwargs.items()}


class Invocation(NamedTuple):
    """The call that a worker makes for one payload."""

    handler: Handler
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def bound(self) -> Callable[[], Any]:
        """The call, with its arguments converted to the types in the function's annotations.

        Raises:
            ArgumentsError: an argument can't be converted.
        """
        handler, args, kwargs = self
        if handler.injection is not None:
            handler.injection.check(kwargs)
        if handler.converter is not None and (conversion := handler.converter.conversion) is not None:
            args, kwargs = conversion.decode_arguments(args, kwargs)
        for value in (*args, *kwargs.values()):
            if value.__class__ is dict and REFERENCE in value and handler.connections is not None:
                args, kwargs = with_results(handler.connections, args, kwargs)
                break
        return partial(handler.entry, *args, **kwargs)

    @property
    def encode_result(self) -> Callable[[Any], Any] | None:
        """Converts the function's result to JSON types; None if it needs no conversion."""
        converter, workflow = self.handler.converter, self.handler.workflow
        if workflow is not None and workflow.is_flow:  # it has the JSON of a node's result
            return None
        conversion = None if converter is None else converter.conversion
        return None if conversion is None else conversion.encode_result

    def argument_error(self) -> Discard | None:
        """The reason why no attempt can call the function with these arguments, or None.

        A job that was enqueued by a task's name was not checked against the function. This is called only after the
        call raised a TypeError, so jobs with correct arguments pay nothing.
        """
        try:
            self.handler.check(self.args, self.kwargs)
            self.bound()
        except ArgumentsError as error:
            return Discard(f"wrong arguments: {error}")
        return None


def _injection_of(function: Callable[..., Any]) -> Injection | None:
    """The dependencies of a function. Each is the default of a parameter, so without defaults nothing is imported."""
    if not (getattr(function, "__defaults__", None) or getattr(function, "__kwdefaults__", None)):
        return None
    from schedq.dependencies.providers import Injection

    return Injection.of(function)


def _checked_isolation(name: str, function: Callable[..., Any], isolate: object, *, is_async: bool) -> bool | None:
    """Return the option `isolate` of a task.

    Raises:
        UsageError: it is not a bool, or the function is async.
    """
    if isolate is not None and not isinstance(isolate, bool):
        raise UsageError(f"task {name!r}: isolate must be True or False, got {isolate!r:.100}")
    if isolate and is_async:
        raise UsageError(
            f"task {name!r}: isolate=True is for plain functions, and {place_of(function)} is async; write def"
        )
    return isolate


def _is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it returns a coroutine: a coroutine function, or an object whose __call__ is one."""
    return any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None))))  # noqa: B004
