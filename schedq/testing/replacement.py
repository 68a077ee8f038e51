"""Connect every queue of the process to something else, and back again, without its code knowing."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from schedq.connection.address import Address
from schedq.connection.async_client import AsyncClient
from schedq.connection.client import Client
from schedq.model.settings import Settings
from schedq.queue.before_enqueue import BeforeEnqueue
from schedq.queue.queue import QueueBase, all_queues


class Replacement(NamedTuple):
    """What a queue uses in place of its own."""

    address: Address
    settings: Settings
    blocking: Client
    aio: AsyncClient


def known_queues() -> list[QueueBase]:
    """The queues of the process, oldest first.

    Queues of earlier tests may be waiting for garbage collection. If another queue has the name of one, it is collected
    now, because its tasks would run in place of those of the other.
    """
    names = [queue.settings.name for queue in all_queues.values()]
    if len(names) > len(set(names)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # a queue that an earlier test did not close
            gc.collect()
    return list(dict.fromkeys(all_queues.values()))


@contextmanager
def replaced(
    replacement: Callable[[QueueBase], Replacement], seen: BeforeEnqueue
) -> Iterator[Callable[[], list[QueueBase]]]:
    """Give all queues a replacement in this block, also those that are made in it.

    Tasks, jobs, schedules and inspectors that exist follow their queue.

    Args:
        replacement: returns the replacement of a queue.
        seen: called before each job is stored.

    Yields:
        A function that returns the queues.
    """
    saved = dict[QueueBase, Replacement]()

    def take(queue: QueueBase) -> None:
        own = queue.connections
        saved[queue] = Replacement(queue.address, queue.settings, own.blocking, own.aio)
        own.before_enqueue = (*own.before_enqueue, seen)
        _use(queue, replacement(queue))

    connect = QueueBase._connect

    def connect_and_take(self: QueueBase, settings: Any) -> None:
        connect(self, settings)
        take(self)

    try:
        for queue in known_queues():
            take(queue)
        setattr(QueueBase, "_connect", connect_and_take)  # noqa: B010 - mypy refuses an assignment to a method
        yield lambda: list(saved)
    finally:
        setattr(QueueBase, "_connect", connect)  # noqa: B010
        for queue, before in saved.items():
            own = queue.connections
            own.blocking.close()
            own.before_enqueue = tuple(function for function in own.before_enqueue if function is not seen)
            _use(queue, before)


def _use(queue: QueueBase, given: Replacement) -> None:
    for client in (queue, queue.blocking, queue.aio):
        client.address, client.settings = given.address, given.settings
    own = queue.connections
    own.settings, own.blocking, own.aio = given.settings, given.blocking, given.aio
    for follower in list(own.followers):
        follower._follow(own)
