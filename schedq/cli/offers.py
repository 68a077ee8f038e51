"""What shells complete from a Redis that replies at once: ids and names. Nothing if it does not reply."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

import click
from click.shell_completion import CompletionItem

from schedq.cli.queues import at_once
from schedq.errors import SchedqError
from schedq.model.settings import NO_QUEUE
from schedq.model.tasks import is_task_call
from schedq.queue.queue import Queue

Offer = Callable[[Queue, str], Iterable[tuple[str, str]]]
"""Takes a queue and the name of the command; returns texts, each with a word about it."""
_MOST_QUEUES: Final = 10
_MOST_JOBS: Final = 20
"""Newest jobs of each state that are offered."""
_MOST: Final = 100
_STATES: Final = ("processing", "pending", "delayed", "failed", "completed", "cancelled")
_STATES_OF: Final = {
    "requeue": ("failed", "cancelled"),
    "undo": ("failed", "cancelled"),
    "cancel": ("processing", "pending", "delayed"),
    "reschedule": ("delayed",),
    "delete": ("failed", "completed", "cancelled", "pending", "delayed"),
    "send": ("processing", "pending", "delayed"),
    "enqueue": (),
}
"""Command -> the states of the jobs that it can act on; for others all."""


def jobs(queue: Queue, command: str) -> Iterable[tuple[str, str]]:
    """Ids of the newest jobs that a command can act on."""
    for state in _STATES_OF.get(command, _STATES):
        for record in getattr(queue, f"list_{state}")(limit=_MOST_JOBS):
            task = record.payload["task"] if is_task_call(record.payload) else ""
            yield record.id, f"{state} {task}".rstrip()


def tasks(queue: Queue, _command: str) -> Iterable[tuple[str, str]]:
    """Names of the tasks that live workers have."""
    names = {task for worker in queue.list_workers() for task in worker.tasks}
    return [(name, "") for name in sorted(names)]


def workers(queue: Queue, _command: str) -> Iterable[tuple[str, str]]:
    """Ids of live workers."""
    return [(worker.id, worker.host) for worker in queue.list_workers()]


def schedules(queue: Queue, _command: str) -> Iterable[tuple[str, str]]:
    """Ids of schedules, the earliest next slot first."""
    return [(record.id, record.words) for record in queue.schedules.list(0, _MOST)]


def gates(queue: Queue, _command: str) -> Iterable[tuple[str, str]]:
    """Names of gates."""
    return [(gate.name, "") for gate in queue.gates.list() if gate.name]


def batches(queue: Queue, _command: str) -> Iterable[tuple[str, str]]:
    """Ids of batches and chains."""
    return [(batch.id, batch.status) for batch in queue.list_batches(_MOST)]


def offered(ctx: click.Context, incomplete: str, offer: Offer) -> list[CompletionItem]:
    """What begins with the text, in the named queue or in the first ten; nothing if Redis does not reply at once."""
    url, command = ctx.params.get("redis_url"), str(ctx.command.name)
    named = ctx.params.get("queue_name") or ctx.params.get("name") or os.environ.get("SCHEDQ_QUEUE")

    def ask() -> Iterable[CompletionItem]:
        names = [named] if named else _names(url)
        for name in names:
            with suppress(SchedqError), Queue.for_operator(name, redis=url, retry_for=0) as queue:
                for text, word in offer(queue, command):
                    if text.startswith(incomplete):
                        yield CompletionItem(text, help=word or None)

    found = {item.value: item for item in at_once(ask)}
    return [*found.values()][:_MOST]


def _names(url: str | None) -> list[str]:
    with Queue.for_operator(NO_QUEUE, redis=url, retry_for=0) as queue:
        return queue.list_queues()[:_MOST_QUEUES]
