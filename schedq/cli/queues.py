"""How commands find queues: by name, as the only one there is, or all of them."""

from __future__ import annotations

import importlib
import os
import pkgutil
import shlex
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from operator import attrgetter
from types import ModuleType
from typing import Any, Final, TypeVar

import click

import schedq
from schedq.cli.warning import warn
from schedq.errors import Conflict, SchedqError, UsageError
from schedq.inspect import display, queue_names
from schedq.inspect.queue_names import nearest
from schedq.inspect.stats import Stats, stats_for_operator
from schedq.model.keys import QueueKeys
from schedq.model.settings import NO_QUEUE, RETRY_S, Settings
from schedq.queue.queue import Queue, QueueBase
from schedq.transitions import RoundTrips, together, unwrap

T = TypeVar("T")
_COMPLETION_S: Final = 0.7
_MOST_NAMED: Final = 20
_AT_ONCE: Final = 100
"""Number of queues read in one round trip, which blocks all other clients for about 50 µs each."""
_MOST_OPENED: Final = 20
"""Queues that are opened in search of a job without a record."""
_WAY_OUT: Final = "name one with --queue NAME or SCHEDQ_QUEUE"


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
            _warn_of_settings(error)
        yield queue


def _warn_of_settings(error: Conflict) -> None:
    warn(f"{error}; using the library's default settings, and trimming nothing")


def all_queues(redis_url: str | None) -> Queue:
    """A queue that need not exist, for requests about all queues.

    Raises:
        click.UsageError: the URL is invalid.
    """
    return _connected(NO_QUEUE, redis_url)


def _connected(name: str, redis_url: str | None) -> Queue:
    with wrong_usage():
        return Queue.for_operator(name, redis=redis_url, retry_for=RETRY_S)


@contextmanager
def queue_of_job(name: str | None, redis_url: str | None, job_ids: Sequence[str] = ()) -> Iterator[Queue]:
    """Open the queue of a command on jobs: the one named, else the only one that has them, or the only one there is.

    Raises:
        click.UsageError: none is named, and several have the job, or there are several or none and no job is given.
        click.ClickException: nothing is stored about the named queue, or about the job in any; or the jobs are in
            different queues.
    """
    with _queue_with(name, redis_url, "job", job_ids, QueueKeys.job, _knows_job) as found:
        yield found


@contextmanager
def queue_of_schedule(name: str | None, redis_url: str | None, *schedule_ids: str) -> Iterator[Queue]:
    """The same for a command on schedules."""
    with _queue_with(name, redis_url, "schedule", schedule_ids, QueueKeys.schedule, _never) as found:
        yield found


@contextmanager
def queue_of_batch(name: str | None, redis_url: str | None, batch_id: str) -> Iterator[Queue]:
    """The same for a command on a batch or chain."""
    with _queue_with(name, redis_url, "batch", [batch_id], QueueKeys.group, _never) as found:
        yield found


def _knows_job(queue: Queue, job_id: str) -> bool:
    """Whether a queue lists a job whose record is gone."""
    return queue.inspector.why(job_id).is_known


def _never(_queue: Queue, _wanted: str) -> bool:
    return False


@contextmanager
def _queue_with(
    name: str | None,
    redis_url: str | None,
    what: str,
    wanted: Sequence[str],
    key: Callable[[QueueKeys, str], str],
    knows: Callable[[Queue, str], bool],
) -> Iterator[Queue]:
    """Open the queue that is named, the only one that has what is wanted, or the only one there is."""
    is_named = name is not None
    if name is None:
        name = _found(redis_url, what, wanted, key, knows) if wanted else _only(all_names(redis_url))
    with open_queue(name, redis_url) as queue:
        if is_named:
            must_be_known(queue, redis_url)
        yield queue


def only_queue(redis_url: str | None) -> str:
    """The name of the only queue there is.

    Raises:
        click.UsageError: there are several, or none.
    """
    return _only(all_names(redis_url))


def _only(names: list[str]) -> str:
    if len(names) != 1:
        raise click.UsageError(f"{there_are(names)}; {_WAY_OUT}")
    return names[0]


def _found(
    redis_url: str | None,
    what: str,
    wanted: Sequence[str],
    key: Callable[[QueueKeys, str], str],
    knows: Callable[[Queue, str], bool],
) -> str:
    """The name of the queue that has all that is stored of what is wanted."""
    where, hidden = holders(redis_url, wanted, key)
    there = {one: names for one, names in where.items() if names}
    if not there:
        return _unstored(redis_url, what, wanted[0], hidden, knows)
    common = set.intersection(*map(set, there.values()))
    if not common:
        places = ", ".join(f"{one} in {_listed(names)}" for one, names in [*there.items()][:_MOST_NAMED])
        raise click.ClickException(f"these {what}s are in different queues ({places}); {_WAY_OUT}, one after the other")
    return one_of(sorted(common), what)


def one_of(names: list[str], what: str) -> str:
    """The only name; `what` is in all of these queues.

    Raises:
        click.UsageError: there are several names.
    """
    if len(names) > 1:
        raise click.UsageError(f"{len(names)} queues have a {what} of this id: {_listed(names)}; {_WAY_OUT}")
    return names[0]


def _unstored(redis_url: str | None, what: str, wanted: str, hidden: int, knows: Callable[[Queue, str], bool]) -> str:
    """The only queue there is, which then says that nothing is stored, or one that lists a job without a record."""
    names = all_names(redis_url) if not hidden else []
    if len(names) == 1:
        return names[0]
    listing = [name for name in names[:_MOST_OPENED] if _does(name, redis_url, lambda queue: knows(queue, wanted))]
    if listing:
        return one_of(listing, what)
    where = f" in any of {len(names)} queues" if names else ": there is no queue here"
    if hidden:
        where = f" in the queues that this user may read; {display.count(hidden, 'queue')} can't be read; {_WAY_OUT}"
    raise click.ClickException(f"nothing is stored about {what} {wanted}{where}")


def _does(name: str, redis_url: str | None, act: Callable[[Queue], bool]) -> bool:
    with open_queue(name, redis_url) as queue, suppress(Conflict):  # a damaged queue hides no other
        return act(queue)
    return False


def holders(
    redis_url: str | None, wanted: Sequence[str], key: Callable[[QueueKeys, str], str] = QueueKeys.job
) -> tuple[dict[str, list[str]], int]:
    """The names of the queues that store each of these, and the number of queues that this user may not read.

    It asks for keys a page at a time, so ten thousand queues take about half a second.
    """
    with all_queues(redis_url) as queue:
        is_cluster, tagged = queue.address.is_cluster, queue.settings.tagged
        names = queue.list_queues() if is_cluster else queue._drive(queue_names.listed())
        keys = {key(QueueKeys(name, tagged), one): (one, name) for one in dict.fromkeys(wanted) for name in names}
        if is_cluster:
            existing = queue.address.existing([*keys])
            found, hidden = existing.keys, existing.hidden
        else:
            found, hidden = queue._drive(queue_names.existing([*keys]))
    where: dict[str, list[str]] = {one: [] for one in wanted}
    for one, name in sorted(keys[there] for there in found):
        where[one].append(name)
    return where, hidden // max(1, len(where))


def all_names(redis_url: str | None, *, scan: bool = False) -> list[str]:
    """The sorted names of all queues of a Redis."""
    with all_queues(redis_url) as queue:
        return queue.list_queues(scan=scan)


def read_each(
    names: Sequence[str],
    redis_url: str | None,
    read: Callable[[Settings], RoundTrips[T]],
    moved: Callable[[int, int], None] = lambda _done, _all: None,
    through: Queue | None = None,
) -> Iterator[tuple[str, T | Conflict]]:
    """What `read` finds out about each queue, or why it can't: 100 queues at once; on a cluster, one by one.

    `moved` is called with the numbers of queues that have been read, and of all. `through`, from `all_queues`, saves a
    caller that reads again and again new connections.
    """
    with all_queues(redis_url) if through is None else nullcontext(through) as queue:
        tagged = queue.settings.tagged
        page = 1 if tagged else _AT_ONCE
        for first in range(0, len(names), page):
            some = names[first : first + page]
            with _connected(some[0], redis_url) if tagged else nullcontext(queue) as client:
                found = client._drive(together(read(queue.settings.of_queue(name)) for name in some))
            for name, result in zip(some, found, strict=True):
                yield name, result if isinstance(result, Conflict) else unwrap(result)
            moved(first + len(some), len(names))


def read_stats(
    names: Sequence[str], redis_url: str | None, moved: Callable[[int, int], None]
) -> Iterator[tuple[str, Stats | Conflict]]:
    """The statistics of each queue, or why it can't be read."""
    for name, found in read_each(names, redis_url, stats_for_operator, moved):
        if isinstance(found, Conflict):
            yield name, found
            continue
        stats, error = found
        if isinstance(error, Conflict):
            _warn_of_settings(error)
        yield name, stats


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


def typed_again(command: str, name: str, redis_url: str | None, limit: int) -> str:
    """A command on a queue as it was typed, but without a URL that may contain a password."""
    where = "" if redis_url is None else f" --redis {'URL' if '@' in redis_url else shlex.quote(redis_url)}"
    return f"schedq {command} {name}{where} --limit {limit}"


def at_once(ask: Callable[[], Iterable[T]]) -> list[T]:
    """What a question to Redis yields within 0.7 s, for shell completion; it ends silently at an error."""
    found: list[T] = []

    def collect() -> None:
        with suppress(SchedqError):
            found.extend(ask())  # one by one: those before a late reply count

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(_COMPLETION_S)
    return list(found)


def names_at_once(redis_url: str | None) -> list[str]:
    """Queue names for shell completion; none if Redis does not reply quickly."""

    def ask() -> list[str]:
        with Queue.for_operator(NO_QUEUE, redis=redis_url, retry_for=0) as queue:
            return queue.list_queues()

    return at_once(ask)
