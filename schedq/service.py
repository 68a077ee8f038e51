"""Roles as processes: signals, a parent's word, several promoters side by side."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, cast

from schedq.aio import AsyncQueue
from schedq.application import Application
from schedq.errors import SchedqError, UsageError
from schedq.link import Complaint, Link, Outage
from schedq.logger import log
from schedq.operations import firm, upkeep
from schedq.promoter import Promoter
from schedq.worker import Worker
from schedq.worker.heartbeat import version

PARENT_FD: Final = "SCHEDQ_PARENT_FD"
"""Environment variable of a child of `--processes`: the socket between it and its parent."""
SERVED: Final = b"served "
"""What a child says to its parent when Redis has answered its first claims."""


async def run_worker(worker: Worker) -> None:
    """Run a worker until SIGTERM or SIGINT, or, as a child, until the parent says so or is gone.

    Raises:
        UsageError: Redis refuses for a reason that does not pass by itself.
    """
    if parent := os.environ.get(PARENT_FD):
        worker.served = partial(_say, int(parent), SERVED)
    _obey(worker.stop)
    try:
        await worker.run()
    finally:
        for queue in worker.queues:
            await cast(AsyncQueue, queue.aio).aclose()  # what handlers enqueued with


async def run_promoters(queues: Sequence[Application]) -> None:
    """Run the promoters of some queues until SIGTERM or SIGINT.

    Raises:
        UsageError: Redis refuses for a reason that does not pass by itself.
    """
    asked = asyncio.Event()
    _obey(asked.set)
    outages: dict[str, Outage] = {}
    daemons = [_Daemon(queue, outages.setdefault(queue.address.label, Outage(queue.address.label))) for queue in queues]
    work = [asyncio.create_task(daemon.run()) for daemon in daemons]
    ready = asyncio.create_task(_say_when_ready(daemons))
    stop = asyncio.create_task(asked.wait())
    try:
        done, _ = await asyncio.wait([stop, *work], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task
    finally:
        for task in (stop, ready, *work):
            task.cancel()
        await asyncio.gather(stop, ready, *work, return_exceptions=True)
        await asyncio.gather(*(daemon.leave() for daemon in daemons), return_exceptions=True)


async def _say_when_ready(daemons: Sequence[_Daemon]) -> None:
    """Log that all is well as soon as every Redis has answered, and not before."""
    for daemon in daemons:
        await daemon.answered.wait()
    where = ", ".join(daemon.name for daemon in daemons)
    log.info("promoter: ready for %s, schedq %s", where, version() or "?")


class _Daemon:
    """The promoter of one queue without application code: it goes by what the workers wrote down."""

    def __init__(self, queue: Application, outage: Outage) -> None:
        self._queue = queue
        self._link = Link(queue, outage)
        self._unknown = queue.settings.without_application()
        self._promoter = Promoter(queue, self._link, self._unknown, self._read_settings)
        self._complaint = Complaint()
        self.name = queue.name
        self.answered = self._promoter.has_looked

    async def run(self) -> None:
        await self._read_settings()
        await self._promoter.run()

    async def leave(self) -> None:
        """Give up the promoter lease, so that another takes over at once."""
        promoter_id = self._promoter.id
        try:
            await asyncio.wait_for(self._link.ask(upkeep.leave(self._queue.settings, promoter_id, promoter_id)), 1)
        finally:
            await self._link.aclose()

    async def _read_settings(self) -> None:
        try:
            settings = self._queue.settings
            # Nobody else may write the name again.
            name = [] if settings.tagged else [upkeep.enlist(settings)]
            self._queue.address.enlist(settings.name, again=self.answered.is_set())  # on a cluster
            stored, *_ = await self._link.exchange([upkeep.read_settings(settings), *name])
            firm(stored)
        except UsageError:
            raise
        except SchedqError as error:
            self._complaint.say(f"queue {self._queue.name}: settings", error)
        else:
            self._promoter.use(self._unknown.with_fields(stored))


def _obey(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    fd = os.environ.pop(PARENT_FD, None)  # not for the handlers' own processes
    for number in (signal.SIGTERM, signal.SIGINT):
        if fd is None:
            loop.add_signal_handler(number, stop)
        else:
            # The parent gets the signal too and passes it on, so that one to the whole group counts once. (Ignored
            # for good, as by SIG_IGN, it would be by the handlers' own processes as well.)
            signal.signal(number, lambda _number, _frame: None)
    if fd is not None:
        loop.add_reader(int(fd), _hear_parent, int(fd), stop)


def _say(fd: int, words: bytes) -> None:
    with suppress(OSError):  # the parent is gone
        os.write(fd, words)


def _hear_parent(fd: int, stop: Callable[[], None]) -> None:
    words = b""
    with suppress(OSError):  # a parent that is killed with our last word unread resets the connection
        words = os.read(fd, 16)
    for _ in words or b"s":
        stop()
    if not words:
        log.warning("the parent process is gone; stopping")
        asyncio.get_running_loop().remove_reader(fd)
