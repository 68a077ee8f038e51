"""`@queue.workflow`: registers a function that can be put down and taken up again, as a task."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

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
from schedq.queue.workflow import checked_workflow, context_parameter

if TYPE_CHECKING:  # imported when it is used: most programs only enqueue
    from schedq.model.gates import Gate, Rates
    from schedq.model.unique import Uniqueness
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


def _registered(queue: WorkflowDecorator, options: dict[str, Any], function: Callable[..., Any], /) -> Task[..., Any]:
    rest = dict(options)
    made = checked_workflow(rest.pop("version", 1), rest.pop("accepts", None), rest.pop("run_timeout", None))
    if unknown := rest.keys() & {"isolate", "serial"}:
        raise UsageError(
            f"a workflow can't have {', '.join(sorted(unknown))}: it runs on the event loop, and while it waits other "
            "jobs of its key may run"
        )
    context_parameter(runnable(function, "workflow"))
    task = Task(function, queue.connections, workflow=made, **rest)
    queue.registry.add(task)
    return task
