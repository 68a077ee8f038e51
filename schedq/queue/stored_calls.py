"""Calls that are made later, as batches and chains store them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from schedq.errors import ArgumentsError, UsageError
from schedq.model.groups import call_line
from schedq.model.placeholder import RESULT
from schedq.model.records import NewJob, Options
from schedq.model.settings import Settings
from schedq.queue.before_enqueue import prepared_options
from schedq.queue.requests import Connections
from schedq.queue.task import Task
from schedq.transitions import enqueue

NOT_OF_CHILDREN: Final = ("delay", "run_at", "unique", "must_create", "reuse_id")
"""Options that the jobs of a batch or a chain can't have."""


def fields_of(line: str) -> list[str]:
    """The options of a stored call: fields and values in turn."""
    return json.loads(line.partition("\n")[0]) if line else []


def gates_of(calls: Iterable[Sequence[str | int]]) -> tuple[str, ...]:
    """The gates in the options of calls."""
    found = (dict(zip(fields[::2], fields[1::2], strict=True)).get("gate") for fields in calls)
    return tuple(dict.fromkeys(str(gate) for gate in found if gate is not None))


def check_queue(connections: Connections, place: str, call: object) -> None:
    """Refuse a task of another queue: its jobs would wait here for a worker that has it."""
    ours = connections.settings.name
    if isinstance(call, Task) and (theirs := call._connections.settings.name) != ours:
        raise UsageError(
            f"{place}: task {call.name!r} is one of queue {theirs}, and all jobs of a batch or chain are in {ours}: "
            f"register the function with queue {ours} too, and give the task that register returns"
        )


def check_address(connections: Connections, place: str, task: Task[..., Any]) -> None:
    """Refuse a task of another Redis: the end of its jobs would not become known here."""
    ours, theirs = connections.address, task._connections.address
    if ours != theirs and ours.label != theirs.label:  # the users may differ
        raise UsageError(
            f"{place}: task {task.name!r} is one of queue {task._connections.settings.name} at {theirs.label}, and "
            f"queue {connections.settings.name} is at {ours.label}: only jobs of the same Redis, given as the same "
            "redis=, can be waited for; enqueue the job in a step"
        )


def follow_up(connections: Connections, option: str, call: object) -> str:
    """The call at the end, a task or `task.with_args(...)`, as its line; '' for none.

    Raises:
        UsageError, ArgumentsError: it is invalid.
    """
    if call is None:
        return ""
    check_queue(connections, option, call)
    if isinstance(call, Task):
        task: Task[..., Any] = call
        try:
            call = task.with_args(RESULT)
        except ArgumentsError as error:
            raise ArgumentsError(f"{option}: {error}; write {option}={task.name}.with_args(...)") from None
    return stored_call(connections, option, call)


def check_options(place: str, options: Options) -> None:
    """Refuse options that the jobs of a batch, a chain or a flow can't have."""
    for name in (*NOT_OF_CHILDREN, "job_id"):
        if getattr(options, name):
            raise UsageError(
                f"{place}: a call of a batch, a chain or a flow can't have {name}, got "
                f"{getattr(options, name)!r:.100}; leave it out"
            )


def declared_options(queue: Settings, place: str, options: Options) -> tuple[str, ...]:
    """The options of a call in a declared graph, fields and values in turn, the same whoever declares it, and when."""
    check_options(place, options)
    fields = enqueue.prepare(queue, None, options._replace(durability=None)).fields
    pairs = zip(fields[::2], fields[1::2], strict=True)
    return tuple(str(word) for pair in pairs if pair[0] != "trace" for word in pair)


def stored_call(connections: Connections, place: str, call: object) -> str:
    """A call as its line; `place` is what it was given for, for errors."""
    if not isinstance(call, NewJob):
        raise UsageError(f"{place} must be a task or task.with_args(...), got {call!r:.200}")
    options = Options._make(getattr(call, name) for name in Options._fields)
    check_options(place, options)
    if connections.before_enqueue:
        options = prepared_options(connections, call.payload, options)
    encoded = enqueue.prepare(connections.settings, call.payload, options._replace(durability=None))
    return call_line(encoded.fields, encoded.text)
