"""What an operator or a caller asks of jobs that are not theirs to run: cancel, reschedule, requeue, pause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from schedq import lua
from schedq.errors import UsageError
from schedq.ids import new_request
from schedq.instants import duration_ms
from schedq.keys import checked_id
from schedq.lifecycle import Cancellation
from schedq.operations import Argument, Flow, Operation, firm
from schedq.operations.preparing import when
from schedq.settings import Settings

_PAGE: Final = 250


def _said(queue: Settings) -> tuple[Argument, ...]:
    """The arguments that all these scripts begin with."""
    return (queue.keys.jobs, queue.now_argument(), queue.keys.events, queue.log_size)


def cancel(queue: Settings, job_id: str, state: str = "") -> Operation[Cancellation]:
    """Cancel a job that waits, or ask a running one to stop; only one that is in `state`, if that is given."""
    keys = queue.keys
    return Operation(
        "cancel",
        lua.load("cancel"),
        (keys.pending, keys.delayed, keys.processing, keys.leases, keys.cancelled, keys.stats, keys.log),
        (
            *_said(queue),
            new_request(),
            checked_id(job_id),
            queue.failed_history,
            duration_ms(queue.min_keep, "min_keep"),
            state,
        ),
        lambda reply: reply,
    )


def one_time(delay: object, run_at: object) -> tuple[str, int]:
    """When, as `when` has it, but one of the two must be given.

    Raises:
        UsageError: neither or both were given, or one makes no sense.
    """
    if delay is None and run_at is None:
        raise UsageError("give delay or run_at; to run the job now, use run_now")
    return when(delay, run_at)


def reschedule(queue: Settings, job_id: str, mode: str, ms: int) -> Operation[bool]:
    """Give a delayed job another due instant: `mode` and `ms` as `preparing.when` has them."""
    keys = queue.keys
    return Operation(
        "reschedule",
        lua.load("reschedule"),
        (keys.pending, keys.delayed, keys.stats, keys.wake, keys.paused, keys.promoter, keys.log),
        (*_said(queue), keys.due, new_request(), checked_id(job_id), mode, ms),
        lambda reply: bool(reply == "yes"),
    )


def requeue(queue: Settings, job_id: str) -> Flow[bool]:
    """Give a failed or cancelled job a new life; answers whether it was one."""
    answers = yield from requeue_these(queue, [checked_id(job_id)])
    return answers[0]


def requeue_these(queue: Settings, job_ids: Sequence[str]) -> Flow[list[bool]]:
    """Give failed and cancelled jobs a new life; answers for each whether it was one."""
    request = new_request()
    left = list(job_ids)
    answers: list[bool] = []
    while left:
        (answer,) = yield [_requeue_some(queue, request, left[:_PAGE])]
        words = firm(answer)
        answers += [word == "yes" for word in words]
        left = left[len(words) :]
    return answers


def _requeue_some(queue: Settings, request: str, job_ids: Sequence[str]) -> Operation[list[str]]:
    keys = queue.keys
    return Operation(
        "requeue",
        lua.load("requeue"),
        (keys.pending, keys.failed, keys.cancelled, keys.stats, keys.wake, keys.paused, keys.log, keys.leases),
        (*_said(queue), request, *job_ids),
        list,
    )


def requeue_failed(queue: Settings, limit: int) -> Flow[int]:
    """Requeue the `limit` oldest failed jobs; answers how many were."""
    (answer,) = yield [
        Operation("requeue_failed", None, (), ("LRANGE", queue.keys.failed, -limit, -1), lambda reply: reply[::-1])
    ]
    answers = yield from requeue_these(queue, firm(answer))
    return sum(answers)


def pause(queue: Settings) -> Operation[int]:
    """Stop claims; answers since when the queue is paused, ms."""
    keys = queue.keys
    return Operation("pause", lua.load("pause"), (keys.paused, keys.wake, keys.stats, keys.log), _said(queue), int)


def resume(queue: Settings) -> Operation[bool]:
    """Allow claims again; answers whether the queue was paused."""
    keys = queue.keys
    return Operation(
        "resume",
        lua.load("resume"),
        (keys.paused, keys.pending, keys.wake, keys.stats, keys.log),
        _said(queue),
        bool,
    )
