"""What a workflow's function gets as its first argument: its operations."""

from __future__ import annotations

import copy
from collections.abc import Callable, Coroutine, Iterable
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, ParamSpec, TypeVar, overload

from schedq.model import backoff as plans
from schedq.model.outcome import BackoffFunction, ErrorRules, ErrorTypes
from schedq.model.records import NewJob
from schedq.model.runs import checked_operation, operation_name
from schedq.model.settings import checked_attempts
from schedq.model.times import Duration, Instant, checked_timeout, duration_ms, instant_ms
from schedq.queue.batch_results import BatchResults
from schedq.queue.batches import BatchOptions
from schedq.queue.task import Task
from schedq.workflows import children, forks, steps, waits
from schedq.workflows import undo as undoing
from schedq.workflows.calls import operation
from schedq.workflows.recorder import Suspended
from schedq.workflows.run import WorkflowRun

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
_NO_OPTIONS: Final = steps.StepOptions()


class WorkflowContext:
    """The operations of a workflow. A worker makes one for each attempt.

    What an operation came to is recorded. When the function runs again from its first line, operations that are over
    return what they came to, and nothing happens. All other code runs again each time: it must have no effects.

    Operations work in the function itself, and in coroutines that were given to `gather` and `first`. In tasks that
    are made in another way, for example by `asyncio.gather`, they raise UsageError.
    """

    def __init__(self, run: WorkflowRun) -> None:
        self._run = run
        self._options = _NO_OPTIONS

    @property
    def version(self) -> int:
        """The version of the code with which this run began."""
        return self._run.record.version

    @property
    def started_at(self) -> datetime:
        """When the run began, or started over: an aware datetime in UTC, the same in all attempts."""
        return datetime.fromtimestamp(self._run.record.began_ms / 1000, UTC)

    @property
    def is_suspending(self) -> bool:
        """Whether the run is being put down because it waits. `finally` can tell by this that it is not the end."""
        return self._run.is_suspending

    def key(self, name: str) -> str:
        """A text that is the same in all attempts, to be given to other services as an idempotency key.

        Args:
            name: distinguishes the keys of one run.
        """
        run = self._run
        began = f"{run.record.began_ms}/" if run.record.life else ""
        return f"{run.job.id}/{began}{name}"

    def options(
        self,
        *,
        name: str | None = None,
        max_attempts: int | None = None,
        backoff: plans.Plan | BackoffFunction | None = None,
        timeout: Duration | None = None,
        retry_on: ErrorTypes | None = None,
        discard_on: ErrorTypes | None = None,
        undo: NewJob | None = None,
    ) -> WorkflowContext:
        """Return this context with options for the next step: `await ctx.options(name="charge").step(pay, 5)`.

        Args:
            name: the step's name in the record; by default the function's. Without `# ~ : /`.
            max_attempts: how often the step is tried; by default as often as the workflow's jobs.
            backoff: a plan, or a function (attempt, error) → seconds; by default that of the workflow's jobs.
            timeout: the longest that one try may take, seconds or a timedelta. A plain function is not interrupted.
            retry_on: exception types that are worth another try.
            discard_on: exception types that are not.
            undo: the call that takes the step back if the run fails for good or is cancelled, such as
                `refund.with_args(5)`. It is stored before the step begins, so it may meet a step that has not happened.

        Raises:
            UsageError: an option is invalid.
        """
        if backoff is not None and not callable(backoff):
            plans.checked_plan(backoff)
        made = copy.copy(self)
        made._options = steps.StepOptions(
            None if name is None else checked_operation(name),
            None if max_attempts is None else checked_attempts(max_attempts),
            backoff,
            None if timeout is None else checked_timeout(timeout),
            ErrorRules.of(retry_on, discard_on),
            None if undo is None else undoing.checked_undo(self._run, undo),
        )
        return made

    @overload
    async def step(self, function: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def step(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @operation
    async def step(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function with these arguments, and record what it returns; later attempts get that without a call.

        An async function runs on the event loop, a plain one in a thread. It is called again if it raises, as often as
        the options say, and if the worker dies before the result is stored.

        Returns:
            What the function returned, converted to JSON and back by its annotations, as results of tasks are.

        Raises:
            StepFailed: it has failed for good, or its result can't be stored.
        """
        return await steps.step(self._run, self._options, function, args, kwargs)

    @overload
    async def call(self, task: Task[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    async def call(self, task: Task[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @operation
    async def call(self, task: Task[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a job of a task, wait for its end, and return its result.

        The task is one of this queue, or of another queue of the same Redis, as in `task.options(queue=other)`. The job
        has the options of the task, as in `task.options(timeout=60)`; the task may be a workflow. If the run is
        cancelled meanwhile, so is the job.

        Raises:
            StepFailed: the job failed or was cancelled.
        """
        return await children.call(self._run, self._name_of("call", task), task, args, kwargs)

    @operation
    async def map(
        self,
        task: Task[..., T],
        items: Iterable[Any],
        *,
        concurrency: int | None = None,
        tolerate: float = 0,
        results: bool = True,
    ) -> BatchResults[Any]:
        """Run a job of a task for each item, wait until all have ended, and return what they returned.

        The jobs are a batch, of any size: they are made at most `concurrency` at a time. When the run continues after a
        crash before all were added, `items` must be the same in the same order.

        Args:
            task: a task of this queue or of another one of the same Redis, with the options that its jobs have.
            items: for each job the one argument of its call, or `task.with_args(...)`.
            concurrency: the most jobs that wait or run at the same time, 1 to 1000; None for 1000.
            tolerate: how many jobs may fail, as a number, or as a share below 1.
            results: whether what they return is kept, at most 64 MiB.

        Raises:
            MapFailed: more jobs failed than that.
            StepFailed: the jobs were cancelled.
        """
        options = BatchOptions(concurrency, tolerate, None, None, results)
        return await children.map(self._run, self._name_of("map", task), task, items, options)

    def _name_of(self, operation: str, task: object) -> str:
        """The name of an operation whose work other jobs do: that of its task."""
        if self._options.undo is not None:
            raise self._run.misused(
                f"ctx.{operation}: only a step has an undo; a workflow that is called undoes its own"
            )
        if self._options._replace(name=None) != _NO_OPTIONS:
            raise self._run.misused(
                f"ctx.{operation}: of ctx.options only the name counts here; give the others with the task, as in "
                "task.options(max_attempts=5)"
            )
        return self._options.name or operation_name(operation, getattr(task, "name", ""))

    @operation
    async def sleep(self, delay: Duration, *, name: str = "sleep") -> None:
        """Wait for a time, in seconds or as a timedelta."""
        await waits.sleep(self._run, checked_operation(name), delay_ms=duration_ms(delay, "delay"))

    @operation
    async def sleep_until(self, instant: Instant, *, name: str = "sleep") -> None:
        """Wait until an instant, an aware datetime or Unix seconds. The instant of the first call counts."""
        await waits.sleep(self._run, checked_operation(name), at_ms=instant_ms(instant, "instant"))

    @operation
    async def receive(self, topic: str, timeout: Duration | None = None, *, name: str | None = None) -> Any:
        """Wait for a message sent with `job.send(topic, value)`, and return its value.

        Messages that came before are taken first, in the order of their arrival.

        Args:
            topic: any name.
            timeout: the longest time to wait, seconds or a timedelta; None for no limit.
            name: the operation's name in the record; by default made of the topic.

        Raises:
            TimeoutError: no message arrived in time; now and in each later attempt.
        """
        timeout_ms = None if timeout is None else duration_ms(timeout, "timeout")
        base = f"receive {checked_operation(topic)}" if name is None else checked_operation(name)
        return await waits.receive(self._run, base, topic, timeout_ms)

    @overload
    async def gather(self, one: Coroutine[Any, Any, A], two: Coroutine[Any, Any, B], /) -> tuple[A, B]: ...
    @overload
    async def gather(
        self, one: Coroutine[Any, Any, A], two: Coroutine[Any, Any, B], three: Coroutine[Any, Any, C], /
    ) -> tuple[A, B, C]: ...
    @overload
    async def gather(
        self,
        one: Coroutine[Any, Any, A],
        two: Coroutine[Any, Any, B],
        three: Coroutine[Any, Any, C],
        four: Coroutine[Any, Any, D],
        /,
    ) -> tuple[A, B, C, D]: ...
    @overload
    async def gather(self, *branches: Coroutine[Any, Any, T]) -> tuple[T, ...]: ...
    @operation
    async def gather(self, *branches: Coroutine[Any, Any, Any]) -> Any:
        """Run coroutines at the same time, and return their results in their order.

        The first failure is raised, after the other branches were cancelled and have ended. At most 100 branches.
        """
        return tuple(await forks.gather(self._run, branches))

    @operation
    async def first(self, **branches: Coroutine[Any, Any, T]) -> tuple[str, T]:
        """Run coroutines at the same time until one of them ends; return its name and its result.

        The others are cancelled, and messages that they had taken and not used go back. Which one was first is
        recorded, so it stays the first in each later attempt. If it failed, its error is raised.
        """
        return await forks.first(self._run, branches)

    @operation
    async def keep(self) -> None:
        """Say that what was done so far stays done: the steps up to here are not undone any more."""
        await undoing.keep(self._run)

    @operation
    async def start_over(self, *args: Any, **kwargs: Any) -> NoReturn:
        """End this attempt, and run the function again with other arguments and an empty record.

        For loops without an end. Messages that were not taken are kept; the version becomes that of the code.

        Raises:
            ArgumentsError: the function can't be called with these arguments.
            UsageError: steps of this run are to be undone if it fails; call `keep` first.
        """
        run = self._run
        branch, _ = await run.begin("start_over")
        if run.record.undos:
            raise run.misused(
                f"start_over: step {next(iter(run.record.undos))} has an undo, which the empty record would not know; "
                "call ctx.keep() first, so that it stays done"
            )
        encoded = run.encode_arguments(args, kwargs)
        await run.requests.ask(branch, run.record.start_over(*encoded))
        await run.stop(Suspended([]))
