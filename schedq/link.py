"""A connection for roles that run for ever: it waits for Redis as long as it takes, and says so once."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from schedq.application import Application
from schedq.clocks import monotonic
from schedq.connection import faults
from schedq.connection.aline import AsyncLine
from schedq.connection.exchange import Exchange
from schedq.errors import SchedqError, UsageError
from schedq.logger import log
from schedq.operations import Block, Flow, Operation, Round, firm

T = TypeVar("T")
REFUSED_S: Final = 1.0
"""Seconds until something that Redis refused is tried again."""
_FIRST_WAIT_S: Final = 0.05
_LONGEST_WAIT_S: Final = 1.0
_AGAIN_S: Final = 60.0
_MOST_SAID: Final = 20


class Outage:
    """Whether one Redis can be reached, as all connections of a process see it; one log line per change.

    Only those that are asking count: one that lost Redis and has nothing to ask for now would never hear it answer.
    Any thread may use it.

    Attributes:
        losses: how many times it was lost so far.
    """

    def __init__(self, label: str) -> None:
        self.losses = 0
        self._label = label
        self._since = 0.0
        self._is_lost = False
        self._has_answered = False  # somebody, since it was last lost
        self._without: set[object] = set()
        self._lock = threading.RLock()

    @property
    def lost_for_s(self) -> float:
        """Seconds since it was lost; 0 while it answers all that ask it."""
        with self._lock:
            return monotonic() - self._since if self._is_lost else 0.0

    def lost(self, who: object, error: Exception) -> None:
        """It did not answer `who`, which asks again until it does."""
        with self._lock:
            if not self._is_lost:
                self._since = monotonic()
                self.losses += 1
                log.warning(
                    "%s: lost (%s); trying again until it is back",
                    self._label,
                    str(error) or type(error).__name__,
                )
            self._is_lost, self._has_answered = True, False
            self._without.add(who)

    def back(self, who: object) -> None:
        """It answered `who`. It is back when it has answered all that had lost it and still ask."""
        if not self._is_lost:  # asked after every answer, so without the lock: a loss of its own each has told before
            return
        with self._lock:
            self._has_answered = True
            self.rest(who)

    def rest(self, who: object) -> None:
        """`who` asks nothing for now, answered or not: the others find out whether Redis answers."""
        with self._lock:
            self._without.discard(who)
            if self._is_lost and self._has_answered and not self._without:
                self._is_lost = False
                log.warning("%s: back after %.1f s", self._label, monotonic() - self._since)

    def forget(self, who: object) -> None:
        """`who` has gone. If nobody else had lost it, the next loss is another one."""
        with self._lock:
            self.rest(who)
            if not self._without:
                self._is_lost = False


class Complaint:
    """What a loop has to say about refusals of Redis: each once, and then once a minute while it lasts."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}

    def say(self, what: str, error: Exception, level: int = logging.ERROR) -> None:
        """Log it, if that was not done a moment ago, nor much else."""
        text = f"{what}: {error}"
        now = monotonic()
        self._said = {said: at for said, at in self._said.items() if now - at < _AGAIN_S}
        if text not in self._said and len(self._said) < _MOST_SAID:
            self._said[text] = now
            log.log(level, "%s", text)


async def steadily(what: str, step: Callable[[], Awaitable[float]]) -> None:
    """Do `step` for ever, sleeping as many seconds as it answers. A refusal by Redis is said, and tried again.

    Raises:
        UsageError: Redis refuses for a reason that does not pass by itself, such as a wrong password.
    """
    complaint = Complaint()
    while True:
        try:
            wait = await step()
        except UsageError:
            raise
        except SchedqError as error:
            complaint.say(what, error)
            wait = REFUSED_S
        if wait > 0:
            await asyncio.sleep(wait)


class Link:
    """One asyncio connection that does not give up.

    Attributes:
        outage: what is known of the Redis it leads to.
    """

    def __init__(self, queue: Application, outage: Outage) -> None:
        self.outage = outage
        self._address = queue.address
        self._queue = queue.settings
        self._line = AsyncLine(queue.address, queue.settings)
        self._complaint = Complaint()
        self._asking = 0

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection, as far as is known."""
        return self._line.is_connected

    async def connect(self, failed: Callable[[], None]) -> None:
        """Wait until there is a connection; nothing of any request is sent before. `failed` as in `exchange`.

        Raises:
            UsageError: Redis refuses for a reason that does not pass by itself.
        """
        wait = _FIRST_WAIT_S
        with self._asks():
            while not self.is_connected:
                try:
                    await self._line.connect()
                except (SchedqError, *faults.BROKEN_LINE) as error:
                    if not faults.is_passing(error):
                        raise faults.named(error, "connect", self._address) from error
                    self.outage.lost(self, error)
                    failed()
                    await asyncio.sleep(wait * random.uniform(0.5, 1))  # noqa: S311 - spreads load
                    wait = min(_LONGEST_WAIT_S, 2 * wait)
            self.outage.back(self)

    async def ask(self, operation: Operation[T]) -> T:
        """Send one operation until it is answered.

        Raises:
            SchedqError: Redis answered, and refused.
        """
        answer: T = firm((await self.exchange([operation]))[0])
        return answer

    async def drive(self, flow: Flow[T]) -> T:
        """Send the rounds of a flow until they are answered.

        Raises:
            SchedqError: Redis answered, and refused.
        """
        try:
            step = next(flow)
            while True:
                assert not isinstance(step, Block)
                step = flow.send(await self.exchange(step))
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def exchange(self, operations: Round, failed: Callable[[], None] | None = None) -> list[Any]:
        """Send operations together until all are answered; those that may not be repeated end in an error instead.

        Args:
            operations: what to send.
            failed: called after each sending that was not answered; the next one may be long in coming.
        """
        exchange = Exchange(operations, self._address, self._queue, math.inf)
        with self._asks():
            while not exchange.is_done:
                try:
                    replies = await self._line.ask(exchange.commands())
                except (SchedqError, *faults.BROKEN_LINE) as error:
                    if faults.is_passing(error):
                        self.outage.lost(self, error)
                    wait = exchange.failed(error)
                    if failed is not None:
                        failed()
                else:
                    self.outage.back(self)
                    self._look_at(replies)
                    wait = exchange.take(replies)
                if wait:
                    await asyncio.sleep(wait)
        return exchange.answers

    @contextmanager
    def _asks(self) -> Iterator[None]:
        """While something is asked. The last to end, also by a cancellation, leaves word that nothing is."""
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking:
                self.outage.rest(self)

    async def aclose(self) -> None:
        """Close the connection."""
        self.outage.forget(self)
        await self._line.aclose()

    def _look_at(self, replies: list[Any]) -> None:
        """Say what Redis answers instead of serving; after a failover the address may lead to another server."""
        for reply in replies:
            if isinstance(reply, Exception) and faults.is_passing(reply):
                if faults.is_moved(reply):
                    self._complaint.say(f"queue {self._queue.name} has moved to another node", reply, logging.INFO)
                else:
                    self._complaint.say(f"{self._address.label} answers, and does not serve", reply)
                return
