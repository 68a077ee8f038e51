"""How commands find queues: by name, as the only one there is, or all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
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
        click.ClickException: nothing is stored of the one that is named.
    """
    is_named = name is not None
    if name is None:
        names = all_names(redis_url)
        if len(names) != 1:
            raise click.UsageError(f"{there_are(names)}; name one with --queue NAME or SCHEDQ_QUEUE")
        (name,) = names
    with visited(name, redis_url) as queue:
        if is_named:
            must_be_known(queue, redis_url)
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


def warn_if_unknown(queue: Queue, redis_url: str | None) -> None:
    """Say on stderr that nothing is stored of a queue, because its name may be mistyped."""
    if (names := _others(queue, redis_url)) is not None:
        show.warn(_unknown(queue.name, names))


def warn_if_new(queue: Queue, redis_url: str | None, say: Callable[[str], None] = show.warn) -> None:
    """The same before a queue is begun. Where there is no queue at all, this is the first one, and nothing is said."""
    if names := _others(queue, redis_url):
        say(_unknown(queue.name, names))


def warn_if_mistyped(queue: Queue, redis_url: str | None) -> None:
    """The same for one that is new on purpose more often than not: only if there is one of a like name."""
    if (names := _others(queue, redis_url)) and nearest(queue.name, names):
        show.warn(_unknown(queue.name, names))


def must_be_known(queue: Queue, redis_url: str | None) -> None:
    """Refuse a queue of which nothing is stored: its name is mistyped.

    Raises:
        click.ClickException: nothing is.
    """
    if (names := _others(queue, redis_url)) is not None:
        raise click.ClickException(_unknown(queue.name, names))


def must_not_be_mistyped(queue: Queue, redis_url: str | None, way_out: str) -> bool:
    """Refuse a queue of which nothing is stored if there is one whose name is like it; else only say so.

    Returns True if nothing is stored of it.

    Args:
        queue: the queue.
        redis_url: where it is.
        way_out: how to insist.

    Raises:
        click.ClickException: there is such a one.
    """
    names = _others(queue, redis_url)
    if names and nearest(queue.name, names):
        raise click.ClickException(f"{_unknown(queue.name, names)} {way_out}")
    if names:
        show.warn(_unknown(queue.name, names))
    return names is not None


def _others(queue: Queue, redis_url: str | None) -> list[str] | None:
    """The queues that there are, if nothing is stored of this one; else None."""
    if _holds_something(queue):
        return None
    names = all_names(redis_url)
    return None if queue.name in names else names


def _unknown(name: str, names: list[str]) -> str:
    # A single one has been named by then.
    meant = nearest(name, names) if len(names) > 1 else ""
    return f"nothing is stored of queue {name}; {there_are(names)}{meant}"


def _holds_something(queue: Queue) -> bool:
    try:
        found = queue.stats()
    except Conflict:
        return True  # damaged, and so there
    numbers = [value for name, value in found.items() if name.endswith(("_depth", "_total"))]
    return any(numbers) or bool(found["workers"]) or found["paused_since_ms"] is not None


def warn_if_no_task(queue: Queue, tasks: Iterable[str]) -> None:
    """Say on stderr which of these tasks no live worker knows. Without a live worker that can't be known."""
    wanted = set(tasks)
    if not wanted or not (crew := queue.list_workers()):
        return
    known = sorted({task for worker in crew for task in worker.tasks})
    for task in sorted(wanted.difference(known))[:_MOST_NAMED]:
        show.warn(f"no live worker of queue {queue.name} knows a task {task!r}{nearest(task, known) or _some(known)}")


def _some(known: Collection[str]) -> str:
    if not known:
        return "; they know none"
    more = f" and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
    return f"; they know {', '.join(sorted(known)[:_MOST_NAMED])}{more}"


def nearest(name: str, names: Collection[str]) -> str:
    """`; did you mean NAME?` for the name that is most like it; '' if none is."""
    found = get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""


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
