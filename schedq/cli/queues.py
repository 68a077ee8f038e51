"""How commands find queues: by name, as the only one there is, or all of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from schedq.cli import show
from schedq.errors import Conflict, SchedqError, UsageError
from schedq.queue import Queue

RETRY_S: Final = 1.0
"""Seconds for which a command that is done at once asks a Redis that does not answer."""
_COMPLETION_S: Final = 0.7
_MOST_NAMED: Final = 20
_NOBODY: Final = "schedq"
"""Name of a queue that is only there to ask about others."""


def named_queue(name: str, redis_url: str | None) -> Queue:
    """The queue of this name, without its application, for what lasts.

    Raises:
        click.UsageError: the name or the URL can't be one.
    """
    try:
        return Queue(name, redis=redis_url)
    except UsageError as error:
        raise click.UsageError(str(error)) from error


@contextmanager
def visited(name: str, redis_url: str | None) -> Iterator[Queue]:
    """The queue of this name, to look at or to act on by the settings that its workers wrote down.

    Raises:
        click.UsageError: the name or the URL can't be one.
    """
    with _visiting(name, redis_url) as queue:
        _learn(queue)
        yield queue


@contextmanager
def used(name: str, redis_url: str | None) -> Iterator[Queue]:
    """The queue of this name, which need not have been there before.

    Raises:
        click.UsageError: the name or the URL can't be one.
    """
    try:
        queue = Queue(name, redis=redis_url, retry_for=RETRY_S)
    except UsageError as error:
        raise click.UsageError(str(error)) from error
    with queue:
        _learn(queue)
        yield queue


@contextmanager
def queue_of_job(name: str | None, redis_url: str | None) -> Iterator[Queue]:
    """The queue of a command on jobs: the one named, else the only one there is.

    Raises:
        click.UsageError: none is named, and there are several or none.
    """
    if name is None:
        names = all_names(redis_url)
        if len(names) != 1:
            raise click.UsageError(f"{there_are(names)}; name one with --queue NAME or SCHEDQ_QUEUE")
        (name,) = names
    with visited(name, redis_url) as queue:
        yield queue


def all_names(redis_url: str | None, *, scan: bool = False) -> list[str]:
    """The names of all queues at a Redis, in order."""
    with _visiting(_NOBODY, redis_url) as queue:
        return queue.list_queues(scan=scan)


def there_are(names: list[str]) -> str:
    """Which queues there are, in words."""
    if not names:
        return "there is no queue here"
    shown = ", ".join(names[:_MOST_NAMED]) + (
        f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    )
    return f"there {'is 1 queue' if len(names) == 1 else f'are {len(names)} queues'} here: {shown}"


def warn_if_nowhere(queue: Queue, redis_url: str | None) -> None:
    """Say on stderr that nothing is stored of a queue, because its name may be mistyped."""
    names = all_names(redis_url)
    if queue.name not in names:
        show.warn(f"nothing is stored of queue {queue.name}; {there_are(names)}")


def names_at_once(redis_url: str | None) -> list[str]:
    """The names for a shell's completion: quickly, or none."""
    found: list[str] = []

    def ask() -> None:
        try:
            with Queue.visiting(_NOBODY, redis=redis_url, retry_for=0) as queue:
                found.extend(queue.list_queues())
        except SchedqError:
            return

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_COMPLETION_S)
    return list(found)


def _learn(queue: Queue) -> None:
    """Learn the settings; damage to them must not keep an operator from the queue."""
    try:
        queue.learn_settings()
    except Conflict as error:
        show.warn(f"{error}; going on by the library's own settings, and trimming nothing")


def _visiting(name: str, redis_url: str | None) -> Queue:
    try:
        return Queue.visiting(name, redis=redis_url, retry_for=RETRY_S)
    except UsageError as error:
        raise click.UsageError(str(error)) from error
