"""What makes a task a workflow: its options, its context, and how an attempt calls its function."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from schedq.errors import UsageError
from schedq.model.callables import place_of
from schedq.model.signatures import signature_of
from schedq.model.times import duration_ms

_CONTEXT: Final = "WorkflowContext"
_FLOW: Final = "Flow"
_MOST_VERSION: Final = 1_000_000
Runner = Callable[[Callable[..., Any], Sequence[Any], Mapping[str, Any]], Awaitable[Any]]
"""Runs a workflow's function with these arguments, to which it adds the context."""
runner: Final[ContextVar[Runner | None]] = ContextVar("schedq_workflow_runner")
"""Set by whoever runs an attempt, around the call of the task."""


@dataclass(frozen=True, slots=True)
class Workflow:
    """What makes a task a workflow.

    Attributes:
        version: of its code, from 1; a run keeps the one that it began with.
        accepts: the versions of runs that this code can continue; None for all.
        run_timeout_ms: the longest that a run may take, in all its attempts; None for no limit.
        is_flow: the function declares a graph, which the run follows.
    """

    version: int = 1
    accepts: Collection[int] | None = None
    run_timeout_ms: int | None = None
    is_flow: bool = False

    def parameter(self, function: Callable[..., Any]) -> str:
        """The name of the function's parameter that takes the context, or the flow.

        Raises:
            UsageError: the function is not one of a workflow, or of a flow.
        """
        return (flow_parameter if self.is_flow else context_parameter)(function)


def checked_workflow(version: object, accepts: object, run_timeout: object) -> Workflow:
    """The options of a workflow.

    Raises:
        UsageError: one is invalid.
    """
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= _MOST_VERSION:
        raise UsageError(f"version must be a whole number from 1 to {_MOST_VERSION:,}, got {version!r:.80}")
    if accepts is not None:
        if not isinstance(accepts, Collection) or isinstance(accepts, str):
            raise UsageError(f"accepts must be versions, as in range(1, 3) or {{1, 2}}, got {accepts!r:.80}")
        if version not in accepts:
            raise UsageError(f"accepts={accepts!r:.80} must contain the version of the code itself, {version}")
    timeout_ms = None if run_timeout is None else duration_ms(run_timeout, "run_timeout")
    if timeout_ms == 0:
        raise UsageError("run_timeout must be more than 0; leave it out for no limit")
    return Workflow(version, accepts, timeout_ms)


def context_parameter(function: Callable[..., Any]) -> str:
    """The name of the parameter that takes the context, the first one.

    Raises:
        UsageError: the function is not async, or its first parameter is another one.
    """
    wanted = f"write async def {getattr(function, '__name__', 'it')}(ctx: {_CONTEXT}, ...)"
    if not any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None)))):  # noqa: B004
        raise UsageError(
            f"workflow {place_of(function)} must be async, because its operations are awaited: {wanted}; the functions "
            "of its steps may be plain"
        )
    return _first_parameter(function, "workflow", _CONTEXT, wanted)


def flow_parameter(function: Callable[..., Any]) -> str:
    """The name of the parameter that takes the flow, the first one.

    Raises:
        UsageError: the function is async, or its first parameter is another one.
    """
    wanted = f"write def {getattr(function, '__name__', 'it')}(flow: {_FLOW}, ...)"
    if any(map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None)))):  # noqa: B004
        raise UsageError(f"flow {place_of(function)} must be a plain function, because it only declares jobs: {wanted}")
    return _first_parameter(function, "flow", _FLOW, wanted)


def _first_parameter(function: Callable[..., Any], what: str, type_name: str, wanted: str) -> str:
    first = next(iter(signature_of(function, follow_wrapped=False).parameters.values()), None)
    meant = "context" if what == "workflow" else what
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        raise UsageError(f"the first parameter of {what} {place_of(function)} must be its {meant}: {wanted}")
    annotation = first.annotation
    known: str = getattr(annotation, "__forward_arg__", "") or getattr(annotation, "__name__", "")
    text = annotation if isinstance(annotation, str) else known
    if annotation is not first.empty and text.rpartition(".")[2] not in (type_name, "Any"):
        raise UsageError(
            f"the first parameter of {what} {place_of(function)} must be its {meant}, and {first.name!r} is "
            f"annotated as {text or annotation!r}: {wanted}"
        )
    return first.name


async def run_workflow(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Run a workflow's function in the present attempt.

    Raises:
        UsageError: there is none.
    """
    run = runner.get(None)
    if run is None:
        raise UsageError(
            "a workflow runs only as a job: enqueue it, and in tests run the job with schedq_tester.run_due(); another "
            "workflow may await its .function(ctx, ...)"
        )
    runner.set(None)  # this attempt has one function
    return await run(function, args, kwargs)
