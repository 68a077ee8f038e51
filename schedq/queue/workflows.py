"""`@queue.workflow` and `@queue.flow`: register functions that run step by step, and graphs of jobs, as tasks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from schedq.errors import UsageError
from schedq.model import backoff as plans
from schedq.model.callables import runnable
from schedq.model.durability import Durability
from schedq.model.outcome import BackoffFunction, ErrorTypes
from schedq.model.times import Duration
from schedq.queue.hooks import OnFailure, OnRetry, OnSuccess
from schedq.queue.registry import Registry
from schedq.queue.requests import Connections
from schedq.queue.task import Task
from schedq.queue.workflow import checked_workflow, context_parameter, flow_parameter

if TYPE_CHECKING:  # imported when it is used: most programs only enqueue
    from schedq.model.gates import Gate, Rates
    from schedq.model.unique import Uniqueness
    from schedq.queue.flow import Flow, FlowNode
    from schedq.queue.gate_options import KeyBy

P = ParamSpec("P")
R = TypeVar("R")


class WorkflowDecorator:
    """The method of queues that registers workflows.

    Attributes:
        registry: stores the task.
        connections: the connections of the queue.
    """

    registry: Registry
    connections: Connections

    @overload
    def workflow(
        self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]], /
    ) -> Task[P, Coroutine[Any, Any, R]]: ...
    @overload
    def workflow(
        self,
        *,
        version: int = 1,
        accepts: Collection[int] | None = None,
        run_timeout: Duration | None = None,
        name: str | None = None,
        max_attempts: int | None = None,
        backoff: plans.Plan | BackoffFunction | None = None,
        timeout: Duration | None = None,
        durability: Durability | None = None,
        completed_ttl: Duration | None = None,
        failed_ttl: Duration | None = None,
        retry_on: ErrorTypes | None = None,
        discard_on: ErrorTypes | None = None,
        on_success: OnSuccess | None = None,
        on_failure: OnFailure | None = None,
        on_retry: OnRetry | None = None,
        unique: Uniqueness | None = None,
        gate: Gate | str | None = None,
        key: KeyBy | None = None,
        concurrency: int | None = None,
        rate: Rates | None = None,
        key_concurrency: int | None = None,
        key_rate: Rates | None = None,
    ) -> Callable[[Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]], Task[P, Coroutine[Any, Any, R]]]: ...
    def workflow(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:  # type: ignore[misc] # the overloads name the options
        """Register an async function as a workflow: a task that can be put down, and taken up again anywhere.

        Its first parameter gets a `WorkflowContext`, whose operations are recorded. Callers do not give it.

        Args:
            function: the function, when used bare.
            options: version (of the code, 1 by default; a run keeps the one that it began with), accepts (the versions
                of runs that this code continues; by default all), run_timeout (the longest that a run may take, with
                all its waits), and those of `task`. `timeout` is for one attempt; `max_attempts` and `backoff` apply
                to each step, and to failures outside of steps.

        Raises:
            UsageError: the function is not async or has no parameter for the context, an option is invalid, or the
                name is taken by another function.
        """
        if function is None:
            return partial(_registered, self, options)
        return _registered(self, options, function)

    @overload
    def flow(self, name: str, /) -> Flow: ...
    @overload
    def flow(self, function: Callable[Concatenate[Any, P], FlowNode[R]], /) -> Task[P, Coroutine[Any, Any, R]]: ...
    @overload
    def flow(self, function: Callable[Concatenate[Any, P], None], /) -> Task[P, Coroutine[Any, Any, None]]: ...
    @overload
    def flow(
        self,
        *,
        run_timeout: Duration | None = None,
        name: str | None = None,
        max_attempts: int | None = None,
        backoff: plans.Plan | BackoffFunction | None = None,
        durability: Durability | None = None,
        completed_ttl: Duration | None = None,
        failed_ttl: Duration | None = None,
        on_success: OnSuccess | None = None,
        on_failure: OnFailure | None = None,
        on_retry: OnRetry | None = None,
        unique: Uniqueness | None = None,
    ) -> FlowRegistration: ...
    def flow(self, function: Any = None, /, **options: Any) -> Any:  # type: ignore[misc] # as workflow
        """Declare a graph of jobs: with a name an empty `Flow`, to be filled and started; else as a decorator.

        The decorated function gets a `Flow` as its first argument, adds nodes, and may return the node whose result is
        that of the flow. It becomes a task: a worker calls the function once, at the beginning of each of its jobs.

        Args:
            function: the function, when used bare, or the flow's name.
            options: run_timeout (the longest that a flow may take), and those of `workflow` except its version.

        Raises:
            UsageError: the function is async or has no parameter for the flow, an option is invalid or was given with
                a name, or the name is taken by another function.
        """
        if isinstance(function, str):
            from schedq.queue.flow import Flow

            if options:
                raise UsageError(
                    f"queue.flow({function!r}) takes no {', '.join(sorted(options))}: give options of the job to "
                    "start(), or decorate a function with @queue.flow(…), which takes all of them"
                )
            return Flow(self.connections, function)
        if unknown := options.keys() & {"version", "accepts", "timeout", "retry_on", "discard_on"}:
            raise UsageError(f"a flow can't have {', '.join(sorted(unknown))}: only the tasks of its nodes can")
        return (
            partial(_registered_flow, self, options) if function is None else _registered_flow(self, options, function)
        )


class FlowRegistration(Protocol):
    """The decorator that `queue.flow(...)` returns."""

    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], FlowNode[R]], /) -> Task[P, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, P], None], /) -> Task[P, Coroutine[Any, Any, None]]: ...


def _registered_flow(
    queue: WorkflowDecorator, options: dict[str, Any], function: Callable[..., Any], /
) -> Task[..., Any]:
    flow_parameter(runnable(function, "flow"))
    return _registered(queue, options, function, is_flow=True)


def _registered(
    queue: WorkflowDecorator, options: dict[str, Any], function: Callable[..., Any], /, *, is_flow: bool = False
) -> Task[..., Any]:
    rest = dict(options)
    made = checked_workflow(rest.pop("version", 1), rest.pop("accepts", None), rest.pop("run_timeout", None))
    if unknown := rest.keys() & {"isolate", "serial"}:
        raise UsageError(
            f"a workflow can't have {', '.join(sorted(unknown))}: it runs on the event loop, and while it waits other "
            "jobs of its key may run"
        )
    if is_flow:
        made = replace(made, is_flow=True)
    else:
        context_parameter(runnable(function, "workflow"))
    task = Task(function, queue.connections, workflow=made, **rest)
    queue.registry.add(task)
    return task
