"""Pause a queue's claims, or those of one task, and resume them."""

from __future__ import annotations

from typing import Final

from schedq.errors import UsageError
from schedq.model.records import whole
from schedq.model.settings import Settings
from schedq.model.tasks import is_task_name
from schedq.transitions import Binding, Operation, RoundTrips, pairs, unwrap

_PAUSE: Final = Binding("pause")
_RESUME: Final = Binding("resume")
_PAUSE_TASK: Final = Binding("pause_task", "task")
_RESUME_TASK: Final = Binding("resume_task", "task", "again", "limit")
MOST_PUT_BACK: Final = 1000
"""The most held jobs that one script puts back; it blocks all other clients for about 1 µs each."""


def pause(queue: Settings) -> Operation[int]:
    """Stop claims; returns since when the queue is paused, ms."""
    return Operation("pause", *_PAUSE(queue), int)


def resume(queue: Settings) -> Operation[bool]:
    """Allow claims again; returns whether the queue was paused."""
    return Operation("resume", *_RESUME(queue), bool)


def checked_task(task: object) -> str:
    """The name of a task, given by its name or as a task.

    Raises:
        UsageError: it is neither.
    """
    name = getattr(task, "name", task)
    if not isinstance(name, str) or not is_task_name(name):
        raise UsageError(f"task must be a task, or its name of 1 to 200 printable characters, got {task!r:.100}")
    return name


def pause_task(queue: Settings, task: str) -> Operation[int]:
    """Stop claims of a task's jobs; returns since when it is paused, ms."""
    return Operation("pause", *_PAUSE_TASK(queue, task=task), int)


def resume_task(queue: Settings, task: str, most: int = MOST_PUT_BACK) -> RoundTrips[bool]:
    """Allow claims of a task's jobs again, and put back those that are held, at most `most` in each round trip.

    Returns whether it was paused.
    """
    was_paused, left, again = False, 1, 0
    while left:
        sent = _RESUME_TASK(queue, task=task, again=again, limit=most)
        (reply,) = yield [Operation("resume", *sent, list)]
        was, left = unwrap(reply)
        was_paused, again = was_paused or was == 1, 1
    return was_paused


def paused_tasks(queue: Settings) -> Operation[dict[str, int]]:
    """The paused tasks, and since when each is, ms."""

    def read(reply: list[str]) -> dict[str, int]:
        return {task: whole(since) for task, since in sorted(pairs(reply).items())}

    key = queue.keys.paused_tasks
    return Operation(f"read {key}", None, (), ("HGETALL", key), read)
