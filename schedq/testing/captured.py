"""What a process enqueued during a test, and a check for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import EllipsisType
from typing import Any, Final

from schedq.errors import UsageError
from schedq.model.payload import decode, encode
from schedq.model.signatures import signature_of
from schedq.model.times import Duration, Instant, duration_ms, instant_ms
from schedq.queue.enqueue_facts import EnqueueFacts
from schedq.queue.task import Task

_SHOWN: Final = 20


class Captured:
    """The jobs that a process enqueues.

    Attributes:
        enqueued: the jobs that this process asked to enqueue, oldest first. Jobs of schedules are not among them.
    """

    def __init__(self) -> None:
        self.enqueued: list[EnqueueFacts] = []

    def assert_enqueued(
        self,
        task: Task[..., Any],
        args: Sequence[Any] | EllipsisType = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        delay: Duration | None = None,
        run_at: Instant | None = None,
    ) -> EnqueueFacts:
        """Check that this process enqueued a call of the task with these arguments; returns the oldest such job.

        Arguments compare as the function receives them: by position or by name, with its defaults. With `...` as `args`
        any arguments do. `delay` and `run_at` are compared only if given.

        Raises:
            AssertionError: there was no such job; the message lists those that there were.
        """
        what, calls = self._calls(task, args, kwargs)
        for job in calls:
            if _is_due(job, delay, run_at):
                return job
        raise AssertionError(f"{what}{_times(delay, run_at)} was not enqueued; this was:\n{self._shown()}")

    def assert_not_enqueued(
        self,
        task: Task[..., Any],
        args: Sequence[Any] | EllipsisType = ...,
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Check that this process enqueued no call of the task, or none with these arguments.

        Raises:
            AssertionError: there was such a job; the message lists all that there were.
        """
        if kwargs is not None and args is ...:
            args = ()
        what, calls = self._calls(task, args, kwargs)
        if calls:
            raise AssertionError(f"{what} was enqueued:\n{self._shown()}")

    def _calls(
        self, task: Task[..., Any], args: Sequence[Any] | EllipsisType, kwargs: Mapping[str, Any] | None
    ) -> tuple[str, list[EnqueueFacts]]:
        """A call in words, and the jobs that are such calls."""
        settings = task._connections.settings
        calls = [job for job in self.enqueued if job.task == task.name and settings.name == job.queue]
        if isinstance(args, EllipsisType):
            if kwargs is not None:
                raise UsageError("with ... as args any arguments do, so there can be no kwargs")
            return f"{task.name}(...)", calls
        wanted = decode(encode(task.new_job(args, kwargs or {}).payload, settings.max_payload))
        given = wanted.get("args", ()), wanted.get("kwargs", {})
        expected = _bound(task, *given)
        return _call(task.name, *given), [job for job in calls if _bound(task, job.args, job.kwargs) == expected]

    def _shown(self) -> str:
        return "\n".join(f"  {_described(job)}" for job in self.enqueued[-_SHOWN:]) or "  nothing"


def _bound(task: Task[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by name, with defaults; parameters that a dependency fills are left out."""
    bound = signature_of(task.function).bind_partial(*args, **kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _is_due(job: EnqueueFacts, delay: Duration | None, run_at: Instant | None) -> bool:
    if delay is not None and (job.delay is None or duration_ms(job.delay, "delay") != duration_ms(delay, "delay")):
        return False
    return run_at is None or (
        job.run_at is not None and instant_ms(job.run_at, "run_at") == instant_ms(run_at, "run_at")
    )


def _call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return f"{name}({', '.join([*map(repr, args), *(f'{key}={value!r}' for key, value in kwargs.items())])})"


def _described(job: EnqueueFacts) -> str:
    text = repr(job.payload) if job.task is None else _call(job.task, job.args, job.kwargs)
    return f"{job.queue}: {text}{_times(job.delay, job.run_at)}"


def _times(delay: Duration | None, run_at: Instant | None) -> str:
    given = {"delay": delay, "run_at": run_at}
    return "".join(f", {name}={value!r}" for name, value in given.items() if value is not None)
