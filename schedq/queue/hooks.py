"""Hooks of a task: functions called at the end of its attempts. They run as a middleware outside all others."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from schedq.errors import UsageError
from schedq.model import outcome
from schedq.model.callables import place_of, runnable
from schedq.model.escaping import harmless
from schedq.model.records import Settlement
from schedq.model.signatures import signature_of
from schedq.queue.middleware import CallNext

if TYPE_CHECKING:  # programs that only enqueue do not need it
    from schedq.observer import AttemptFacts

OnSuccess = Callable[["AttemptFacts", Any], object]
"""A plain or async function (attempt, result)."""
OnFailure = Callable[["AttemptFacts", BaseException], object]
"""A plain or async function (attempt, error)."""
OnRetry = Callable[["AttemptFacts", BaseException, float], object]
"""A plain or async function (attempt, error, delay in seconds)."""
RunInThread = Callable[[Callable[[], Any]], Awaitable[Any]]


class Ending(NamedTuple):
    """The outcome that an exception leads to.

    Attributes:
        error: the exception, or the reason why no attempt can succeed.
        settlement: the outcome; None if this worker does not decide it, or if the job was cancelled.
    """

    error: BaseException
    settlement: Settlement | None


class Hooks(NamedTuple):
    """The functions that a task calls at the end of its attempts."""

    on_success: OnSuccess | None = None
    on_failure: OnFailure | None = None
    on_retry: OnRetry | None = None

    @classmethod
    def of(cls, on_success: OnSuccess | None, on_failure: OnFailure | None, on_retry: OnRetry | None) -> Hooks | None:
        """Return the hooks of a task, or None if it has none.

        Raises:
            UsageError: one of them is not a function, or takes other arguments.
        """
        made = cls(on_success, on_failure, on_retry)
        arguments = ("attempt, result", "attempt, error", "attempt, error, delay")
        for name, hook, takes in zip(cls._fields, made, arguments, strict=True):
            if hook is not None:
                _check(name, takes, hook)
        return None if made == (None, None, None) else made

    async def call(
        self,
        decide: Callable[[BaseException], Ending],
        run_in_thread: RunInThread,
        attempt: AttemptFacts,
        call_next: CallNext,
    ) -> Any:
        """Call the inner middleware, then the hook for its outcome. A hook can't change the outcome."""
        try:
            result = await call_next()
            outcome.check_result(result)
        except BaseException as error:
            await self.failed(decide(error), run_in_thread, attempt)
            raise
        if self.on_success is not None:
            await _safely(partial(self.on_success, attempt, result), run_in_thread, attempt)
        return result

    async def failed(self, ending: Ending, run_in_thread: RunInThread, attempt: AttemptFacts) -> None:
        """Call the hook for an attempt that has failed, if there is one."""
        error, settlement = ending
        if settlement is not None and settlement.move == "fail" and self.on_failure is not None:
            await _safely(partial(self.on_failure, attempt, error), run_in_thread, attempt)
        elif settlement is not None and settlement.move == "retry" and self.on_retry is not None:
            delay = settlement.delay_ms / 1000
            await _safely(partial(self.on_retry, attempt, error, delay), run_in_thread, attempt)


async def _safely(hook: partial[Any], run_in_thread: RunInThread, attempt: AttemptFacts) -> None:
    """Call a hook, a plain one in a thread. Log any exception, including a cancellation."""
    try:
        is_async = any(map(inspect.iscoroutinefunction, (hook, getattr(hook.func, "__call__", None))))  # noqa: B004
        returned = hook() if is_async else await run_in_thread(hook)
        if inspect.isawaitable(returned):
            await returned
    except BaseException as error:  # noqa: BLE001 - the outcome of the attempt is already decided
        from schedq.logs import log

        job = attempt.job
        text = "job %s: hook %s of %s raised; the attempt ends as it would have without it"
        fields = {"job_id": harmless(job.id), "queue": attempt.queue, "task": harmless(attempt.task)}
        fields |= {"attempt": str(job.attempts), "worker": attempt.worker}
        log.error(text, job.id, place_of(hook.func), attempt.task, extra=fields, exc_info=error)


def _check(name: str, takes: str, hook: object) -> None:
    function = runnable(hook, f"hook {name}")
    if _has_dependencies(function):
        raise UsageError(
            f"{name}: {place_of(function)} has a parameter with Depends(...), which only tasks get; open in the hook "
            "what it needs"
        )
    try:
        signature_of(function).bind(*takes.split(","))
    except ValueError:
        return  # Python does not know its arguments
    except TypeError as error:
        raise UsageError(f"{name} is called with ({takes}), but {place_of(function)} can't be: {error}") from None


def _has_dependencies(function: Callable[..., Any]) -> bool:
    if not (getattr(function, "__defaults__", None) or getattr(function, "__kwdefaults__", None)):
        return False
    from schedq.dependencies.providers import Injection

    return Injection.of(function) is not None
