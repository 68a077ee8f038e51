"""How commands find queues: by name, as the only one there is, or all of them."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from operator import attrgetter
from types import ModuleType
from typing import Any, Final

import click

import schedq
from schedq.cli.warning import warn
from schedq.errors import Conflict, SchedqError, UsageError
from schedq.inspect.queue_names import nearest
from schedq.model.settings import NO_QUEUE, RETRY_S
from schedq.queue.queue import Queue, QueueBase

_COMPLETION_S: Final = 0.7
_MOST_NAMED: Final = 20


@contextmanager
def wrong_usage() -> Iterator[None]:
    """Report a UsageError of the library as wrong usage of the command."""
    try:
        yield
    except UsageError as error:
        raise click.UsageError(str(error)) from error


def open_queue(name: str, redis_url: str | None) -> AbstractContextManager[Queue]:
    """Open the queue of this name as an operator, with the settings that its workers stored.

    Raises:
        click.UsageError: the name or the URL is invalid.
    """
    return _opened(Queue.for_operator, name, redis_url)


def open_or_create(name: str, redis_url: str | None) -> AbstractContextManager[Queue]:
    """The same for a queue that need not exist; it is listed from then on."""
    return _opened(Queue, name, redis_url)


@contextmanager
def _opened(connect: Callable[..., Queue], name: str, redis_url: str | None) -> Iterator[Queue]:
    with wrong_usage():
        queue = connect(name, redis=redis_url, retry_for=RETRY_S)
    with queue:
        try:
            queue.load_settings()
        except Conflict as error:  # an operator must reach the queue even if its settings are damaged
            warn(f"{error}; using the library's default settings, and trimming nothing")
        yield queue


def all_queues(redis_url: str | None) -> Queue:
    """A queue that need not exist, for requests about all queues.

    Raises:
        click.UsageError: the URL is invalid.
    """
    with wrong_usage():
        return Queue.for_operator(NO_QUEUE, redis=redis_url, retry_for=RETRY_S)


@contextmanager
def queue_of_job(name: str | None, redis_url: str | None, job_ids: Sequence[str] = ()) -> Iterator[Queue]:
    """Open the queue of a command on jobs: the one named, else the only one there is, or that has the first job.

    Raises:
        click.UsageError: none is named, and there are several or none.
        click.ClickException: nothing is stored about the named queue, or about the job in any of several.
    """
    wanted = job_ids[0] if job_ids else ""
    with _queue_with(name, redis_url, "job", wanted, lambda queue: queue.inspector.why(wanted).is_known) as found:
        yield found


@contextmanager
def queue_of_schedule(name: str | None, redis_url: str | None, schedule_id: str) -> Iterator[Queue]:
    """Open the queue of a command on schedules: the one named, else the only one there is, or that has the first one.

    Raises:
        click.UsageError: none is named, and several have the schedule, or there is none.
        click.ClickException: nothing is stored about the named queue, or about the schedule in any of several.
    """

    def has_it(queue: Queue) -> bool:
        return queue.schedules.get(schedule_id) is not None

    with _queue_with(name, redis_url, "schedule", schedule_id, has_it) as found:
        yield found


@contextmanager
def _queue_with(
    name: str | None, redis_url: str | None, what: str, wanted: str, has_it: Callable[[Queue], bool]
) -> Iterator[Queue]:
    """Open the queue that is named, the only one there is, or the only one that has what is wanted."""
    is_named = name is not None
    if name is None:
        names = all_names(redis_url)
        listed = there_are(names)
        if len(names) > 1 and wanted:
            names = _those_with(names, redis_url, f"{what} {wanted}", has_it)
            listed = f"{len(names)} queues have a {what} of this id: {_listed(names)}"
        if len(names) != 1:
            raise click.UsageError(f"{listed}; name one with --queue NAME or SCHEDQ_QUEUE")
        (name,) = names
    with open_queue(name, redis_url) as queue:
        if is_named:
            must_be_known(queue, redis_url)
        yield queue


def _those_with(names: list[str], redis_url: str | None, what: str, has_it: Callable[[Queue], bool]) -> list[str]:
    """The queues that have something.

    Raises:
        click.ClickException: none has.
    """
    found = []
    for name in names:
        with open_queue(name, redis_url) as queue, suppress(Conflict):  # a damaged queue hides no other
            if has_it(queue):
                found.append(name)
    if not found:
        raise click.ClickException(f"nothing is stored about {what} in any of {len(names)} queues")
    return found


def all_names(redis_url: str | None, *, scan: bool = False) -> list[str]:
    """The sorted names of all queues of a Redis."""
    with all_queues(redis_url) as queue:
        return queue.list_queues(scan=scan)


def there_are(names: list[str]) -> str:
    """A sentence that lists the queues."""
    if not names:
        return "there is no queue here"
    return f"there {'is 1 queue' if len(names) == 1 else f'are {len(names)} queues'} here: {_listed(names)}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


def load_queue(path: str, folder: str = ".") -> QueueBase:
    """Import the queue that `MODULE:OBJECT` names; `folder` is searched first.

    Raises:
        click.BadParameter: it can't be imported, or is not a queue.
    """
    found = load_object(path, folder, "QUEUE")
    if not isinstance(found, QueueBase):
        raise click.BadParameter(f"{path} is a {type(found).__name__}, not a Queue or AsyncQueue")
    return found


def load_object(path: str, folder: str, what: str) -> Any:
    """Import the object that `MODULE:OBJECT` names. Errors use `what`, the expected kind of object.

    Raises:
        click.BadParameter: it can't be imported.
    """
    module_name, mark, name = path.partition(":")
    if not mark or not module_name or not name:
        raise click.BadParameter(f"{path!r} must be MODULE:{what}, such as app:{what.lower()}")
    module = _imported(module_name, folder)
    try:
        return attrgetter(name)(module)
    except AttributeError as error:
        there = sorted(found for found, value in vars(module).items() if isinstance(value, QueueBase))
        queues = f"; its queues are {_listed(there)}" if there and what == "QUEUE" else ""
        raise click.BadParameter(f"module {module_name} has no {name!r}{queues}{nearest(name, there)}") from error


def import_all(name: str, folder: str = ".") -> None:
    """Import a module, and if it is a package all modules in it; `folder` is searched first.

    Raises:
        click.BadParameter: one of them can't be imported.
    """
    module = _imported(name, folder)
    for found in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
        if not found.name.endswith(".__main__"):  # which would run the package
            import_all(found.name, folder)


def _imported(name: str, folder: str) -> ModuleType:
    folder = os.path.abspath(folder)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise click.BadParameter(f"there is no module {name!r} here ({folder})") from error
        kind = "" if isinstance(error, ModuleNotFoundError | UsageError) else f"{type(error).__name__}: "
        raise click.BadParameter(f"{name} can't be imported: {kind}{error}{_place(error)}") from error


def _place(error: BaseException) -> str:
    """The line of the application where its import failed; '' if the error names it or the line is unknown."""
    if isinstance(error, SyntaxError):
        return ""
    others = (os.path.dirname(schedq.__file__) + os.sep, os.path.dirname(importlib.__file__) + os.sep, "<")
    frames = traceback.extract_tb(error.__traceback__)
    places = [frame for frame in frames if not frame.filename.startswith(others)]
    return f" ({places[-1].filename}, line {places[-1].lineno})" if places else ""


def warn_if_unknown(queue: Queue, redis_url: str | None) -> None:
    """Warn if nothing is stored about a queue: its name may be mistyped."""
    if (names := _others(queue, redis_url)) is not None:
        warn(_unknown(queue.name, names))


def warn_if_new(queue: Queue, redis_url: str | None, say: Callable[[str], None] = warn) -> None:
    """The same for a command that may create the queue: no warning if it is the first queue."""
    if names := _others(queue, redis_url):
        say(_unknown(queue.name, names))


def warn_if_mistyped(queue: Queue, redis_url: str | None) -> None:
    """The same for a queue that is usually new: warn only if there is one with a similar name."""
    if (names := _others(queue, redis_url)) and nearest(queue.name, names):
        warn(_unknown(queue.name, names))


def must_be_known(queue: Queue, redis_url: str | None) -> None:
    """Refuse a queue for which nothing is stored: its name is probably mistyped."""
    if (names := _others(queue, redis_url)) is not None:
        raise click.ClickException(_unknown(queue.name, names))


def must_not_be_mistyped(queue: Queue, redis_url: str | None, way_out: str) -> bool:
    """Refuse a queue for which nothing is stored if there is one with a similar name, else only warn.

    `way_out` says how to insist. Returns whether nothing is stored about the queue.
    """
    names = _others(queue, redis_url)
    if names and nearest(queue.name, names):
        raise click.ClickException(f"{_unknown(queue.name, names)} {way_out}")
    if names:
        warn(_unknown(queue.name, names))
    return names is not None


def _others(queue: Queue, redis_url: str | None) -> list[str] | None:
    """The names of the existing queues, if nothing is stored about this one; else None."""
    if _holds_something(queue):
        return None
    names = all_names(redis_url)
    return None if queue.name in names else names


def _unknown(name: str, names: list[str]) -> str:
    # If there is only one queue, `there_are` already names it.
    meant = nearest(name, names) if len(names) > 1 else ""
    return f"nothing is stored about queue {name}; {there_are(names)}{meant}"


def _holds_something(queue: Queue) -> bool:
    try:
        found = queue.stats()
    except Conflict:
        return True  # it is damaged, so it exists
    numbers = [value for name, value in found.items() if name.endswith(("_depth", "_total"))]
    is_paused = found["paused_since_ms"] is not None or found["paused_tasks"]
    return any(numbers) or bool(found["workers"] or is_paused)


def warn_if_no_task(queue: Queue, tasks: Iterable[str]) -> None:
    """Warn about tasks that no live worker has, if there is a live worker."""
    wanted = set(tasks)
    if not wanted or not (workers := queue.list_workers()):
        return
    known = sorted({task for worker in workers for task in worker.tasks})
    others = f"; they have {_listed(known)}" if known else "; they have none"
    for task in sorted(wanted.difference(known))[:_MOST_NAMED]:
        warn(f"no live worker of queue {queue.name} has a task {task!r}{nearest(task, known) or others}")


def names_at_once(redis_url: str | None) -> list[str]:
    """Queue names for shell completion; none if Redis does not reply quickly."""
    found: list[str] = []

    def ask() -> None:
        with suppress(SchedqError), Queue.for_operator(NO_QUEUE, redis=redis_url, retry_for=0) as queue:
            found.extend(queue.list_queues())

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_COMPLETION_S)
    return list(found)
