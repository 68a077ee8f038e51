"""Words of other engines, for the errors that whoever writes one here gets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

from schedq.errors import ArgumentsError

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS: Final = {
    **dict.fromkeys(("max_retries", "max_tries", "retries", "retry"), "max_attempts, which counts the first one too"),
    **dict.fromkeys(("time_limit", "soft_time_limit", "job_timeout"), "timeout"),
    **dict.fromkeys(("autoretry_for", "retry_when"), "retry_on"),
    **dict.fromkeys(("default_retry_delay", "interval", "min_backoff", "retry_backoff"), "backoff"),
    **dict.fromkeys(("keep_result", "result_expires", "result_ttl"), "completed_ttl"),
    **dict.fromkeys(("rate_limit", "throttle"), "rate"),
    **dict.fromkeys(("queue", "queue_name"), "a decorator of that queue"),
    **dict.fromkeys(("countdown", "delay", "eta", "run_at"), "an option of jobs: task.options(delay=60).enqueue(...)"),
    "bind": "schedq.current_job() in the function",
    "failure_ttl": "failed_ttl",
    "priority": "a queue for each priority",
    "throws": "discard_on",
}
_OF_JOBS: Final = _OPTIONS | {
    **dict.fromkeys(("autoretry_for", "retry_on", "retry_when", "throws", "discard_on"), "@queue.task(...)"),
    **dict.fromkeys(("rate_limit", "throttle", "rate"), "gate, or @queue.task(rate=...)"),
    "countdown": "delay",
    "eta": "run_at",
    "queue_name": "queue",
    "task_id": "job_id",
    "ttl": "expires",
}
"""Those that `task.options` hasn't either, and its words for them."""


def no_option(task: str, name: str, known: Collection[str], words: Mapping[str, str] = _OPTIONS) -> str:
    """What to say about an option that tasks don't have."""
    near = get_close_matches(name, known, n=1)
    hint = words.get(name) or (near[0] if near else "")
    return f"task {task!r}: there is no option {name!r}" + (f"; here it is {hint}" if hint else "")


def naming_unknown(function: F) -> F:
    """Let `task.options` name an option that it hasn't. To type checkers nothing changes: they report it themselves."""
    known = cast("dict[str, Any]", function.__kwdefaults__)

    @wraps(function)
    def options(task: Any, *args: Any, **given: Any) -> Any:
        for name in given:
            if name not in known:
                raise ArgumentsError(no_option(task.name, name, known, _OF_JOBS))
        return function(task, *args, **given)

    return cast(F, options)


class _OtherNames:
    """A missing attribute that another engine has raises an error with the word for it here."""

    __slots__ = ()
    _other_names: ClassVar[dict[str, str]]

    if not TYPE_CHECKING:  # type checkers report a missing name themselves

        def __getattr__(self, name):
            said = f"{type(self).__name__!r} object has no attribute {name!r}"
            here = self._other_names.get(name)
            raise AttributeError(f"{said}; here it is {here}" if here else said, name=name, obj=self)


class OtherTaskNames(_OtherNames):
    """The words for a task's attributes."""

    __slots__ = ()
    _other_names: ClassVar = {
        **dict.fromkeys(("delay", "kiq", "send"), "enqueue(...)"),
        **dict.fromkeys(("apply_async", "schedule", "send_with_options"), "options(delay=60).enqueue(...)"),
        **dict.fromkeys(("message", "s", "si", "signature", "subtask"), "with_args(...)"),
        "retry": "raise Retry(after=60) in the function",
    }


class OtherQueueNames(_OtherNames):
    """The words for a queue's attributes."""

    _other_names: ClassVar = {
        **dict.fromkeys(("add", "enqueue_call", "enqueue_job", "send_task"), "task.enqueue(...), or enqueue(payload)"),
        **dict.fromkeys(("enqueue_at", "enqueue_in", "schedule"), "task.options(delay=60).enqueue(...), or run_at="),
        **dict.fromkeys(("count", "get_length"), "stats().pending_depth"),
        **dict.fromkeys(("drain", "empty", "obliterate"), "purge()"),
        **dict.fromkeys(("add_periodic_task", "repeat", "scheduled_job"), "@queue.cron, @queue.every or schedules"),
        **dict.fromkeys(("actor", "register_task"), "task"),
        **dict.fromkeys(("chord", "group"), "batch(...)"),
        "fetch_job": "job(id)",
    }


class OtherJobNames(_OtherNames):
    """The words for a job's attributes."""

    __slots__ = ()
    _other_names: ClassVar = {
        **dict.fromkeys(("get", "get_result", "return_value", "wait_result"), "result(timeout=...)"),
        **dict.fromkeys(("get_state", "get_status", "ready", "state"), "status()"),
        **dict.fromkeys(("abort", "revoke"), "cancel()"),
        **dict.fromkeys(("fetch", "info", "refresh"), "record()"),
        **dict.fromkeys(("exc_info", "traceback"), 'record().fields["traceback"]'),
        "args": "record().payload",
        "job_id": "id",
        "delete": "queue.inspector.act('delete', [id])",
        "kwargs": "record().payload",
        "retry": "requeue()",
    }
